"""Cast many text columns at once.

A table of thousands of columns has few cells in each. The cost is that of the calls,
not of the cells, unless whole groups of columns are cast by the same calls:

    columns -> one array of all their cells -> which bytes each column holds
            -> one cast of the columns that hold nothing but the bytes of numbers
"""

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.core.arrays import stored_offsets
from transforms.core.rows.coerce import cast_plain, coerce, without_unheld
from transforms.core.rows.column import Column
from transforms.core.rows.float32 import is_large
from transforms.core.schema import Feature, Kind

Cells: TypeAlias = pa.ChunkedArray | pa.StringArray
"""The cells of a text column."""

Places: TypeAlias = npt.NDArray[np.intp]

# Cells that are cast at once: enough to hide what a call costs; they fit in the cache.
_GROUP_CELLS = 65_536
# Cells at the start of a column that show most texts not to be numbers.
_FIRST_CELLS = 32
# Bytes whose classes are looked up at once: they stay in the cache.
_PIECE_BYTES = 1 << 18

_DIGIT, _MINUS, _POINT, _EXPONENT, _OTHER = 1, 2, 4, 8, 16
_CLASS_OF = dict.fromkeys(b"0123456789", _DIGIT) | dict.fromkeys(b"eE", _EXPONENT)
_CLASS_OF |= {ord("-"): _MINUS, ord("."): _POINT}
_CLASSES = bytes(_CLASS_OF.get(byte, _OTHER) for byte in range(256))
_PLAIN = bytes(_CLASS_OF)


class ColumnGroup:
    """The cells of k columns, one column after another.

    Args:
      columns: texts, n >= 1 in each.

    Attributes:
      rows: n.
      cells: n * k texts.
    """

    def __init__(self, columns: Sequence[Cells]) -> None:
        self.rows = len(columns[0])
        self.cells: pa.StringArray = pa.concat_arrays(
            [chunk for column in columns for chunk in chunks_of(column)]
        )
        starts = stored_offsets(self.cells)[:: self.rows].astype(np.int64)
        self._classes = np.zeros(len(columns), np.uint8)
        filled = np.flatnonzero(np.diff(starts))
        if len(filled):
            self._classify(filled, starts[filled], int(starts[-1]))

    def _classify(self, filled: Places, starts: npt.NDArray[Any], stop: int) -> None:
        """Notes the classes of bytes of the columns `filled`, which start there."""
        data = memoryview(self.cells.buffers()[2])
        for low in range(int(starts[0]), stop, _PIECE_BYTES):
            piece = bytes(data[low : min(low + _PIECE_BYTES, stop)])
            classes = np.frombuffer(piece.translate(_CLASSES), np.uint8)
            first = np.searchsorted(starts, low, "right") - 1
            last = np.searchsorted(starts, low + len(piece), "left")
            inside = np.maximum(starts[first:last], low) - low
            found = np.bitwise_or.reduceat(classes, inside)
            self._classes[filled[first:last]] |= found

    @property
    def has_exponents(self) -> npt.NDArray[np.bool_]:
        """Which of the k columns hold an e or E."""
        return (self._classes & _EXPONENT) > 0

    def numeric(self, *, pointed: bool | None = None) -> Places:
        """Returns the places of columns that hold only bytes of numbers, and digits.

        Args:
          pointed: whether they must hold a point or an exponent, or must not.
        """
        found = (self._classes & (_OTHER | _DIGIT)) == _DIGIT
        if pointed is not None:
            found &= ((self._classes & (_POINT | _EXPONENT)) > 0) == pointed
        return np.flatnonzero(found)

    def cast(self, places: Places, kind: Kind) -> Iterator[tuple[Places, pa.Array]]:
        """Yields columns that `cast_plain` accepts, and their values as in `cells`."""
        if not len(places):
            return
        values = cast_plain(self._part(places), kind)
        if values is not None:
            yield places, values
        elif len(places) > 1:
            middle = len(places) // 2
            yield from self.cast(places[:middle], kind)
            yield from self.cast(places[middle:], kind)

    def _part(self, places: Places) -> pa.StringArray:
        first, count = int(places[0]), len(places)
        if places[-1] - first == count - 1:
            return self.cells.slice(first * self.rows, count * self.rows)
        return pa.concat_arrays([self.column(place) for place in places.tolist()])

    def column(self, place: int) -> pa.StringArray:
        """Returns the cells of one column."""
        return self.cells.slice(place * self.rows, self.rows)


def chunks_of(texts: Cells) -> list[pa.StringArray]:
    """Returns the chunks of a column that are not empty."""
    chunks = texts.chunks if isinstance(texts, pa.ChunkedArray) else [texts]
    return [chunk for chunk in chunks if len(chunk)]


def starts_as_number(texts: Cells) -> bool:
    """Tells whether the first cells hold only bytes that `ColumnGroup.numeric` takes.

    That costs nothing, while a group copies all cells.
    """
    for chunk in chunks_of(texts)[:1]:
        offsets = stored_offsets(chunk.slice(0, _FIRST_CELLS))
        data = chunk.buffers()[2]
        if data is not None:
            head = memoryview(data)[int(offsets[0]) : int(offsets[-1])].tobytes()
            return not head.translate(None, _PLAIN)
    return True


def coerce_columns(
    columns: Sequence[pa.StringArray], features: Sequence[Feature]
) -> list[Column]:
    """Returns what `coerce` returns for each of k columns, in less time for many.

    Args:
      columns: texts, n in each.
      features: k features.
    """
    together: dict[int, Column] = {}
    size = _GROUP_CELLS // max(len(columns[0]), 1) if columns else 0
    for kind in (Kind.INT64, Kind.FLOAT):
        places = [i for i, feature in enumerate(features) if feature.kind is kind]
        for start in range(0, len(places), max(size, 1)):
            group = places[start : start + size]
            if len(group) > 1 and len(columns[0]):
                _coerce_group(group, columns, features, together)
    return [
        together[i] if i in together else coerce(column, features[i])
        for i, column in enumerate(columns)
    ]


def _coerce_group(
    places: Sequence[int],
    columns: Sequence[pa.StringArray],
    features: Sequence[Feature],
    out: dict[int, Column],
) -> None:
    """Adds the columns at some places that are plain numbers of one kind."""
    kind = features[places[0]].kind
    group = ColumnGroup([columns[place] for place in places])
    numeric = group.numeric(pointed=False if kind is Kind.INT64 else None)
    for found, values in group.cast(numeric, kind):
        large = kind is Kind.FLOAT and is_large(values)
        for at, part in zip(found.tolist(), _divided(values, group.rows), strict=True):
            place = places[at]
            column = Column(part)
            if large:
                column = without_unheld(column, columns[place], features[place])
            out[place] = column


def _divided(values: pa.Array, rows: int) -> Iterator[pa.Array]:
    """Yields values in arrays of n, none of which holds on to more than its own.

    Pickling a slice of an array would pickle the whole array.
    """
    starts = range(0, len(values), rows)
    if values.null_count:
        yield from (pa.concat_arrays([values.slice(at, rows)]) for at in starts)
        return
    kind, data = values.type, values.buffers()[1]
    width = kind.byte_width
    for at in starts:
        part = data.slice(at * width, rows * width)
        yield pa.Array.from_buffers(kind, rows, [None, part], 0)
