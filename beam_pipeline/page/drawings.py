"""Histograms and bars as SVG; colours are those of the page's style sheet.

Numbers have one or two decimals, so that the same facts give the same bytes.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from beam_pipeline.page.histogram import Histogram

__all__ = ["bar", "density", "overlay"]

_WIDTH, _HEIGHT = 320, 88
_CELLS = 40


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
