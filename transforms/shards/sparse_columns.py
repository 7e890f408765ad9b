"""Which columns of a shard have values in which of its chunks.

Of rows with a few of very many columns, a chunk has values in few columns. The others
add nothing to its records, so that it does without them:

    rows     a  b  c  d        chunks of two rows
    0        1  -  -  -        a
    1        2  -  -  -
    2        3  -  4  -        a, c
    3        5  -  -  -
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from transforms.core.placing.shard_rows import ShardRows
from transforms.core.schema import Feature, Kind

__all__ = ["SparseColumns"]

# Where fewer columns could be left out, it would cost more than it saves.
_LEAST_COLUMNS = 256
# A column is sparse if it lacks a value in at least this share of the rows.
_LEAST_MISSING = 0.75


@dataclasses.dataclass(frozen=True, slots=True)
class SparseColumns:
    """The sparse columns of a shard's rows, and the chunks that need them.

    Attributes:
      dense: columns that every chunk needs, at least one.
      sparse: the others.
      held: whether chunk i has a value in column j of `sparse`.
    """

    dense: Sequence[str]
    sparse: Sequence[str]
    held: npt.NDArray[np.bool_]

    @classmethod
    def of(
        cls, rows: ShardRows, features: Sequence[Feature], size: int
    ) -> "SparseColumns | None":
        """Returns the sparse columns of rows; None where they are few.

        Args:
          rows: of a shard, with their features as columns.
          features: of the rows.
          size: rows in a chunk.
        """
        table, least = rows.table, _LEAST_MISSING * rows.table.num_rows
        # Boxes are counted in every chunk.
        able = {feature.name for feature in features if feature.kind is not Kind.BOX}
        names, columns = table.column_names, table.columns
        sparse = {
            name: column
            for name, column in zip(names, columns, strict=True)
            if name in able and column.null_count >= least
        }
        if len(sparse) == len(names):
            # A batch without columns would have no rows.
            del sparse[names[0]]
        if len(sparse) < _LEAST_COLUMNS or not len(rows):
            return None
        starts = np.arange(0, len(rows), size)
        held = np.empty((len(starts), len(sparse)), np.bool_)
        for index, column in enumerate(sparse.values()):
            valid = column.is_valid().to_numpy()[rows.order]
            held[:, index] = np.logical_or.reduceat(valid, starts)
        return cls([name for name in names if name not in sparse], [*sparse], held)

    def of_chunk(self, number: int) -> list[str]:
        """Returns the columns that a chunk needs."""
        places = np.flatnonzero(self.held[number]).tolist()
        return [*self.dense, *(self.sparse[place] for place in places)]
