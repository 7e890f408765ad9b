"""Timestamps of 96 bits, as Spark, Hive and Impala write them to Parquet.

A day and the nanoseconds in it: more than an int64 of any unit can hold. Arrow reads
them as nanoseconds, which end in 1677 and 2262, and gives a wrong instant for others
without a word. 9999-12-31, which many write for "never", is one of them. So a source
that holds such instants is read in microseconds. What its unit does not hold is noticed
by reading the instants in seconds too, which hold any day, and for microseconds in
nanoseconds as well, whose low 64 bits are right for any instant.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from transforms.core.arrays import is_list, rows_with

Mask = npt.NDArray[np.bool_]

# By unit of the values: the units to compare them with.
EXACT_UNITS = {"ns": ("s",), "us": ("s", "ns")}

_PER_SECOND = {"ns": 10**9, "us": 10**6}
_HELD = {"ns": "dates from 1677-09-21 to 2262-04-11", "us": "years up to 294247"}
_SHOWN = 4
# The seconds of the first and the last instant that nanoseconds can hold.
_FIRST_SECOND, _LAST_SECOND = -(2**63) // 10**9, (2**63 - 1) // 10**9


def int96_paths(parquet: pq.ParquetFile, wanted: Iterable[str] = ("",)) -> list[str]:
    """Returns the paths of timestamps of 96 bits that these paths lead to, or all."""
    columns = (parquet.schema.column(index) for index in range(len(parquet.schema)))
    paths = [each.path for each in columns if each.physical_type == "INT96"]
    ends = tuple(f"{path}." if path else "" for path in wanted)
    return [path for path in paths if f"{path}.".startswith(ends)]


def beyond_nanoseconds(seconds: pa.Array) -> bool:
    """Tells whether instants in seconds are out of the range of nanoseconds.

    Those within a second of the limits are left to `out_of_unit`.
    """
    extent = pc.min_max(_leaves(seconds)).as_py()
    low, high = extent["min"], extent["max"]
    return low is not None and not _FIRST_SECOND <= low <= high <= _LAST_SECOND


def out_of_unit(
    values: pa.Array, unit: str, exact: Sequence[pa.Array]
) -> tuple[Mask, Mask]:
    """Tells what a unit does not hold of the instants in n rows, or in their lists.

    Args:
      values: the instants in the unit.
      unit: "ns" or "us".
      exact: the same in each of `EXACT_UNITS`.

    Returns:
      For each row, whether it has an instant out of range, and whether it has one that
      is finer than the unit.
    """
    if is_list(values.type):
        items = out_of_unit(values.flatten(), unit, [each.flatten() for each in exact])
        return rows_with(values, items[0]), rows_with(values, items[1])
    none = np.zeros(len(values), np.bool_)
    if not pa.types.is_timestamp(values.type):
        return none, none  # of structs or maps in lists, which no feature holds
    counts = _counts(values)
    out = counts // _PER_SECOND[unit] != _counts(exact[0])
    if unit == "ns":
        return out, none
    # Both wrap at 64 bits alike.
    return out, counts * 1000 != _counts(exact[1])


def out_of_range(name: str, unit: str, seconds: pa.Array) -> str:
    """Returns what is wrong with a row, given the column in seconds from there on."""
    found = _leaves(seconds.slice(0, 1)).drop_null().slice(0, _SHOWN).to_pylist()
    shown = ", ".join(str(np.datetime64(each, "s")) for each in found)
    return (
        f"column {name!r} holds {shown}: out of range, in {unit} an int64 holds "
        f"{_HELD[unit]}"
    )


def _leaves(column: pa.Array) -> pa.Array:
    while is_list(column.type):
        column = column.flatten()
    if not pa.types.is_timestamp(column.type):
        return pa.nulls(0, pa.int64())
    return column.cast(pa.int64())


def _counts(column: pa.Array) -> npt.NDArray[np.int64]:
    """Returns the instants of a column without lists, 0 for null."""
    counts = pc.fill_null(column.cast(pa.int64()), 0)
    return np.asarray(counts.to_numpy(zero_copy_only=False), np.int64)
