"""Shards: which one a row falls into, and the sorted rows of one, cut into chunks."""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.core.arrays import in_one_piece
from transforms.core.model import Fact
from transforms.core.placing import hashes
from transforms.core.placing.hashes import ORDER, UInt64s
from transforms.core.placing.splitting import SplitRule
from transforms.core.segment import (
    KEY_COLUMN,
    ORIGIN_COLUMN,
    PLACE_COLUMNS,
    ROW_COLUMN,
    Segment,
)

# Segments are joined into pieces while they are read: of this size, or of this part of
# what is joined already, so that there are never many. No piece has 2 GiB of text.
_PIECE_BYTES, _PIECE_PART, _MAX_PIECE_BYTES = 8 << 20, 16, 1 << 30
# Columns of shorter values, by their mean, are then joined once more. Where they hold
# more than a piece, longer ones stay in pieces, or would take as much memory again.
_LONG_VALUE_BYTES = 128
# Larger values stay as they were read, and are taken one by one.
_LARGE_VALUE_BYTES = 16 << 10


@dataclasses.dataclass(frozen=True, slots=True)
class Sharding:
    """How rows fall into splits and shards.

    Four shards, whose rows are shuffled by the default seed:

        >>> Sharding(SplitRule(), shards={"train": 4}).seed
        0

    Attributes:
      rule: how rows fall into splits.
      shards: split name -> number of shards; 1 for a split not named here.
      seed: of the order hash.
      shuffle: False keeps (origin, row) order and cuts shards by cumulative bytes.
      total_bytes: split name -> bytes of input that its shards share; only used
        without shuffling.
      keyed: whether every row has a key that decides its order.
      placeless: whether rows have no place, as those of a pipeline: then they go by
        their key or content, and rows of one hash by their records.
      unique: whether no two rows may have one key.
    """

    rule: SplitRule
    shards: Mapping[str, int]
    seed: int = 0
    shuffle: bool = True
    total_bytes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    keyed: bool = False
    placeless: bool = False
    unique: bool = False

    @property
    def stores_order(self) -> bool:
        """Whether rows carry their order hash, which their place does not give."""
        return self.keyed or self.placeless


def shard_of_keys(keys: UInt64s, shards: int) -> npt.NDArray[np.int64]:
    """Returns each row's shard from the high bits of its order key."""
    high = keys >> np.uint64(32)
    return ((high * np.uint64(shards)) >> np.uint64(32)).astype(np.int64)


def shard_of_positions(
    positions: npt.NDArray[np.int64], total: int, shards: int
) -> npt.NDArray[np.int64]:
    """Returns each row's shard from the number of bytes of input before it."""
    scaled = positions.astype(np.float64) * shards / max(total, 1)
    return np.minimum(scaled.astype(np.int64), shards - 1)


