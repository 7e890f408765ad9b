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
import hashlib
import struct

import numpy as np
import numpy.typing as npt

__all__ = ["Permutation"]

_Longs = npt.NDArray[np.int64]
_ROUNDS = 5


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
    def of(cls, count: int, *, seed: int, epoch: int) -> "Permutation":
        """Returns the permutation of `count` numbers for a seed and an epoch."""
        bits = max((count - 1).bit_length(), 1)
        text = f"beam-tfrecord shuffle\0{seed}\0{epoch}".encode()
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
