"""Rejections of rows, created only when they are read."""

from collections.abc import Callable, Iterator, Sequence
from typing import overload

import numpy as np
import numpy.typing as npt

from transforms.core.model import Rejection

__all__ = ["RejectedRows"]

# Rejections created at a time: enough to make the fixed cost of a run negligible.
_RUN_ROWS = 16_384

_Places = npt.NDArray[np.int64]


class RejectedRows(Sequence[Rejection]):
    """Rejections of rows of one origin, created run by run on iteration.

    Half a million at once would take a hundred times the memory of their block.

    Attributes:
      numbers: int64 array of n: the rows' 0-based numbers in the origin; they ascend.
    """

    def __init__(
        self,
        numbers: npt.NDArray[np.int64],
        make: Callable[[_Places], Sequence[Rejection]],
        places: _Places | None = None,
    ) -> None:
        """Creates the sequence without its rejections.

        Args:
          numbers: of the rows.
          make: returns the rejections at some places, which ascend.
          places: the n places; by default 0 to n - 1.
        """
        self.numbers = numbers
        self._make = make
        self._places = np.arange(len(numbers)) if places is None else places

    def only(self, keep: npt.NDArray[np.bool_]) -> "RejectedRows":
        """Returns the rejections where `keep`, n bools, is true."""
        return RejectedRows(self.numbers[keep], self._make, self._places[keep])

    def __len__(self) -> int:
        return len(self.numbers)

    def __iter__(self) -> Iterator[Rejection]:
        for start in range(0, len(self), _RUN_ROWS):
            yield from self._make(self._places[start : start + _RUN_ROWS])

    @overload
    def __getitem__(self, index: int) -> Rejection: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Rejection]: ...
    def __getitem__(self, index: int | slice) -> Rejection | Sequence[Rejection]:
        if isinstance(index, slice):
            return self._make(self._places[index])
        return self._make(self._places[[index]])[0]
