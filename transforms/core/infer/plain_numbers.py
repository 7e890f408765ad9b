"""Find the text columns of plain numbers, many columns at a time.

A column is left to the exact rules of `texts` where it holds anything but the digits,
signs, points and exponents of numbers that are smaller than 2^24.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import numpy_mask, raw_values
from transforms.core.rows.coerce import DECIMAL, MISSING_WORDS
from transforms.core.rows.column_group import (
    Cells,
    ColumnGroup,
    Places,
    starts_as_number,
)
from transforms.core.rows.float32 import FLOAT32_EXACT
from transforms.core.schema import Kind

# Bytes of text that are examined at once. A larger column is examined by itself.
_GROUP_BYTES = 16 << 20
# Offsets of 32 bits end at 2 GiB. The exact rules look at such a column in pieces.
_MOST_BYTES = 1 << 30
# The first cells of each candidate. Dates and phone numbers have the bytes of numbers,
# and would make the cast of their whole group fail.
_PROBED = 32
# A decimal without exponent of up to this many characters is whole if its float64 is.
_EXACT_CHARS = 15


@dataclasses.dataclass(frozen=True, slots=True)
class PlainNumbers:
    """What is known of a column whose cells are all plain numbers, or null.

    Attributes:
      count: of the cells that are not null; at least 1.
      low: the least number; an int if all are whole.
      high: the largest.
      pointed: whether all are whole, and one is written with a point.
    """

    count: int
    low: int | float
    high: int | float
    pointed: bool

    @property
    def whole(self) -> bool:
        """Whether all numbers are whole."""
        return isinstance(self.low, int)


def plain_numbers(columns: Mapping[str, Cells]) -> dict[str, PlainNumbers]:
    """Returns the columns that hold nothing but plain numbers and nulls.

    Args:
      columns: name to texts.

    Example:
      >>> plain_numbers({"a": pa.array(["1.5", None]), "b": pa.array(["x", "2"])})
      {'a': PlainNumbers(count=1, low=1.5, high=1.5, pointed=False)}
    """
    found: dict[str, PlainNumbers] = {}
    likely = {name: c for name, c in columns.items() if starts_as_number(c)}
    for names in _groups(likely):
        group = ColumnGroup([columns[name] for name in names])
        found |= {names[place]: facts for place, facts in _plain(group)}
    return found


def with_missing_as_null(columns: Mapping[str, Cells]) -> dict[str, Cells]:
    """Returns the columns that hold a word for a missing value, with nulls for them.

    Args:
      columns: name to texts, which are copied in groups.

    Example:
      >>> columns = {"a": pa.array(["1", "NA"]), "b": pa.array(["2", "3"])}
      >>> {k: v.to_pylist() for k, v in with_missing_as_null(columns).items()}
      {'a': ['1', None]}
    """
    found: dict[str, Cells] = {}
    for names in _groups(columns):
        group = ColumnGroup([columns[name] for name in names])
        words = pc.is_in(group.cells, value_set=pa.array(MISSING_WORDS))
        has_words = numpy_mask(words).reshape(-1, group.rows).any(axis=1)
        if not has_words.any():
            continue
        # `if_else` would keep the bytes of the words.
        nothing = pa.scalar(None, pa.string())
        cleaned = pc.replace_with_mask(group.cells, words, nothing)
        for place in np.flatnonzero(has_words).tolist():
            found[names[place]] = cleaned.slice(place * group.rows, group.rows)
    return found


def _groups(columns: Mapping[str, Cells]) -> Iterator[list[str]]:
    """Yields the names of columns that are examined together."""
    names: list[str] = []
    size = rows = 0
    for name, column in columns.items():
        each = column.nbytes
        if not len(column) or each > _MOST_BYTES:
            continue
        if names and (size + each > _GROUP_BYTES or len(column) != rows):
            yield names
            names, size = [], 0
        rows = len(column)
        names.append(name)
        size += each
    if names:
        yield names


def _plain(group: ColumnGroup) -> Iterator[tuple[int, PlainNumbers]]:
    """Yields the place of each column of plain numbers, and the facts about it."""
    for kind in (Kind.INT64, Kind.FLOAT):
        candidates = group.numeric(pointed=kind is Kind.FLOAT)
        for places, values in group.cast(_probed(group, candidates), kind):
            yield from _facts(group, places, values)


def _probed(group: ColumnGroup, places: Places) -> Places:
    """Returns the places of candidates whose first cells are numbers."""
    count = min(group.rows, _PROBED)
    at = places[:, None] * group.rows + np.arange(count)
    cells = group.cells.take(pa.array(at.ravel()))
    words = numpy_mask(pc.invert(pc.match_substring_regex(cells, DECIMAL)))
    return places[~words.reshape(-1, count).any(axis=1)]


def _facts(
    group: ColumnGroup, places: Places, values: pa.Array
) -> Iterator[tuple[int, PlainNumbers]]:
    shape = (len(places), group.rows)
    numbers: npt.NDArray[Any] = raw_values(values).reshape(shape)
    counts = np.full(len(places), group.rows)
    if values.null_count:
        valid = numpy_mask(values.is_valid()).reshape(shape)
        counts = valid.sum(axis=1)
        # Any other number of the column changes neither the least nor the largest.
        some = numbers[np.arange(len(places)), valid.argmax(axis=1)]
        numbers = np.where(valid, numbers, some[:, None])
    lows, highs = numbers.min(axis=1), numbers.max(axis=1)
    small = (lows > -FLOAT32_EXACT) & (highs < FLOAT32_EXACT)
    is_float = pa.types.is_floating(values.type)
    seems_whole = np.zeros(len(places), np.bool_)
    if is_float:
        seems_whole = (np.floor(numbers) == numbers).all(axis=1)
    for index in np.flatnonzero(small).tolist():
        place = int(places[index])
        low, high = lows[index].item(), highs[index].item()
        if seems_whole[index]:
            is_whole = _holds_whole(group, place)
            if is_whole is None:
                continue
            if is_whole:
                low, high = int(low), int(high)
        pointed = is_float and isinstance(low, int)
        yield place, PlainNumbers(int(counts[index]), low, high, pointed)


def _holds_whole(group: ColumnGroup, place: int) -> bool | None:
    """Tells whether numbers that are whole as float32 are; None if unsure."""
    cells = group.column(place)
    longest = pc.max(pc.binary_length(cells)).as_py()
    if group.has_exponents[place] or longest > _EXACT_CHARS:
        return None
    doubles = pc.cast(cells, pa.float64())
    return bool(pc.all(pc.equal(pc.floor(doubles), doubles)).as_py())
