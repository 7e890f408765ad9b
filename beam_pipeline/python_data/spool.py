"""Store rows of any origin as one Arrow IPC file of one schema and batch size.

    batches of any types and sizes -> plain types -> parts, a new one where the types
    get wider -> one file of the widest types, all batches of the same number of rows

The file depends on the values alone, not on how their source cut them into batches:
its size is among the facts that a dataset's digest covers.
"""

import os
from collections.abc import Iterable

import pyarrow as pa

from transforms.core.rows.common_type import PYTHON, as_type, plain_type, wider_type
from transforms.core.rows.python_kinds import OddValueError
from transforms.errors import InputError

# The first rows, whose size decides how many rows a batch has: more of them would have
# to wait in memory before the first batch can be written.
_MEASURED_ROWS = 64
_BATCH_BYTES = 16 << 20
_MOST_ROWS = 1 << 16


def odd_row(name: str, error: Exception, start: int = 0) -> InputError:
    """Returns the error for a value of a column.

    Args:
      name: of the column.
      error: what is wrong; an OddValueError may say with which value.
      start: the row of the first value that was converted, from 0.
    """
    index = error.index if isinstance(error, OddValueError) else -1
    location = f"in row {start + index + 1:,}, " if index >= 0 else ""
    reason = str(error).rstrip(".")
    return InputError(
        f"All values of {name!r} must be of one kind that a feature can hold; "
        f"{location}{reason}. Convert them to one kind first, or leave the column out."
    )


def store_batches(batches: Iterable[pa.RecordBatch], path: str) -> int:
    """Writes batches as one Arrow IPC file at `path`; returns the number of rows.

    A column that a batch lacks is null there; new columns come last.

    Raises:
      InputError: values of a column do not go together; names column and row.
    """
    rows = 0
    parts: list[str] = []
    writer: _Part | None = None
    schema = pa.schema([])
    for batch in batches:
        schema = _wider_schema(schema, batch.schema, rows)
        if writer is None or not writer.schema.equals(schema):
            if writer is not None:
                writer.close()
            parts.append(f"{path}.{len(parts)}")
            writer = _Part(parts[-1], schema)
        writer.write(_as_schema(batch, schema, rows))
        rows += batch.num_rows
    if writer is None:
        writer = _Part(path, schema)
    writer.close()
    if len(parts) == 1:
        os.replace(parts[0], path)
    elif parts:
        _join(parts, schema, path)
    return rows


def _wider_schema(known: pa.Schema, new: pa.Schema, rows: int) -> pa.Schema:
    fields = {field.name: field.type for field in known}
    for field in new:
        kind = plain_type(field.type, PYTHON)
        before = fields.get(field.name, pa.null())
        wide = wider_type(before, kind, PYTHON)
        if wide is None:
            reason = f"they are {kind} from row {rows + 1:,} on, {before} before"
            raise odd_row(field.name, OddValueError(reason))
        fields[field.name] = wide
    return pa.schema(list(fields.items()))


def _as_schema(batch: pa.RecordBatch, schema: pa.Schema, rows: int) -> pa.RecordBatch:
    columns = []
    for field in schema:
        if field.name not in batch.schema.names:
            columns.append(pa.nulls(batch.num_rows, field.type))
            continue
        try:
            columns.append(as_type(batch.column(field.name), field.type))
        except (OddValueError, pa.ArrowException) as error:
            raise odd_row(field.name, error, rows) from error
    return pa.record_batch(columns, schema=schema) if columns else batch


def _join(parts: list[str], schema: pa.Schema, path: str) -> None:
    """Writes the rows of several files as one file of the widest schema."""
    whole = _Part(path, schema)
    rows = 0
    for name in parts:
        with pa.OSFile(name, "rb") as source:
            reader = pa.ipc.open_file(source)
            for index in range(reader.num_record_batches):
                batch = reader.get_batch(index)
                whole.write(_as_schema(batch, schema, rows))
                rows += batch.num_rows
        os.remove(name)
    whole.close()


class _Part:
    """A file that is being written; its batches take about 16 MiB each."""

    def __init__(self, path: str, schema: pa.Schema) -> None:
        self.schema = schema
        self._sink = pa.OSFile(path, "wb")
        self._writer = pa.ipc.new_file(self._sink, schema)
        self._waiting: list[pa.RecordBatch] = []
        self._count = 0
        self._rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Adds rows of the part's schema; writes those that fill whole batches."""
        self._waiting.append(batch)
        self._count += batch.num_rows
        if self._count >= (self._rows or _MEASURED_ROWS):
            self._flush(last=False)

    def close(self) -> None:
        """Writes the remaining rows, and the end of the file."""
        try:
            self._flush(last=True)
            self._writer.close()
        finally:
            self._sink.close()

    def _flush(self, *, last: bool) -> None:
        if not self._count:
            return
        table = pa.Table.from_batches(self._waiting, self.schema)
        if not self._rows:
            self._rows = _batch_rows(table.slice(0, _MEASURED_ROWS))
        stop = self._count if last else self._count // self._rows * self._rows
        for first in range(0, stop, self._rows):
            piece = table.slice(first, min(self._rows, stop - first)).combine_chunks()
            self._writer.write_table(piece)
        rest = table.slice(stop)
        self._waiting = rest.combine_chunks().to_batches() if rest.num_rows else []
        self._count -= stop


def _batch_rows(table: pa.Table) -> int:
    """Returns the largest power of two of rows that take up to 16 MiB; at least 1."""
    row_bytes: int = max(table.nbytes // max(table.num_rows, 1), 1)
    rows = min(max(_BATCH_BYTES // row_bytes, 1), _MOST_ROWS)
    return 1 << (rows.bit_length() - 1)
