"""Rows of Python values to Arrow batches in which each column has one type.

Rows arrive in bundles that no two runs cut alike, so nothing here may depend on which
rows meet: a batch says what its values are, and never makes them something else.

    {"id": 7, "name": "a"}, {"id": 8}         -> one batch, int64 and string
    {"id": 7}, {"id": "seven"}                -> two batches, int64 and string
    {"id": 7}, {"id": 7.5}                    -> one batch of float64

Integers join floats where float64 holds each of them, except in columns that are to
hold integers alone. An empty mapping is missing. Numbers have 64 bits.
"""

import functools
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
from transforms.core.rows.natural_arrays import arrow_of, of_one_type
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
MOST_WAITING = 4096
"""Elements become Arrow together: at most so many."""
# Of small elements one of so many is weighed: each would cost as much as to convert it.
# An odd number: of elements that are small and large by turns both are weighed.
_MOST_LIKE_ONE = 61
# Of a text beside its characters: half of what Python takes, for batches of fewer rows
# of thousands of texts would take longer.
_TEXT_BYTES = 24
# A list may hold itself: deeper ones are not looked into.
_WEIGHED_LEVELS = 4


class Waiting(list[Any]):
    """Elements that wait until there are enough to be worked on together.

    Whoever appends one asks `is_enough` once there are `next_look`: no call for each.
    """

    __slots__ = ("_bytes", "_most_bytes", "_size", "_weighed", "next_look")

    def __init__(self, most_bytes: int) -> None:
        """Starts without any; they may take about this much memory."""
        super().__init__()
        self._most_bytes = most_bytes
        self._start()

    def _start(self) -> None:
        self._bytes = self._weighed = self._size = self.next_look = 0

    def is_enough(self) -> bool:
        """Returns whether there are enough.

        Of those between two that are weighed, half count as the one and half as the
        other: small ones with a few large ones among them must not all count as small.
        """
        count, size = len(self), _weight(self[-1])
        before = self._size if self._weighed else size
        self._bytes += (count - self._weighed) * (before + size) // 2
        self._weighed, self._size = count, size
        like_it = self._most_bytes // _MOST_LIKE_ONE // max(size, 1)
        like_it = min(like_it | 1, _MOST_LIKE_ONE)
        self.next_look = min(count + like_it, MOST_WAITING)
        return count >= MOST_WAITING or self._bytes >= self._most_bytes

    def take(self) -> list[Any]:
        """Returns the elements, and waits for others."""
        elements = self[:]
        self.clear()
        self._start()
        return elements


def _weight(value: Any, level: int = 0) -> int:
    """Returns about how much memory a value takes; of a list, by its first item."""
    if isinstance(value, Mapping) and level < _WEIGHED_LEVELS:
        return sum(_weight(item, level + 1) for item in value.values())
    if isinstance(value, tuple | list) and value and level < _WEIGHED_LEVELS:
        return len(value) * _weight(value[0], level + 1)
    if hasattr(value, "nbytes"):
        return int(value.nbytes)
    if type(value).__module__.startswith("PIL."):
        return 4 * int(value.width) * int(value.height)
    if isinstance(value, str | bytes | bytearray):
        return len(value) + _TEXT_BYTES
    return 8


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
    names = [*set().union(*rows)]
    for name in names:
        check_name(name)
    names.sort()
    if len(rows) > 1 and len(rows) * len(names) > MOST_CELLS:
        middle = len(rows) // 2
        yield from batches_of(rows[:middle], **more)
        yield from batches_of(rows[middle:], **more)
        return
    columns: dict[str, pa.Array] = {}
    mixed: list[str] = []
    for name, values in values_of(rows, names):
        try:
            columns[name] = column_of(
                values, is_image=name in images, apart=name in integers, pure=True
            )
        except OddValueError:
            mixed.append(name)
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


