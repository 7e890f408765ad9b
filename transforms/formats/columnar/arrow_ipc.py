"""Arrow IPC as a table format: files by record batch, streams from start to end.

    "ARROW1"        a file (.arrow, .feather): batches can be read by number
    anything else   a stream (.arrows): one block, one batch after another

IPC has no checksums. Every offset is checked before a value is read, so that damage is
an error and never a read beyond a buffer.
"""

import contextlib
import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import BinaryIO, ClassVar, Literal

import numpy as np
import pyarrow as pa

from transforms.core.model import Block
from transforms.errors import InputError
from transforms.formats.columnar.arrow_batches import (
    PIECE_BYTES,
    SAMPLE_BYTES,
    flat_columns,
    grouped,
    joined_sample,
    piece_of,
    raw_rows,
    readable,
    runs_of,
)
from transforms.formats.columnar.arrow_types import (
    CommonColumns,
    flat_types,
    wanted_fields,
)
from transforms.formats.table import (
    InputFile,
    Planned,
    RawRows,
    SourceFile,
    TableReader,
    only,
    read_in_turn,
)

_FILE = b"ARROW1"
_FEATHER_1 = b"FEA1"
_PLACES = 64


@dataclasses.dataclass(frozen=True, slots=True)
class ArrowReader(TableReader):
    """Arrow IPC files and streams under one schema.

    Attributes:
      null_values: see `TableReader`.
    """

    title: ClassVar[str] = "Arrow IPC"
    content: ClassVar[Literal["none", "read", "all"]] = "read"

    null_values: tuple[str, ...] = ()

    def plan(self, files: Sequence[InputFile]) -> Planned:
        """Samples batches spread over the files; of streams the first."""
        if not files:
            raise InputError("a sample needs at least one Arrow file; found none")
        common = CommonColumns()
        parts: list[dict[str, pa.Array]] = []
        sampled = 0
        counted: list[int | None] = []
        budget = max(SAMPLE_BYTES // len(files), 1 << 16)
        for file in read_in_turn(files):
            with _opened(file) as ipc:
                common.add(file.origin, flat_types(ipc.schema, file.origin))
                batches = ipc.some(budget, file.size)
                parts += [flat_columns(batch) for batch in batches]
                counted.append(ipc.rows)
                sampled += ipc.consumed(file.size)
        exact = [rows for rows in counted if rows is not None]
        total = sum(exact) if len(exact) == len(counted) else None
        sample = joined_sample(
            common.columns, parts, total_rows=total, sampled_bytes=sampled
        )
        return Planned(self, sample)

    def blocks(
        self, file: InputFile, *, block_bytes: int, limit_rows: int | None
    ) -> Iterator[Block]:
        """Yields blocks of whole record batches; a stream is one block."""
        with _opened(file) as ipc:
            counts = ipc.counts(limit_rows)
        if counts is None:
            # Only reading a stream to its end would tell its number of rows.
            yield file.whole()
            return
        total = max(sum(counts), 1)
        ends = [file.size * rows // total for rows in itertools.accumulate(counts)]
        parts = zip(counts, ends, strict=True)
        for run in runs_of(parts, 0, block_bytes, limit_rows):
            yield run.block_of(file)

    def read(
        self, file: SourceFile, block: Block, columns: Sequence[str]
    ) -> Iterator[RawRows]:
        """Yields the rows of a block in pieces of about 16 MiB."""
        with _opened(file, columns) as ipc:
            first = block.first_row
            for table in _pieces(ipc.batches(block.first_row, block.rows or None)):
                if block.rows:
                    piece = piece_of(block, first, table.num_rows)
                else:
                    at = block.position + ipc.consumed(block.stop)
                    piece = Block(
                        block.origin,
                        first,
                        first,
                        first_row=first,
                        rows=table.num_rows,
                        position=at,
                        stamp=block.stamp,
                    )
                yield raw_rows(piece, flat_columns(table, columns), columns)
                first += table.num_rows
        if block.rows and first != block.first_row + block.rows:
            raise InputError(
                f"{block.origin}: {block.rows} rows must follow row {block.first_row}, "
                f"but {first - block.first_row} were found. Fetch or write it again."
            )


class _File:
    """The file format: batches by number."""

    def __init__(self, stream: BinaryIO, columns: Sequence[str] | None) -> None:
        self._stream = stream
        reader = pa.ipc.open_file(stream)
        self.schema = reader.schema
        self._reader = reader
        if columns is not None:
            wanted = wanted_fields(reader.schema, columns)
            self._reader = _with_fields(stream, reader.schema, wanted)
        self.rows: int | None = None

    def consumed(self, size: int) -> int:
        """Returns 0: the number of all rows is known, so none is estimated by bytes."""
        return 0

    def counts(self, limit_rows: int | None) -> list[int] | None:
        """Returns the rows of each batch; reads one small column."""
        if not len(self.schema):
            return []
        widths = [_width(field.type) for field in self.schema]
        field = self.schema.field(widths.index(min(widths)))
        reader = _with_fields(self._stream, self.schema, [field.name])
        return [
            reader.get_batch(index).num_rows
            for index in range(reader.num_record_batches)
        ]

    def some(self, budget: int, size: int) -> list[pa.RecordBatch]:
        """Returns rows of batches spread evenly, about `budget` bytes; counts all."""
        self.rows = sum(self.counts(None) or [])
        count = self._reader.num_record_batches
        indices = list(range(count))
        if size > budget and count > _PLACES:
            indices = [i * count // _PLACES for i in range(_PLACES)]
        out = []
        for index in indices:
            batch = _checked(self._reader.get_batch(index))
            out.append(_cut(batch, budget // len(indices)))
        return out

    def batches(self, first_row: int, rows: int | None) -> Iterator[pa.RecordBatch]:
        """Yields the batches from a row on which one begins."""
        begin = 0
        stop = first_row + (rows or 0)
        for index, count in enumerate(self.counts(None) or []):
            if count and first_row <= begin < stop:
                batch = _checked(self._reader.get_batch(index))
                yield batch.slice(0, stop - begin)
            begin += count


class _Stream:
    """The stream format: one batch after another."""

    def __init__(self, stream: BinaryIO, columns: Sequence[str] | None) -> None:
        self._stream = stream
        self._reader = pa.ipc.open_stream(stream)
        self.schema = self._reader.schema
        if columns is not None:
            wanted = wanted_fields(self.schema, columns)
            stream.seek(0)
            options = _options(self.schema, wanted)
            self._reader = pa.ipc.open_stream(stream, options=options)
        self.rows: int | None = None
        self._size = 0

    def consumed(self, size: int) -> int:
        """Returns how many bytes of the file were read so far."""
        return min(self._stream.tell(), size)

    def counts(self, limit_rows: int | None) -> list[int] | None:
        """Returns the rows of the first batches, to the limit; None without a limit."""
        if limit_rows is None:
            return None
        out: list[int] = []
        for batch in self._reader:
            out.append(batch.num_rows)
            if sum(out) >= limit_rows:
                break
        return out

    def some(self, budget: int, size: int) -> list[pa.RecordBatch]:
        """Returns the first rows, about `budget` bytes of them."""
        out = []
        rows = 0
        for batch in self._reader:
            batch = _checked(batch)
            out.append(_cut(batch, budget))
            rows += batch.num_rows
            budget -= _size(out[-1])
            if out[-1].num_rows < batch.num_rows or budget <= 0:
                return out
        self.rows = rows
        return out

    def batches(self, first_row: int, rows: int | None) -> Iterator[pa.RecordBatch]:
        """Yields the batches from a row on which one begins."""
        begin = 0
        for batch in self._reader:
            if rows is not None and begin >= first_row + rows:
                return
            if begin >= first_row:
                batch = _checked(batch)
                left = None if rows is None else first_row + rows - begin
                yield batch if left is None else batch.slice(0, left)
            begin += batch.num_rows


@contextlib.contextmanager
def _opened(
    file: SourceFile, columns: Sequence[str] | None = None
) -> Iterator[_File | _Stream]:
    with readable(file.origin, "Arrow IPC"), file.open() as stream:
        head = stream.read(len(_FILE))
        stream.seek(0)
        if head.startswith(_FEATHER_1):
            raise InputError(
                f"{file.origin} is Feather version 1, which is no Arrow IPC; write it "
                f"again as version 2."
            )
        kind = _File if head == _FILE else _Stream
        ipc = kind(stream, columns)
        if columns is not None:
            only(flat_types(ipc.schema, file.origin), columns, file.origin)
        yield ipc


def _options(schema: pa.Schema, names: Sequence[str]) -> pa.ipc.IpcReadOptions:
    # An empty list would mean all fields: read the first one for its number of rows.
    indices = sorted(schema.get_field_index(name) for name in names) or [0]
    return pa.ipc.IpcReadOptions(included_fields=indices, use_threads=False)


def _with_fields(
    stream: BinaryIO, schema: pa.Schema, names: Sequence[str]
) -> pa.ipc.RecordBatchFileReader:
    stream.seek(0)
    return pa.ipc.open_file(stream, options=_options(schema, names))


def _width(kind: pa.DataType) -> int:
    """Returns the bits of a value, roughly, to find the cheapest column to read."""
    try:
        return kind.bit_width
    except ValueError:
        return 1 << 16


def _checked(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Returns a batch after checking that all its offsets are inside its buffers.

    Raises:
      ArrowInvalid: one is not.
    """
    for field, column in zip(batch.schema, batch.columns, strict=True):
        # Check texts as bytes: rows that are not UTF-8 are refused one by one, later.
        if pa.types.is_string(field.type):
            column = column.view(pa.binary())
        elif pa.types.is_large_string(field.type):
            column = column.view(pa.large_binary())
        column.validate(full=True)
    return batch


def _size(batch: pa.RecordBatch) -> int:
    """Returns how many bytes a batch takes; 0 without rows."""
    # Arrow 25 crashes on the size of a union without rows.
    return batch.nbytes if batch.num_rows else 0


def _cut(batch: pa.RecordBatch, budget: int) -> pa.RecordBatch:
    """Returns every n-th row of a batch, so that they take about `budget` bytes."""
    step = -(-_size(batch) // max(budget, 1))
    if step <= 1:
        return batch
    return batch.take(pa.array(np.arange(0, batch.num_rows, step)))


def _pieces(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yields the rows in tables of about 16 MiB; a larger batch is several."""

    def parts() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            count = max(1, _size(batch) // PIECE_BYTES)
            rows = max(1, -(-batch.num_rows // count))
            for start in range(0, batch.num_rows, rows):
                yield batch.slice(start, rows)

    return map(pa.Table.from_batches, grouped(parts(), _size, PIECE_BYTES))
