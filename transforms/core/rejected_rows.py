"""Rejections of rows, created only when they are read."""

from collections.abc import Callable, Iterator, Sequence
from typing import overload

import numpy as np
import numpy.typing as npt

from transforms.core.model import Rejection

# Rejections created at a time: enough to make the fixed cost of a run negligible.
_RUN_ROWS = 16_384

_Places = npt.NDArray[np.int64]


class RejectedRows(Sequence[Rejection]):
    """Rejections of rows of one origin, created run by run on iteration.

    Half a million at once would take a hundred times the memory of their block.
    """

    def __init__(
        self, count: int, make: Callable[[_Places], Sequence[Rejection]]
    ) -> None:
        """Creates the sequence without its rejections.

        Args:
          count: how many there are.
          make: returns the rejections at some places of 0 to count - 1, which ascend.
        """
        self._make = make
        self._places = np.arange(count)

    def __len__(self) -> int:
        return len(self._places)

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
