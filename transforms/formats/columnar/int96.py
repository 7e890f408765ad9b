"""Timestamps of 96 bits, as Spark, Hive and Impala write them to Parquet.

A day and the nanoseconds in it: more than an int64 of any unit can hold. Arrow reads
them as nanoseconds, which end in 1677 and 2262, and gives a wrong instant for others
without a word. 9999-12-31, which many write for "never", is one of them. So a source
that holds such instants is read in microseconds, and every value that the unit cannot
hold is found: by reading it in seconds too, which hold any day, and microseconds in
nanoseconds as well, whose low 64 bits are right for any instant.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from transforms.core.arrays import is_list, rows_with
from transforms.formats.columnar.arrow_batches import flat_columns
from transforms.formats.columnar.arrow_types import flat_types, wanted_paths

Int96Unit = Literal["ns", "us"]
Opener = Callable[[str], contextlib.AbstractContextManager[pq.ParquetFile]]
Mask = npt.NDArray[np.bool_]

_PER_SECOND = {"us": 10**6, "ns": 10**9}
_ROWS = 1 << 16
_SHOWN = 4
# The seconds of the first and the last instant that nanoseconds can hold.
_FIRST_SECOND, _LAST_SECOND = -(2**63) // 10**9, (2**63 - 1) // 10**9


@dataclasses.dataclass(frozen=True, slots=True)
class Lost:
    """The instants of one column that its unit cannot hold.

    Attributes:
      mask: n bools, true for a row that holds one.
      seconds: n timestamps in seconds, or lists of them.
      column: the name of the column.
      unit: what it was read in.
    """

    mask: Mask
    seconds: pa.Array
    column: str
    unit: str

    def message(self, row: int) -> str:
        """Returns what is wrong with a row."""
        found = _flat(self.seconds.slice(row, 1)).drop_null().cast(pa.int64())
        shown = [str(np.datetime64(n, "s")) for n in found.slice(0, _SHOWN).to_pylist()]
        limits = "dates from 1677-09-21 to 2262-04-11"
        if self.unit == "us":
            limits = "whole microseconds, up to the year 294247"
        return (
            f"column {self.column!r} holds {', '.join(shown)}: out of range, in "
            f"{self.unit} an int64 holds {limits}"
        )


class LostInstants:
    """Finds the instants that the unit of a file cannot hold, while the file is read.

    Args:
      opener: opens the file with timestamps of 96 bits in the unit that it is given.
      parquet: the file as it is read.
      unit: of its timestamps of 96 bits.
      columns: the flat columns that are read.

    Attributes:
      names: of the columns that hold timestamps of 96 bits.
    """

    def __init__(
        self,
        opener: Opener,
        parquet: pq.ParquetFile,
        unit: Int96Unit,
        columns: Sequence[str],
    ) -> None:
        self._unit = unit
        self._stack = contextlib.ExitStack()
        self._files: dict[str, pq.ParquetFile] = {}
        self._batches: dict[str, Iterator[pa.RecordBatch]] = {}
        self._left: dict[str, pa.Table] = {}
        self.names: list[str] = []
        if not int96_paths(parquet):
            return
        with contextlib.ExitStack() as stack:
            for other in ("s",) if unit == "ns" else ("s", "ns"):
                self._files[other] = stack.enter_context(opener(other))
            types = flat_types(parquet.schema_arrow, "")
            seconds = flat_types(self._files["s"].schema_arrow, "")
            self.names = [name for name in columns if types[name] != seconds[name]]
            self._stack = stack.pop_all()

    def __enter__(self) -> "LostInstants":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start(self, groups: Sequence[int]) -> None:
        """Begins with the first row of the first of these row groups."""
        if not self.names:
            return
        for unit, file in self._files.items():
            paths = wanted_paths(file.schema_arrow, self.names)
            self._batches[unit] = file.iter_batches(
                _ROWS, groups, paths, use_threads=False
            )
            self._left.pop(unit, None)

    def find(self, rows: dict[str, pa.Array], count: int) -> list[Lost]:
        """Returns the lost instants of the next `count` rows, given their columns."""
        if not self.names:
            return []
        others = {unit: self._next(unit, count) for unit in self._files}
        found = []
        for name in self.names:
            exact = {unit: columns[name] for unit, columns in others.items()}
            mask = _lost(rows[name], self._unit, exact)
            if mask.any():
                found.append(Lost(mask, exact["s"], name, self._unit))
        return found

    def _next(self, unit: str, count: int) -> dict[str, pa.Array]:
        parts = [self._left[unit]] if unit in self._left else []
        while sum(len(part) for part in parts) < count:
            batch = next(self._batches[unit], None)
            if batch is None:
                break
            parts.append(pa.Table.from_batches([batch]))
        table = pa.concat_tables(parts)
        self._left[unit] = table.slice(count)
        return flat_columns(table.slice(0, count), self.names)


def beyond_nanoseconds(parquet: pq.ParquetFile, groups: Sequence[int]) -> bool:
    """Tells whether row groups hold instants of 96 bits that nanoseconds cannot hold.

    Those within a second of the limits are left to `LostInstants`.

    Args:
      parquet: the file, opened with such timestamps in seconds.
      groups: the row groups to look at.
    """
    paths = int96_paths(parquet)
    if not paths or not groups:
        return False
    for batch in parquet.iter_batches(_ROWS, groups, paths, use_threads=False):
        for column in flat_columns(batch).values():
            extent = pc.min_max(_flat(column).cast(pa.int64())).as_py()
            low, high = extent["min"], extent["max"]
            if low is not None and not _FIRST_SECOND <= low <= high <= _LAST_SECOND:
                return True
    return False


def int96_paths(parquet: pq.ParquetFile) -> list[str]:
    """Returns the paths of timestamps of 96 bits in the schema, dots between names."""
    schema = parquet.schema
    columns = (schema.column(index) for index in range(len(schema)))
    return [column.path for column in columns if column.physical_type == "INT96"]


def _flat(column: pa.Array) -> pa.Array:
    while is_list(column.type):
        column = column.flatten()
    return column


def _lost(column: pa.Array, unit: str, exact: dict[str, pa.Array]) -> Mask:
    """Tells which rows hold an instant that differs from the exact one."""
    if is_list(column.type):
        inner = _lost(
            column.flatten(), unit, {u: each.flatten() for u, each in exact.items()}
        )
        return rows_with(column, inner)
    values = _counts(column)
    mask = values // _PER_SECOND[unit] != _counts(exact["s"])
    if "ns" in exact:
        # Both wrap at 64 bits alike: they differ if an instant is finer than a
        # microsecond.
        mask |= values * 1000 != _counts(exact["ns"])
    valid = np.asarray(column.is_valid().to_numpy(zero_copy_only=False), np.bool_)
    return np.asarray(mask & valid, np.bool_)


def _counts(column: pa.Array) -> npt.NDArray[np.int64]:
    counts = pc.fill_null(column.cast(pa.int64()), 0)
    return np.asarray(counts.to_numpy(zero_copy_only=False), np.int64)
