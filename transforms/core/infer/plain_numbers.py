"""Find the text columns of plain numbers at a glance.

A column is left to the exact rules of `texts` where it holds anything but the digits,
signs, points and exponents of numbers that are smaller than 2^24.
"""

import dataclasses
from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import stored_offsets
from transforms.core.rows.float32 import FLOAT32_EXACT
from transforms.core.rows.text_cells import cast_plain
from transforms.core.schema import Kind

Cells: TypeAlias = pa.ChunkedArray | pa.StringArray
"""The cells of a text column."""

# Offsets of 32 bits end at 2 GiB. The exact rules look at such a column in pieces.
_MOST_BYTES = 1 << 30
# Cells of a column that are looked at together: few copies are in memory at a time.
_PIECE_CELLS = 1 << 16
# Cells at the start of a column that show most texts not to be numbers.
_FIRST_CELLS = 32
# A decimal without exponent of up to this many characters is whole if its float64 is.
_EXACT_CHARS = 15
_CHARACTERS = b"0123456789-.eE"


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


def plain_numbers(texts: Cells) -> PlainNumbers | None:
    """Returns the facts of a column that holds nothing but plain numbers and nulls.

    >>> plain_numbers(pa.array(["1.5", None]))
    PlainNumbers(count=1, low=1.5, high=1.5, pointed=False)
    >>> plain_numbers(pa.array(["x", "2"]))
    """
    if not len(texts) or texts.nbytes > _MOST_BYTES:
        return None
    first = next(_pieces(texts)).slice(0, _FIRST_CELLS)
    if _bytes_of(first).translate(None, _CHARACTERS):
        return None
    for kind in (Kind.INT64, Kind.FLOAT):
        if facts := _facts(texts, kind):
            return facts
    return None


def _facts(texts: Cells, kind: Kind) -> PlainNumbers | None:
    """Returns the facts of a column whose cells are all plain numbers of this kind."""
    extents = []
    count, seem_whole = 0, True
    for piece in _pieces(texts):
        values = cast_plain(piece, kind)
        if values is None:
            return None
        if values.null_count < len(values):
            extents.append(pc.min_max(values).as_py())
            count += len(values) - values.null_count
            seem_whole = seem_whole and _seem_whole(values)
    if not extents:
        return None
    low = min(extent["min"] for extent in extents)
    high = max(extent["max"] for extent in extents)
    if low <= -FLOAT32_EXACT or high >= FLOAT32_EXACT:
        return None
    if kind is Kind.FLOAT and seem_whole:
        if any(map(_may_not_be_exact, _pieces(texts))):
            return None
        if all(_seem_whole(pc.cast(piece, pa.float64())) for piece in _pieces(texts)):
            low, high = int(low), int(high)
    pointed = kind is Kind.FLOAT and isinstance(low, int)
    return PlainNumbers(count, low, high, pointed)


def chunks_of(texts: Cells) -> list[pa.StringArray]:
    """Returns the chunks of a column that are not empty."""
    chunks = texts.chunks if isinstance(texts, pa.ChunkedArray) else [texts]
    return [chunk for chunk in chunks if len(chunk)]


def _pieces(texts: Cells) -> Iterator[pa.StringArray]:
    """Yields the cells of a column, some at a time; what is small is joined."""
    for start in range(0, len(texts), _PIECE_CELLS):
        chunks = chunks_of(texts.slice(start, _PIECE_CELLS))
        yield chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks)


def _bytes_of(cells: pa.StringArray) -> bytes:
    offsets, data = stored_offsets(cells), cells.buffers()[2]
    if data is None:
        return b""
    return memoryview(data)[int(offsets[0]) : int(offsets[-1])].tobytes()


def _may_not_be_exact(cells: pa.StringArray) -> bool:
    """Tells whether whole float64s may stand for other texts than a point shows."""
    longest = pc.max(pc.binary_length(cells)).as_py() or 0
    data = _bytes_of(cells)
    return longest > _EXACT_CHARS or any(mark in data for mark in (b"e", b"E", b"+"))


def _seem_whole(values: pa.Array) -> bool:
    """Tells whether all numbers are whole as they are stored."""
    numbers = (values.drop_null() if values.null_count else values).to_numpy()
    return bool((np.floor(numbers) == numbers).all())
