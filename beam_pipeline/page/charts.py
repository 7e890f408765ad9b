"""Histograms of samples over the same bins; these and bars as SVG.

Numbers have one or two decimals, so that the same facts give the same bytes.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

_WIDTH, _HEIGHT = 320, 88
_CELLS = 40
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


def overlay(histogram: Histogram, colours: Sequence[int], title: str) -> str:
    """Returns the histograms of one or two samples over each other, each by shares.

    The first is filled, the second a line.

    Args:
      histogram: of one or two samples.
      colours: of each sample, the number of its colour.
      title: what it shows, for those who do not see it; already escaped.
    """
    shares = [
        np.array(counts) / max(sum(counts), 1) for counts in histogram.counts.values()
    ]
    # All bins are equally wide.
    xs = np.linspace(0, _WIDTH, len(histogram.edges))
    top = max(float(each.max()) for each in shares) or 1.0
    paths = []
    for number, (each, colour) in enumerate(zip(shares, colours, strict=False)):
        style = "line" if number else "area"
        path = _steps(xs, _HEIGHT - each / top * (_HEIGHT - 4))
        paths.append(f'<path class="{style} c{colour}" d="{path}"/>')
    return (
        f'<svg class="plot" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'preserveAspectRatio="none" aria-label="{title}">{"".join(paths)}</svg>'
    )


def _steps(xs: npt.NDArray[np.float64], ys: npt.NDArray[np.float64]) -> str:
    """Returns the outline of a histogram from its left foot to its right one."""
    parts = [f"M{xs[0]:.1f} {_HEIGHT}"]
    for number, y in enumerate(ys):
        parts.append(f"V{y:.1f}H{xs[number + 1]:.1f}")
    return "".join((*parts, f"V{_HEIGHT}"))


def bar(share: float, colour: int) -> str:
    """Returns a bar whose length is a share of the whole width."""
    width = f"{100 * min(max(share, 0), 1):.1f}".removesuffix(".0")
    return (
        '<svg class="bar" viewBox="0 0 100 6" preserveAspectRatio="none" '
        'aria-hidden="true"><rect class="rail" width="100" height="6"/>'
        f'<rect class="c{colour}" width="{width}" height="6"/></svg>'
    )


def density(
    widths: npt.NDArray[np.int64], heights: npt.NDArray[np.int64], title: str
) -> str:
    """Returns widths against heights of images; the darker, the more there are.

    Args:
      widths, heights: of n images, n >= 1, in pixels.
      title: what it shows, already escaped.
    """
    most = max(int(widths.max()), int(heights.max()), 1)
    across = np.minimum(widths * _CELLS // (most + 1), _CELLS - 1)
    up = np.minimum(heights * _CELLS // (most + 1), _CELLS - 1)
    counts = np.bincount(up * _CELLS + across, minlength=_CELLS * _CELLS)
    top = np.sqrt(counts.max())
    cells = "".join(
        f'<rect x="{cell % _CELLS}" y="{_CELLS - 1 - cell // _CELLS}" width="1" '
        f'height="1" opacity="{0.25 + 0.75 * np.sqrt(counts[cell]) / top:.2f}"/>'
        for cell in np.flatnonzero(counts)
    )
    return (
        f'<svg class="density" viewBox="0 0 {_CELLS} {_CELLS}" role="img" '
        f'aria-label="{title}"><path class="diagonal" d="M0 {_CELLS}L{_CELLS} 0"/>'
        f'<g class="c0">{cells}</g></svg>'
    )
