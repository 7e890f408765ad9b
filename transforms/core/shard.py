"""The rows of one shard: in order, then in chunks of what records hold."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core import placement
from transforms.core.schema import Schema, record_type
from transforms.core.segment import ORIGIN_COLUMN, ROW_COLUMN
from transforms.errors import EncodingError

__all__ = ["Census", "ShardRows", "label_ids", "record_schema"]


@dataclasses.dataclass(frozen=True, slots=True)
class Census:
    """What must be known of all rows before the first shard is written.

    Attributes:
      rows: rows placed in each shard that has any, by (split, shard).
      classes: label feature -> its class names, sorted by their UTF-8 bytes.
    """

    rows: Mapping[tuple[str, int], int]
    classes: Mapping[str, tuple[str, ...]]

    def numbering(self, split: str, shard: int) -> tuple[int, int]:
        """Returns (index, count) of a shard among the split's shards with rows."""
        filled = sorted(number for name, number in self.rows if name == split)
        return filled.index(shard), len(filled)


@dataclasses.dataclass(frozen=True, slots=True)
class ShardRows:
    """All rows of one shard.

    Attributes:
      table: the segments' rows in source order.
      order: the positions in `table`, as the records are to stand.
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
        """Puts the rows of (origin, rows) pairs, in source order, in their order.

        Rows with equal order keys stay in source order.
        """
        table = pa.Table.from_batches([rows for _, rows in segments])
        origins = tuple(origin for origin, _ in segments)
        lengths = [rows.num_rows for _, rows in segments]
        starts = np.cumsum([0, *lengths[:-1]])
        if not shuffle:
            return cls(table, np.arange(table.num_rows), origins, starts)
        keys = np.concatenate(
            [
                placement.hash_rows(
                    rows[ORIGIN_COLUMN] if ORIGIN_COLUMN in rows.schema.names else name,
                    rows[ROW_COLUMN].to_numpy(),
                    purpose="order",
                    seed=seed,
                )
                for name, rows in segments
            ]
        )
        return cls(table, _sorted_positions(keys), origins, starts)

    def __len__(self) -> int:
        return len(self.order)

    def take(self, start: int, stop: int) -> tuple[pa.Table, npt.NDArray[np.int64]]:
        """Returns the rows from `start` to `stop` of the order, and their positions."""
        positions = self.order[start:stop]
        return self.table.take(pa.array(positions)), positions

    def origin(self, position: int) -> tuple[str, int]:
        """Returns (origin, 0-based row) of the row at a position of `table`."""
        row = self.table[ROW_COLUMN][position].as_py()
        if ORIGIN_COLUMN in self.table.column_names:
            return self.table[ORIGIN_COLUMN][position].as_py(), row
        segment = int(np.searchsorted(self.starts, position, side="right")) - 1
        return self.origins[segment], row


def _sorted_positions(keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """Returns the stable sorting order of 64-bit keys.

    NumPy's default sort is three times as fast as its stable one; equal keys, one in
    a million shards, are then found and sorted again.
    """
    order = np.argsort(keys)
    ordered = keys[order]
    if (ordered[1:] == ordered[:-1]).any():
        return np.argsort(keys, kind="stable")
    return order


def record_schema(schema: Schema, *, without: Sequence[str] = ()) -> pa.Schema:
    """Returns the Arrow schema that the Example encoder is given."""
    return pa.schema(
        [
            pa.field(feature.name, record_type(feature))
            for feature in schema.features
            if feature.name not in without
        ]
    )


def label_ids(names: pa.ChunkedArray, classes: tuple[str, ...]) -> pa.ChunkedArray:
    """Returns the class ids of class names; missing names stay missing.

    Raises:
      EncodingError: a name is no class: rows were changed after they were counted.
    """
    ids = pc.index_in(names, value_set=_value_set(classes))
    if ids.null_count != names.null_count:
        unknown = names.filter(pc.and_(ids.is_null(), names.is_valid()))[0].as_py()
        raise EncodingError(
            f"Every class name must be in the vocabulary; {unknown!r} is not."
        )
    return ids.cast(pa.int64())


@functools.lru_cache(maxsize=16)
def _value_set(classes: tuple[str, ...]) -> pa.Array:
    return pa.array(classes, pa.string())
