"""Avro object container files as a table format, decoded by fastavro.

    "Obj" 1                     4 bytes
    metadata                    a map: avro.schema (JSON), avro.codec, any others
    sync marker                 16 bytes, of the file's own
    block, any number of times:
      rows                      long
      size in bytes             long
      rows, maybe compressed    as many bytes as that
      sync marker               16 bytes

Longs are zigzag varints. Only the sizes are read to cut a file into blocks. A sample
starts behind sync markers in the middle of a file.

fastavro gets a schema with the same encoding and without meaning, which makes it fast
and lets a single row be rejected: texts are bytes, instants and enums are integers, a
map is an array of keys and values. Arrow then gives the values their types.

    union of null and T         T, null where missing
    union of int and long       int64, and of float and double float64
    record, array of records    flat columns, see `arrow_types`
    enum, uuid                  text
    decimal                     decimal128 or decimal256 of its scale

A block counts as damaged unless its rows end where its bytes do.

Source: https://avro.apache.org/docs/1.12.0/specification/
"""

import bz2
import contextlib
import dataclasses
import decimal
import io
import json
import lzma
import os
import uuid
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, ClassVar, Literal

import numpy as np
import pyarrow as pa

from transforms.core.arrays import lists_like
from transforms.core.model import Block
from transforms.core.nesting import MAX_NESTING
from transforms.errors import InputError, UsageError, bounded
from transforms.formats.columnar.arrow_batches import (
    flat_columns,
    joined_sample,
    raw_rows,
    readable,
    runs_of,
)
from transforms.formats.columnar.arrow_types import (
    CommonColumns,
    flat_types,
    listed,
)
from transforms.formats.table import (
    InputFile,
    Planned,
    RawRows,
    SourceFile,
    TableReader,
)

__all__ = ["AvroReader"]

_TITLE = "Avro"
_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
_MAX_HEADER_BYTES = 16 << 20
# Most bytes of an unpacked block: each may become a Python object.
_MAX_BLOCK_BYTES = 64 << 20
# Small blocks are joined up to this size, unpacked, before they are decoded.
_PIECE_BYTES = 4 << 20
_SAMPLE_BYTES = 16 << 20
_PLACES = 64
_SEARCHED_BYTES = 64 << 10
# Types in a schema: named types that use each other may multiply without end.
_MAX_TYPES = 10_000
# What fastavro raises where bytes are not of their schema.
_FAULTS = (EOFError, IndexError, ValueError, OverflowError, TypeError, MemoryError)


