"""Which records a view has, and in which order: places in it -> positions in its split.

Selection = a base (all of a split, a list, a shuffled selection) and a `range` of
its places. Slices of slices are slices of the range, as Python defines them.

A shuffled selection needs no buffer: its order is a keyed permutation of the numbers
below n.

    0 <= i < n  ->  r rounds on b bits, 2^b >= n  ->  again, while the result is >= n

    a round:  x = (x + k_1) mod 2^b;   x = x * (k_2 | 1) mod 2^b;   x = x ^ (x >> b/2)

Each step has an inverse, so a round permutes the b-bit numbers; going on from results
that are not below n ("cycle walking") makes a permutation of the n numbers of it. Any
place of the order is known without the others. The keys are hashes of the seed.

The order is part of what users rely on when they go on in the middle of an epoch:
golden values in the tests pin it.

Source of cycle walking: Black and Rogaway, "Ciphers with Arbitrary Finite Domains".
"""

import dataclasses
import functools
import hashlib
import struct
from typing import Any, SupportsIndex, overload

import numpy as np
import numpy.typing as npt

Longs = npt.NDArray[np.int64]

_ROUNDS = 5
RUNS_MIXED = 16
"""How many runs are mixed with one another. Part of the order."""


@dataclasses.dataclass(frozen=True, slots=True)
class Permutation:
    """A permutation of 0, 1, ..., n - 1.

        >>> [Permutation.of(5, seed=1, epoch=0)(i) for i in range(5)]
        [3, 0, 4, 1, 2]

    Attributes:
      count: n.
      bits: of the numbers that rounds permute.
      keys: (added, odd factor) of each round.
    """

    count: int
    bits: int
    keys: tuple[tuple[int, int], ...]

    @classmethod
    @functools.lru_cache(maxsize=128)
    def of(
        cls, count: int, *, seed: int, epoch: int, purpose: str = ""
    ) -> "Permutation":
        """Returns the permutation of `count` numbers for a seed and an epoch.

        Args:
          count: how many numbers.
          seed, epoch: each has an order of its own.
          purpose: what the order is for, where one job needs several.
        """
        bits = max((count - 1).bit_length(), 1)
        text = f"beam-tfrecord shuffle{purpose}\0{seed}\0{epoch}".encode()
        digest = hashlib.shake_256(text).digest(16 * _ROUNDS)
        below = (1 << bits) - 1
        words = [word & below for word in struct.unpack(f"<{2 * _ROUNDS}Q", digest)]
        pairs = zip(words[::2], words[1::2], strict=True)
        return cls(count, bits, tuple((added, factor | 1) for added, factor in pairs))

    def __call__(self, place: int) -> int:
        """Returns the number at a place, 0 <= place < n."""
        count, keys = self.count, self.keys
        below, half = (1 << self.bits) - 1, (self.bits + 1) >> 1
        while True:
            for added, factor in keys:
                place = ((place + added) * factor) & below
                place ^= place >> half
            if place < count:
                return place

    def many(self, places: Longs) -> Longs:
        """Returns the numbers at n places."""
        numbers = self._rounds(places.astype(np.uint64))
        outside = np.flatnonzero(numbers >= self.count)
        while len(outside):
            again = self._rounds(numbers[outside])
            numbers[outside] = again
            outside = outside[again >= self.count]
        return numbers.view(np.int64)

    def _rounds(self, numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        below = np.uint64((1 << self.bits) - 1)
        half = np.uint64((self.bits + 1) >> 1)
        for added, factor in self.keys:
            # Products wrap at 2^64, which is a multiple of 2^b.
            numbers = (numbers + np.uint64(added)) * np.uint64(factor)
            numbers &= below
            numbers ^= numbers >> half
        return numbers


@dataclasses.dataclass(frozen=True, slots=True)
class RunPermutation:
    """A permutation of 0, 1, ..., n - 1 that keeps neighbours near one another.

    The numbers are cut into runs; the last may be shorter, and stays the last. The
    others are permuted, and 16 runs at a time, a window, are mixed. So a reader of a
    window reads 16 ranges.

        >>> [RunPermutation(6, 2, seed=0, epoch=0)(i) for i in range(6)]
        [0, 3, 2, 4, 1, 5]

    Attributes:
      count: n.
      run: how many numbers stay near one another, at least 1.
      seed, epoch: each has an order of its own.
    """

    count: int
    run: int
    seed: int
    epoch: int

    @property
    def window(self) -> int:
        """How many places are mixed with one another."""
        return self.run * RUNS_MIXED

    def __call__(self, place: int) -> int:
        """Returns the number at a place, 0 <= place < n."""
        return int(self.many(np.array([place], np.int64))[0])

    def many(self, places: Longs) -> Longs:
        """Returns the numbers at n places."""
        windows, within = np.divmod(places, self.window)
        mixed = np.empty(len(places), np.int64)
        for window in np.unique(windows).tolist():
            mine = windows == window
            start = window * self.window
            size = min(self.window, self.count - start)
            order = self._order(size, f" window {window} of runs {self.run}")
            mixed[mine] = start + order.many(within[mine])
        runs, offsets = np.divmod(mixed, self.run)
        whole = runs < self.count // self.run
        order = self._order(self.count // self.run, f" runs {self.run}")
        runs[whole] = order.many(runs[whole])
        return np.asarray(runs * self.run + offsets)

    def _order(self, count: int, purpose: str) -> Permutation:
        return Permutation.of(count, seed=self.seed, epoch=self.epoch, purpose=purpose)

    def windows(self, places: range) -> list[tuple[int, int]]:
        """Returns the parts of some places that are in one window each."""
        spans, start = [], 0
        while start < len(places):
            first = places[start] // self.window * self.window
            end = first + self.window - 1 if places.step > 0 else first
            stop = min(start + (end - places[start]) // places.step + 1, len(places))
            spans.append((start, stop))
            start = stop
        return spans


@dataclasses.dataclass(frozen=True, slots=True)
class Selection:
    """Places of a base, as a range of them.

    >>> odd = Selection.whole(range(10))[1::2]
    >>> [odd[2:].at(place) for place in range(len(odd[2:]))]
    [5, 7, 9]

    Attributes:
      base: positions: of a whole split, a list of them, or a shuffled selection.
      places: of the base.
    """

    base: "range | Longs | Shuffled"
    places: range

    @classmethod
    def whole(cls, base: "range | Longs | Shuffled") -> "Selection":
        """Returns all places of a base."""
        return cls(base, range(len(base)))

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, part: slice) -> "Selection":
        return Selection(self.base, self.places[part])

    def at(self, place: int) -> int:
        """Returns the position at a place. Raises IndexError, as a sequence does."""
        return int(self.base[self.places[place]])

    def many(self, places: Longs) -> Longs:
        """Returns the positions at places, 0 <= place < n."""
        places = self.places.start + self.places.step * places
        return places if isinstance(self.base, range) else self.base[places]

    def span(self, start: int, stop: int) -> Longs:
        """Returns the positions at the places from `start` to `stop`."""
        return self.many(np.arange(start, stop, dtype=np.int64))

    @property
    def follows_files(self) -> bool:
        """Whether the positions are those of a split, ascending one by one."""
        return isinstance(self.base, range) and self.places.step == 1


@dataclasses.dataclass(frozen=True, slots=True)
class Shuffled:
    """A selection in another order."""

    inner: Selection
    order: Permutation | RunPermutation

    @classmethod
    def of(cls, inner: Selection, *, seed: int, epoch: int, run: int = 0) -> "Shuffled":
        """Returns a selection in the order of an epoch; runs of neighbours, or all."""
        if run:
            return cls(inner, RunPermutation(len(inner), run, seed, epoch))
        return cls(inner, Permutation.of(len(inner), seed=seed, epoch=epoch))

    def __len__(self) -> int:
        return len(self.inner)

    @overload
    def __getitem__(self, places: int) -> int: ...

    @overload
    def __getitem__(self, places: Longs) -> Longs: ...

    def __getitem__(self, places: int | Longs) -> int | Longs:
        """Returns the position at a place, or the positions at several."""
        if not isinstance(places, np.ndarray):
            return self.inner.at(self.order(places))
        return self.inner.many(self.order.many(places)) if len(places) else places


def place_of(index: Any) -> int:
    """Returns an index as Python's sequences take it.

    Raises:
      TypeError: it is no whole number; True and 1.0 are none.
    """
    if type(index) is int:
        return index
    if isinstance(index, bool | np.bool_) or not isinstance(index, SupportsIndex):
        raise TypeError(
            f"a view is indexed by whole numbers, slices and lists of numbers; found "
            f"{type(index).__name__}"
        )
    return index.__index__()


def places_of(indices: Any, count: int) -> Longs:
    """Returns a list of indices as places, 0 <= place < count.

    Raises:
      TypeError: one is no whole number.
      IndexError: one is outside of the view.
    """
    array: npt.NDArray[Any] = indices
    if not isinstance(indices, np.ndarray):
        try:
            array = np.array([*map(place_of, indices)], np.int64)
        except OverflowError:
            raise IndexError(
                f"an index is out of range of {count:,} records: it is beyond int64"
            ) from None
    if not array.size:
        return np.empty(0, np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise TypeError(
            f"a list of indices must hold whole numbers in one dimension; found "
            f"{array.dtype} in {array.ndim}"
        )
    outside = (array < -count) | (array >= count)
    if outside.any():
        wrong = int(array[outside.argmax()])
        raise IndexError(f"index {wrong:,} is out of range of {count:,} records")
    places = array.astype(np.int64)
    return np.where(places < 0, places + count, places)
