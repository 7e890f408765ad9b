"""Rows of Python values to Arrow batches in which each column has one type.

Rows arrive in bundles that no two runs cut alike, so nothing here may depend on which
rows meet: a batch says what its values are, and never makes them something else.

    {"id": 7, "name": "a"}, {"id": 8}         -> one batch, int64 and string
    {"id": 7}, {"id": "seven"}                -> two batches, int64 and string
    {"id": 7}, {"id": 7.5}                    -> one batch of float64

Integers join floats where float64 holds each of them, except in columns that are to
hold integers alone. An empty mapping is missing. Numbers have 64 bits.
"""

import itertools
import operator
from collections.abc import (
    Collection,
    Iterator,
    Mapping,
    Sequence,
)
from typing import Any

import numpy as np
import pyarrow as pa

from transforms.core.arrays import is_list
from transforms.core.json_text import MAX_NESTING
from transforms.core.reasons import Reason
from transforms.core.rows.arrow_of import arrow_of, of_one_type
from transforms.core.rows.python_kinds import (
    OddValueError,
    family_of,
    native_values,
    plain_values,
    shown,
)
from transforms.errors import EncodingError, bounded
from transforms.rows.row_types import Row, check_name, converter
from transforms.rows.tables import NO_COLUMNS, UnusableValueError, flat

_NESTED = frozenset(["array", "list", "mapping"])
MOST_CELLS = 1 << 22
"""Rows times columns of a batch: a missing value takes the room of a number."""


def batches_of(
    rows: Sequence[Row],
    *,
    images: Collection[str] = (),
    integers: Collection[str] = (),
) -> Iterator[pa.RecordBatch]:
    """Yields the rows as batches of pure columns.

    Rows that differ in the kind of a value are in different batches; which ones, and in
    what order, does not matter to what is made of them.

    Args:
      rows: n of them, at least one. A key that one lacks is missing there.
      images: columns whose arrays are pixels; they become PNG files.
      integers: columns whose integers and floats are kept apart.

    Raises:
      EncodingError: a row has no name or no value that a feature can hold.
    """
    if not all(rows):
        raise EncodingError(NO_COLUMNS)
    more = {"images": images, "integers": integers}
    names = _names(rows)
    if len(rows) > 1 and len(rows) * len(names) > MOST_CELLS:
        middle = len(rows) // 2
        yield from batches_of(rows[:middle], **more)
        yield from batches_of(rows[middle:], **more)
        return
    columns: dict[str, pa.Array] = {}
    mixed: list[str] = []

    def column_of(name: str, values: list[Any]) -> pa.Array | None:
        array = of_one_type(values, apart=name in integers)
        if array is not None:
            return array
        try:
            return _as_column(
                native_values(values, is_image=name in images),
                apart=name in integers,
            )
        except OddValueError:
            mixed.append(name)
            return None

    for name, values in _values(rows, names):
        array = column_of(name, values)
        if array is not None:
            columns[name] = array
    if not mixed:
        yield flat(columns)
        return
    if len(rows) == 1:
        raise _unusable(rows[0], mixed[0], is_image=mixed[0] in images)
    for group in _alike(rows, mixed):
        if len(group) == len(rows):
            # Of one family each, and still no column: take them row by row.
            for row in group:
                yield from batches_of([row], **more)
        else:
            yield from batches_of(group, **more)


def _values(
    rows: Sequence[Row], names: Sequence[str]
) -> Iterator[tuple[str, list[Any]]]:
    """Yields each name with a value of each row; None where it is missing."""
    try:
        # Row by row, for many wide rows do not fit into the processor's cache. One name
        # alone would give values, not tuples of them.
        row_values = map(operator.itemgetter(*names, names[0]), rows)
        flat = list(itertools.chain.from_iterable(row_values))
    except KeyError:
        # Faster than to ask each row for each name, where rows have few of them.
        columns: dict[str, list[Any]] = {name: [None] * len(rows) for name in names}
        for index, row in enumerate(rows):
            for name, value in row.items():
                columns[name][index] = value
        yield from columns.items()
    else:
        for index, name in enumerate(names):
            yield name, flat[index :: len(names) + 1]


def _names(rows: Sequence[Row]) -> list[str]:
    names = set().union(*rows)
    for name in names:
        check_name(name)
    return sorted(names)


