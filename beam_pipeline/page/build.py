"""Build the page: read the sample, count classes, gather sections, fill the template.

A feature of numbers or times has a histogram; of lists all values are counted. The
classes of labels have tables of their own. Histograms and bars are SVG, whose numbers
have one or two decimals, so that the same facts give the same bytes.
"""

import dataclasses
import functools
import html
import importlib.resources
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beam_pipeline.datasets.dataset import Dataset
from beam_pipeline.datasets.open_dataset import open_dataset
from beam_pipeline.page.pictures import (
    NUMBERS,
    ROWS_A_SHARD,
    Picture,
    PictureClass,
    Sample,
    ends_of,
    equal_images,
    picture_reader,
    pictures,
    sample_split,
)
from beam_pipeline.terminal import (
    count_text,
    kind_text,
    range_text,
    share_text,
    shortened,
    size_text,
    value_text,
)
from transforms.core.arrays import values_and_rows
from transforms.core.manifest import FeatureFacts, Manifest
from transforms.core.schema import Feature, Kind
from transforms.errors import first_few
from transforms.publishing.earlier_rejects import find_rejects

_COLOURS = 6
_MOST_MISSING = 12
# More features than this are not listed.
_MOST_CHARTS = 500
# Classes that are listed.
_MOST_BARS = 60

_WIDTH, _HEIGHT = 320, 88
_BINS = 32
# Beyond, a float has no halves between whole numbers.
_MOST_WHOLE = 2**51
Floats = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True, slots=True)
class Chart:
    """A feature on the page.

    Attributes:
      facts: what the manifest says of it.
      plot: the histogram of its values, as SVG; empty for none.
      ends: the smallest and the largest of them.
      odd: NaN and infinities, which are left out.
    """

    facts: FeatureFacts
    plot: str = ""
    ends: tuple[float, float] = (0.0, 0.0)
    odd: int = 0


@dataclasses.dataclass(frozen=True)
class SampledClasses:
    """The classes of a label, counted in the manifest or in a sample.

    Attributes:
      facts: of the label.
      names: of the classes, in the order of their ids.
      counts: of each split, of each class: records, or of lists values.
      sampled: whether only the sampled records were counted.
    """

    facts: FeatureFacts
    names: Sequence[str]
    counts: Mapping[str, Sequence[int]]
    sampled: bool = False

    @property
    def by_value(self) -> Mapping[Any, str]:
        """The names of the classes by the values that records hold for them."""
        match self.facts.feature.kind:
            case Kind.LABEL:
                return dict(enumerate(self.names))
            case Kind.TEXT:
                return {name: name for name in self.names}
        return {int(name): name for name in self.names}

    @functools.cached_property
    def totals(self) -> list[int]:
        """Of each class, over all splits."""
        return [sum(counts) for counts in zip(*self.counts.values(), strict=True)]

    @functools.cached_property
    def shown(self) -> list[int]:
        """The numbers of the classes that are listed, the largest first."""
        totals = self.totals
        return sorted(ends_of(totals, _MOST_BARS), key=lambda n: (-totals[n], n))

    def imbalance(self, split: str) -> float | None:
        """Returns largest / smallest class of a split, of those that it has."""
        there = [count for count in self.counts[split] if count]
        return max(there) / min(there) if len(there) > 1 else None

    def missing(self, split: str) -> list[str]:
        """Returns the classes that other splits have, and not this one with records."""
        if not any(self.counts[split]):
            return []
        both = zip(self.names, self.counts[split], self.totals, strict=True)
        return [name for name, count, total in both if total and not count]


def class_counts(manifest: Manifest) -> list[SampledClasses]:
    """Returns the classes of each label in the manifest; none of them are sampled."""
    tables = []
    for facts in manifest.features:
        name = facts.feature.name
        counted = {s.name: s.classes.get(name, {}) for s in manifest.splits}
        has_counts = any(name in split.classes for split in manifest.splits)
        if has_counts and not facts.feature.internal:
            values = {value for each in counted.values() for value in each}
            is_label = facts.feature.kind is Kind.LABEL
            names = [*facts.classes] if is_label else sorted(values, key=int)
            tables.append(_table_of_classes(facts, names, counted))
    return sorted(tables, key=lambda each: not each.facts.feature.is_label)


def _table_of_classes(
    facts: FeatureFacts,
    names: Sequence[str],
    counted: Mapping[str, Mapping[str, int]],
    sampled: bool = False,
) -> SampledClasses:
    """Returns the classes of a label by split; `sampled`: not of all records."""
    counts = {s: [some.get(n, 0) for n in names] for s, some in counted.items()}
    return SampledClasses(facts, names, counts, sampled)


def object_counts(
    manifest: Manifest, columns: Mapping[str, Mapping[str, pa.Array]]
) -> list[SampledClasses]:
    """Returns the sampled classes of boxes; none where there are no boxes.

    The manifest does not count them. They are beside the boxes, under the names of
    TensorFlow's Object Detection API: `image/object/bbox`, `image/object/class/text`.

    Args:
      manifest: of the dataset.
      columns: of each split the sampled ones, by feature.
    """
    features = {facts.feature.name: facts for facts in manifest.features}
    for name, facts in features.items():
        named = features.get(f"{name.removesuffix('bbox')}class/text")
        if facts.feature.kind is not Kind.BOX or named is None:
            continue
        if named.feature.kind in (Kind.TEXT, Kind.INT64):
            label = named.feature.name
            counted = {s: counts_of(some[label]) for s, some in columns.items()}
            names = sorted(set().union(*counted.values()))
            table = _table_of_classes(named, names, counted, sampled=True)
            return [table] if names else []
    return []