@dataclasses.dataclass(frozen=True, slots=True)
class ShardCounts(Fact):
    """Facts about all rows that writing the first shard requires.

    Shard 1 of 3 has no rows, so shard 2 becomes the second of two files:

        >>> counts = ShardCounts({("train", 0): 5, ("train", 2): 3}, classes={})
        >>> counts.numbering("train", 2)
        (1, 2)

    Attributes:
      rows: rows placed in each shard that has any, by (split, shard).
      classes: label feature -> its class names in the order of their ids, as
        `transforms.core.segment` stores them.
    """

    rows: Mapping[tuple[str, int], int]
    classes: Mapping[str, Segment]
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
      table: the segments' rows in source order; a column of long values is in
        several chunks, any other in one.
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
        segments: Iterable[tuple[str, pa.RecordBatch]],
        *,
        seed: int,
        shuffle: bool,
        lengths: Sequence[int] = (),
    ) -> "ShardRows":
        """Orders the rows of (origin, rows) pairs, which are in source order.

        Rows with equal order keys stay in source order.

        Args:
          segments: of one shard, or of several, one shard after another; at least
            one. They are taken once, and let go piece by piece.
          seed: of the order.
          shuffle: whether rows are ordered by their keys.
          lengths: rows of each shard, where they are several. The rows of each are
            ordered among themselves.
        """
        left = iter(segments)
        # Where nobody else holds them, they are free again before the rows are sorted.
        del segments
        origins, sizes, table = _joined(left)
        starts = np.cumsum(sizes) - sizes
        if not shuffle:
            return cls(table, np.arange(table.num_rows), origins, starts)
        order = _sorted_positions(_order_keys(table, origins, sizes, seed))
        if len(lengths) > 1:
            # Stable sorting of 16-bit numbers is a radix sort: 2 ns a row.
            narrow = np.min_scalar_type(len(lengths))
            shards = np.repeat(np.arange(len(lengths), dtype=narrow), lengths)
            order = order[np.argsort(shards[order], kind="stable")]
        return cls(table, order, origins, starts)

    def __len__(self) -> int:
        return len(self.order)

    def without_values(self) -> Self:
        """Returns the rows without the columns of features.

        `origin`, `places` and `sources` say the same of them.
        """
        names = [name for name in self.table.column_names if name in PLACE_COLUMNS]
        return dataclasses.replace(self, table=self.table.select(names))

    def take(self, start: int, stop: int) -> tuple[pa.Table, npt.NDArray[np.int64]]:
        """Returns the rows from `start` to `stop` of the order, and their positions."""
        positions = self.order[start:stop]
        where = pa.array(positions)
        columns = [
            column.take(where) if column.num_chunks == 1 else _taken(column, positions)
            for column in self.table.columns
        ]
        taken = pa.Table.from_arrays(columns, schema=self.table.schema)
        return taken, positions

    def origin(self, position: int) -> tuple[str, int | None]:
        """Returns (origin, 0-based row) of the row at a position of `table`.

        The row is None where the origin names the row itself.
        """
        origins, rows = self.places(np.array([position]))
        return origins[0].as_py(), int(rows[0])

    def repeated_keys(
        self, start: int, stop: int
    ) -> tuple[int, tuple[tuple[str, int | None], ...]]:
        """Returns how many rows have the key of the row before, and such a pair.

        Args:
          start, stop: rows of the order, sorted by their keys.
        """
        if KEY_COLUMN not in self.table.column_names:
            return 0, ()
        positions = self.order[start:stop]
        keys = self.table[KEY_COLUMN].to_numpy()[positions]
        again = np.flatnonzero(keys[1:] == keys[:-1])
        if not len(again):
            return 0, ()
        pair = positions[again[0] : again[0] + 2].tolist()
        return len(again), tuple(self.origin(position) for position in pair)

    def places(
        self, positions: npt.NDArray[np.int64]
    ) -> tuple[pa.Array, npt.NDArray[np.int64]]:
        """Returns the origins and the 0-based rows at positions of `table`.

        Origins that many rows share are a dictionary.
        """
        where = pa.array(positions)
        rows = self.table[ROW_COLUMN].take(where).to_numpy()
        if ORIGIN_COLUMN in self.table.column_names:
            return self.table[ORIGIN_COLUMN].take(where).combine_chunks(), rows
        segments = np.searchsorted(self.starts, positions, side="right") - 1
        shared = pa.array(self.origins, pa.string()).dictionary_encode()
        return shared.take(pa.array(segments)), rows

    def sources(
        self, positions: npt.NDArray[np.int64]
    ) -> tuple[pa.Array, pa.Int64Array]:
        """Returns the origins and the 1-based rows at positions of `table`.

        As rejects name them: a null where nobody would know a row by that.
        """
        origins, rows = self.places(positions)
        return origins, pa.array(rows + 1)


