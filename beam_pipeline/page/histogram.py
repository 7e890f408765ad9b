"""Histograms of several samples over the same bins."""

import dataclasses
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

__all__ = ["Floats", "Histogram", "Spread", "histogram_of", "spread_of"]

Floats = npt.NDArray[np.float64]

_BINS = 32
# A range this many times that of the middle 99 % hides it: the ends are cut off.
_LONG_TAIL = 5
_MIDDLE = (0.005, 0.995)
# Beyond, a float has no halves between whole numbers.
_MOST_WHOLE = 2**51


@dataclasses.dataclass(frozen=True, slots=True)
class Spread:
    """Mean and quantiles of numbers."""

    count: int
    mean: float
    least: float
    lower: float
    median: float
    upper: float
    most: float


@dataclasses.dataclass(frozen=True, slots=True)
class Histogram:
    """Counts over n bins.

    Attributes:
      edges: n + 1 ascending numbers.
      counts: of each sample, n numbers.
      outside: how many numbers of all samples are beyond the edges.
      ends: the range of numbers that are shown; whole numbers are in the middle of
        their bins, so these reach further.
    """

    edges: tuple[float, ...]
    counts: Mapping[str, tuple[int, ...]]
    outside: int
    ends: tuple[float, float]


def spread_of(values: Floats) -> Spread | None:
    """Returns mean and quantiles of finite numbers; None for none."""
    if not len(values):
        return None
    least, lower, median, upper, most = _quantiles(values, (0, 0.25, 0.5, 0.75, 1))
    # The sum of large floats may be infinite.
    scale = max(-least, most) or 1.0
    mean = float(np.mean(values / scale)) * scale
    return Spread(len(values), mean, least, lower, median, upper, most)


def histogram_of(samples: Mapping[str, Floats], *, whole: bool) -> Histogram | None:
    """Returns histograms over the same bins; None where there is nothing to show.

    Args:
      samples: finite numbers by name.
      whole: whether the numbers are whole; a bin is then a whole number wide.
    """
    every = np.concatenate([*samples.values(), np.empty(0)])
    if not len(every):
        return None
    low, high = float(every.min()), float(every.max())
    inner = _quantiles(every, _MIDDLE)
    if high / 2 - low / 2 > _LONG_TAIL * (inner[1] / 2 - inner[0] / 2) > 0:
        low, high = inner
    whole = whole and max(-low, high) < _MOST_WHOLE
    edges = _edges(low, high, whole=whole)
    counts = {
        name: tuple(np.histogram(values, edges)[0].tolist())
        for name, values in samples.items()
    }
    inside = sum(map(sum, counts.values()))
    return Histogram(tuple(edges.tolist()), counts, len(every) - inside, (low, high))


def _quantiles(values: Floats, shares: tuple[float, ...]) -> list[float]:
    # Numbers that are there: between two large ones the difference may be infinite.
    return [*map(float, np.quantile(values, shares, method="inverted_cdf"))]


def _edges(low: float, high: float, *, whole: bool) -> Floats:
    if whole:
        low, high = np.floor(low), np.ceil(high)
        width = max(np.ceil((high - low + 1) / _BINS), 1)
        bins = int((high - low) // width) + 1
        return np.asarray(low - 0.5 + width * np.arange(bins + 1))
    if low == high:
        step = max(abs(low), 1.0) / 2
        return np.array([low - step, high + step])
    # By halves, since the difference of two floats may be infinite.
    parts = np.linspace(0, 1, _BINS + 1)
    edges = low * (1 - parts) + high * parts
    edges[0], edges[-1] = low, high
    return np.asarray(np.unique(edges))
