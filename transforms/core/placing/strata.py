"""Stratified splits: the shares hold in every class, exact to one row.

A split gets n * share rows of a class of n rows, rounded down or up so that the sums
over all classes are right as well. Given these numbers, the rows of a class are sorted
by their split hash and cut:

    class -> hashes, ascending -> bounds: hash < bound 0 -> the first split ...

Rows of a lock count, but keep their split; the others fill up the rest. Rows of equal
hash stay together at the cost of exactness: those of equal keys in the later split,
those of equal content in the split of their shares.
"""

import dataclasses
import hashlib
import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import list_of, raw_values
from transforms.core.placing.hashes import UInt64s
from transforms.core.segment import deserialize
from transforms.core.vocabulary import digest_of
from transforms.errors import EncodingError

Integers = npt.NDArray[np.integer[Any]]
# The distinct names of n classes, a null for rows without one, and numbers [n, 1 + k]:
# rows that are not in the lock, and those that it puts into each of the k splits.
ClassCounts: TypeAlias = tuple[pa.StringArray, UInt64s]
# Classes held beyond the distinct ones before counts are merged.
_SPARE_CLASSES = 1 << 20
_ABOVE_ALL = np.uint64(2**64 - 1)
_ROWS = pa.schema([("class", pa.string()), ("numbers", pa.list_(pa.uint64()))])


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Strata:
    """The bounds between the splits of each class.

    Attributes:
      classes: n names, sorted by their bytes; a null, for rows without one, last.
      bounds: uint64 [n, splits - 1]: the hashes at which the next split begins.
    """

    classes: pa.StringArray
    bounds: npt.NDArray[np.uint64]

    @property
    def digest(self) -> str:
        """A digest of classes and bounds."""
        classes = digest_of(self.classes).encode()
        digest = hashlib.blake2b(classes, digest_size=16)
        digest.update(self.bounds.tobytes())
        return digest.hexdigest()

    def split_of(self, classes: pa.StringArray, hashes: UInt64s) -> np.ndarray:
        """Returns each of n rows' split, as an index into the names of the rule.

        Raises:
          EncodingError: a class is new since the rows were counted.
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


def pack(classes: pa.StringArray, numbers: UInt64s) -> pa.Buffer:
    """Returns n classes and their numbers [n, k] as the message of a segment."""
    count, width = numbers.shape
    lists = list_of(pa.array(numbers.ravel()), np.full(count, width))
    return pa.record_batch([classes, lists], schema=_ROWS).serialize()


def unpack(message: bytes | pa.Buffer, columns: int) -> tuple[pa.StringArray, UInt64s]:
    """Returns the classes and their numbers of a message of `pack`; `columns` is k."""
    rows = deserialize(message, _ROWS)
    return rows["class"], raw_values(rows["numbers"].flatten()).reshape(-1, columns)


def sum_counts(parts: Iterable[ClassCounts], splits: int) -> ClassCounts:
    """Returns the sums of counts, class by class; few of them are in memory at a time.

    Args:
      parts: of any rows; looked at once.
      splits: how many there are.
    """
    pending = [(pa.array([], pa.string()), np.zeros((0, 1 + splits), np.uint64))]
    for counts in parts:
        pending.append(counts)
        more = sum(len(names) for names, _ in pending[1:])
        if more > max(len(pending[0][0]), _SPARE_CLASSES):
            pending = [_summed(pending)]
    return _summed(pending)


def _summed(parts: Sequence[ClassCounts]) -> ClassCounts:
    """Returns the counts of every class, summed over the parts."""
    classes = pa.chunked_array([names for names, _ in parts], pa.string())
    encoded = classes.dictionary_encode(null_encoding="encode").combine_chunks()
    numbers = np.concatenate([numbers for _, numbers in parts])
    sums = np.zeros((len(encoded.dictionary), numbers.shape[1]), np.uint64)
    np.add.at(sums, np.asarray(encoded.indices), numbers)
    return encoded.dictionary, sums


def share_out(
    counts: ClassCounts, shares: Sequence[Fraction]
) -> tuple[pa.StringArray, Integers]:
    """Returns how many new rows of each class go into each split.

    In every class a split gets its exact share rounded down or up, unless a lock holds
    more. If rounding takes rows from a split, later classes give them back to it.

    Args:
      counts: rows of n classes.
      shares: of the k splits; they sum to one.

    Returns:
      the classes, sorted by their bytes, and integers [n, k].
    """
    classes, numbers = counts
    order = np.asarray(pc.sort_indices(classes))
    whole = math.lcm(*(share.denominator for share in shares))
    parts = [share.numerator * (whole // share.denominator) for share in shares]
    out = np.zeros((len(order), len(parts)), np.int64)
    # Rows that rounding has taken from each split so far, times `whole`: in integers
    # there is no error to accumulate.
    denied = [0] * len(parts)
    for index, (new, *locked) in enumerate(numbers[order].tolist()):
        exact = [(new + sum(locked)) * weight for weight in parts]
        allotted = _row_targets(new, locked, exact, whole, denied)
        for i, more in enumerate(allotted):
            denied[i] += exact[i] - (locked[i] + more) * whole
        out[index] = allotted
    return classes.take(pa.array(order)), out


def _row_targets(
    new: int,
    locked: Sequence[int],
    exact: Sequence[int],
    whole: int,
    denied: Sequence[int],
) -> list[int]:
    """Returns how many of the new rows of one class go to each split.

    `exact` are the rows that the splits should have, times `whole`.
    """
    least = [max(lock, x // whole) for lock, x in zip(locked, exact, strict=True)]
    allotted = [low - lock for low, lock in zip(least, locked, strict=True)]
    spare = new - sum(allotted)
    if spare < 0:
        return _in_proportion(new, locked, exact, whole)
    # Fewer rows are left than there are splits that rounding down has shortened.
    short = [i for i, low in enumerate(least) if low * whole < exact[i]]
    short.sort(key=lambda i: (-(exact[i] % whole + denied[i]), i))
    for i in short[:spare]:
        allotted[i] += 1
    return allotted


def _in_proportion(
    new: int, locked: Sequence[int], exact: Sequence[int], whole: int
) -> list[int]:
    """Distributes new rows where a lock holds too many rows of some splits.

    The others get rows in proportion to what they lack; the largest remainders round
    up.
    """
    pairs = zip(exact, locked, strict=True)
    lacking = [max(x - lock * whole, 0) for x, lock in pairs]
    total = sum(lacking)
    allotted = [new * lack // total for lack in lacking]
    rest = new - sum(allotted)
    by_remainder = sorted(
        range(len(exact)), key=lambda i: (-(new * lacking[i] % total), i)
    )
    for i in by_remainder[:rest]:
        allotted[i] += 1
    return allotted


def cut_classes(
    hashes: UInt64s, wanted: Integers, thresholds: UInt64s | None = None
) -> UInt64s:
    """Returns the bounds between the splits of each class.

    Args:
      hashes: of the new rows, class by class, ascending in each.
      wanted: integers [n, k]: rows of each class for each of k splits; they sum to the
        rows of the class.
      thresholds: of a rule by shares alone, which decides where rows of equal hash go
        that a bound would separate; by default they go to the later split.

    Returns:
      uint64 [n, k - 1].
    """
    wanted = wanted.astype(np.int64)
    sizes = wanted.sum(axis=1)
    starts = np.cumsum(sizes) - sizes
    cuts = np.cumsum(wanted, axis=1)[:, :-1]
    # A hash equals this sentinel with a chance of 5e-20.
    places = starts[:, None] + cuts
    bounds = np.append(hashes, _ABOVE_ALL)[places]
    bounds[cuts == sizes[:, None]] = _ABOVE_ALL
    if thresholds is not None and len(hashes):
        parted = (cuts > 0) & (hashes[np.maximum(places - 1, 0)] == bounds)
        splits = np.arange(cuts.shape[1])
        earlier = np.searchsorted(thresholds, bounds, "right") <= splits
        bounds[parted & earlier] += np.uint64(1)
    return bounds
