"""Whole numbers that float32 cannot hold, and values that it cannot tell apart.

float32 has a significand of 24 bits: it holds every whole number up to 2^24, every
second one up to 2^25, every fourth one up to 2^26. Beyond 2^53 a float64 has such gaps
too, so that a whole float64 need not come from a whole number.
"""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.example.arrays import raw_values

__all__ = [
    "FLOAT32_EXACT",
    "FLOAT64_EXACT",
    "doubles_of",
    "is_large",
    "large_places",
    "rounded_words",
    "told_apart",
    "unheld",
    "unheld_texts",
]

Doubles = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Places = npt.NDArray[np.int64]

FLOAT32_EXACT = 2**24
"""float32 holds every whole number up to here."""
FLOAT64_EXACT = 2**53
"""float64 holds every whole number up to here."""

_NONE = np.zeros(0, np.int64)
# Numbers in a list that is a text.
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def is_large(values: pa.Array) -> bool:
    """Tells whether one of n numbers is 2^24 or more from 0; NaN is none."""
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
    size = np.abs(numbers)
    inside = (size > FLOAT32_EXACT) & (size <= FLOAT64_EXACT)
    # What is outside might overflow.
    rounded = np.where(inside, numbers, 0).astype(np.float32)
    return inside & (rounded != numbers) & (np.floor(numbers) == numbers)


def unheld_texts(texts: pa.Array, rounded: pa.Array) -> Mask | None:
    """Tells in which texts a whole number stands that float32 does not hold.

    Args:
      texts: n decimal numbers, padded perhaps.
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


def told_apart(numbers: Doubles) -> tuple[int, int]:
    """Returns how many distinct numbers there are, none beyond float32, and as it."""
    distinct = np.unique(numbers)
    return len(distinct), len(np.unique(distinct.astype(np.float32)))


def rounded_words(value: Any) -> str:
    """Returns what becomes of the first number of a value that float32 does not hold.

    Args:
      value: a number, lists of them, or a text of such.
    """
    for number in _numbers(value):
        if unheld(np.array([number])).any():
            return f"as float32 {int(number)} would become {int(np.float32(number))}; "
    return ""


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, str):
        yield from (float(text) for text in _NUMBER.findall(value))
    elif isinstance(value, int | float):
        yield float(value)
    elif isinstance(value, list):
        for item in value:
            yield from _numbers(item)
