"""A keyed permutation of the numbers below n: a shuffle without a buffer.

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

import numpy as np
import numpy.typing as npt

_Longs = npt.NDArray[np.int64]
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

    def many(self, places: _Longs) -> _Longs:
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

    The numbers are cut into runs; the last may be shorter. The runs are permuted, and
    16 of them at a time, a window, are mixed. So a reader of a window reads 16 ranges.

        >>> [RunPermutation.of(6, run=2, seed=0, epoch=0)(i) for i in range(6)]
        [4, 1, 0, 2, 5, 3]

    Attributes:
      count: n.
      run: numbers of a run.
      short: place of the run that may be shorter, among the runs.
      runs: of the others.
      seed, epoch: that the order is of.
    """

    count: int
    run: int
    short: int
    runs: Permutation
    seed: int
    epoch: int

    @classmethod
    def of(cls, count: int, *, run: int, seed: int, epoch: int) -> "RunPermutation":
        """Returns the permutation of `count` numbers for a seed and an epoch.

        Args:
          count: how many numbers.
          run: how many of them stay near one another, at least 1.
          seed, epoch: each has an order of its own.
        """
        whole = max(-(-count // run) - 1, 0)
        runs = Permutation.of(whole, seed=seed, epoch=epoch, purpose=f" runs {run}")
        # Any place, the same one for equal arguments.
        text = f"beam-tfrecord short run\0{run}\0{seed}\0{epoch}".encode()
        number = int.from_bytes(hashlib.shake_256(text).digest(8), "little")
        return cls(count, run, number % (whole + 1), runs, seed, epoch)

    @property
    def window(self) -> int:
        """How many places are mixed with one another."""
        return self.run * RUNS_MIXED

    def __call__(self, place: int) -> int:
        """Returns the number at a place, 0 <= place < n."""
        return int(self.many(np.array([place], np.int64))[0])

    def many(self, places: _Longs) -> _Longs:
        """Returns the numbers at n places."""
        windows, within = np.divmod(places, self.window)
        mixed = np.empty(len(places), np.int64)
        for window in np.unique(windows).tolist():
            mine = windows == window
            start = window * self.window
            size = min(self.window, self.count - start)
            order = _mixing(size, self.run, window, self.seed, self.epoch)
            mixed[mine] = start + order.many(within[mine])
        return self._numbers(mixed)

    def _numbers(self, places: _Longs) -> _Longs:
        """Returns the numbers at places among the permuted runs."""
        whole = self.runs.count
        begin = self.short * self.run
        rest = self.count - whole * self.run
        behind = places >= begin + rest
        # As if the shorter run were not there.
        number, offset = np.divmod(np.where(behind, places - rest, places), self.run)
        is_short = (places >= begin) & ~behind
        found = np.empty(len(places), np.int64)
        found[is_short] = whole * self.run + places[is_short] - begin
        others = ~is_short
        found[others] = self.runs.many(number[others]) * self.run + offset[others]
        return found


@functools.lru_cache(maxsize=64)
def _mixing(size: int, run: int, window: int, seed: int, epoch: int) -> Permutation:
    purpose = f" window {window} of runs {run}"
    return Permutation.of(size, seed=seed, epoch=epoch, purpose=purpose)
