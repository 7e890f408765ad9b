"""Entries of sparse columns: of each row only those that it has.

    0a E  |  0a N name  |  12 F kind G 0a L  |  payload

These four parts of each cell are views. The first depends on the name and the size of
the payload, the second on the name, the third on the size, so that the entries of all
columns of a type are made by the same few calls.
"""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.core.example.entry import key_of
from transforms.core.example.payload import Column, Payload, max_bytes_before
from transforms.core.example.run import Run
from transforms.core.example.varint import MAX_VARINT_BYTES, Varints
from transforms.core.example.views import DataBuffers, Words, matrix_views
from transforms.core.sparse import Cells
from transforms.errors import EncodingError

__all__ = ["Entries", "SparseEntries", "entry_bytes_before", "in_order"]

PARTS = 4

Longs = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True, slots=True)
class Entries:
    """The entries of m cells, in the order of rows, and of names in a row.

    Attributes:
      rows: the row of each, ascending.
      places: how many of the columns that are not sparse come before it.
      sizes: bytes of each.
      views: its parts: (m, PARTS, 2).
    """

    rows: Longs
    places: Longs
    sizes: Longs
    views: Words


class SparseEntries:
    """Makes the entries of one sparse column."""

    def __init__(self, index: int, names: Sequence[str], kind: pa.DataType) -> None:
        """Plans the entries.

        Args:
          index: of the column.
          names: of its cells.
          kind: of their values.

        Raises EncodingError: no tf.train.Example can hold the type.
        """
        self.index = index
        self.names = names
        self._kind = kind
        # The payloads of all names are made as those of one.
        self._column = Column(pa.field(names[0], kind))
        self._tail = self._column.entry.tail
        keys = [key_of(name) for name in names]
        self._keys = pa.array(keys, pa.binary())
        self._key_sizes = np.fromiter(map(len, keys), np.int64, len(keys))

    @property
    def most_before_payload(self) -> int:
        """The most bytes of an entry but its payload."""
        return int(self._key_sizes.max()) + 5 * MAX_VARINT_BYTES

    def of(self, cells: Cells, first_row: int, buffers: DataBuffers) -> Entries | None:
        """Returns the entries of cells, without their places; None for no cells.

        Args:
          cells: of some rows.
          first_row: number of the first of them, for errors.
          buffers: takes the data that the views point into.

        Raises EncodingError as `Column.payload` does.
        """
        count = len(cells.places)
        if not count:
            return None
        try:
            payload = self._column.payload(cells.values, 0, buffers)
        except EncodingError:
            self._raise_of(cells, first_row)
            raise
        assert payload is not None, "there are cells"
        assert payload.present is None, "no cell is null"
        sizes = payload.sizes
        if sizes is None:
            sizes = np.full(count, payload.smallest, np.int64)
        views = np.empty((count, PARTS, 2), np.uint64)
        views[:, 3] = _views_of(payload, count, buffers)
        tails, tail_sizes = self._tails(payload, sizes, buffers)
        views[:, 2] = tails
        keys = buffers.views_of(self._keys).view(np.complex128)[:, 0]
        views[:, 1] = keys.take(cells.places).view(np.uint64).reshape(-1, 2)
        inner = tail_sizes + sizes + self._key_sizes[cells.places]
        heads = Varints.of(inner.view(np.uint64))
        low = heads.low << np.uint64(8) | np.uint64(0x0A)
        views[:, 0] = Varints(heads.sizes + 1, low, None).views()
        whole = inner + heads.sizes + 1
        return Entries(cells.rows, np.zeros(0, np.int64), whole, views)

    def _tails(
        self, payload: Payload, sizes: Longs, buffers: DataBuffers
    ) -> tuple[Words, Longs]:
        """Returns the third part of each entry, and its bytes."""
        if payload.sizes is None:
            distinct = np.array([payload.smallest])
            places = np.zeros(len(sizes), np.int64)
        else:
            distinct, places = np.unique(sizes, return_inverse=True)
        tails = [self._tail(size) for size in distinct.tolist()]
        lengths = np.fromiter(map(len, tails), np.int64, len(tails))
        views = buffers.views_of(pa.array(tails, pa.binary())).view(np.complex128)
        taken = views[:, 0].take(places).view(np.uint64).reshape(-1, 2)
        return taken, lengths.take(places)

    def _raise_of(self, cells: Cells, first_row: int) -> None:
        """Raises the error of the column that is to blame, with its name and row."""
        count = len(cells.starts) - 1
        columns = cells.by_name().columns(cells.names, count)
        for name, column in columns.items():
            alone = Column(pa.field(name, self._kind))
            alone.payload(column, first_row, DataBuffers())


def _views_of(payload: Payload, count: int, buffers: DataBuffers) -> Words:
    """Returns payloads as views (n, 2)."""
    if payload.views is not None:
        return payload.views
    assert payload.stores is not None, "payloads are stored or views"
    template = bytearray(payload.constant or bytes(payload.smallest))
    if not template:
        return np.zeros((count, 2), np.uint64)
    matrix = Run(None, template, payload.stores).matrix(count)
    return matrix_views(matrix, buffers.add(pa.py_buffer(matrix)))


def entry_bytes_before(cells: Cells, most_before_payload: int) -> Callable[[int], int]:
    """Returns a function of i: a bound on the bytes of the entries of rows before i."""
    starts, values = cells.starts, max_bytes_before(cells.values)

    def bound(row: int) -> int:
        start = int(starts[row])
        return values(start) + start * most_before_payload

    return bound


def in_order(found: Sequence[tuple[Entries, Longs, Longs]], ranks: int) -> Entries:
    """Returns the entries of all sparse columns in one order.

    Args:
      found: the entries of each; of each entry the rank of its name among all, and how
        many columns that are not sparse come before it.
      ranks: how many names there are.
    """
    rows = np.concatenate([entries.rows for entries, _, _ in found])
    sizes = np.concatenate([entries.sizes for entries, _, _ in found])
    views = np.concatenate([entries.views for entries, _, _ in found])
    places = np.concatenate([each for _, _, each in found])
    if len(found) > 1:
        keys = rows * ranks + np.concatenate([each for _, each, _ in found])
        order = np.argsort(keys, kind="stable")
        rows, sizes, views, places = (
            rows[order],
            sizes[order],
            views[order],
            places[order],
        )
    return Entries(rows, places, sizes, views)
