"""Find the text columns of plain numbers, many columns at a time.

A table of thousands of columns has few cells in each. The cost is that of the calls,
not of the cells, unless whole groups of columns are examined by the same calls:

    columns -> one array of all their cells -> which bytes each column holds
            -> candidates -> one cast of all whole numbers, one of all others

A column is left to the exact rules of `texts` where it holds anything but the digits,
signs, points and exponents of numbers that are smaller than 2^24.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import numpy_mask, offsets_of, raw_values
from transforms.core.rows.coerce import DECIMAL, cast_plain
from transforms.core.rows.float32 import FLOAT32_EXACT
from transforms.core.schema import Kind

__all__ = ["Cells", "PlainNumbers", "chunks_of", "plain_numbers"]

Cells: TypeAlias = pa.ChunkedArray | pa.StringArray
"""The cells of a text column."""

Places: TypeAlias = npt.NDArray[np.intp]

# Bytes of text that are examined at once. A larger column is examined by itself.
_GROUP_BYTES = 16 << 20
# Offsets of 32 bits end at 2 GiB. The exact rules look at such a column in pieces.
_MOST_BYTES = 1 << 30
# The first cells of each candidate. Dates and phone numbers have the bytes of numbers,
# and would make the cast of their whole group fail.
_PROBED = 32
# A decimal without exponent of up to this many characters is whole if its float64 is.
_EXACT_CHARS = 15

_DIGIT, _MINUS, _POINT, _EXPONENT, _OTHER = 1, 2, 4, 8, 16
_CLASSES = np.full(256, _OTHER, np.uint8)
_CLASSES[np.frombuffer(b"0123456789", np.uint8)] = _DIGIT
_CLASSES[ord("-")] = _MINUS
_CLASSES[ord(".")] = _POINT
_CLASSES[np.frombuffer(b"eE", np.uint8)] = _EXPONENT


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
    for names in _groups(columns):
        group = _Group([columns[name] for name in names])
        found |= {names[place]: facts for place, facts in group.plain()}
    return found


def chunks_of(texts: Cells) -> list[pa.StringArray]:
    """Returns the chunks of a column that are not empty."""
    chunks = texts.chunks if isinstance(texts, pa.ChunkedArray) else [texts]
    return [chunk for chunk in chunks if len(chunk)]


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


class _Group:
    """The cells of k columns of n cells each, one column after another."""

    def __init__(self, columns: Sequence[Cells]) -> None:
        self._rows = len(columns[0])
        self._cells = pa.concat_arrays(
            [chunk for column in columns for chunk in chunks_of(column)]
        )
        starts = offsets_of(self._cells)[:: self._rows]
        self._classes = np.zeros(len(columns), np.uint8)
        filled = np.flatnonzero(np.diff(starts))
        if len(filled):
            data = np.frombuffer(self._cells.buffers()[2], np.uint8, starts[-1])
            self._classes[filled] = np.bitwise_or.reduceat(
                _CLASSES[data], starts[filled]
            )

    def plain(self) -> Iterator[tuple[int, PlainNumbers]]:
        """Yields the place of each column of plain numbers, and the facts about it."""
        numeric = (self._classes & (_OTHER | _DIGIT)) == _DIGIT
        pointed = (self._classes & (_POINT | _EXPONENT)) > 0
        for kind, these in (
            (Kind.INT64, numeric & ~pointed),
            (Kind.FLOAT, numeric & pointed),
        ):
            for places, values in self._cast(self._probed(these), kind):
                yield from self._facts(places, values)

    def _probed(self, candidates: npt.NDArray[np.bool_]) -> Places:
        """Returns the places of candidates whose first cells are numbers."""
        places = np.flatnonzero(candidates)
        count = min(self._rows, _PROBED)
        at = places[:, None] * self._rows + np.arange(count)
        cells = self._cells.take(pa.array(at.ravel()))
        words = numpy_mask(pc.invert(pc.match_substring_regex(cells, DECIMAL)))
        return places[~words.reshape(-1, count).any(axis=1)]

    def _cast(self, places: Places, kind: Kind) -> Iterator[tuple[Places, pa.Array]]:
        """Yields columns that can be cast, and their values one after another."""
        if not len(places):
            return
        values = cast_plain(self._part(places), kind)
        if values is not None:
            yield places, values
        elif len(places) > 1:
            middle = len(places) // 2
            yield from self._cast(places[:middle], kind)
            yield from self._cast(places[middle:], kind)

    def _part(self, places: Places) -> pa.StringArray:
        """Returns the cells of some columns, one column after another."""
        first, count = int(places[0]), len(places)
        if places[-1] - first == count - 1:
            return self._cells.slice(first * self._rows, count * self._rows)
        return pa.concat_arrays([self._column(place) for place in places.tolist()])

    def _column(self, place: int) -> pa.StringArray:
        return self._cells.slice(place * self._rows, self._rows)

    def _facts(
        self, places: Places, values: pa.Array
    ) -> Iterator[tuple[int, PlainNumbers]]:
        shape = (len(places), self._rows)
        numbers: npt.NDArray[Any] = raw_values(values).reshape(shape)
        counts = np.full(len(places), self._rows)
        if values.null_count:
            valid = numpy_mask(values.is_valid()).reshape(shape)
            counts = valid.sum(axis=1)
            # Another number of the column neither is its least nor its largest.
            some = numbers[np.arange(len(places)), valid.argmax(axis=1)]
            numbers = np.where(valid, numbers, some[:, None])
        lows, highs = numbers.min(axis=1), numbers.max(axis=1)
        small = (lows > -FLOAT32_EXACT) & (highs < FLOAT32_EXACT)
        whole = np.ones(len(places), np.bool_)
        is_float = pa.types.is_floating(values.type)
        if is_float:
            whole = (np.floor(numbers) == numbers).all(axis=1)
        for index in np.flatnonzero(small).tolist():
            place = int(places[index])
            low, high = lows[index].item(), highs[index].item()
            if is_float and whole[index]:
                held = self._holds_whole(place)
                if held is None:
                    continue
                if held:
                    low, high = int(low), int(high)
            is_pointed = is_float and isinstance(low, int)
            yield place, PlainNumbers(int(counts[index]), low, high, is_pointed)

    def _holds_whole(self, place: int) -> bool | None:
        """Tells whether numbers that are whole as float32 are; None if unsure."""
        cells = self._column(place)
        longest = pc.max(pc.binary_length(cells)).as_py()
        if self._classes[place] & _EXPONENT or longest > _EXACT_CHARS:
            return None
        doubles = pc.cast(cells, pa.float64())
        return bool(pc.all(pc.equal(pc.floor(doubles), doubles)).as_py())
