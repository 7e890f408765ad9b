"""Runs: neighbouring bytes of fixed layout in every record of a chunk."""

import dataclasses

import numpy as np
import numpy.typing as npt

from transforms.core.example.views import Store

# Rows of a run are filled in blocks of this size, while they are in the cache.
_BLOCK_BYTES = 1 << 22

Mask = npt.NDArray[np.bool_]


@dataclasses.dataclass(frozen=True, slots=True)
class Table:
    """Values of one type that belong at k positions of every row.

    Attributes:
      spans: (position of the first, how many, distance of one from the next) of values
        that are evenly spaced; together k.
      cells: array (n, k).
    """

    spans: tuple[tuple[int, int, int], ...]
    cells: npt.NDArray[np.generic]

    def moved(self, distance: int) -> "Table":
        """Returns the table with all positions further back."""
        spans = tuple((at + distance, count, step) for at, count, step in self.spans)
        return Table(spans, self.cells)


@dataclasses.dataclass(slots=True)
class Run:
    """A template, and columns to store in it.

    Attributes:
      present: bool array of n; None where every row has the run.
      template: the bytes of one row; those that `stores` cover are arbitrary.
      stores: (offset, array of n elements, or of n rows of them) pairs.
      tables: values of many columns, which take a store for each span of columns.
    """

    present: Mask | None = None
    template: bytearray = dataclasses.field(default_factory=bytearray)
    stores: list[Store] = dataclasses.field(default_factory=list)
    tables: list[Table] = dataclasses.field(default_factory=list)

    def matrix(self, rows: int) -> npt.NDArray[np.uint8]:
        """Returns the run of all rows as a uint8 array (rows, width)."""
        width = len(self.template)
        out = np.frombuffer(bytearray(self.template) * rows, np.uint8)
        block = max(_BLOCK_BYTES // width, 64)
        for start in range(0, rows, block):
            count = min(block, rows - start)
            for position, cells in self.stores:
                np.ndarray(
                    (count, *cells.shape[1:]),
                    cells.dtype,
                    out,
                    start * width + position,
                    (width, cells.itemsize)[: cells.ndim],
                )[:] = cells[start : start + count]
            for table in self.tables:
                part, left = table.cells[start : start + count], 0
                for position, several, step in table.spans:
                    np.ndarray(
                        (count, several),
                        part.dtype,
                        out,
                        start * width + position,
                        (width, step),
                    )[:] = part[:, left : left + several]
                    left += several
        return out.reshape(rows, width)
