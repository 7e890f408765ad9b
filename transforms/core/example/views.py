"""Runs and Arrow binary views: the parts from which records are assembled.

A run is neighbouring bytes of fixed layout in every record of a chunk. A view is a word
of 16 bytes:

    size <= 12   | size: 4 | the bytes themselves, zero padded: 12     |
    size > 12    | size: 4 | 0: 4 | buffer number: 4 | offset in it: 4 |

n records of P parts each are n * P views in row order. One cast to `large_binary`
copies every part to its place at about 4 ns a part; the data buffer of the result is
the records one after another. A part of size 0 is an absent part.

Arrow's specification ("Variable-size Binary View Layout") puts the first four bytes of
a long value behind its size; the cast does not read them, so they stay 0. In this
module n views are a uint64 array of shape (n, 2).
"""

import dataclasses
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Words = npt.NDArray[np.uint64]
Store = tuple[int, npt.NDArray[np.generic], int]
"""Values in every row of a run: the position of the first; n values, or n rows of them;
the bytes from one of a row to the next, 0 where they are neighbours."""

INLINE_BYTES = 12

_SIZE = np.uint64(0xFFFFFFFF)
# Rows of a run are filled in blocks of this size, while they are in the cache.
_BLOCK_BYTES = 1 << 22

Mask = npt.NDArray[np.bool_]


@dataclasses.dataclass(slots=True)
class DataBuffers:
    """The buffers that the long views of one join point into."""

    buffers: list[pa.Buffer] = dataclasses.field(default_factory=list)

    def add(self, buffer: pa.Buffer) -> int:
        """Adds a buffer and returns its number."""
        self.buffers.append(buffer)
        return len(self.buffers) - 1

    def renumbered(self, views: Words, buffer: pa.Buffer) -> Words:
        """Adds the buffer of views in which it is number 0; updates the views."""
        sizes = views[:, 0] & _SIZE
        if int(sizes.max(initial=0)) > INLINE_BYTES:
            number = self.add(buffer)
            if number:
                views[:, 1] += (sizes > INLINE_BYTES) * np.uint64(number)
        return views

    def views_of(self, values: pa.Array) -> Words:
        """Returns the views of n texts or bytes, without copying their data.

        The values span less than 2**31 bytes; the views of nulls are arbitrary.
        """
        count = len(values)
        _, offsets, data = values.buffers()
        if not count or data is None:
            return np.zeros((count, 2), np.uint64)
        start = values.offset
        if pa.types.is_large_binary(values.type) or pa.types.is_large_string(
            values.type
        ):
            # View offsets have 32 bits: count them from the first value instead.
            wide = np.frombuffer(offsets, np.int64, count + 1, start * 8)
            first, last = int(wide[0]), int(wide[-1])
            offsets, start = pa.py_buffer(wide - first), 0
            data = data.slice(first, last - first)
        bare = pa.Array.from_buffers(
            values.type, count, [None, offsets, data], 0, start
        )
        cast = bare.cast(pa.binary_view())
        words = np.frombuffer(cast.buffers()[1], np.uint64, count * 2, cast.offset * 16)
        return self.renumbered(words.reshape(count, 2), data)


def view_sizes(views: Words) -> npt.NDArray[np.int64]:
    """Returns the sizes in bytes of n views."""
    return (views[:, 0] & _SIZE).view(np.int64)


def taken_views(views: Words, rows: npt.NDArray[np.integer]) -> Words:
    """Returns the views at n rows."""
    # As complex128, the 16 bytes of a view are one element, which halves the time.
    taken = views.view(np.complex128)[:, 0].take(rows)
    return taken.view(np.uint64).reshape(-1, 2)


def matrix_views(matrix: npt.NDArray[np.uint8], number: int) -> Words:
    """Returns the views of the rows of a contiguous (n, width) matrix.

    `number` is the matrix's buffer number, for rows too long for inline views.
    """
    count, width = matrix.shape
    if width <= INLINE_BYTES:
        cells = np.zeros((count, 16), np.uint8)
        cells[:, 0] = width
        cells[:, 4 : 4 + width] = matrix
        return cells.view(np.uint64)
    views = np.empty((count, 2), np.uint64)
    views[:, 0] = width
    # The offset is the upper half of the second word: its step is width << 32.
    stop = number + ((count * width) << 32)
    views[:, 1] = np.arange(number, stop, width << 32, dtype=np.uint64)[:count]
    return views


def join(views: Words, buffers: DataBuffers) -> pa.LargeBinaryArray:
    """Returns the n * P parts of an (n, P, 2) array of views, in row order.

    The data buffer of the result is new, and may be written to.
    """
    parts = views.shape[0] * views.shape[1]
    array = pa.Array.from_buffers(
        pa.binary_view(), parts, [None, pa.py_buffer(views), *buffers.buffers], 0
    )
    return array.cast(pa.large_binary())


@dataclasses.dataclass(slots=True)
class Run:
    """A template, and columns to store in it.

    Attributes:
      present: bool array of n; None where every row has the run.
      template: the bytes of one row; those that `stores` cover are arbitrary.
      stores: the values in it.
    """

    present: Mask | None = None
    template: bytearray = dataclasses.field(default_factory=bytearray)
    stores: list[Store] = dataclasses.field(default_factory=list)

    def append(self, template: bytes | bytearray, stores: Iterable[Store] = ()) -> None:
        """Adds bytes to the end, with the stores in them."""
        start = len(self.template)
        self.stores += [
            (start + position, cells, step) for position, cells, step in stores
        ]
        self.template += template

    def matrix(self, rows: int) -> npt.NDArray[np.uint8]:
        """Returns the run of all rows as a uint8 array (rows, width)."""
        width = len(self.template)
        out = np.frombuffer(bytearray(self.template) * rows, np.uint8)
        block = max(_BLOCK_BYTES // width, 64)
        for start in range(0, rows, block):
            count = min(block, rows - start)
            for position, cells, step in self.stores:
                np.ndarray(
                    (count, *cells.shape[1:]),
                    cells.dtype,
                    out,
                    start * width + position,
                    (width, step or cells.itemsize)[: cells.ndim],
                )[:] = cells[start : start + count]
        return out.reshape(rows, width)