def values_of(
    rows: Sequence[Row], names: Sequence[str]
) -> Iterator[tuple[str, list[Any]]]:
    """Yields each name with a value of each row; None where it is missing."""
    try:
        # Row by row, for many wide rows do not fit into the processor's cache. One name
        # alone would give values, not tuples of them.
        row_values = map(operator.itemgetter(*names, names[0]), rows)
        cells = list(itertools.chain.from_iterable(row_values))
    except KeyError:
        # Faster than to ask each row for each name, where rows have few of them.
        columns: dict[str, list[Any]] = {name: [None] * len(rows) for name in names}
        for index, row in enumerate(rows):
            for name, value in row.items():
                columns[name][index] = value
        yield from columns.items()
    else:
        for index, name in enumerate(names):
            yield name, cells[index :: len(names) + 1]


def column_of(
    values: list[Any],
    *,
    is_image: bool = False,
    apart: bool = False,
    pure: bool = False,
) -> pa.Array:
    """Returns n values of one column, of whatever library, as an Arrow array.

    Rows inside values become mappings.

    Args:
      values: n of them; None where one is missing.
      is_image: whether arrays are the pixels of images; they become PNG files.
      apart: whether integers do not join floats.
      pure: whether all values must be of one family, so that the column says what they
        are, whatever rows came together.

    Raises:
      OddValueError: a value does not fit the others, or Arrow has no type for it.
    """
    column = of_one_type(values, apart=apart)
    if column is not None:
        return column
    values = plain_values(native_values(values, is_image=is_image))
    families = _families(values)
    if families & _NESTED or "" in families:
        values = [_without_records(value) for value in values]
        families = _families(values)
    if not pure or (families == {"int", "float"} and not apart):
        return arrow_of(values)
    _check_alike(values, families)
    column = arrow_of(values)
    if families & _NESTED and _holds_lists_of_structs(column.type):
        by_path: dict[tuple[str, ...], set[bool]] = {}
        for value in values:
            _note_lists(value, (), by_path)
        if any(len(kinds) > 1 for kinds in by_path.values()):
            raise OddValueError("lists of mappings beside empty ones")
    return column


def _check_alike(values: list[Any], families: set[str]) -> None:
    """Raises OddValueError for values of several families, or arrays of several."""
    if families & _NESTED:
        arrays = [value for value in values if isinstance(value, np.ndarray)]
        deep = {_likeness(array) for array in arrays if array.ndim > 1}
        if len(deep) > 1 or (deep and len(arrays) < sum(v is not None for v in values)):
            raise OddValueError("arrays of several types or shapes")
    if len(families) > 1 and families != {"array", "list"}:
        raise OddValueError("values of several kinds")


def _holds_lists_of_structs(kind: pa.DataType) -> bool:
    """Whether a type has lists of mappings at any depth."""
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
    """Returns the families of values as `family_of` names them; None has no family."""
    return {family_of(kind) for kind in set(map(type, values)) - {type(None)}}


def _without_records(value: Any, above: tuple[int, ...] = ()) -> Any:
    """Returns a value with plain mappings for rows of other types, wherever in it.

    Coders of Beam turn nested rows from one type to another. Empty ones are missing.

    Args:
      value: any.
      above: ids of what it is in.
    """
    if len(above) > MAX_NESTING or id(value) in above:
        # Refused later, with words for it.
        return value
    convert = converter(type(value))
    if convert is None and not (
        isinstance(value, list | tuple)
        and any(
            issubclass(kind, list | tuple) or converter(kind) is not None
            for kind in set(map(type, value))
        )
    ):
        return value
    inside = functools.partial(_without_records, above=(*above, id(value)))
    if convert is None:
        return list(map(inside, value))
    return {key: inside(child) for key, child in convert(value).items()} or None


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
    """Returns the error about a value of one row that no feature can hold."""
    value: Any = row.get(name)
    is_wide = family_of(type(value)) == "int" and not -(2**63) <= value < 2**63
    try:
        column_of([value], is_image=is_image, pure=True)
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
