"""Rows of one layout: records that differ only in bytes at fixed places.

A column that repeats few texts, integers of two sizes, or missing values give records
few layouts. Rows of one layout are a single run: no views, and no moving of CRCs.

    rows -> the number of each row's layout -> rows side by side that share one
         -> records of each layout (n, width) -> each record to its place
"""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.core.arrays import numpy_mask, raw_values
from transforms.core.example.varint import varint_size

__all__ = ["Layouts", "interleaved"]

# Encoding a layout by itself costs about what it saves for this many rows.
_LEAST_ROWS = 1 << 11
# More combinations of what columns hold are not looked for.
_MOST_NUMBERS = 1 << 12

_Longs = npt.NDArray[np.int64]
_Numbers = npt.NDArray[np.uint16]


@dataclasses.dataclass(frozen=True, slots=True)
class Layouts:
    """The k layouts of n rows.

    Attributes:
      rows: n rows.
      order: their positions, those of one layout side by side and ascending.
      bounds: k + 1 places in the order: where each layout starts, and n.
    """

    rows: pa.RecordBatch
    order: _Longs
    bounds: _Longs

    @classmethod
    def of(cls, rows: pa.RecordBatch) -> "Layouts | None":
        """Returns the layouts of rows; None if they are one, or too many to pay.

        Args:
          rows: columns of numbers, and of texts or bytes in dictionaries.
        """
        if rows.num_rows < 2 * _LEAST_ROWS:
            return None
        numbers: _Numbers | None = None
        several = 1
        for column in rows.columns:
            found = _numbered(column)
            if found is None:
                continue
            digits, count = found
            several *= count
            if several > _MOST_NUMBERS:
                return None
            if numbers is None:
                numbers = np.zeros(rows.num_rows, np.uint16)
            numbers *= np.uint16(count)
            numbers += digits.astype(np.uint16)
        if numbers is None:
            return None
        counts = np.bincount(numbers)
        counts = counts[counts > 0]
        if not 1 < len(counts) <= rows.num_rows // _LEAST_ROWS:
            return None
        # Stable sorting of 16-bit numbers is a radix sort: 2 ns a row.
        order = np.argsort(numbers, kind="stable")
        return cls(rows, order, np.concatenate(([0], np.cumsum(counts))))

    def parts(self) -> Iterator[tuple[_Longs, pa.RecordBatch]]:
        """Yields the positions of each layout's rows, and the rows."""
        schema, order = self.rows.schema, pa.array(self.order)
        taken = [
            column if pa.types.is_dictionary(column.type) else column.take(order)
            for column in self.rows.columns
        ]
        for start, stop in itertools.pairwise(self.bounds.tolist()):
            positions, count = self.order[start:stop], stop - start
            columns = [
                _repeated(column[int(positions[0])], count)
                if pa.types.is_dictionary(column.type)
                else column.slice(start, count)
                for column in taken
            ]
            yield positions, pa.RecordBatch.from_arrays(columns, schema=schema)


def interleaved(
    parts: Sequence[tuple[_Longs, pa.Buffer]],
) -> tuple[pa.Buffer, _Longs]:
    """Returns n records of several widths end to end, and their n + 1 offsets.

    Args:
      parts: for each width the positions of its records among the n, and their bytes.
    """
    sizes = np.zeros(1 + sum(len(positions) for positions, _ in parts), np.int64)
    for positions, data in parts:
        sizes[positions + 1] = data.size // len(positions)
    offsets = np.cumsum(sizes, out=sizes)
    out = np.empty(int(offsets[-1]), np.uint8)
    for positions, data in parts:
        width = data.size // len(positions)
        # Overlapping places, one that begins at every byte.
        places = np.ndarray((out.size - width + 1,), f"V{width}", out, 0, (1,))
        places[offsets[positions]] = np.frombuffer(data, f"V{width}")
    return pa.py_buffer(out), offsets


def _numbered(column: pa.Array) -> tuple[npt.NDArray[np.integer], int] | None:
    """Returns a number for the layout of each of n values, and how many there may be.

    None where all have the same.
    """
    if pa.types.is_dictionary(column.type):
        count = len(column.dictionary)
        return column.indices.fill_null(count).to_numpy(), count + 1
    found = _sizes(column) if pa.types.is_integer(column.type) else None
    if not column.null_count:
        return found
    valid = numpy_mask(column.is_valid())
    if found is None:
        return valid.view(np.uint8), 2
    return (found[0] + 1) * valid, found[1] + 1


def _sizes(integers: pa.Array) -> tuple[npt.NDArray[np.integer], int] | None:
    """Returns a number for the size of each varint; None where one size is enough."""
    words = raw_values(integers).astype(np.int64, copy=False).view(np.uint64)
    shortest, longest = varint_size(int(words.min())), varint_size(int(words.max()))
    if shortest == longest:
        return None
    sizes = np.zeros(len(words), np.uint8)
    for size in range(shortest, longest):
        sizes += words >= np.uint64(1 << 7 * size)
    return sizes, longest - shortest + 1


def _repeated(value: pa.DictionaryScalar, count: int) -> pa.DictionaryArray:
    """Returns a value n times, as a dictionary of that alone."""
    if not value.is_valid:
        return pa.nulls(count, value.type)
    index = pa.array(np.zeros(count, np.int8)).cast(value.type.index_type)
    only = pa.array([value.value.as_py()], value.type.value_type)
    return pa.DictionaryArray.from_arrays(index, only, ordered=value.type.ordered)
