"""How far apart the values of two splits are, as one number from 0 to 1.

| values     | drift                                                               |
| ---------- | ------------------------------------------------------------------- |
| numbers    | Kolmogorov-Smirnov: the largest difference between the shares of    |
|            | values up to some threshold                                         |
| categories | total variation: the largest difference between the shares of some  |
|            | set of categories                                                   |

Two samples of one distribution differ, too. `chance` is what they exceed in at most one
of twenty cases: for numbers the asymptotic 5 % point, 1.358 sqrt(1/n + 1/m); for
categories the mean under the normal approximation, plus the bound of McDiarmid.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Drift", "drift_of_categories", "drift_of_numbers"]

_KS_FIVE_PERCENT = 1.358


@dataclasses.dataclass(frozen=True, slots=True)
class Drift:
    """The distance of two samples.

    Attributes:
      value: 0 for the same shares, 1 for nothing in common.
      chance: what samples of this size exceed in 5 % of cases without any drift.
    """

    value: float
    chance: float

    @property
    def is_large(self) -> bool:
        """Whether it is more than chance."""
        return self.value > self.chance


def drift_of_numbers(
    first: npt.NDArray[np.float64], second: npt.NDArray[np.float64]
) -> Drift | None:
    """Returns the drift between two samples of numbers; None where one is empty.

    >>> ones, twos = np.ones(100), np.full(100, 2.0)
    >>> drift_of_numbers(ones, twos).value, drift_of_numbers(ones, ones).value
    (1.0, 0.0)
    """
    if not len(first) or not len(second):
        return None
    first, second = np.sort(first), np.sort(second)
    every = np.concatenate((first, second))
    shares = [
        np.searchsorted(each, every, side="right") / len(each)
        for each in (first, second)
    ]
    value = float(np.abs(shares[0] - shares[1]).max())
    chance = _KS_FIVE_PERCENT * math.sqrt(1 / len(first) + 1 / len(second))
    return Drift(value, min(chance, 1.0))


def drift_of_categories(
    first: Mapping[Any, int], second: Mapping[Any, int]
) -> Drift | None:
    """Returns the drift between counts by category; None where one has no count.

    >>> round(drift_of_categories({"a": 60, "b": 40}, {"a": 50, "b": 50}).value, 6)
    0.1
    """
    sizes = sum(first.values()), sum(second.values())
    if not all(sizes):
        return None
    keys = [*first, *(key for key in second if key not in first)]
    counts = np.array([[each.get(k, 0) for k in keys] for each in (first, second)])
    shares = counts / np.array(sizes)[:, None]
    value = float(np.abs(shares[0] - shares[1]).sum() / 2)
    both = counts.sum(axis=0) / sum(sizes)
    inverse = 1 / sizes[0] + 1 / sizes[1]
    mean = float(np.sqrt(2 / math.pi * both * (1 - both) * inverse).sum() / 2)
    chance = mean + math.sqrt(math.log(20) / 2 * inverse)
    return Drift(min(value, 1.0), min(chance, 1.0))
