"""Which records a view has, and in which order: places in it -> positions in its split.

Selection = a base (all of a split, a list, a shuffled selection) and a `range` of
its places. Slices of slices are slices of the range, as Python defines them.
"""

import dataclasses
import functools
from collections.abc import Iterable, Sequence
from typing import Any, Protocol, SupportsIndex

import numpy as np
import numpy.typing as npt

from transforms.errors import UsageError, shortened
from transforms.reading.permutation import (
    RUNS_MIXED,
    Permutation,
    RunPermutation,
)

Longs = npt.NDArray[np.int64]


class Base(Protocol):
    """A sequence of n positions."""

    def __len__(self) -> int:
        """Returns n."""

    def at(self, place: int) -> int:
        """Returns the position at a place, 0 <= place < n."""

    def many(self, places: Longs) -> Longs:
        """Returns the positions at several places."""


@dataclasses.dataclass(frozen=True, slots=True)
class Everything:
    """All n records of a split, in their order."""

    count: int

    def __len__(self) -> int:
        return self.count

    def at(self, place: int) -> int:
        """See `Base`."""
        return place

    def many(self, places: Longs) -> Longs:
        """See `Base`."""
        return places


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Listed:
    """Positions that were given, or that a condition has chosen."""

    positions: Longs

    def __len__(self) -> int:
        return len(self.positions)

    def at(self, place: int) -> int:
        """See `Base`."""
        return int(self.positions[place])

    def many(self, places: Longs) -> Longs:
        """See `Base`."""
        return self.positions[places]


@dataclasses.dataclass(frozen=True, slots=True)
class Selection:
    """Places of a base, as a range of them.

    >>> odd = Selection.whole(Everything(10))[1::2]
    >>> [odd[2:].at(place) for place in range(len(odd[2:]))]
    [5, 7, 9]
    """

    base: Base
    places: range

    @classmethod
    def whole(cls, base: Base) -> "Selection":
        """Returns all places of a base."""
        return cls(base, range(len(base)))

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, part: slice) -> "Selection":
        return Selection(self.base, self.places[part])

    def at(self, place: int) -> int:
        """Returns the position at a place. Raises IndexError, as a sequence does."""
        return self.base.at(self.places[place])

    def many(self, places: Longs) -> Longs:
        """Returns the positions at places, 0 <= place < n."""
        return self.base.many(self.places.start + self.places.step * places)

    def span(self, start: int, stop: int) -> Longs:
        """Returns the positions at the places from `start` to `stop`."""
        return self.many(np.arange(start, stop, dtype=np.int64))

    def listed(self, places: Longs) -> "Selection":
        """Returns the positions at places as a selection."""
        return Selection.whole(Listed(self.many(places)))

    @property
    def follows_files(self) -> bool:
        """Whether the positions are those of a split, ascending one by one."""
        return isinstance(self.base, Everything) and self.places.step == 1


@dataclasses.dataclass(frozen=True, slots=True)
class Shuffled:
    """A selection in the order of each epoch, one epoch after another.

    Attributes:
      inner: what is shuffled.
      seed: of the order.
      epochs: their numbers.
      run: how many neighbours stay near one another; 0 for none.
    """

    inner: Selection
    seed: int
    epochs: Sequence[int]
    run: int = 0

    def __len__(self) -> int:
        return len(self.inner) * len(self.epochs)

    def at(self, place: int) -> int:
        """See `Base`."""
        epoch, place = divmod(place, len(self.inner.places))
        return self.inner.at(self._order(epoch)(place))

    def many(self, places: Longs) -> Longs:
        """See `Base`."""
        count = len(self.inner)
        if not count or not len(places):
            return np.empty(0, np.int64)
        if len(self.epochs) == 1:
            return self.inner.many(self._order(0).many(places))
        epochs, within = np.divmod(places, count)
        found = np.empty(len(places), np.int64)
        for epoch in np.unique(epochs).tolist():
            mine = epochs == epoch
            found[mine] = self._order(epoch).many(within[mine])
        return self.inner.many(found)

    def together(self, places: range) -> int:
        """Returns how many of the next places are in the window of the first of them.

        Args:
          places: at least one; `run` is not 0.
        """
        window = self.run * RUNS_MIXED
        place = places[0] % len(self.inner)
        first = places[0] - place % window
        last = min(first + window, places[0] - place + len(self.inner)) - 1
        step = places.step
        return (
            (last - places[0]) // step if step > 0 else (first - places[0]) // step
        ) + 1

    def _order(self, index: int) -> Permutation | RunPermutation:
        return _permutation(len(self.inner), self.seed, self.epochs[index], self.run)


@functools.lru_cache(maxsize=64)
def _permutation(
    count: int, seed: int, epoch: int, run: int
) -> Permutation | RunPermutation:
    if run:
        return RunPermutation.of(count, run=run, seed=seed, epoch=epoch)
    return Permutation.of(count, seed=seed, epoch=epoch)


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


def whole_number(name: str, value: Any) -> int:
    """Returns an argument that must be a whole number. Raises TypeError."""
    try:
        return place_of(value)
    except TypeError:
        raise TypeError(
            f"{name} must be a whole number; found {shortened(repr(value))}"
        ) from None


def places_of(indices: Any, count: int) -> Longs:
    """Returns a list of indices as places, 0 <= place < count.

    Raises:
      TypeError: one is no whole number.
      IndexError: one is outside of the view.
    """
    array = indices if isinstance(indices, np.ndarray) else _array_of(indices, count)
    if not array.size:
        return np.empty(0, np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise TypeError(
            f"a list of indices must hold whole numbers in one dimension; found "
            f"{array.dtype} in {array.ndim}"
        )
    if array.dtype.kind == "u" and int(array.max()) >= 2**63:
        raise IndexError(f"index {int(array.max())} is out of range of {count:,}")
    places = array.astype(np.int64)
    outside = (places < -count) | (places >= count)
    if outside.any():
        wrong = int(places[outside.argmax()])
        raise IndexError(f"index {wrong:,} is out of range of {count:,} records")
    return np.where(places < 0, places + count, places)


def _array_of(indices: Iterable[Any], count: int) -> Longs:
    items = [*indices]
    if not {*map(type, items)} <= {int}:
        items = [*map(place_of, items)]
    try:
        return np.array(items, np.int64)
    except OverflowError:
        wrong = max(items, key=abs)
        raise IndexError(
            f"index {wrong} is out of range of {count:,} records"
        ) from None


def epochs_of(epoch: int | None, epochs: Iterable[int] | None) -> Sequence[int]:
    """Returns the epochs that are asked for.

    Raises:
      UsageError: both one and several are.
    """
    if epochs is None:
        return (0 if epoch is None else whole_number("epoch", epoch),)
    if epoch is not None:
        raise UsageError("Either epoch or epochs is given; found both. Leave one out.")
    if isinstance(epochs, range):
        return epochs
    return tuple(whole_number("an epoch", each) for each in epochs)
