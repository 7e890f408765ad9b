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
from transforms.errors import UsageError, bounded
from transforms.formats.columnar.arrow_batches import (
    ColumnarFile,
    ColumnarReader,
    SampledRows,
    raw_rows,
    readable,
)
from transforms.formats.columnar.arrow_types import flat_columns, flat_types
from transforms.formats.columnar.avro_types import MAX_BLOCK_BYTES, row_type
from transforms.formats.raw_rows import RawRows, grouped
from transforms.formats.table import InputFile, SourceFile

_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
# What comes behind the magic bytes.
_METADATA = {"type": "map", "values": "bytes"}
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
        with readable(file.origin, self.title, _FAULTS), file.open() as stream:
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
    """An open file, whose header is read; what is damaged raises one of `_FAULTS`."""

    def __init__(self, stream: BinaryIO, origin: str) -> None:
        self._stream = stream
        self._library = _fastavro()
        self._size = stream.seek(0, os.SEEK_END)
        stream.seek(0)
        if (magic := stream.read(len(_MAGIC))) != _MAGIC:
            raise ValueError(f"it must start with 'Obj' and 1; found {magic!r}")
        metadata = self._value(stream, _METADATA, "its header is damaged")
        if len(sync := stream.read(_SYNC_BYTES)) < _SYNC_BYTES:
            raise ValueError("its header ends within the sync marker")
        self._sync = sync
        self.begin = stream.tell()
        self._codec = metadata.get("avro.codec", b"null").decode("ascii", "replace")
        if self._codec not in _UNPACKED:
            raise ValueError(
                f"its codec must be one of {', '.join(_UNPACKED)}; found "
                f"{self._codec[:40]!r}"
            )
        try:
            self._rows = row_type(metadata.get("avro.schema", b""))
        except ValueError as error:
            raise ValueError(
                f"its schema must be sound, and one of a table, but {error}"
            ) from error
        self._schema = pa.schema(list(self._rows.type))
        self.types, self.features = flat_types(self._schema, origin), {}
        rows = {"type": "array", "items": self._rows.plain}
        self._plain = self._library.parse_schema(rows)

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
        complete = self._size - self.begin <= budget
        stored = unpacked = 0
        batches = []
        frames = self._pieces(self.begin, self._size)
        for frame in frames if complete else self._spread(places):
            batch, size = self._decoded(frame), frame.stop - frame.start
            step = -(-len(frame.data) * places // budget)
            if not complete and step > 1:
                size = size * -(-batch.num_rows // step) // max(batch.num_rows, 1)
                batch = batch.take(pa.array(np.arange(0, batch.num_rows, step)))
            batches.append(batch)
            stored += size
            unpacked += len(frame.data)
            if complete and unpacked >= budget:
                complete = frame.stop == self._size
                break
        rows = sum(batch.num_rows for batch in batches) if complete else None
        return SampledRows([*map(flat_columns, batches)], rows, max(stored, 1))

    def _spread(self, places: int) -> Iterator[_Frame]:
        """Yields blocks behind sync markers, from so many places of the file."""
        begin = self.begin
        for index in range(places):
            if index:
                at = self.begin + (self._size - self.begin) * index // places
                begin = self._behind_sync(max(at, begin))
            if begin >= self._size:
                return
            frame = next(self._frames(begin, self._size, data=True))
            yield frame
            begin = frame.stop

    def _frames(self, start: int, stop: int, *, data: bool = False) -> Iterator[_Frame]:
        """Yields the blocks of a part of the file; with or without their rows."""
        stream = self._stream
        stream.seek(start)
        while start < stop:
            block = f"the block at byte {start:,}"
            rows, size = (self._value(stream, "long", block) for _ in range(2))
            at = stream.tell() + size
            if rows < 0 or not 0 <= size <= self._size - stream.tell():
                raise ValueError(
                    f"{block} has {rows:,} rows in {size:,} bytes; the file has "
                    f"{self._size:,}"
                )
            packed = stream.read(size) if data else b""
            stream.seek(at)
            if stream.read(_SYNC_BYTES) != self._sync:
                raise ValueError(f"{block} does not end with the sync marker")
            content = self._unpack(packed, block) if data else b""
            yield _Frame(start, at + _SYNC_BYTES, rows, content)
            start = at + _SYNC_BYTES

    def _pieces(self, start: int, stop: int) -> Iterator[_Frame]:
        """Yields the rows of blocks, small ones together."""
        frames = self._frames(start, stop, data=True)
        for group in grouped(frames, lambda frame: len(frame.data), _PIECE_BYTES):
            rows = sum(frame.rows for frame in group)
            if rows:
                data = b"".join(frame.data for frame in group)
                yield _Frame(group[0].start, group[-1].stop, rows, data)

    def _decoded(self, frame: _Frame) -> pa.RecordBatch:
        """Returns the rows of a frame; ValueError where its bytes are others."""
        what = (
            f"the bytes from {frame.start:,} to {frame.stop:,} are not {frame.rows:,} "
            f"rows of its schema"
        )
        # A block takes a byte or more for each row, or the count is damaged.
        if frame.rows * self._rows.least_bytes > len(frame.data):
            raise ValueError(f"{what}: they cannot hold them")
        if not frame.rows:
            return pa.RecordBatch.from_pylist([], self._schema)
        # An array is its count, its items, and an array of no items.
        stream = io.BytesIO()
        self._library.schemaless_writer(stream, "long", frame.rows)
        stream.write(frame.data + b"\0")
        size = stream.tell()
        stream.seek(0)
        values = self._value(stream, self._plain, what)
        if len(values) != frame.rows or stream.tell() != size:
            raise ValueError(f"{what}: they end elsewhere than the block")
        raw = pa.array(values, self._rows.raw)
        return pa.RecordBatch.from_struct_array(self._rows.finish(raw))

    def _value(self, stream: BinaryIO, schema: Any, what: str) -> Any:
        """Returns the next value of a stream; ValueError where there is none."""
        try:
            return self._library.schemaless_reader(stream, schema, None)
        except _FAULTS as error:
            why = bounded(str(error), 200) or type(error).__name__
            raise ValueError(f"{what}: {why}") from error

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
            raise ValueError(f"{block} is not {self._codec}: {error}") from error
        if len(data) > MAX_BLOCK_BYTES:
            raise ValueError(
                f"blocks must unpack to {MAX_BLOCK_BYTES:,} bytes at most, and {block} "
                f"unpacks to more; that is taken for a bomb"
            )
        return data


def _fastavro() -> Any:
    """Returns the optional library; UsageError where it is not installed."""
    try:
        import fastavro
    except ImportError as error:
        raise UsageError(
            "Avro needs the library fastavro, which is not installed: pip install "
            "'beam-tfrecord[avro]'."
        ) from error
    return fastavro


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
    """Returns a zstd block unpacked, to one byte more than it may be at most."""
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