def _as_column(values: list[Any], *, apart: bool = False) -> pa.Array:
    """Returns values of one family, or integers among floats, as a column.

    Raises:
      OddValueError: they are of several families, or of none.
    """
    values = plain_values(values)
    families = _families(values)
    if families & _NESTED or "" in families:
        values = [_without_records(value) for value in values]
        families = _families(values)
    if families == {"int", "float"} and not apart:
        return arrow_of(values)
    if families & _NESTED:
        arrays = [value for value in values if isinstance(value, np.ndarray)]
        deep = {_likeness(array) for array in arrays if array.ndim > 1}
        if len(deep) > 1 or (deep and len(arrays) < sum(v is not None for v in values)):
            raise OddValueError("arrays of several types or shapes")
    if len(families) > 1 and families != {"array", "list"}:
        raise OddValueError("values of several kinds")
    column = arrow_of(values)
    if families & _NESTED and _holds_lists_of_structs(column.type):
        by_path: dict[tuple[str, ...], set[bool]] = {}
        for value in values:
            _note_lists(value, (), by_path)
        if any(len(kinds) > 1 for kinds in by_path.values()):
            raise OddValueError("lists of mappings beside empty ones")
    return column


def _holds_lists_of_structs(kind: pa.DataType) -> bool:
    if is_list(kind):
        inner = kind.value_type
        return pa.types.is_struct(inner) or _holds_lists_of_structs(inner)
    if pa.types.is_struct(kind):
        return any(_holds_lists_of_structs(field.type) for field in kind)
    return False


def _note_lists(
    value: Any, path: tuple[str, ...], found: dict[tuple[str, ...], set[bool]]
) -> None:
    """Notes for each path of keys whether its lists hold mappings, or nothing.

    A list of mappings becomes a column for each key, and an empty list cannot say for
    which: it is in a batch of its own, whatever rows it came with.
    """
    if isinstance(value, Mapping):
        for key, child in value.items():
            _note_lists(child, (*path, key), found)
    elif isinstance(value, list | tuple):
        holds = any(isinstance(child, Mapping) for child in value)
        found.setdefault(path, set()).add(holds)
        for child in value:
            if isinstance(child, Mapping):
                _note_lists(child, (*path, ""), found)


def _families(values: Sequence[Any]) -> set[str]:
    return {family_of(kind) for kind in set(map(type, values)) - {type(None)}}


def _without_records(value: Any, level: int = 0) -> Any:
    """Returns a value with plain mappings for rows of other types, wherever in it.

    Coders of Beam turn nested rows from one type to another. Empty ones are missing.
    """
    if level > MAX_NESTING:
        # Refused later, with words for it.
        return value
    convert = converter(type(value))
    if convert is not None:
        row = convert(value)
        parts = {key: _without_records(child, level + 1) for key, child in row.items()}
        return parts or None
    if isinstance(value, list | tuple) and any(
        issubclass(kind, list | tuple) or converter(kind) is not None
        for kind in set(map(type, value))
    ):
        return [_without_records(child, level + 1) for child in value]
    return value


def _alike(rows: Sequence[Row], names: Sequence[str]) -> list[list[Row]]:
    """Returns the rows grouped by the families of some of their values."""
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        plain = plain_values([row.get(name) for name in names])
        values = map(_without_records, plain)
        groups.setdefault(tuple(map(_likeness, values)), []).append(row)
    return list(groups.values())


def _likeness(value: Any, level: int = 0) -> object:
    """Returns a word for values that go into one column."""
    if value is None or level > MAX_NESTING:
        return ""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape
    family = family_of(type(value))
    if family == "datetime":
        return family, value.tzinfo is not None
    if family == "datetime64":
        return family, value.dtype.str
    if family == "list":
        return family, frozenset(_likeness(child, level + 1) for child in value)
    if family == "mapping":
        parts = ((str(key), _likeness(v, level + 1)) for key, v in value.items())
        return family, frozenset(parts)
    return family


def _unusable(row: Row, name: str, *, is_image: bool) -> UnusableValueError:
    value: Any = row.get(name)
    is_wide = family_of(type(value)) == "int" and not -(2**63) <= value < 2**63
    try:
        _as_column(native_values([value], is_image=is_image))
    except OddValueError as error:
        why = str(error)
    else:
        why = f"{shown(value)} cannot be held"
    return UnusableValueError(
        bounded(
            f"Every value of a row must be one that a feature can hold; {name!r} is "
            f"not: {why}. Convert it before it is written, or leave it out."
        ),
        Reason.OUT_OF_RANGE if is_wide else Reason.WRONG_TYPE,
    )
