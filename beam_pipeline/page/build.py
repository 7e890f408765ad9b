"""Build the page: read the sample, gather the sections, fill in the template."""

import dataclasses
import functools
import html
import importlib.resources
from collections.abc import Callable, Mapping, Sequence

import jinja2

from beam_pipeline.datasets.dataset import Dataset
from beam_pipeline.page.distributions import (
    Distribution,
    bar,
    describe,
    describe_counts,
    plot,
    rows_of,
)
from beam_pipeline.page.pictures import (
    Equal,
    PictureClass,
    equal_images,
    pictures,
)
from beam_pipeline.page.sample import (
    ROWS_A_SHARD,
    Sample,
    SampledClasses,
    class_counts,
    ends_of,
    image_of,
    object_counts,
    sample_split,
)
from beam_pipeline.reading.open_dataset import open_dataset
from beam_pipeline.terminal.printing import printable
from beam_pipeline.terminal.words import (
    count_text,
    kind_text,
    share_text,
    shortened,
    size_text,
    value_text,
)
from transforms.core.manifest import FeatureFacts, Manifest
from transforms.core.schema import Kind
from transforms.errors import DamageError
from transforms.publishing.earlier_rejects import RejectGroup, find_rejects
from transforms.storage.files import storage

_COLOURS = 6
_MOST_BARS = 60
_MOST_MISSING = 12
# More features than this are not listed.
_MOST_CHARTS = 500


@dataclasses.dataclass(frozen=True, slots=True)
class Chart:
    """A feature on the page.

    Attributes:
      facts: what the manifest says of it.
      found: its values; None where they were not looked at.
      plot: SVG; empty for none.
      most: how many frequent values are listed.
    """

    facts: FeatureFacts
    found: Distribution | None
    plot: str
    most: int


def build_page(dataset: Dataset, *, verified: bool) -> str:
    """Returns the page of a dataset: HTML but for its first line.

    It depends on the dataset, the path given for it and the versions of this program
    and of Pillow.

    Args:
      dataset: to be shown.
      verified: whether it was just verified as a whole.

    Raises:
      DamageError: what is read of it is damaged.
      OSError: a file cannot be read.
    """
    manifest = dataset.manifest
    _check_sizes(dataset)
    opened = open_dataset(dataset.directory)
    samples = [sample_split(opened, manifest, entry) for entry in manifest.splits]
    counts = class_counts(manifest) or object_counts(
        manifest, {entry.split: entry.columns for entry in samples if len(entry)}
    )
    image = image_of(manifest)
    shown: list[PictureClass] = []
    equal: tuple[list[Equal], int] = ([], 0)
    if image is not None:
        label = counts[0] if counts else None
        shown = pictures(opened, samples, image, label)
        equal = equal_images(opened, samples, image, label)
    names = [split.name for split in manifest.splits]
    facts = {
        "manifest": manifest,
        "verified": verified,
        "colours": {name: n % _COLOURS for n, name in enumerate(names)},
        "sampled": {entry.split: len(entry) for entry in samples},
        "rows_a_shard": ROWS_A_SHARD,
        "classes": [_ClassTable(entry) for entry in counts],
        "image": image,
        "charts": _charts(manifest, samples, counts),
        "rejects": _rejected_of(dataset),
        "equal": equal[0],
        "equal_count": equal[1],
        "notes": manifest.run.get("notes", []),
        "gallery": shown,
    }
    return _template().render(**facts)


def _check_sizes(dataset: Dataset) -> None:
    """Raises DamageError where a shard has another size than the manifest says."""
    for split in dataset.manifest.splits:
        for shard in split.shards:
            size = storage(dataset.path(shard.file)).size_of()
            if size != shard.bytes:
                raise DamageError(
                    f"{dataset.path(shard.file)} must have {shard.bytes:,} bytes as "
                    f"the manifest says; found {size:,}. See beam-tfrecord verify."
                )


class _ClassTable:
    """The classes of a label as the page lists them."""

    def __init__(self, counts: SampledClasses) -> None:
        self.counts = counts
        self.feature = counts.facts.feature
        totals = counts.totals
        self.shown = sorted(ends_of(totals, _MOST_BARS), key=lambda n: (-totals[n], n))
        self.hidden = len(counts.names) - len(self.shown)
        self.tops = {name: max(some, default=0) for name, some in counts.counts.items()}
        self.sums = {name: sum(some) for name, some in counts.counts.items()}
        self.never = sum(not total for total in totals)
        self.missing = {
            name: _first_names(missing)
            for name in counts.counts
            if self.sums[name] and (missing := counts.missing(name))
        }


def _first_names(names: Sequence[str]) -> str:
    shown = ", ".join(shortened(name, 40) for name in names[:_MOST_MISSING])
    more = len(names) - _MOST_MISSING
    return f"{shown} and {more:,} more" if more > 0 else shown


def _charts(
    manifest: Manifest, samples: Sequence[Sample], counts: Sequence[SampledClasses]
) -> list[Chart]:
    counted = {
        entry.facts.feature.name: entry
        for entry in counts
        if entry.facts.feature.kind is Kind.LABEL
    }
    listed = [f for f in manifest.features if not f.feature.internal][:_MOST_CHARTS]
    most = 20 if len(listed) <= 60 else 6
    charts = []
    for facts in listed:
        name = facts.feature.name
        columns = {
            entry.split: entry.columns[name]
            for entry in samples
            if len(entry) and name in entry.columns
        }
        if not columns:
            charts.append(Chart(facts, None, "", most))
            continue
        if name in counted:
            by_name = {
                split: dict(zip(counted[name].names, some, strict=True))
                for split, some in counted[name].counts.items()
                if split in columns
            }
            values = describe_counts(by_name, rows_of(columns))
        else:
            values = describe(facts.feature, columns)
        svg = ""
        if values.histogram is not None:
            title = html.escape(f"Histogram of {shortened(name)}")
            svg = plot(values.histogram, title)
        charts.append(Chart(facts, values, svg, most))
    return charts


@functools.cache
def _template() -> jinja2.Template:
    text = importlib.resources.files(__package__).joinpath("page.html.jinja")
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: Mapping[str, Callable[..., str]] = {
        "count": count_text,
        "size": size_text,
        "short": shortened,
        "printable": printable,
        "kind": kind_text,
    }
    environment.filters.update(filters)
    environment.globals.update(share_text=share_text, bar=bar, value_text=value_text)
    return environment.from_string(text.read_text(encoding="utf-8"))


def _rejected_of(dataset: Dataset) -> list[RejectGroup]:
    """Returns the rejects of a dataset, the most frequent reason first.

    Raises:
      DamageError: the files of rejects are not as the manifest says.
    """
    if not any("reject" in file.file for file in dataset.manifest.files):
        return []
    return find_rejects(dataset.directory).groups()
