"""Integers that float32 cannot represent exactly.

float32 has a significand of 24 bits: it holds every whole number up to 2^24, every
second one up to 2^25, every fourth one up to 2^26. Beyond 2^53 a float64 has such gaps
too, so that a whole float64 need not come from a whole number.

An id or a count is worthless once it is rounded, a measured value is not. The large
numbers of a column decide which of them it holds:

    of those in 2^24 to 2^53, 1 in 100 or more has a fraction -> measured: they round
    fewer have one, or there are no such numbers              -> whole numbers that
                                                                 float32 does not hold
                                                                 are rejects
"""

import dataclasses

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import raw_values
from transforms.core.schema import InexactIntegers

Doubles = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Places = npt.NDArray[np.int64]

FLOAT32_EXACT = 2**24
"""float32 holds every whole number up to here."""
FLOAT32_MAX = float(np.finfo(np.float32).max)
"""The largest finite float32."""
FLOAT64_EXACT = 2**53
"""float64 holds every whole number up to here."""

_NONE = np.zeros(0, np.int64)
_NO_NUMBERS = np.zeros(0, np.float64)
# Percent of fractions from which on numbers count as measured. Amounts of money and
# rounded measurements have far more; ids with a stray fraction have fewer.
_MEASURED_IN_100 = 1
# Large numbers that are compared with one another, roughly: half a megabyte a column.
_COMPARED = 65_536
_EXAMPLES = 3


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class LargeNumbers:
    """The numbers of a column that are 2^24 or more from 0.

    Attributes:
      voters: how many of them are in 2^24 to 2^53, both not included and included.
      fractions: how many of those are not whole.
      unheld: how many cells hold a whole one of those that float32 does not hold.
      examples: the first of these cells as texts.
      sample: some of the numbers, none beyond float32.
    """

    voters: int = 0
    fractions: int = 0
    unheld: int = 0
    examples: tuple[str, ...] = ()
    sample: Doubles = dataclasses.field(default_factory=lambda: _NO_NUMBERS)

    @classmethod
    def of(
        cls, numbers: Doubles, *, unheld: int = 0, examples: tuple[str, ...] = ()
    ) -> "LargeNumbers":
        """Counts numbers of 2^24 and more, none beyond float32; see the attributes."""
        inside = _is_inside(numbers)
        fractions = inside & (np.floor(numbers) != numbers)
        return cls(
            int(np.count_nonzero(inside)),
            int(np.count_nonzero(fractions)),
            unheld,
            examples,
            numbers[:_COMPARED],
        )

    def merge(self, other: "LargeNumbers") -> "LargeNumbers":
        """Returns the numbers of both, the examples of the first in front."""
        sample = self.sample
        if len(sample) < _COMPARED and len(other.sample):
            sample = np.concatenate([sample, other.sample])
        return LargeNumbers(
            self.voters + other.voters,
            self.fractions + other.fractions,
            self.unheld + other.unheld,
            tuple(dict.fromkeys((*self.examples, *other.examples)))[:_EXAMPLES],
            sample,
        )

    @property
    def policy(self) -> InexactIntegers:
        """What becomes of whole numbers that float32 does not hold."""
        if self.fractions and self.fractions * 100 >= self.voters * _MEASURED_IN_100:
            return InexactIntegers.ROUND
        return InexactIntegers.REJECT

    def told_apart(self) -> tuple[int, int]:
        """Returns how many distinct numbers of the sample there are, and as float32.

        Those that are rejected do not count.
        """
        numbers = self.sample
        if not len(numbers):
            return 0, 0
        if self.policy is InexactIntegers.REJECT:
            numbers = numbers[~unheld(numbers)]
        distinct = np.unique(numbers)
        return len(distinct), len(np.unique(distinct.astype(np.float32)))


def is_large(values: pa.Array) -> bool:
    """Tells whether one of n numbers is 2^24 or more from 0; NaN does not count."""
    extent = pc.min_max(values).as_py()
    least, most = extent["min"], extent["max"]
    return least is not None and (least <= -FLOAT32_EXACT or most >= FLOAT32_EXACT)


def large_places(values: pa.Array) -> Places:
    """Returns the places of finite numbers that are 2^24 or more from 0."""
    if not is_large(values):
        return _NONE
    numbers = raw_values(values)
    large = (np.abs(numbers) >= FLOAT32_EXACT) & np.isfinite(numbers)
    if values.null_count:
        large &= np.asarray(values.is_valid().to_numpy(zero_copy_only=False), bool)
    return np.flatnonzero(large)


def doubles_of(texts: pa.Array, places: Places) -> Doubles:
    """Returns the numbers that texts hold at places, where `coerce` found numbers."""
    some = texts if len(places) == len(texts) else texts.take(pa.array(places))
    numbers = pc.cast(pc.ascii_trim(some, " \t"), pa.float64())
    return raw_values(numbers).astype(np.float64, copy=False)


def unheld(numbers: Doubles) -> Mask:
    """Tells which numbers are whole, in 2^24 to 2^53, and not held by float32."""
    inside = _is_inside(numbers)
    # Numbers outside might overflow float32, which NumPy warns of.
    rounded = np.where(inside, numbers, 0).astype(np.float32)
    return inside & (rounded != numbers) & (np.floor(numbers) == numbers)


def _is_inside(numbers: Doubles) -> Mask:
    """Tells which numbers float64 can hold to the last digit and float32 cannot."""
    size = np.abs(numbers)
    return (size > FLOAT32_EXACT) & (size <= FLOAT64_EXACT)


def unheld_texts(texts: pa.Array, rounded: pa.Array) -> Mask | None:
    """Finds the texts whose whole number float32 cannot represent.

    Args:
      texts: n decimal numbers, possibly with spaces around them.
      rounded: the same as float32; null where there is no number.

    Returns:
      n bools, or None for no such text.
    """
    places = large_places(rounded)
    if not len(places):
        return None
    lost = places[unheld(doubles_of(texts, places))]
    if not len(lost):
        return None
    out = np.zeros(len(texts), np.bool_)
    out[lost] = True
    return out