def _joined(
    segments: Iterator[tuple[str, pa.RecordBatch]],
) -> tuple[tuple[str, ...], npt.NDArray[np.int64], pa.Table]:
    """Returns the origins of segments, how many rows each has, and the rows of all."""
    origins, sizes = [], []
    pieces: list[pa.Table] = []
    batches: list[pa.RecordBatch] = []
    size = total = 0
    for origin, rows in segments:
        if size >= min(max(_PIECE_BYTES, total // _PIECE_PART), _MAX_PIECE_BYTES):
            pieces.append(_piece(batches, stays=_is_large))
            total, size = total + size, 0
        origins.append(origin)
        sizes.append(rows.num_rows)
        batches.append(rows)
        size += rows.get_total_buffer_size()
        # Else it is held while the next one is read.
        del rows
    are_many = bool(pieces)
    # The values of a single segment are not copied.
    pieces.append(_piece(batches, stays=_is_large if are_many else _is_value))
    # Popped, so that only what joins its columns holds it.
    pieces[:] = [pa.concat_tables(pieces)]
    table = in_one_piece(pieces.pop(), but=_is_long if are_many else _is_large)
    if are_many:
        # Arrow keeps what the pieces have freed, and has no use for it.
        pa.default_memory_pool().release_unused()
    return tuple(origins), np.array(sizes), table


def _piece(
    batches: list[pa.RecordBatch], *, stays: Callable[[str, pa.ChunkedArray], bool]
) -> pa.Table:
    """Joins batches and empties their list, so that their messages can be freed.

    Columns for which `stays` is true stay in the messages.
    """
    are_many = len(batches) > 1
    tables = [pa.Table.from_batches(batches)]
    batches.clear()
    if are_many:
        return in_one_piece(tables.pop(), but=stays)
    table = tables.pop()
    columns = [
        column if stays(name, column) else pa.concat_arrays(column.chunks)
        for name, column in zip(table.column_names, table.columns, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=table.schema)


def _is_value(name: str, _: pa.ChunkedArray) -> bool:
    """Whether a column of a shard has values, not origins, numbers or keys of rows."""
    return name not in PLACE_COLUMNS


def _is_large(_: str, column: pa.ChunkedArray) -> bool:
    """Whether a shard's values are so large in the mean that copying costs too much."""
    return bool(column.get_total_buffer_size() > _LARGE_VALUE_BYTES * len(column))


def _is_long(name: str, column: pa.ChunkedArray) -> bool:
    """Tells whether a column stays in pieces, which its readers have to expect."""
    size = column.get_total_buffer_size()
    least = max(_PIECE_BYTES, _LONG_VALUE_BYTES * len(column))
    return size > least and name not in PLACE_COLUMNS


def _taken(
    column: pa.ChunkedArray, positions: npt.NDArray[np.int64]
) -> pa.ChunkedArray:
    """Returns the values of a column of several chunks at positions.

    Large values are not copied: each is in a chunk of its own. Others are copied twice.
    """
    chunks = column.chunks
    lengths = np.array([len(chunk) for chunk in chunks])
    ends = np.cumsum(lengths)
    chunk_of = np.searchsorted(ends, positions, side="right")
    places = positions - (ends - lengths)[chunk_of]
    if _is_large("", column):
        pieces = [
            chunks[chunk].slice(offset, 1)
            for chunk, offset in zip(chunk_of.tolist(), places.tolist(), strict=True)
        ]
        return pa.chunked_array(pieces, column.type)
    order = np.argsort(chunk_of, kind="stable")
    bounds = np.searchsorted(chunk_of[order], np.arange(len(chunks) + 1)).tolist()
    places = places[order]
    pieces = [
        chunk.take(pa.array(places[start:stop]))
        for chunk, (start, stop) in zip(chunks, itertools.pairwise(bounds), strict=True)
        if start < stop
    ]
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    whole = pa.chunked_array(pieces, column.type).combine_chunks()
    return pa.chunked_array([whole.take(pa.array(back))])


def _order_keys(
    table: pa.Table,
    origins: Sequence[str],
    sizes: npt.NDArray[np.int64],
    seed: int,
) -> npt.NDArray[np.uint64]:
    """Returns the order hashes of rows: stored with them, or computed.

    Args:
      table: the rows of all segments.
      origins, sizes: of each segment.
      seed: of the order.
    """
    if KEY_COLUMN in table.column_names:
        return np.asarray(table[KEY_COLUMN].to_numpy())
    numbers = table[ROW_COLUMN].to_numpy()
    if ORIGIN_COLUMN not in table.column_names:
        return hashes.hash_rows(
            origins, numbers, lengths=sizes, purpose=ORDER, seed=seed
        )
    keys, start = [], 0
    for chunk in table[ORIGIN_COLUMN].chunks:
        of_chunk = numbers[start : start + len(chunk)]
        keys.append(hashes.hash_rows(chunk, of_chunk, purpose=ORDER, seed=seed))
        start += len(chunk)
    return np.concatenate(keys)


def _sorted_positions(keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """Returns the stable sorting order of a shard's rows by 64-bit keys.

    Sorts words of the upper bits of a key above its position: NumPy sorts words three
    times as fast as it finds their order. Keys of equal upper bits, few among hashes,
    are put in order by all of their bits.
    """
    count = len(keys)
    if count < 2:
        return np.arange(count)
    least, bits = keys.min(), np.uint64((count - 1).bit_length())
    lost = max(int(keys.max() - least).bit_length() + int(bits) - 64, 0)
    words = keys - least >> np.uint64(lost) << bits
    words |= np.arange(count, dtype=np.uint64)
    words.sort()
    order = (words & ((np.uint64(1) << bits) - np.uint64(1))).view(np.int64)
    words >>= bits
    same = words[1:] == words[:-1]
    if lost and same.any():
        tied = np.append(same, False) | np.append(False, same)
        ties = np.sort(order[tied])
        order[tied] = ties[np.argsort(keys[ties], kind="stable")]
    return order