@dataclasses.dataclass(frozen=True, slots=True)
class AvroReader(TableReader):
    """Avro files with the same columns; each has a schema of its own.

    Attributes:
      null_values: see `TableReader`.
    """

    title: ClassVar[str] = _TITLE
    content: ClassVar[Literal["none", "read", "all"]] = "read"

    null_values: tuple[str, ...] = ()

    def plan(self, files: Sequence[InputFile]) -> Planned:
        """Samples blocks spread evenly over the files."""
        if not files:
            raise InputError("a sample needs at least one Avro file; found none")
        common = CommonColumns()
        parts: list[dict[str, pa.Array]] = []
        sampled = 0
        complete = True
        for file in files:
            with _opened(file) as avro:
                common.add(file.origin, flat_types(avro.schema, file.origin))
                budget = max(_SAMPLE_BYTES // len(files), 1 << 16)
                found = avro.some(budget, max(_PLACES // len(files), 1))
                parts += [flat_columns(batch) for batch in found.batches]
                sampled += found.stored_bytes
                complete &= found.complete
        sample = joined_sample(
            common.columns,
            parts,
            total_rows=None,
            sampled_bytes=sampled,
            complete=complete,
        )
        if complete:
            rows = sample.rows + sample.unread
            sample = dataclasses.replace(sample, total_rows=rows)
        return Planned(self, sample)

    def blocks(
        self, file: InputFile, *, block_bytes: int, limit_rows: int | None
    ) -> Iterator[Block]:
        """Yields runs of the file's blocks, of `block_bytes` or more."""
        with _opened(file) as avro:
            frames = avro.frames(avro.start, avro.size)
            parts = ((frame.rows, frame.stop) for frame in frames)
            for run in runs_of(parts, avro.start, block_bytes, limit_rows):
                yield file.block(
                    run.start,
                    run.stop,
                    rows=run.rows,
                    before=run.start,
                    first_row=run.first_row,
                )

    def read(
        self, file: SourceFile, block: Block, columns: Sequence[str]
    ) -> Iterator[RawRows]:
        """Yields the rows of a block in pieces of about 4 MiB, once unpacked."""
        left = block.rows
        first = block.first_row
        with _opened(file) as avro:
            for frame in avro.pieces(block.start, block.stop):
                batch = avro.decoded(frame).slice(0, left)
                left -= batch.num_rows
                piece = dataclasses.replace(
                    block,
                    start=frame.start,
                    stop=frame.stop,
                    first_row=first,
                    rows=batch.num_rows,
                    position=block.position + frame.start - block.start,
                )
                first += batch.num_rows
                yield raw_rows(piece, flat_columns(batch, columns), columns)
                if not left:
                    return
        raise InputError(
            f"{block.origin}: {block.rows} rows must follow row {block.first_row}, but "
            f"{block.rows - left} were found. Fetch or write it again."
        )


@dataclasses.dataclass(frozen=True, slots=True)
class _Frame:
    """One block of a file, or several that follow each other.

    Attributes:
      start, stop: its bytes in the file.
      rows: as the block states.
      data: of its rows, unpacked; empty where only the sizes were asked for.
    """

    start: int
    stop: int
    rows: int
    data: bytes = b""


@dataclasses.dataclass(frozen=True, slots=True)
class _Some:
    """Rows of a file, and of how many of its bytes; `complete` for all of them."""

    batches: list[pa.RecordBatch]
    stored_bytes: int
    complete: bool


class _AvroFile:
    """An open file, whose header is read.

    Attributes:
      schema: of the rows, nested as in the file.
      start, size: where its blocks start, and where they end.
    """

    def __init__(self, stream: BinaryIO, origin: str) -> None:
        self._stream = stream
        self._origin = origin
        self.size = stream.seek(0, os.SEEK_END)
        stream.seek(0)
        if (found := stream.read(len(_MAGIC))) != _MAGIC:
            raise self.damaged(f"it must start with 'Obj' and 1; found {found!r}")
        metadata = self._metadata()
        self._sync = self._exactly(_SYNC_BYTES, "the sync marker")
        self.start = stream.tell()
        codec = metadata.get("avro.codec", b"null").decode("ascii", "replace")
        if codec not in _UNPACKED:
            raise self.damaged(
                f"its codec must be one of {', '.join(_UNPACKED)}; found {codec[:40]!r}"
            )
        self._unpacked = _UNPACKED[codec]
        self._codec = codec
        self._rows = _Types(origin).rows(metadata.get("avro.schema", b""))
        self.schema = pa.schema(list(self._rows.type))
        self._plain: Any = None

    def damaged(self, what: str) -> InputError:
        return _damaged(self._origin, what)

    def frames(self, start: int, stop: int, *, data: bool = False) -> Iterator[_Frame]:
        """Yields the blocks of a part of the file; with or without their rows."""
        self._stream.seek(start)
        while start < stop:
            rows = self._long("the number of rows of a block")
            size = self._long("the size of a block")
            if rows < 0 or size < 0:
                raise self.damaged(f"the block at byte {start:,} has {rows:,} rows")
            packed = self._exactly(size, f"the block at byte {start:,}", skip=not data)
            if self._exactly(_SYNC_BYTES, "a sync marker") != self._sync:
                raise self.damaged(
                    f"the block at byte {start:,} does not end with the sync marker"
                )
            at = self._stream.tell()
            yield _Frame(start, at, rows, self._unpack(packed, start) if data else b"")
            start = at

    def pieces(self, start: int, stop: int) -> Iterator[_Frame]:
        """Yields the rows of blocks, small ones together."""
        waiting: list[_Frame] = []
        size = 0
        for frame in self.frames(start, stop, data=True):
            waiting.append(frame)
            size += len(frame.data)
            if size >= _PIECE_BYTES:
                yield _joined(waiting)
                waiting, size = [], 0
        if any(frame.rows for frame in waiting):
            yield _joined(waiting)

    def some(self, budget: int, places: int) -> _Some:
        """Returns rows of about `budget` bytes, from this many places of a large file.

        Args:
          budget: of unpacked content.
          places: to start at.
        """
        batches = []
        stored = total = 0
        if self.size - self.start <= budget:
            for frame in self.pieces(self.start, self.size):
                batches.append(self.decoded(frame))
                stored += frame.stop - frame.start
                total += len(frame.data)
                if total >= budget and frame.stop < self.size:
                    return _Some(batches, stored, False)
            return _Some(batches, stored, True)
        seen = 0
        for place in range(places):
            at = self.start + (self.size - self.start) * place // places
            begin = self.start if place == 0 else self._behind_sync(max(at, seen))
            if begin >= self.size:
                break
            frame = next(self.frames(begin, self.size, data=True))
            seen = frame.stop
            batch = self.decoded(frame)
            step = max(-(-len(frame.data) * places // budget), 1)
            kept = batch.take(pa.array(np.arange(0, batch.num_rows, step)))
            batches.append(kept)
            size = frame.stop - frame.start
            stored += size * kept.num_rows // max(batch.num_rows, 1)
        return _Some(batches, max(stored, 1), False)

    def decoded(self, frame: _Frame) -> pa.RecordBatch:
        """Returns the rows of a frame.

        Raises:
          InputError: its bytes are not rows of the schema, or not this many.
        """
        # A block takes a byte or more for each row, or the count is damaged.
        if frame.rows * self._rows.least_bytes > len(frame.data):
            raise self.damaged(
                f"the block at byte {frame.start:,} must have {frame.rows:,} rows; its "
                f"{len(frame.data):,} bytes cannot hold them"
            )
        library = _fastavro()
        if self._plain is None:
            rows = {"type": "array", "items": self._rows.plain}
            self._plain = library.parse_schema(rows)
        # An array ends with an array of no items.
        stream = io.BytesIO(b"".join((_long_bytes(frame.rows), frame.data, b"\0")))
        if not frame.rows:
            return pa.RecordBatch.from_pylist([], self.schema)
        try:
            values = library.schemaless_reader(stream, self._plain, None)
        except _FAULTS as error:
            raise self._not_rows(frame, str(error) or type(error).__name__) from error
        if (
            len(values) != frame.rows
            or stream.tell() != len(frame.data) + len(_long_bytes(frame.rows)) + 1
        ):
            raise self._not_rows(frame, "they end elsewhere than the block")
        raw = pa.array(values, self._rows.raw)
        return pa.RecordBatch.from_struct_array(self._rows.finish(raw))

    def _not_rows(self, frame: _Frame, why: str) -> InputError:
        return self.damaged(
            f"the bytes from {frame.start:,} to {frame.stop:,} are not {frame.rows:,} "
            f"rows of its schema: {bounded(why, 200)}"
        )

    def _metadata(self) -> dict[str, bytes]:
        """Returns the map at the start of a file."""
        out: dict[str, bytes] = {}
        while count := self._long("the metadata"):
            if count < 0:
                # A negative count is followed by the size in bytes, for skipping.
                count = -count
                self._long("the metadata")
            for _ in range(count):
                key = self._exactly(self._long("the metadata"), "the metadata")
                value = self._exactly(self._long("the metadata"), "the metadata")
                out[key.decode("utf-8", "replace")] = value
                if self._stream.tell() > _MAX_HEADER_BYTES:
                    raise self.damaged(
                        f"its header must have at most {_MAX_HEADER_BYTES:,} bytes"
                    )
        return out

    def _behind_sync(self, at: int) -> int:
        """Returns where the first sync marker from `at` on ends; else the end."""
        tail = b""
        self._stream.seek(at)
        while chunk := self._stream.read(_SEARCHED_BYTES):
            text = tail + chunk
            if (found := text.find(self._sync)) >= 0:
                return self._stream.tell() - len(text) + found + _SYNC_BYTES
            tail = text[1 - _SYNC_BYTES :]
        return self.size

    def _unpack(self, packed: bytes, start: int) -> bytes:
        try:
            data = self._unpacked(packed)
        except (zlib.error, lzma.LZMAError, OSError, ValueError, EOFError) as error:
            raise self.damaged(
                f"the block at byte {start:,} is not {self._codec}: {error}"
            ) from error
        if len(data) > _MAX_BLOCK_BYTES:
            raise self.damaged(
                f"blocks must unpack to {_MAX_BLOCK_BYTES:,} bytes at most, and the "
                f"one at byte {start:,} unpacks to more; that is taken for a bomb"
            )
        return data

    def _exactly(self, size: int, what: str, *, skip: bool = False) -> bytes:
        left = self.size - self._stream.tell()
        if not 0 <= size <= left:
            raise self.damaged(
                f"{what} must have {size:,} bytes; {left:,} are left in the file"
            )
        if not skip:
            return self._stream.read(size)
        self._stream.seek(size, os.SEEK_CUR)
        return b""

    def _long(self, what: str) -> int:
        value = shift = 0
        while True:
            (byte,) = self._exactly(1, what)
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
            if shift > 63:
                raise self.damaged(f"{what} is no number of 64 bits")


@contextlib.contextmanager
def _opened(file: SourceFile) -> Iterator[_AvroFile]:
    with readable(file.origin, _TITLE), file.open() as stream:
        yield _AvroFile(stream, file.origin)


def _damaged(origin: str, what: str) -> InputError:
    return InputError(
        f"{origin} cannot be read as Avro: {what}. Fetch or write it again."
    )


def _fastavro() -> Any:
    try:
        import fastavro
    except ImportError as error:
        raise UsageError(
            "Avro needs the library fastavro, which is not installed: pip install "
            "'beam-tfrecord[avro]'."
        ) from error
    return fastavro


def _joined(frames: Sequence[_Frame]) -> _Frame:
    if len(frames) == 1:
        return frames[0]
    return _Frame(
        frames[0].start,
        frames[-1].stop,
        sum(frame.rows for frame in frames),
        b"".join(frame.data for frame in frames),
    )


def _long_bytes(value: int) -> bytes:
    """Returns the encoding of a number that is not negative."""
    value <<= 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _decompressor(start: Callable[[], Any]) -> Callable[[bytes], bytes]:
    """Returns a function that unpacks one block, at most `_MAX_BLOCK_BYTES` of it."""

    def unpack(packed: bytes) -> bytes:
        unpacker = start()
        data: bytes = unpacker.decompress(packed, _MAX_BLOCK_BYTES + 1)
        if not unpacker.eof and len(data) <= _MAX_BLOCK_BYTES:
            raise ValueError("its end is missing")
        return data

    return unpack


def _unzstd(packed: bytes) -> bytes:
    with pa.CompressedInputStream(pa.BufferReader(packed), "zstd") as stream:
        return bytes(stream.read(_MAX_BLOCK_BYTES + 1))


def _unsnapped(packed: bytes) -> bytes:
    """Returns the content of Snappy's raw format: its size, data, then its CRC-32."""
    size = shift = 0
    for byte in packed[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    else:
        raise ValueError("its size is no varint")
    if size > _MAX_BLOCK_BYTES:
        # Too large: let the caller refuse it without unpacking it.
        return bytes(_MAX_BLOCK_BYTES + 1)
    data = pa.Codec("snappy").decompress(packed[:-4], size, asbytes=True)
    if zlib.crc32(data) != int.from_bytes(packed[-4:], "big"):
        raise ValueError("its checksum differs")
    return bytes(data)


# Codec -> what unpacks a block, to one byte more than may be at most.
_UNPACKED: Mapping[str, Callable[[bytes], bytes]] = {
    "null": lambda packed: packed,
    "deflate": _decompressor(lambda: zlib.decompressobj(-zlib.MAX_WBITS)),
    "snappy": _unsnapped,
    "zstandard": _unzstd,
    "bzip2": _decompressor(bz2.BZ2Decompressor),
    "xz": _decompressor(lzma.LZMADecompressor),
}


@dataclasses.dataclass(frozen=True, slots=True)
class _Type:
    """One type of a schema.

    Attributes:
      plain: the schema that fastavro gets.
      raw: the Arrow type of the values that fastavro gives.
      type: the Arrow type of the column.
      least_bytes: that a value takes at least.
      finish: makes an array of `type` of one of `raw`.
    """

    plain: Any
    raw: pa.DataType
    type: pa.DataType
    least_bytes: int = 1
    finish: Callable[[pa.Array], pa.Array] = lambda array: array


_BYTES = _Type("bytes", pa.binary(), pa.binary())
_PRIMITIVES = {
    "null": _Type("null", pa.null(), pa.null(), 0),
    "boolean": _Type("boolean", pa.bool_(), pa.bool_()),
    "int": _Type("int", pa.int32(), pa.int32()),
    "long": _Type("long", pa.int64(), pa.int64()),
    "float": _Type("float", pa.float32(), pa.float32(), 4),
    "double": _Type("double", pa.float64(), pa.float64(), 8),
    "bytes": _BYTES,
    # Rows whose text is not UTF-8 are rejected one by one, later.
    "string": _Type(
        "bytes", pa.binary(), pa.string(), 1, lambda array: array.view(pa.string())
    ),
}
_UNITS = {"millis": "ms", "micros": "us", "nanos": "ns"}
# (type, logical type) -> Arrow's.
_LOGICAL: Mapping[tuple[str, str], pa.DataType] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    **{
        ("long", f"timestamp-{word}"): pa.timestamp(unit, "UTC")
        for word, unit in _UNITS.items()
    },
    **{
        ("long", f"local-timestamp-{word}"): pa.timestamp(unit)
        for word, unit in _UNITS.items()
    },
}
# Digits that Arrow's narrow decimals hold, and its wide ones.
_NARROW_DIGITS = 38
_WIDE_DIGITS = 76
# Unions of these are the last one of them.
_WIDER = (("int", "long"), ("float", "double"))


class _Types:
    """Reads the types of one schema; see `rows`."""

    def __init__(self, origin: str) -> None:
        self._origin = origin
        # Full name -> its definition, and the namespace that it is in.
        self._named: dict[str, tuple[Any, str]] = {}
        self._count = 0

    def rows(self, text: bytes) -> _Type:
        """Returns the type of the rows; what is no record is a column `value`.

        Raises:
          InputError: it is no schema, or one that no table has.
        """
        try:
            schema = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise self._wrong(f"it is no JSON: {error}") from error
        try:
            found = self._type(schema, "", (), 0)
        except (KeyError, TypeError, AttributeError) as error:
            raise self._wrong(f"{type(error).__name__}: {error}") from error
        if not pa.types.is_struct(found.raw) or not found.type.num_fields:
            found = self._record([("value", found)])
        if not found.least_bytes:
            raise self._wrong("its rows must take bytes, and they hold nothing")
        return found

    def _wrong(self, what: str) -> InputError:
        return InputError(
            f"{self._origin} cannot be read as Avro: its schema must be sound, and one "
            f"of a table, but {what}. Write it again under another schema."
        )

    def _type(
        self, schema: Any, namespace: str, inside: tuple[str, ...], depth: int
    ) -> _Type:
        self._count += 1
        if self._count > _MAX_TYPES:
            raise self._wrong(f"it has over {_MAX_TYPES:,} types")
        if depth > MAX_NESTING:
            raise self._wrong(f"it is nested over {MAX_NESTING} levels deep")
        if isinstance(schema, list):
            return self._union(schema, namespace, inside, depth)
        if isinstance(schema, str):
            if schema in _PRIMITIVES:
                return _PRIMITIVES[schema]
            return self._of_name(schema, namespace, inside, depth)
        kind = schema["type"]
        if isinstance(kind, dict | list):
            return self._type(kind, namespace, inside, depth + 1)
        if kind in _PRIMITIVES:
            return self._logical(kind, schema, _PRIMITIVES[kind])
        if kind == "array":
            return self._array(
                self._type(schema["items"], namespace, inside, depth + 1)
            )
        if kind == "map":
            value = self._type(schema["values"], namespace, inside, depth + 1)
            fields = [("key", _PRIMITIVES["string"]), ("value", value)]
            return self._array(self._record(fields))
        if kind not in ("record", "error", "enum", "fixed"):
            return self._of_name(kind, namespace, inside, depth)
        full, namespace = _full_name(schema, namespace)
        self._named[full] = (schema, namespace)
        return self._definition(schema, full, namespace, inside, depth)

    def _of_name(
        self, name: str, namespace: str, inside: tuple[str, ...], depth: int
    ) -> _Type:
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        full = full if full in self._named else name
        if full not in self._named:
            raise self._wrong(f"it names no type {name[:60]!r}")
        schema, namespace = self._named[full]
        return self._definition(schema, full, namespace, inside, depth)

    def _definition(
        self,
        schema: Any,
        full: str,
        namespace: str,
        inside: tuple[str, ...],
        depth: int,
    ) -> _Type:
        """Returns a fresh copy of a named type: fastavro needs a name for each use."""
        if full in inside:
            raise self._wrong(
                f"{full[:60]!r} holds values of its own type, which no feature holds"
            )
        if schema["type"] == "enum":
            return _enum([str(symbol) for symbol in schema["symbols"]])
        if schema["type"] == "fixed":
            return self._fixed(schema)
        fields = [
            (
                str(field["name"]),
                self._type(_field_type(field), namespace, (*inside, full), depth + 1),
            )
            for field in schema["fields"]
        ]
        return self._record(fields)

    def _fixed(self, schema: Mapping[str, Any]) -> _Type:
        size = schema["size"]
        if type(size) is not int or not 0 <= size <= _MAX_BLOCK_BYTES:
            raise self._wrong(f"a fixed type must have a size; found {size!r}")
        plain = {"type": "fixed", "name": f"n{self._count}", "size": size}
        found = _Type(plain, pa.binary(), pa.binary(), size)
        if schema.get("logicalType") == "uuid" and size == 16:
            return dataclasses.replace(found, type=pa.string(), finish=_uuids)
        return self._logical("fixed", schema, found)

    def _logical(self, kind: str, schema: Mapping[str, Any], found: _Type) -> _Type:
        """Returns a type with its logical type; an unknown one is passed over."""
        logical = schema.get("logicalType")
        if not isinstance(logical, str):
            return found
        if (target := _LOGICAL.get((kind, logical))) is not None:
            return dataclasses.replace(
                found, type=target, finish=lambda array: array.view(target)
            )
        if logical != "decimal" or kind not in ("bytes", "fixed"):
            return found
        digits, scale = schema.get("precision"), schema.get("scale", 0)
        if not (type(digits) is int and type(scale) is int):
            return found
        if not 0 <= scale <= digits <= _WIDE_DIGITS:
            return found
        if digits <= _NARROW_DIGITS:
            target = pa.decimal128(_NARROW_DIGITS, scale)
        else:
            target = pa.decimal256(_WIDE_DIGITS, scale)
        return dataclasses.replace(
            found, type=target, finish=lambda array: _decimals(array, target)
        )

    def _union(
        self, schemas: list[Any], namespace: str, inside: tuple[str, ...], depth: int
    ) -> _Type:
        found = [self._type(each, namespace, inside, depth + 1) for each in schemas]
        plain = [each.plain for each in found]
        values = [each for each in found if not pa.types.is_null(each.raw)]
        if not values:
            return _Type(plain, pa.null(), pa.null())
        wide = values[0]
        for other in values[1:]:
            for narrow, wider in _WIDER:
                pair = {wide.plain, other.plain} if _is_bare(wide, other) else set()
                if pair == {narrow, wider}:
                    wide = _PRIMITIVES[wider]
                    break
            else:
                if not (wide.type == other.type and wide.raw == other.raw):
                    names = listed([str(each.type) for each in values])
                    raise self._wrong(
                        f"a union must be of null and one other type, or of numbers; "
                        f"one is of {names}"
                    )
        return _Type(plain, wide.raw, wide.type, 1, wide.finish)

    def _array(self, items: _Type) -> _Type:
        if not items.least_bytes:
            raise self._wrong("it has arrays whose items take no bytes")

        def finish(array: pa.Array) -> pa.Array:
            return lists_like(array, items.finish(array.flatten()))

        plain = {"type": "array", "items": items.plain}
        return _Type(plain, pa.list_(items.raw), pa.list_(items.type), 1, finish)

    def _record(self, fields: Sequence[tuple[str, _Type]]) -> _Type:
        self._count += 1
        name = f"n{self._count}"
        if not fields:
            plain = {"type": "record", "name": name, "fields": []}
            nothing = pa.struct([])
            return _Type(plain, nothing, pa.null(), 0, lambda a: pa.nulls(len(a)))
        keys = [f"f{index}" for index in range(len(fields))]
        named = list(zip(keys, (kind for _, kind in fields), strict=True))
        target = [pa.field(name, kind.type) for name, kind in fields]

        def finish(array: pa.Array) -> pa.Array:
            return pa.StructArray.from_arrays(
                [kind.finish(array.field(key)) for key, kind in named],
                fields=target,
                mask=array.is_null() if array.null_count else None,
            )

        return _Type(
            {
                "type": "record",
                "name": name,
                "fields": [{"name": key, "type": kind.plain} for key, kind in named],
            },
            pa.struct([pa.field(key, kind.raw) for key, kind in named]),
            pa.struct(target),
            sum(kind.least_bytes for _, kind in fields),
            finish,
        )


def _is_bare(*types: _Type) -> bool:
    """Whether types are numbers without a logical type."""
    return all(isinstance(each.plain, str) and each.raw == each.type for each in types)


def _field_type(field: Mapping[str, Any]) -> Any:
    """Returns the type of a field; some writers put its logical type beside it."""
    if isinstance(field["type"], str) and "logicalType" in field:
        return {**field, "type": field["type"]}
    return field["type"]


def _full_name(schema: Mapping[str, Any], namespace: str) -> tuple[str, str]:
    """Returns the full name of a named type, and the namespace inside of it."""
    name = str(schema["name"])
    if "." in name:
        return name, name.rpartition(".")[0]
    space = str(schema.get("namespace", namespace))
    return (f"{space}.{name}" if space else name), space


def _enum(symbols: Sequence[str]) -> _Type:
    def finish(array: pa.Array) -> pa.Array:
        names = pa.array(symbols, pa.string())
        return pa.DictionaryArray.from_arrays(array, names).dictionary_decode()

    return _Type("int", pa.int32(), pa.string(), 1, finish)


def _uuids(array: pa.Array) -> pa.Array:
    texts = [None if v is None else str(uuid.UUID(bytes=v)) for v in array.to_pylist()]
    return pa.array(texts, pa.string())


def _decimals(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Returns decimals from the big-endian bytes of their unscaled numbers.

    Raises:
      ArrowInvalid: one has more digits than there are.
    """
    out: list[decimal.Decimal | None] = []
    for value in array.to_pylist():
        if value is None:
            out.append(None)
            continue
        number = int.from_bytes(value, "big", signed=True)
        if number.bit_length() > target.bit_width:
            raise pa.ArrowInvalid("a decimal has more digits than its schema says")
        sign, digits, _ = decimal.Decimal(number).as_tuple()
        out.append(decimal.Decimal((sign, digits, -target.scale)))
    return pa.array(out, target)
