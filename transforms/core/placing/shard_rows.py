"""The rows of one shard: sorted, then cut into chunks of bounded size."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.core.arrays import in_one_piece
from transforms.core.placing import placement
from transforms.core.segment import KEY_COLUMN, ORIGIN_COLUMN, ROW_COLUMN

__all__ = ["ShardCounts", "ShardRows"]


@dataclasses.dataclass(frozen=True, slots=True)
class ShardCounts:
    """Facts about all rows that writing the first shard requires.

    Shard 1 of 3 has no rows, so shard 2 becomes the second of two files:

        >>> counts = ShardCounts({("train", 0): 5, ("train", 2): 3}, classes={})
        >>> counts.numbering("train", 2)
        (1, 2)

    Attributes:
      rows: rows placed in each shard that has any, by (split, shard).
      classes: label feature -> its class names in the order of their ids; an Arrow
        array, as there may be a million.
    """

    rows: Mapping[tuple[str, int], int]
    classes: Mapping[str, pa.StringArray]
    _indexes: Mapping[str, Mapping[int, int]] = dataclasses.field(
        init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        # Counted once: a search in all shards, for each of them, takes quadratic time.
        indexes: dict[str, dict[int, int]] = {}
        for split, shard in sorted(self.rows):
            of_split = indexes.setdefault(split, {})
            of_split[shard] = len(of_split)
        object.__setattr__(self, "_indexes", indexes)

    def numbering(self, split: str, shard: int) -> tuple[int, int]:
        """Returns (index, count) of a shard among the split's shards with rows."""
        of_split = self._indexes[split]
        return of_split[shard], len(of_split)


@dataclasses.dataclass(frozen=True, slots=True)
class ShardRows:
    """All rows of one shard.

        >>> rows = pa.record_batch({"id": [7, 8, 9], ROW_COLUMN: [0, 1, 2]})
        >>> shard = ShardRows.of([("a.csv", rows)], seed=0, shuffle=True)
        >>> shard.order
        array([2, 0, 1])
        >>> shard.origin(2)
        ('a.csv', 2)

    Attributes:
      table: the segments' rows in source order.
      order: positions in `table`, in the order of the records.
      origins: each segment's origin, for rows without a column of origins.
      starts: the position in `table` where each segment starts.
    """

    table: pa.Table
    order: npt.NDArray[np.int64]
    origins: tuple[str, ...]
    starts: npt.NDArray[np.int64]

    @classmethod
    def of(
        cls,
        segments: Sequence[tuple[str, pa.RecordBatch]],
        *,
        seed: int,
        shuffle: bool,
    ) -> "ShardRows":
        """Orders the rows of (origin, rows) pairs, which are in source order.

        Rows with equal order keys stay in source order.
        """
        table = in_one_piece(pa.Table.from_batches([rows for _, rows in segments]))
        origins = tuple(origin for origin, _ in segments)
        lengths = [rows.num_rows for _, rows in segments]
        starts = np.cumsum([0, *lengths[:-1]])
        if not shuffle:
            return cls(table, np.arange(table.num_rows), origins, starts)
        keys = np.concatenate(
            [_order_keys(origin, rows, seed) for origin, rows in segments]
        )
        return cls(table, _sorted_positions(keys), origins, starts)

    def __len__(self) -> int:
        return len(self.order)

    def take(self, start: int, stop: int) -> tuple[pa.Table, npt.NDArray[np.int64]]:
        """Returns the rows from `start` to `stop` of the order, and their positions."""
        positions = self.order[start:stop]
        return self.table.take(pa.array(positions)), positions

    def origin(self, position: int) -> tuple[str, int | None]:
        """Returns (origin, 0-based row) of the row at a position of `table`.

        The row is None where the origin names the row itself.
        """
        row = self.table[ROW_COLUMN][position].as_py()
        if ORIGIN_COLUMN in self.table.column_names:
            return self.table[ORIGIN_COLUMN][position].as_py(), row
        segment = int(np.searchsorted(self.starts, position, side="right")) - 1
        return self.origins[segment], row

    def places(
        self, positions: npt.NDArray[np.int64]
    ) -> tuple[pa.StringArray, npt.NDArray[np.int64]]:
        """Returns the origins and the 0-based rows at positions of `table`."""
        where = pa.array(positions)
        rows = self.table[ROW_COLUMN].take(where).to_numpy()
        if ORIGIN_COLUMN in self.table.column_names:
            return self.table[ORIGIN_COLUMN].take(where).combine_chunks(), rows
        segments = np.searchsorted(self.starts, positions, side="right") - 1
        return pa.array(self.origins, pa.string()).take(pa.array(segments)), rows


def _order_keys(origin: str, rows: pa.RecordBatch, seed: int) -> npt.NDArray[np.uint64]:
    """Returns the order hashes of a segment's rows: stored with it, or computed."""
    if KEY_COLUMN in rows.schema.names:
        return np.asarray(rows[KEY_COLUMN])
    origins = rows[ORIGIN_COLUMN] if ORIGIN_COLUMN in rows.schema.names else origin
    numbers = rows[ROW_COLUMN].to_numpy()
    return placement.hash_rows(origins, numbers, purpose="order", seed=seed)


def _sorted_positions(keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """Returns the stable sorting order of 64-bit keys.

    Sorts words of the upper bits of a key above its position: NumPy sorts words three
    times as fast as it finds their order. Keys of equal upper bits, few among hashes,
    are put in order by all of their bits.
    """
    count = len(keys)
    if count < 2:
        return np.arange(count)
    bits = (count - 1).bit_length()
    least = keys.min()
    width = int(keys.max() - least).bit_length()
    lost = max(width + bits - 64, 0)
    words = ((keys - least) >> np.uint64(lost)) << np.uint64(bits)
    words |= np.arange(count, dtype=np.uint64)
    words.sort()
    order = (words & np.uint64((1 << bits) - 1)).view(np.int64)
    words >>= np.uint64(bits)
    same = words[1:] == words[:-1]
    if lost and same.any():
        tied = np.zeros(count, np.bool_)
        tied[1:] = same
        tied[:-1] |= same
        ties = order[tied]
        order[tied] = ties[np.argsort(keys[ties], kind="stable")]
    return order
