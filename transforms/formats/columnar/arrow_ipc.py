"""Arrow IPC as a table format: files by record batch, streams from start to end.

    "ARROW1"        a file (.arrow, .feather): batches can be read by number
    anything else   a stream (.arrows): one block, one batch after another

IPC has no checksums. Every offset is checked before a value is read, so that damage is
an error and never a read beyond a buffer.
"""

import contextlib
import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, BinaryIO, ClassVar

import numpy as np
import pyarrow as pa

from transforms.core.model import Block
from transforms.formats.columnar.arrow_batches import (
    PLACES,
    ColumnarFile,
    ColumnarReader,
    SampledRows,
    in_pieces,
    piece_of,
    raw_rows,
    readable,
    size_of,
)
from transforms.formats.columnar.arrow_types import (
    flat_columns,
    flat_types,
    sources,
    stated_features,
)
from transforms.formats.raw_rows import RawRows
from transforms.formats.table import InputFile, SourceFile, only, spread

_FILE = b"ARROW1"


@dataclasses.dataclass(frozen=True, slots=True)
class ArrowReader(ColumnarReader):
    """Arrow IPC files and streams under one schema."""

    title: ClassVar[str] = "Arrow IPC"

    @contextlib.contextmanager
    def open(
        self, file: SourceFile, columns: Sequence[str] | None = None
    ) -> Iterator[ColumnarFile]:
        """Opens a file or a stream."""
        with readable(file.origin, self.title), file.open() as stream:
            yield _Batches(stream, file.origin, columns)


class _Batches(ColumnarFile):
    """The batches of a file by number, or of a stream one after another."""

    def __init__(
        self, stream: BinaryIO, origin: str, columns: Sequence[str] | None
    ) -> None:
        self._is_file = stream.read(len(_FILE)) == _FILE
        self._stream = stream
        self._reader = self._opened(None)
        self._schema = self._reader.schema
        self.types = flat_types(self._schema, origin)
        self.features = stated_features(self._schema)
        if columns is not None:
            only(self.types, columns, origin)
            fields = {field for field, _ in sources(self._schema, columns)}
            self._reader = self._opened(fields)

    def _opened(self, names: Iterable[str] | None) -> Any:
        """Returns a reader of some fields, or of all."""
        fields = None
        if names is not None:
            # An empty list would mean all fields: read the first one for its number of
            # rows.
            fields = sorted(map(self._schema.get_field_index, names)) or [0]
        self._stream.seek(0)
        options = pa.ipc.IpcReadOptions(included_fields=fields, use_threads=False)
        library_open = pa.ipc.open_file if self._is_file else pa.ipc.open_stream
        return library_open(self._stream, options=options)

    def _counts(self) -> list[int]:
        """Returns the rows of each batch of a file; reads one small column."""
        if not len(self._schema):
            return []
        smallest = min(self._schema, key=lambda field: _width(field.type))
        reader = self._opened([smallest.name])
        return [
            reader.get_batch(index).num_rows
            for index in range(reader.num_record_batches)
        ]

    def look(self, budget: int, places: int) -> SampledRows:
        """Returns the first rows of a stream; of a file batches spread evenly."""
        if self._is_file:
            total = sum(self._counts())
            indices: Sequence[int] = range(self._reader.num_record_batches)
            if self._stream.seek(0, 2) > budget:
                indices = spread(indices, PLACES)
            share = budget // max(len(indices), 1)
            batches = map(_checked, map(self._reader.get_batch, indices))
            return SampledRows([flat_columns(_cut(b, share)) for b in batches], total)
        out: list[pa.RecordBatch] = []
        rows: int | None = 0
        for batch in map(_checked, self._reader):
            out.append(_cut(batch, budget))
            budget -= size_of(out[-1])
            rows += batch.num_rows
            if out[-1].num_rows < batch.num_rows or budget <= 0:
                rows = None
                break
        return SampledRows([*map(flat_columns, out)], rows, self._stream.tell())

    def parts(
        self, file: InputFile, block_bytes: int, limit_rows: int | None
    ) -> Iterator[tuple[int, int]] | None:
        """Returns the batches; of a stream to the limit, and None without one."""
        if self._is_file:
            counts = self._counts()
        elif limit_rows is None:
            return None
        else:
            counts = []
            for batch in self._reader:
                counts.append(batch.num_rows)
                if sum(counts) >= limit_rows:
                    break
        # The bytes up to the end of each, by its rows.
        total = max(sum(counts), 1)
        ends = (file.size * rows // total for rows in itertools.accumulate(counts))
        return zip(counts, ends, strict=True)

    def read(self, block: Block, columns: Sequence[str]) -> Iterator[RawRows]:
        """Yields the rows of a block in pieces."""
        first = block.first_row
        for table in in_pieces(self._batches(first, block.rows or None)):
            piece = piece_of(block, first, table.num_rows)
            if not block.rows:
                # Of a stream only the bytes before its rows are known.
                position = block.position + min(self._stream.tell(), block.stop)
                piece = dataclasses.replace(piece, stop=first, position=position)
            yield raw_rows(piece, flat_columns(table, columns), columns)
            first += table.num_rows

    def _batches(self, first_row: int, rows: int | None) -> Iterator[pa.RecordBatch]:
        """Yields the batches from a row on which one begins."""
        listed = self._counts() if self._is_file else self._reader
        begin = 0
        for index, batch in enumerate(listed):
            count = batch if self._is_file else batch.num_rows
            if rows is not None and begin >= first_row + rows:
                return
            if begin >= first_row and count:
                if self._is_file:
                    batch = self._reader.get_batch(index)
                left = None if rows is None else first_row + rows - begin
                yield _checked(batch).slice(0, left)
            begin += count


def _width(kind: pa.DataType) -> int:
    """Returns the bits of a value, roughly, to find the cheapest IPC column."""
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


def _cut(batch: pa.RecordBatch, budget: int) -> pa.RecordBatch:
    """Returns every n-th row of an IPC batch, so as to take about `budget` bytes."""
    step = -(-size_of(batch) // max(budget, 1))
    if step <= 1:
        return batch
    return batch.take(pa.array(np.arange(0, batch.num_rows, step)))
