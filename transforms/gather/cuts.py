"""Where the rows of a split are cut into shards.

The rows of a split are in the order of their hash, and rows of one hash in the order of
their records. A cut goes to that end nearest to the asked bytes:

    of a part    one of 16,384 equal parts of the hashes, whose bytes all bundles count
    of a hash    in parts that are large beside a shard; these are read once more
    of a record  in hashes that are large beside a shard, also between equal records

All of it is a function of the rows, not of the runs that hold them.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from transforms.core.placing.placement import UInt64s

Longs = npt.NDArray[np.int64]

_BIN_BITS = 14
BINS = 1 << _BIN_BITS
"""Equal parts of the hashes; their rows and bytes are counted."""

_BIN_SHIFT = 64 - _BIN_BITS
_LAST_HASH = 2**64 - 1
# A part is large from this share of a shard: less moves a shard's end by an eighth.
_LARGE_SHARE = 1 / 4
# Usual parts are not read again, however many shards there are.
_LARGE_PARTS = 8


@dataclasses.dataclass(frozen=True, slots=True)
class Histogram:
    """Rows and bytes of one split, by parts of the hashes.

    Attributes:
      bins: the parts that have rows, ascending.
      rows, bytes: of each.
    """

    bins: Longs
    rows: Longs
    bytes: Longs

    def merge(self, other: "Histogram") -> "Histogram":
        """Returns the sums."""
        bins = np.concatenate([self.bins, other.bins])
        found, places = np.unique(bins, return_inverse=True)
        rows = np.zeros(len(found), np.int64)
        sizes = np.zeros(len(found), np.int64)
        np.add.at(rows, places, np.concatenate([self.rows, other.rows]))
        np.add.at(sizes, places, np.concatenate([self.bytes, other.bytes]))
        return Histogram(found, rows, sizes)


def bin_of(hashes: UInt64s) -> Longs:
    """Returns the part that each hash is in."""
    return (hashes >> np.uint64(_BIN_SHIFT)).astype(np.int64)


@dataclasses.dataclass(frozen=True, slots=True)
class Cut:
    """A place in the order of a split's rows, where one shard ends and the next begins.

    Attributes:
      rows: how many rows of the split are before it.
      hash: rows of smaller hashes are before it, rows of larger ones behind it.
      start: rows of its hash whose records are smaller are before it, and so are those
        that have no record; None where all rows of the hash are behind it.
      stop: rows of its hash whose records are this or larger are behind it; None for
        no such rows.
      taken: of the records from `start` to before `stop`, which are equal, how many are
        before it.
    """

    rows: int
    hash: int
    start: bytes | None = None
    stop: bytes | None = None
    taken: int = 0

    @property
    def divides_hash(self) -> bool:
        """Whether rows of one hash may be on both sides."""
        return self.start is not None

    def is_beside(self, other: "Cut") -> bool:
        """Whether two cuts are before or between the same equal records."""
        return (self.hash, self.start) == (other.hash, other.start)


@dataclasses.dataclass(frozen=True, slots=True)
class LargePart:
    """A part of the hashes in which cuts are to be found by its rows.

    Attributes:
      low, high: its hashes, both included.
      rows: how many rows of the split are before it.
      targets: where cuts should be, in bytes from its start, ascending.
      large: rows of one hash are cut from this many bytes.
    """

    low: int
    high: int
    rows: int
    targets: tuple[float, ...]
    large: float


@dataclasses.dataclass(frozen=True, slots=True)
class Bounds:
    """The hashes of each shard of a split, or of other parts of it.

    Attributes:
      lows, highs: both included; shards that share a hash have it in common.
      cuts: shard -> the cut before it, where rows of one hash may be on both sides.
    """

    lows: UInt64s
    highs: UInt64s
    cuts: Mapping[int, Cut] = dataclasses.field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.lows)

    def around(self, shard: int) -> tuple[Cut | None, Cut | None]:
        """Returns the cuts before and behind a shard that divide a hash."""
        return self.cuts.get(shard), self.cuts.get(shard + 1)


def even_bounds(parts: int) -> Bounds:
    """Returns as many equal parts of the hashes.

    >>> even_bounds(2)
    Bounds(lows=array([                  0, 9223372036854775808], dtype=uint64), \
highs=array([ 9223372036854775807, 18446744073709551615], dtype=uint64), cuts={})
    """
    parts = max(parts, 1)
    return _bounds([Cut(0, (part << 64) // parts) for part in range(1, parts)])


def _bounds(cuts: Sequence[Cut]) -> Bounds:
    lows = [0, *(cut.hash for cut in cuts)]
    # A hash that is divided belongs to both sides.
    highs = [cut.hash if cut.divides_hash else cut.hash - 1 for cut in cuts]
    return Bounds(
        np.array(lows, np.uint64),
        np.array([*highs, _LAST_HASH], np.uint64),
        {shard: cut for shard, cut in enumerate(cuts, 1) if cut.divides_hash},
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Cutting:
    """How a split is cut, as far as its histogram says.

    Attributes:
      rows: of the split.
      cuts: at ends of parts, ascending.
      large: the parts in which further cuts are to be found.
    """

    rows: int
    cuts: tuple[Cut, ...]
    large: tuple[LargePart, ...]

    @property
    def large_bounds(self) -> Bounds:
        """The hashes of the large parts."""
        return Bounds(
            np.array([part.low for part in self.large], np.uint64),
            np.array([part.high for part in self.large], np.uint64),
        )

    def settle(self, found: Iterable[Cut]) -> tuple[Bounds, list[int]]:
        """Returns the shards and the rows of each; none is empty.

        Args:
          found: the cuts in large parts, in any order.
        """
        places = {cut.rows: cut for cut in (*self.cuts, *found)}
        cuts = [places[rows] for rows in sorted(places) if 0 < rows < self.rows]
        ends = [0, *(cut.rows for cut in cuts), self.rows]
        return _bounds(cuts), np.diff(ends).tolist()


def plan_cuts(histogram: Histogram, shards: int) -> Cutting:
    """Returns how a split is cut into shards of equal bytes, as far as possible."""
    ends, rows = np.cumsum(histogram.bytes), np.cumsum(histogram.rows)
    total = int(ends[-1])
    targets = total * np.arange(1, shards, dtype=np.float64) / shards
    places = np.searchsorted(ends, targets, side="right").clip(max=len(ends) - 1)
    least = max(_LARGE_SHARE * total / shards, _LARGE_PARTS * total / BINS)
    is_large = (histogram.bytes > least) & (histogram.rows > 1)
    cuts = []
    for end in nearest_ends(histogram.bytes, targets[~is_large[places]]).tolist():
        if 0 < end < len(ends):
            first = int(histogram.bins[end])
            cuts.append(Cut(int(rows[end - 1]), first << _BIN_SHIFT))
    large = []
    for place in np.unique(places[is_large[places]]).tolist():
        low = int(histogram.bins[place]) << _BIN_SHIFT
        inside = targets[places == place] - (ends[place] - histogram.bytes[place])
        large.append(
            LargePart(
                low,
                low + (1 << _BIN_SHIFT) - 1,
                int(rows[place] - histogram.rows[place]),
                tuple(inside.tolist()),
                least,
            )
        )
    return Cutting(int(rows[-1]), tuple(cuts), tuple(large))


def nearest_ends(sizes: Longs, targets: npt.NDArray[np.float64]) -> Longs:
    """Returns for each target how many of n sizes are before the end nearest to it.

    >>> nearest_ends(np.array([10, 10, 10]), np.array([4.0, 16.0, 29.0]))
    array([0, 2, 3])
    """
    middles = np.cumsum(sizes) - sizes / 2
    return np.searchsorted(middles, targets)
