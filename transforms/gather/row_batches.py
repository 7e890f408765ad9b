"""Rows of Python values to Arrow batches in which each column has one type.

Rows arrive in bundles that no two runs cut alike, so nothing here may depend on which
rows meet: a batch says what its values are, and never makes them something else.

    {"id": 7, "name": "a"}, {"id": 8}         -> one batch, int64 and string
    {"id": 7}, {"id": "seven"}                -> two batches, int64 and string
    {"id": 7}, {"id": 7.5}                    -> one batch of float64

Integers join floats where float64 holds each of them; the tally of `evidence` counts
them as what they are all the same.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrow_types import PYTHON, plain_type
from transforms.core.nesting import check_key
from transforms.core.rows.arrow_of import arrow_of
from transforms.core.rows.python_kinds import (
    OddValueError,
    family_of,
    plain_values,
    shown,
)
from transforms.errors import EncodingError, bounded
from transforms.formats.columnar.arrow_batches import flat_columns

__all__ = ["Row", "RowBatch", "as_mapping", "batches_of", "table_batch"]

# Types that Arrow gives to a dict's values only where all of them are of one family.
_PURE = (pa.null(), pa.bool_(), pa.int64(), pa.string())
_SHOWN_CHARS = 80
_EXACT = 2**53

Row = Mapping[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class RowBatch:
    """Some rows, each column of one type; the columns are in the order of their names.

    Attributes:
      rows: n rows.
      integers: column of float64 -> how many of its values were integers.
    """

    rows: pa.RecordBatch
    integers: Mapping[str, int] = dataclasses.field(default_factory=dict)


def as_mapping(kind: type[Any]) -> Callable[[Any], Row] | None:
    """Returns what makes a mapping of a row of a type; None where it is no row.

    Takes dicts and other mappings, `beam.Row`, named tuples and dataclasses.
    """
    if issubclass(kind, dict):
        return lambda row: row
    if issubclass(kind, Mapping):
        return dict
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        names = kind._fields
        return lambda row: dict(zip(names, row, strict=True))
    if dataclasses.is_dataclass(kind):
        fields = [field.name for field in dataclasses.fields(kind)]
        return lambda row: {name: getattr(row, name) for name in fields}
    # beam.Row, which is not imported here.
    if kind.__name__ == "Row" and kind.__module__.startswith("apache_beam."):
        return lambda row: row.as_dict()
    return None


def table_batch(rows: pa.RecordBatch) -> RowBatch:
    """Returns rows that are in Arrow already, in plain types.

    Raises:
      EncodingError: two columns have one name, or one has none.
    """
    names = rows.schema.names
    for name in names:
        _check_name(name)
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise EncodingError(
            f"Every column of a table must have a name of its own; {twice!r} is there "
            f"{names.count(twice)} times. Rename it."
        )
    return RowBatch(_flat({name: rows.column(name) for name in names}))


def _flat(columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """Returns columns without structs, of plain types, by the order of their names."""
    batch = pa.RecordBatch.from_pydict(dict(columns))
    flat = flat_columns(batch)
    if len(flat) < len(columns):
        # A struct's field may have the name that another column has.
        raise EncodingError(
            f"Every feature must have a name of its own; the fields of structs take "
            f"names that other columns have: {', '.join(sorted(columns))[:200]}. "
            f"Rename one."
        )
    out = {name: _widest(flat[name]) for name in sorted(flat)}
    return pa.RecordBatch.from_pydict(out)


def _widest(column: pa.Array) -> pa.Array:
    """Returns numbers in the width that all numbers of their kind have."""
    kind = plain_type(column.type, PYTHON)
    if pa.types.is_integer(kind):
        kind = pa.uint64() if kind == pa.uint64() else pa.int64()
    elif pa.types.is_floating(kind):
        kind = pa.float64()
    return column if column.type.equals(kind) else column.cast(kind)


def batches_of(rows: Sequence[Row]) -> Iterator[RowBatch]:
    """Yields the rows as batches of pure columns.

    Rows that differ in the kind of a value are in different batches; which ones, and in
    what order, does not matter to what is made of them.

    Args:
      rows: n of them, at least one. A key that one lacks is missing there.

    Raises:
      EncodingError: a row has no name or no value that a feature can hold.
    """
    fast = _fast_columns(rows)
    names = sorted(fast) if fast is not None else _names(rows)
    columns: dict[str, pa.Array] = {}
    integers: dict[str, int] = {}
    mixed: list[str] = []
    for name in names:
        array = None if fast is None else fast[name]
        if array is not None and array.type in _PURE:
            columns[name] = array
            continue
        values = plain_values([row.get(name) for row in rows])
        count = _integers_in(array, values)
        if array is not None and array.type == pa.float64() and count == 0:
            columns[name] = array
            continue
        try:
            columns[name] = _as_column(values)
        except OddValueError:
            mixed.append(name)
        else:
            if count:
                integers[name] = count
    if not mixed:
        if not columns:
            raise EncodingError(
                "Every row must have a value at least; found rows without any."
            )
        yield RowBatch(_flat(columns), integers)
        return
    if len(rows) == 1:
        raise _unusable(rows[0], mixed[0])
    for part in _alike(rows, mixed):
        if len(part) == len(rows):
            # Of one family each, and still no column: take them row by row.
            for row in part:
                yield from batches_of([row])
        else:
            yield from batches_of(part)


def _fast_columns(rows: Sequence[Row]) -> dict[str, pa.Array] | None:
    """Returns columns as Arrow reads dicts; None where it cannot."""
    try:
        struct = pa.array(rows)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None
    if not pa.types.is_struct(struct.type) or struct.null_count:
        return None
    found = {field.name: struct.field(index) for index, field in enumerate(struct.type)}
    for name in found:
        _check_name(name)
    return found


def _names(rows: Sequence[Row]) -> list[str]:
    names = set().union(*rows)
    for name in names:
        _check_name(name)
    return sorted(names)


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not name:
        raise EncodingError(
            f"Every value of a row must have a name, which is text; found "
            f"{bounded(repr(name), _SHOWN_CHARS)}. Rename it."
        )
    try:
        check_key(name)
    except ValueError as error:
        raise EncodingError(f"{bounded(str(error), 400)}. Rename it.") from error


def _integers_in(array: pa.Array | None, values: Sequence[Any]) -> int:
    """Returns how many integers are among floats; 0 where there are no floats."""
    if array is not None:
        if array.type != pa.float64():
            return 0
        whole = pc.equal(array, pc.floor(array))
        if not pc.any(whole).as_py():
            return 0
    families = [family_of(type(v)) for v in values if v is not None]
    return families.count("int") if "float" in families else 0


def _as_column(values: list[Any]) -> pa.Array:
    """Returns values of one family, or integers among floats, as a column.

    Raises:
      OddValueError: they are of several families, or of none.
    """
    families = {family_of(type(value)) for value in values if value is not None}
    if families == {"int", "float"}:
        if any(
            family_of(type(v)) == "int" and abs(int(v)) > _EXACT
            for v in values
            if v is not None
        ):
            raise OddValueError("float64 does not hold an integer among floats")
        floats = [None if value is None else float(value) for value in values]
        return pa.array(floats, pa.float64())
    if len(families) > 1 and families != {"array", "list"}:
        raise OddValueError("values of several kinds")
    return arrow_of(values)


def _alike(rows: Sequence[Row], names: Sequence[str]) -> list[list[Row]]:
    """Returns the rows grouped by the families of some of their values."""
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        values = plain_values([row.get(name) for name in names])
        groups.setdefault(tuple(map(_likeness, values)), []).append(row)
    return list(groups.values())


def _likeness(value: Any) -> object:
    """Returns a word for values that go into one column."""
    if value is None:
        return ""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape
    family = family_of(type(value))
    if family == "datetime":
        return family, value.tzinfo is not None
    return family


def _unusable(row: Row, name: str) -> EncodingError:
    value = plain_values([row.get(name)])[0]
    try:
        arrow_of([value])
    except OddValueError as error:
        why = str(error)
    else:
        why = f"{shown(value)} cannot be held"
    return EncodingError(
        bounded(
            f"Every value of a row must be one that a feature can hold; {name!r} is "
            f"not: {why}. Convert it before it is written, or leave it out."
        )
    )
