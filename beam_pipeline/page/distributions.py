"""The values of a feature: presence, histogram, frequent values of each split.

| kind                     | shown as                                                |
| ------------------------ | ------------------------------------------------------- |
| int64, float, timestamp  | histogram; whole numbers of few values: each of them    |
| bool, label              | each value                                              |
| text                     | frequent values; where most differ, lengths in bytes    |
| bytes, image, tensor     | lengths in bytes                                        |
| box                      | number of boxes in a record                             |

Of lists all values are counted.

Histograms and bars are SVG. Their numbers have one or two decimals, so that the same
facts give the same bytes.
"""

import collections
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beam_pipeline.page.sample import counts_of
from transforms.core.arrays import values_and_rows
from transforms.core.schema import Feature, Kind

_WIDTH, _HEIGHT = 320, 88
Floats = npt.NDArray[np.float64]

_BINS = 32
# A range this many times that of the middle 99 % hides it: the ends are cut off.
_LONG_TAIL = 5
_MIDDLE = (0.005, 0.995)
# Beyond, a float has no halves between whole numbers.
_MOST_WHOLE = 2**51
# Values that are listed; of more distinct ones than these a histogram is drawn.
_SHOWN_VALUES = 20
_FEW = {Kind.BOOL: 2, Kind.INT64: 12, Kind.TEXT: 1_000}
_NUMBERS = (Kind.INT64, Kind.FLOAT, Kind.TIMESTAMP)


@dataclasses.dataclass(frozen=True, slots=True)
class Histogram:
    """Counts over n bins.

    Attributes:
      edges: n + 1 ascending numbers.
      counts: n numbers.
      outside: how many numbers are beyond the edges.
      ends: the range of numbers that are shown; whole numbers are in the middle of
        their bins, so these reach further.
    """

    edges: tuple[float, ...]
    counts: tuple[int, ...]
    outside: int
    ends: tuple[float, float]


def histogram_of(values: Floats, *, whole: bool) -> Histogram | None:
    """Returns a histogram; None where there is nothing to show.

    Args:
      values: finite numbers.
      whole: whether the numbers are whole; a bin is then a whole number wide.
    """
    if not len(values):
        return None
    low, high = float(values.min()), float(values.max())
    # Numbers that are there: between two large ones the difference may be infinite.
    inner = np.quantile(values, _MIDDLE, method="inverted_cdf").tolist()
    if high / 2 - low / 2 > _LONG_TAIL * (inner[1] / 2 - inner[0] / 2) > 0:
        low, high = inner
    whole = whole and max(-low, high) < _MOST_WHOLE
    edges = _edges(low, high, whole=whole)
    counts = np.histogram(values, edges)[0].tolist()
    outside = len(values) - sum(counts)
    return Histogram(tuple(edges.tolist()), tuple(counts), outside, (low, high))


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


def plot(histogram: Histogram, title: str) -> str:
    """Returns a histogram as SVG.

    Args:
      histogram: all bins of which are equally wide.
      title: what it shows, for those who do not see it; already escaped.
    """
    xs = np.linspace(0, _WIDTH, len(histogram.edges))
    top = max(histogram.counts) or 1
    ys = _HEIGHT - np.array(histogram.counts) / top * (_HEIGHT - 4)
    steps = (f"V{y:.1f}H{x:.1f}" for y, x in zip(ys, xs[1:], strict=True))
    return (
        f'<svg class="plot" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'preserveAspectRatio="none" aria-label="{title}"><path class="area c0" '
        f'd="M0.0 {_HEIGHT}{"".join(steps)}V{_HEIGHT}"/></svg>'
    )