def counts_of(column: pa.Array) -> dict[str, int]:
    """Returns how often each sampled value occurs, by its text; of lists, each item."""
    counts = pc.value_counts(values_and_rows(column)[0].drop_null())
    texts = pc.cast(counts.field("values"), pa.string()).to_pylist()
    return dict(zip(texts, counts.field("counts").to_pylist(), strict=True))


def build_page(dataset: Dataset) -> str:
    """Returns the page of a dataset: HTML but for its first line.

    It depends on the dataset, the path given for it and the versions of this program
    and of Pillow.

    Args:
      dataset: to be shown.

    Raises:
      DamageError: what is read of it is damaged.
      OSError: a file cannot be read.
    """
    manifest = dataset.manifest
    opened = open_dataset(dataset.directory)
    image = image_of(manifest)
    shards = sum(len(split.shards) for split in manifest.splits)
    samples = [sample_split(opened, s, image, shards) for s in manifest.splits]
    counts = class_counts(manifest) or object_counts(
        manifest, {entry.split: entry.columns for entry in samples if len(entry)}
    )
    gallery: list[PictureClass] = []
    equal: list[list[Picture]] = []
    equal_count = 0
    if image is not None:
        of_label = counts[0] if counts else None
        classes = of_label.by_value if of_label else {}
        label = of_label.facts.feature.name if of_label else ""
        read = picture_reader(opened, image, label, classes)
        totals = of_label.totals if of_label else [sum(map(len, samples))]
        gallery = pictures(read, samples, label, classes, totals)
        equal, equal_count = equal_images(read, samples)
    has_rejects = any("reject" in file.file for file in manifest.files)
    facts = {
        "manifest": manifest,
        "colours": {s.name: n % _COLOURS for n, s in enumerate(manifest.splits)},
        "sampled": {entry.split: len(entry) for entry in samples},
        "rows_a_shard": ROWS_A_SHARD,
        "classes": counts,
        "image": image,
        "charts": _charts(manifest, samples),
        "rejects": find_rejects(dataset.directory).groups() if has_rejects else [],
        "equal": equal,
        "equal_count": equal_count,
        "notes": manifest.run.get("notes", []),
        "gallery": gallery,
    }
    return _template().render(**facts)


def image_of(manifest: Manifest) -> Feature | None:
    """Returns the image that is sampled: the first that records have; None for none."""
    features = [f.feature for f in manifest.features if not f.feature.internal]
    images = (f for f in features if f.kind is Kind.IMAGE and not f.is_list)
    return next(images, None)


def _first_names(names: Sequence[str]) -> str:
    """Returns the first few names, and how many more there are."""
    return first_few([shortened(name, 40) for name in names], _MOST_MISSING)


def _charts(manifest: Manifest, samples: Sequence[Sample]) -> list[Chart]:
    """Returns a chart for each of the first features, drawn if numbers were sampled."""
    listed = [f for f in manifest.features if not f.feature.internal][:_MOST_CHARTS]
    charts = []
    for facts in listed:
        columns = [entry.columns.get(facts.feature.name, ()) for entry in samples]
        drawn = [c for c in columns if len(c) and facts.feature.kind in NUMBERS]
        charts.append(chart_of(facts, drawn) if drawn else Chart(facts))
    return charts


def chart_of(facts: FeatureFacts, columns: Sequence[pa.Array]) -> Chart:
    """Returns the chart of a feature's values."""
    feature = facts.feature
    numbers = np.concatenate([*map(_as_floats, columns)])
    values = numbers[np.isfinite(numbers)]
    odd = len(numbers) - len(values)
    if not len(values):
        return Chart(facts, odd=odd)
    low, high = float(values.min()), float(values.max())
    is_whole = feature.kind is not Kind.FLOAT and max(-low, high) < _MOST_WHOLE
    counts = np.histogram(values, edges_of(low, high, is_whole=is_whole))[0]
    title = html.escape(f"Histogram of {shortened(feature.name)}")
    return Chart(facts, plot(counts, title), (low, high), odd)


def _as_floats(column: pa.Array) -> Floats:
    """Returns all values of numbers, also in lists, as float64; no absent ones."""
    values = values_and_rows(column)[0].drop_null()
    if pa.types.is_timestamp(values.type) or pa.types.is_boolean(values.type):
        values = values.cast(pa.int64())
    return np.asarray(values.to_numpy(zero_copy_only=False), np.float64)


def edges_of(low: float, high: float, *, is_whole: bool) -> Floats:
    """Returns the n + 1 ascending edges of n bins; a whole number is in the middle."""
    if is_whole:
        width = max(np.ceil((high - low + 1) / _BINS), 1)
        bins = int((high - low) // width) + 1
        return np.asarray(low - 0.5 + width * np.arange(bins + 1))
    if low == high:
        step = max(abs(low), 1.0) / 2
        return np.array([low - step, high + step])
    return np.asarray(np.unique(np.linspace(low, high, _BINS + 1)))


def plot(counts: npt.NDArray[np.int64], title: str) -> str:
    """Returns a histogram as SVG.

    Args:
      counts: of n bins, which are equally wide.
      title: what it shows, for those who do not see it; already escaped.
    """
    xs = np.linspace(0, _WIDTH, len(counts) + 1)
    ys = _HEIGHT - counts / counts.max() * (_HEIGHT - 4)
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


@functools.cache
def _template() -> jinja2.Template:
    """Returns the template of the page, with the filters and functions that it uses."""
    text = importlib.resources.files(__package__).joinpath("page.html.jinja")
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "count": count_text,
        "size": size_text,
        "short": shortened,
        "kind": kind_text,
        "first_names": _first_names,
    }
    environment.globals |= {
        "share_text": share_text,
        "bar": bar,
        "value_text": value_text,
        "range_text": range_text,
    }
    return environment.from_string(text.read_text(encoding="utf-8"))
