"""Entries of neighbouring float columns, encoded together.

    entry  entry ...    k entries of `0a E 0a N name 12 F 12 G 0a 04  value`

Their bytes are the same in every record but for the values, which one table takes. A
column costs a fraction of a microsecond a chunk so, and some thirty by itself.
"""

from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.core.example.payload import Column
from transforms.core.example.records import Records
from transforms.core.example.views import Table

Step = tuple[int, Column]
"""A column by itself: its index in the schema, and the feature."""

# Fewer columns are stored one by one: CRCs by look-ups know only of such, and they pay
# for records up to about that size.
_LEAST_COLUMNS = 256
_VALUE_BYTES = 4


class FloatColumns:
    """The entries of k float32 columns, one after another in the records.

    Args:
      columns: the features, each with its index in the schema.
    """

    def __init__(self, columns: Sequence[Step]) -> None:
        self._indices = [index for index, _ in columns]
        template = bytearray()
        positions = []
        for _, column in columns:
            template += column.entry.prefix(_VALUE_BYTES)
            positions.append(len(template))
            template += bytes(_VALUE_BYTES)
        self._template = bytes(template)
        self._spans = _spans(np.array(positions))

    def __len__(self) -> int:
        """The number k of columns."""
        return len(self._indices)

    def add(self, chunk: pa.RecordBatch, record: Records) -> bool:
        """Adds the entries to all records; false if a value is missing."""
        columns = chunk.select(self._indices)
        try:
            cells = columns.to_tensor(row_major=True)
        except pa.ArrowTypeError:
            # "Can only convert a RecordBatch with no nulls": Arrow looks for them in
            # less time than the number of nulls of each column takes.
            return False
        record.add_table(self._template, Table(self._spans, cells.to_numpy()))
        return True


def steps_of(
    columns: Sequence[Step],
    schema: pa.Schema,
    *,
    bounds: Collection[int] = (),
    lacking: Collection[int] = (),
) -> list[Step | FloatColumns]:
    """Returns columns, with long runs of float32 columns as `FloatColumns`.

    Args:
      columns: in the order of their entries.
      schema: of all columns.
      bounds: positions in `columns` that no run crosses.
      lacking: indices in the schema of columns with missing values, which stay single.
    """
    types = schema.types
    out: list[Step | FloatColumns] = []
    run: list[Step] = []

    def end_run() -> None:
        out.extend([FloatColumns(run)] if len(run) >= _LEAST_COLUMNS else run)
        run.clear()

    for position, (index, column) in enumerate(columns):
        if position in bounds:
            end_run()
        if types[index] == pa.float32() and index not in lacking:
            run.append((index, column))
        else:
            end_run()
            out.append((index, column))
    end_run()
    return out


def _spans(positions: npt.NDArray[np.int64]) -> tuple[tuple[int, int, int], ...]:
    """Returns ascending positions as spans of even distances; see `Table`."""
    spans = []
    start = 0
    steps = np.diff(positions)
    changes = [*(np.flatnonzero(np.diff(steps)) + 1).tolist(), len(steps)]
    for change in changes:
        # The position at a change ends one span; the next begins behind it.
        if change < start:
            continue
        step = int(steps[start]) if start < len(steps) else _VALUE_BYTES
        spans.append((int(positions[start]), change - start + 1, step))
        start = change + 1
    if start < len(positions):
        spans.append((int(positions[start]), 1, _VALUE_BYTES))
    return tuple(spans)