def bar(share: float, colour: int) -> str:
    """Returns a bar whose length is a share of the whole width."""
    width = f"{100 * min(max(share, 0), 1):.1f}".removesuffix(".0")
    return (
        '<svg class="bar" viewBox="0 0 100 6" preserveAspectRatio="none" '
        'aria-hidden="true"><rect class="rail" width="100" height="6"/>'
        f'<rect class="c{colour}" width="{width}" height="6"/></svg>'
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Frequent:
    """Values that occur often.

    Attributes:
      names: the values, in the order that is shown.
      counts: of each split how often each value occurs, also those not shown.
      totals: of each split, all together.
      distinct: how many there are.
    """

    names: list[str]
    counts: Mapping[str, Mapping[str, int]]
    totals: Mapping[str, int]
    distinct: int


@dataclasses.dataclass(frozen=True, slots=True)
class Distribution:
    """The values of a feature.

    Attributes:
      measured: what the numbers are: "" for the values, or "bytes", "boxes".
      rows: of each split how many were looked at, and how many have the feature.
      histogram, frequent: one of them, or neither where there is no value.
      odd: NaN and infinities, which are left out.
    """

    measured: str
    rows: Mapping[str, tuple[int, int]]
    histogram: Histogram | None = None
    frequent: Frequent | None = None
    odd: int = 0


def describe(feature: Feature, columns: Mapping[str, pa.Array]) -> Distribution:
    """Returns what the values of a feature are like.

    Args:
      feature: of the dataset.
      columns: of each split, as `transforms.reading.stream.Columns` gives them; of an
        image its size in bytes, as int64.
    """
    kind, rows = feature.kind, rows_of(columns)
    flat = {name: _flat(feature, column) for name, column in columns.items()}
    if kind in _FEW:
        every = pa.chunked_array([*flat.values()])
        distinct = pc.count_distinct(every).as_py()
        few = distinct <= _FEW[kind]
        if kind is Kind.TEXT and distinct > _SHOWN_VALUES:
            few = few and 2 * distinct < len(every)
        if distinct and few:
            counts = {name: counts_of(values) for name, values in flat.items()}
            order = {Kind.BOOL: str, Kind.INT64: int}.get(kind)
            return describe_counts(counts, rows, order)
    measured = ""
    if kind not in _NUMBERS:
        measured = "boxes" if kind is Kind.BOX else "bytes"
    numbers = np.concatenate([np.empty(0), *map(_numbers, flat.values())])
    finite = numbers[np.isfinite(numbers)]
    histogram = histogram_of(finite, whole=kind is not Kind.FLOAT)
    return Distribution(measured, rows, histogram, odd=len(numbers) - len(finite))


def rows_of(columns: Mapping[str, pa.Array]) -> dict[str, tuple[int, int]]:
    """Returns of each split its rows, and how many of them have a value."""
    return {name: (len(c), len(c) - c.null_count) for name, c in columns.items()}


def _flat(feature: Feature, column: pa.Array) -> pa.Array:
    if feature.kind is Kind.BOX:
        return pc.list_value_length(column).drop_null()
    return values_and_rows(column)[0].drop_null()


def _numbers(values: pa.Array) -> Floats:
    kind = values.type
    if pa.types.is_timestamp(kind):
        values = values.cast(pa.int64())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        values = pc.binary_length(values)
    return np.asarray(values.to_numpy(zero_copy_only=False), np.float64)


def describe_counts(
    counts: Mapping[str, Mapping[str, int]],
    rows: Mapping[str, tuple[int, int]],
    order: Callable[[str], Any] | None = None,
) -> Distribution:
    """Returns the same of values that have been counted, as the classes of labels.

    Args:
      counts: of each split, by value.
      rows: see `Distribution`.
      order: returns by what values are sorted; None for their frequency.
    """
    every: collections.Counter[str] = collections.Counter()
    for by_value in counts.values():
        every.update(by_value)
    if not every:
        return Distribution("", rows)
    ranked = sorted(every, key=order or (lambda value: (-every[value], value)))
    totals = {split: sum(by_value.values()) for split, by_value in counts.items()}
    frequent = Frequent(ranked[:_SHOWN_VALUES], counts, totals, len(every))
    return Distribution("", rows, frequent=frequent)
