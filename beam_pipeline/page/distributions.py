"""The values of a feature in each split: presence, histogram, frequent values.

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
from collections.abc import Mapping, Sequence

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
    top = max(float(heights.max()) for heights in shares) or 1.0
    paths = []
    for number, (heights, colour) in enumerate(zip(shares, colours, strict=False)):
        style = "line" if number else "area"
        path = _steps(xs, _HEIGHT - heights / top * (_HEIGHT - 4))
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


_SHOWN_VALUES = 20
_FEW_WHOLE = 12
_MOST_TEXTS = 1_000
_NUMBERS = (Kind.INT64, Kind.FLOAT, Kind.TIMESTAMP)


@dataclasses.dataclass(frozen=True, slots=True)
class Frequent:
    """Values that occur often.

    Attributes:
      values: of each split how often each occurs, in the order that is shown.
      others: of each split how many values are none of them.
      distinct: how many there are.
    """

    values: Mapping[str, Mapping[str, int]]
    others: Mapping[str, int]
    distinct: int

    @property
    def names(self) -> list[str]:
        """The values, in the order that is shown."""
        return [*next(iter(self.values.values()), {})]


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
    histogram: Histogram | None
    frequent: Frequent | None
    odd: int


def describe(
    feature: Feature,
    columns: Mapping[str, pa.Array],
    compared: tuple[str, str] | None,
) -> Distribution:
    """Returns what the values of a feature are like.

    Args:
      feature: of the dataset.
      columns: of each split, as `transforms.reading.stream.Columns` gives them; of an
        image its size in bytes, as int64.
      compared: the names of the two splits whose histograms are shown; None for all.
    """
    rows = {
        name: (len(column), len(column) - column.null_count)
        for name, column in columns.items()
    }
    flat = {name: _flat(feature, column) for name, column in columns.items()}
    if feature.kind is Kind.BOOL:
        counts = {name: counts_of(values) for name, values in flat.items()}
        return describe_counts(counts, rows, by_value=True)
    if feature.kind is Kind.TEXT:
        counts = {name: counts_of(values) for name, values in flat.items()}
        distinct = len(set().union(*counts.values()))
        total = sum(map(len, flat.values()))
        if distinct <= _MOST_TEXTS and (
            distinct <= _SHOWN_VALUES or 2 * distinct < total
        ):
            return describe_counts(counts, rows)
    measured = ""
    if feature.kind not in _NUMBERS:
        measured = "boxes" if feature.kind is Kind.BOX else "bytes"
    numbers = {name: _numbers(values) for name, values in flat.items()}
    finite = {name: values[np.isfinite(values)] for name, values in numbers.items()}
    odd = sum(map(len, numbers.values())) - sum(map(len, finite.values()))
    whole = feature.kind is not Kind.FLOAT
    frequent = _few_whole(finite) if feature.kind is Kind.INT64 else None
    shown = {name: finite[name] for name in (compared or finite)}
    histogram = None if frequent else histogram_of(shown, whole=whole)
    return Distribution(measured, rows, histogram, frequent, odd)


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


def _few_whole(samples: Mapping[str, Floats]) -> Frequent | None:
    """Returns the counts of whole numbers, if there are few of them."""
    every = np.unique(np.concatenate([*samples.values(), np.empty(0)]))
    if not 0 < len(every) <= _FEW_WHOLE:
        return None
    counts = {
        name: {f"{int(value)}": int((values == value).sum()) for value in every}
        for name, values in samples.items()
    }
    return Frequent(counts, dict.fromkeys(samples, 0), len(every))


def describe_counts(
    counts: Mapping[str, Mapping[str, int]],
    rows: Mapping[str, tuple[int, int]],
    *,
    by_value: bool = False,
) -> Distribution:
    """Returns the same of values that have been counted, as the classes of labels.

    Args:
      counts: of each split, by value.
      rows: see `Distribution`.
      by_value: whether values are shown in their own order.
    """
    totals: collections.Counter[str] = collections.Counter()
    for by_category in counts.values():
        totals.update(by_category)
    ranked = sorted(totals, key=lambda v: (v,) if by_value else (-totals[v], v))
    shown = ranked[:_SHOWN_VALUES]
    values = {
        name: {value: by_category.get(value, 0) for value in shown}
        for name, by_category in counts.items()
    }
    others = {
        name: sum(by_category.values()) - sum(values[name].values())
        for name, by_category in counts.items()
    }
    frequent = Frequent(values, others, len(totals)) if totals else None
    return Distribution("", rows, None, frequent, 0)
