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
starts behind sync markers in the middle of a file. A block counts as damaged unless
its rows end where its bytes do. `avro_types` has the types of a schema.

Source: https://avro.apache.org/docs/1.12.0/specification/
"""

import bz2
import contextlib
import dataclasses
import io
import lzma
import os
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from transforms.core.model import Block
from transforms.errors import InputError, UsageError, bounded
from transforms.formats.columnar.arrow_batches import (
    ColumnarFile,
    ColumnarReader,
    SampledRows,
    raw_rows,
    readable,
)
from transforms.formats.columnar.arrow_types import flat_columns, flat_types
from transforms.formats.columnar.avro_types import MAX_BLOCK_BYTES, row_type
from transforms.formats.raw_rows import grouped
from transforms.formats.table import InputFile, RawRows, SourceFile

_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
_MAX_HEADER_BYTES = 16 << 20
# Small blocks are joined up to this size, unpacked, before they are decoded.
_PIECE_BYTES = 4 << 20
_SEARCHED_BYTES = 64 << 10
# What fastavro raises where bytes are not of their schema.
_FAULTS = (EOFError, IndexError, ValueError, OverflowError, TypeError, MemoryError)


@dataclasses.dataclass(frozen=True, slots=True)
class AvroReader(ColumnarReader):
    """Avro files with the same columns; each has a schema of its own."""

    title: ClassVar[str] = "Avro"
    sample_bytes: ClassVar[int] = 16 << 20
    by_bytes: ClassVar[bool] = True

    @contextlib.contextmanager
    def open(
        self, file: SourceFile, columns: Sequence[str] | None = None
    ) -> Iterator[ColumnarFile]:
        """Opens a file, and reads its header."""
        with readable(file.origin, self.title), file.open() as stream:
            yield _AvroFile(stream, file.origin)


class _Frame(NamedTuple):
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


class _AvroFile(ColumnarFile):
    """An open file, whose header is read."""

    def __init__(self, stream: BinaryIO, origin: str) -> None:
        self._stream = stream
        self._origin = origin
        self._size = stream.seek(0, os.SEEK_END)
        stream.seek(0)
        if (magic := stream.read(len(_MAGIC))) != _MAGIC:
            raise self._damaged(f"it must start with 'Obj' and 1; found {magic!r}")
        metadata = self._metadata()
        self._sync = self._exactly(_SYNC_BYTES, "the sync marker")
        self.begin = stream.tell()
        self._codec = metadata.get("avro.codec", b"null").decode("ascii", "replace")
        if self._codec not in _UNPACKED:
            raise self._damaged(
                f"its codec must be one of {', '.join(_UNPACKED)}; found "
                f"{self._codec[:40]!r}"
            )
        try:
            self._rows = row_type(metadata.get("avro.schema", b""))
        except ValueError as error:
            raise self._damaged(
                f"its schema must be sound, and one of a table, but {error}"
            ) from error
        self._schema = pa.schema(list(self._rows.type))
        self.types, self.features = flat_types(self._schema, origin), {}
        self._plain: Any = None

    def parts(
        self, file: InputFile, block_bytes: int, limit_rows: int | None
    ) -> Iterator[tuple[int, int]]:
        """Yields the blocks of the file."""
        for frame in self._frames(self.begin, self._size):
            yield frame.rows, frame.stop

    def read(self, block: Block, columns: Sequence[str]) -> Iterator[RawRows]:
        """Yields the rows of a block in pieces of about 4 MiB, once unpacked."""
        first, left = block.first_row, block.rows
        for frame in self._pieces(block.start, block.stop):
            batch = self._decoded(frame).slice(0, left)
            piece = dataclasses.replace(
                block,
                start=frame.start,
                stop=frame.stop,
                first_row=first,
                rows=batch.num_rows,
                position=block.position + frame.start - block.start,
            )
            yield raw_rows(piece, flat_columns(batch, columns), columns)
            first, left = first + batch.num_rows, left - batch.num_rows
            if not left:
                return

    def look(self, budget: int, places: int) -> SampledRows:
        """Returns rows of a small file, or of blocks behind places of a large one."""
        stored = 0
        batches = []
        complete = self._size - self.begin <= budget
        if complete:
            unpacked = 0
            for frame in self._pieces(self.begin, self._size):
                batches.append(self._decoded(frame))
                stored += frame.stop - frame.start
                unpacked += len(frame.data)
                if unpacked >= budget and frame.stop < self._size:
                    complete = False
                    break
        else:
            stop = self.begin
            for index in range(places):
                at = self.begin + (self._size - self.begin) * index // places
                begin = self._behind_sync(max(at, stop)) if index else self.begin
                if begin >= self._size:
                    break
                frame = next(self._frames(begin, self._size, data=True))
                stop = frame.stop
                batch = self._decoded(frame)
                step = max(-(-len(frame.data) * places // budget), 1)
                batches.append(batch.take(pa.array(np.arange(0, batch.num_rows, step))))
                kept = batches[-1].num_rows
                stored += (stop - begin) * kept // max(batch.num_rows, 1)
        rows = sum(batch.num_rows for batch in batches) if complete else None
        stored = stored if complete else max(stored, 1)
        return SampledRows([*map(flat_columns, batches)], rows, stored)

    def _frames(self, start: int, stop: int, *, data: bool = False) -> Iterator[_Frame]:
        """Yields the blocks of a part of the file; with or without their rows."""
        self._stream.seek(start)
        while start < stop:
            block = f"the block at byte {start:,}"
            rows = self._long("the number of rows of a block")
            size = self._long("the size of a block")
            if rows < 0 or size < 0:
                raise self._damaged(f"{block} has {rows:,} rows")
            packed = self._exactly(size, block, skip=not data)
            if self._exactly(_SYNC_BYTES, "a sync marker") != self._sync:
                raise self._damaged(f"{block} does not end with the sync marker")
            at = self._stream.tell()
            yield _Frame(start, at, rows, self._unpack(packed, block) if data else b"")
            start = at

    def _pieces(self, start: int, stop: int) -> Iterator[_Frame]:
        """Yields the rows of blocks, small ones together."""
        frames = self._frames(start, stop, data=True)
        for group in grouped(frames, lambda frame: len(frame.data), _PIECE_BYTES):
            rows = sum(frame.rows for frame in group)
            if rows:
                data = b"".join(frame.data for frame in group)
                yield _Frame(group[0].start, group[-1].stop, rows, data)

    def _decoded(self, frame: _Frame) -> pa.RecordBatch:
        """Returns the rows of a frame.

        Raises:
          InputError: its bytes are not rows of the schema, or not this many.
        """
        what = (
            f"the bytes from {frame.start:,} to {frame.stop:,} are not {frame.rows:,} "
            f"rows of its schema"
        )
        # A block takes a byte or more for each row, or the count is damaged.
        if frame.rows * self._rows.least_bytes > len(frame.data):
            raise self._damaged(f"{what}: they cannot hold them")
        if not frame.rows:
            return pa.RecordBatch.from_pylist([], self._schema)
        library = _fastavro()
        if self._plain is None:
            rows = {"type": "array", "items": self._rows.plain}
            self._plain = library.parse_schema(rows)
        # An array is its count, its items, and an array of no items.
        content = b"".join((_long_bytes(frame.rows), frame.data, b"\0"))
        stream = io.BytesIO(content)
        try:
            values = library.schemaless_reader(stream, self._plain, None)
        except _FAULTS as error:
            why = bounded(str(error) or type(error).__name__, 200)
            raise self._damaged(f"{what}: {why}") from error
        if len(values) != frame.rows or stream.tell() != len(content):
            raise self._damaged(f"{what}: they end elsewhere than the block")
        raw = pa.array(values, self._rows.raw)
        return pa.RecordBatch.from_struct_array(self._rows.finish(raw))

    def _damaged(self, what: str) -> InputError:
        return InputError(
            f"{self._origin} cannot be read as Avro: {what}. Fetch or write it again."
        )

    def _metadata(self) -> dict[str, bytes]:
        """Returns the map at the start of a file."""
        what = "the metadata"
        out: dict[str, bytes] = {}
        while count := self._long(what):
            if count < 0:
                # A negative count is followed by the size in bytes, for skipping.
                count = -count
                self._long(what)
            for _ in range(count):
                key = self._exactly(self._long(what), what)
                out[key.decode("utf-8", "replace")] = self._exactly(
                    self._long(what), what
                )
                if self._stream.tell() > _MAX_HEADER_BYTES:
                    raise self._damaged(
                        f"its header must have at most {_MAX_HEADER_BYTES:,} bytes"
                    )
        return out

    def _behind_sync(self, at: int) -> int:
        """Returns where the first sync marker from `at` on ends; else the end."""
        tail = b""
        self._stream.seek(at)
        while chunk := self._stream.read(_SEARCHED_BYTES):
            text = tail + chunk
            if (index := text.find(self._sync)) >= 0:
                return self._stream.tell() - len(text) + index + _SYNC_BYTES
            tail = text[1 - _SYNC_BYTES :]
        return self._size

    def _unpack(self, packed: bytes, block: str) -> bytes:
        try:
            data = _UNPACKED[self._codec](packed)
        except (zlib.error, lzma.LZMAError, OSError, ValueError, EOFError) as error:
            raise self._damaged(f"{block} is not {self._codec}: {error}") from error
        if len(data) > MAX_BLOCK_BYTES:
            raise self._damaged(
                f"blocks must unpack to {MAX_BLOCK_BYTES:,} bytes at most, and {block} "
                f"unpacks to more; that is taken for a bomb"
            )
        return data

    def _exactly(self, size: int, what: str, *, skip: bool = False) -> bytes:
        left = self._size - self._stream.tell()
        if not 0 <= size <= left:
            raise self._damaged(
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
                raise self._damaged(f"{what} is no number of 64 bits")


def _fastavro() -> Any:
    try:
        import fastavro
    except ImportError as error:
        raise UsageError(
            "Avro needs the library fastavro, which is not installed: pip install "
            "'beam-tfrecord[avro]'."
        ) from error
    return fastavro


def _long_bytes(value: int) -> bytes:
    """Returns the encoding of a number that is not negative."""
    value <<= 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def _decompressor(start: Callable[[], Any]) -> Callable[[bytes], bytes]:
    """Returns a function that unpacks one block, at most `MAX_BLOCK_BYTES` of it."""

    def unpack(packed: bytes) -> bytes:
        unpacker = start()
        data: bytes = unpacker.decompress(packed, MAX_BLOCK_BYTES + 1)
        if not unpacker.eof and len(data) <= MAX_BLOCK_BYTES:
            raise ValueError("its end is missing")
        return data

    return unpack


def _unzstd(packed: bytes) -> bytes:
    with pa.CompressedInputStream(pa.BufferReader(packed), "zstd") as stream:
        return bytes(stream.read(MAX_BLOCK_BYTES + 1))


def _unsnapped(packed: bytes) -> bytes:
    """Returns the content of Snappy's raw format: its size, data, then its CRC-32."""
    varint = re.match(rb"[\x80-\xff]{0,4}[\0-\x7f]", packed)
    if varint is None:
        raise ValueError("its size is no varint")
    size = sum((byte & 0x7F) << 7 * index for index, byte in enumerate(varint[0]))
    if size > MAX_BLOCK_BYTES:
        # Too large: let the caller refuse it without unpacking it.
        return bytes(MAX_BLOCK_BYTES + 1)
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
