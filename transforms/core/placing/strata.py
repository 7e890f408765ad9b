"""Stratified splits: in every class the shares, exact to one row.

A class of n rows has n * share rows of a split: that number rounded down or up, and
which of the two so that the sums over all classes come out right as well. Given these
numbers, the rows of a class are sorted by their split hash and cut:

    class -> hashes, ascending -> bounds: hash < bound 0 -> the first split ...

Rows that a lock knows count, but stay where they are; the others fill what is missing.
Rows of equal hash (of one key or content, that is) stay together, at the cost of
exactness: of one key in the later split, of one content in the one of their shares.
"""

import dataclasses
import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.placing.placement import UInt64s
from transforms.errors import EncodingError

__all__ = [
    "ClassCount",
    "Strata",
    "class_names",
    "cut_class",
    "merge_counts",
    "share_out",
]

# A class by its name, None for rows without one.
ClassName = str | None
_ABOVE_ALL = np.uint64(2**64 - 1)


@dataclasses.dataclass(frozen=True, slots=True)
class ClassCount:
    """How many rows of a class there are.

    Attributes:
      new: rows that no lock knows.
      locked: rows that a lock puts into each split, in the order of the rule.
    """

    new: int
    locked: tuple[int, ...]

    def __add__(self, other: "ClassCount") -> "ClassCount":
        pairs = zip(self.locked, other.locked, strict=True)
        return ClassCount(self.new + other.new, tuple(a + b for a, b in pairs))


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Strata:
    """Where each class is cut.

    Attributes:
      classes: n names, sorted by their bytes; a null, for rows without one, last.
      bounds: uint64 [n, splits - 1]: hashes from which on the next split begins.
    """

    classes: pa.StringArray
    bounds: npt.NDArray[np.uint64]

    @classmethod
    def of(cls, parts: Iterable[Mapping[ClassName, UInt64s]], splits: int) -> "Strata":
        """Joins the bounds of the classes; no class is in two parts."""
        found = {name: bounds for part in parts for name, bounds in part.items()}
        names = sorted(found, key=_by_bytes)
        bounds = np.array([found[name] for name in names], np.uint64)
        return cls(pa.array(names, pa.string()), bounds.reshape(-1, splits - 1))

    @property
    def digest(self) -> str:
        """Of where each class is cut."""
        digest = hashlib.blake2b(
            repr(self.classes.to_pylist()).encode(), digest_size=16
        )
        digest.update(self.bounds.tobytes())
        return digest.hexdigest()

    def split_of(self, classes: pa.StringArray, hashes: UInt64s) -> np.ndarray:
        """Returns each of n rows' split, as an index into the names of the rule.

        Raises:
          EncodingError: a class was not there when the rows were counted.
        """
        encoded = classes.dictionary_encode(null_encoding="encode")
        places = pc.index_in(encoded.dictionary, value_set=self.classes)
        if places.null_count:
            unknown = encoded.dictionary.filter(places.is_null())[0].as_py()
            raise EncodingError(
                f"Every class must have been counted before rows are placed; "
                f"{unknown!r} was not. A step between reading and placing must give "
                f"the same rows each time."
            )
        rows = np.asarray(places)[np.asarray(encoded.indices)]
        return (hashes[:, None] >= self.bounds[rows]).sum(axis=1).astype(np.int64)


def class_names(column: pa.Array) -> pa.StringArray:
    """Returns a column's values as the names of classes."""
    return column.cast(pa.string())


def _by_bytes(name: ClassName) -> tuple[bool, bytes]:
    return name is None, (name or "").encode()


def merge_counts(
    parts: Iterable[Mapping[ClassName, ClassCount]],
) -> dict[ClassName, ClassCount]:
    """Returns the sums of counts, class by class."""
    out: dict[ClassName, ClassCount] = {}
    for part in parts:
        for name, count in part.items():
            out[name] = out[name] + count if name in out else count
    return out


def share_out(
    counts: Mapping[ClassName, ClassCount], shares: Sequence[Fraction]
) -> dict[ClassName, tuple[int, ...]]:
    """Returns how many new rows of each class go into each split.

    In every class a split gets its exact share rounded down or up, unless a lock
    holds more; what roundings took from a split, later classes give back to it.

    Args:
      counts: rows by class.
      shares: of the k splits; they sum to one.
    """
    whole = math.lcm(*(share.denominator for share in shares))
    parts = [share.numerator * (whole // share.denominator) for share in shares]
    out = {}
    # What each split has been denied so far, in rows times `whole`.
    denied = [0] * len(parts)
    for name in sorted(counts, key=_by_bytes):
        count = counts[name]
        total = count.new + sum(count.locked)
        exact = [total * part for part in parts]
        wanted = _wanted(count, exact, whole, denied)
        out[name] = tuple(wanted)
        for i, new in enumerate(wanted):
            denied[i] += exact[i] - (count.locked[i] + new) * whole
    return out


def _wanted(
    count: ClassCount, exact: Sequence[int], whole: int, denied: Sequence[int]
) -> list[int]:
    """Returns the new rows of one class for each split; `exact` times `whole`."""
    least = [
        max(locked, x // whole) for locked, x in zip(count.locked, exact, strict=True)
    ]
    wanted = [low - lock for low, lock in zip(least, count.locked, strict=True)]
    spare = count.new - sum(wanted)
    if spare < 0:
        return _in_proportion(count, exact, whole)
    # Fewer rows are left than splits that rounding down cut short.
    short = [i for i, low in enumerate(least) if low * whole < exact[i]]
    short.sort(key=lambda i: (-(exact[i] % whole + denied[i]), i))
    for i in short[:spare]:
        wanted[i] += 1
    return wanted


def _in_proportion(count: ClassCount, exact: Sequence[int], whole: int) -> list[int]:
    """Shares new rows out where a lock holds too many of some splits.

    In proportion to what the other splits lack; the largest remainders round up.
    """
    pairs = zip(exact, count.locked, strict=True)
    lacking = [max(x - locked * whole, 0) for x, locked in pairs]
    total = sum(lacking)
    wanted = [count.new * lack // total for lack in lacking]
    rest = count.new - sum(wanted)
    by_remainder = sorted(
        range(len(exact)), key=lambda i: (-(count.new * lacking[i] % total), i)
    )
    for i in by_remainder[:rest]:
        wanted[i] += 1
    return wanted


def cut_class(
    hashes: UInt64s, wanted: Sequence[int], thresholds: UInt64s | None = None
) -> UInt64s:
    """Returns the bounds between the splits of one class.

    Args:
      hashes: of its n new rows, ascending.
      wanted: rows for each of k splits; they sum to n.
      thresholds: of a rule by shares alone, which has the rows of one hash that a
        bound would part; by default they go to the later split.
    """
    cuts = np.cumsum(wanted)[:-1]
    # The chance that a hash is the very last number is 5e-20.
    bounds = np.append(hashes, _ABOVE_ALL)[cuts]
    if thresholds is not None and len(hashes):
        parted = (cuts > 0) & (hashes[cuts - 1] == bounds)
        earlier = np.searchsorted(thresholds, bounds, "right") <= np.arange(len(cuts))
        bounds[parted & earlier] += np.uint64(1)
    return bounds
