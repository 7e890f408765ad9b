"""Which record of one dataset is which of another, from what tells records apart."""

import dataclasses

import numpy as np
import numpy.typing as npt

__all__ = ["Pairs", "Side", "paired"]

Longs = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True, slots=True)
class Side:
    """What is known of the n records of one dataset; equal numbers mean equal things.

    Attributes:
      ids: what a record is known by; several records may have the same.
      splits: where it is.
      payloads: what it holds.
    """

    ids: Longs
    splits: Longs
    payloads: Longs


@dataclasses.dataclass(frozen=True, slots=True)
class Pairs:
    """Records of two datasets that are each other.

    Attributes:
      first, second: m places in the first and in the second dataset.
      gone, added: places of records that are in the first or in the second alone,
        ascending.
    """

    first: Longs
    second: Longs
    gone: Longs
    added: Longs


def paired(one: Side, other: Side) -> Pairs:
    """Returns the pairs of records with the same id.

    Of several with one id those make a pair that are equal, then those of one split,
    then the others, in their order.

        >>> numbers = lambda *values: np.array(values, np.int64)
        >>> one = Side(numbers(7, 7, 8), numbers(0, 1, 0), numbers(1, 2, 3))
        >>> other = Side(numbers(9, 7), numbers(0, 1), numbers(4, 2))
        >>> found = paired(one, other)
        >>> found.first, found.second, found.gone, found.added
        (array([1]), array([1]), array([0, 2]), array([0]))
    """
    left, right = (np.arange(len(side.ids)) for side in (one, other))
    first, second = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for names in (("ids", "splits", "payloads"), ("ids", "splits"), ("ids",)):
        keys = _joined(
            [(getattr(one, name)[left], getattr(other, name)[right]) for name in names]
        )
        mine, others = _matched(*keys)
        first.append(left[mine])
        second.append(right[others])
        left, right = np.delete(left, mine), np.delete(right, others)
    return Pairs(np.concatenate(first), np.concatenate(second), left, right)


def _joined(columns: list[tuple[Longs, Longs]]) -> tuple[Longs, Longs]:
    """Returns a number for each row of columns: equal where all columns are."""
    count = len(columns[0][0])
    found = np.zeros(count + len(columns[0][1]), np.int64)
    for pair in columns:
        values, codes = np.unique(np.concatenate(pair), return_inverse=True)
        # Both are below the number of rows, so the product fits.
        found = found * max(len(values), 1) + codes
        found = np.unique(found, return_inverse=True)[1].astype(np.int64)
    return found[:count], found[count:]


def _matched(one: Longs, other: Longs) -> tuple[Longs, Longs]:
    """Returns the places of equal keys, the k-th of one with the k-th of the other."""
    left, right = _occurrences(one), _occurrences(other)
    most = 1 + max((int(each.max()) for each in (left, right) if len(each)), default=0)
    _, mine, others = np.intersect1d(
        one * most + left, other * most + right, assume_unique=True, return_indices=True
    )
    order = np.argsort(mine)
    return mine[order], others[order]


def _occurrences(keys: Longs) -> Longs:
    """Returns how many equal keys come before each."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    is_first = np.ones(len(keys), np.bool_)
    is_first[1:] = ordered[1:] != ordered[:-1]
    firsts = np.flatnonzero(is_first)
    counts = np.diff(firsts, append=len(keys))
    found = np.empty(len(keys), np.int64)
    found[order] = np.arange(len(keys)) - np.repeat(firsts, counts)
    return found
