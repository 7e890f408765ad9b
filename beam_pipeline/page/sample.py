"""What the page counts: the first records of each shard, and the classes of all.

Records are in the order of a hash, unless the dataset was written without shuffling; so
the first ones of the shards are a uniform sample. Images are not kept: of each, its
size and a fingerprint.
"""

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beam_pipeline.datasets.open_dataset import OpenDataset
from transforms.core.arrays import values_and_rows
from transforms.core.manifest import FeatureFacts, Manifest, SplitFacts
from transforms.core.placing.leakage import fingerprint_image
from transforms.core.schema import Feature, Kind

ROWS_A_SHARD = 20_000
NUMBERS = (Kind.INT64, Kind.FLOAT, Kind.TIMESTAMP, Kind.BOOL)
# Of all shards together: one second of reading from a disk or two.
_BYTES = 1 << 30
_TOGETHER = 4_096
# Classes that are listed.
_MOST_BARS = 60

Longs = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True, slots=True)
class Sample:
    """The sampled records of a split.

    Attributes:
      split: its name.
      columns: of features of numbers, labels and texts.
      positions: of the records in the split, ascending.
      fingerprints: of the image of each record; 0 for none. Empty where records have
        no image.
    """

    split: str
    columns: Mapping[str, pa.Array]
    positions: Longs
    fingerprints: npt.NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.positions)


def image_of(manifest: Manifest) -> Feature | None:
    """Returns the image that is sampled: the first that records have; None for none."""
    features = [f.feature for f in manifest.features if not f.feature.internal]
    images = (f for f in features if f.kind is Kind.IMAGE and not f.is_list)
    return next(images, None)


def sample_split(dataset: OpenDataset, manifest: Manifest, split: SplitFacts) -> Sample:
    """Reads the first records of each shard of a split.

    Raises:
      TFRecordError: a record is damaged.
      ExampleError: it does not hold what a feature must.
      OSError: a shard cannot be read.
    """
    features = dataset.features
    counted = (*NUMBERS, Kind.LABEL, Kind.TEXT)
    names = [name for name, feature in features.items() if feature.kind in counted]
    kept: dict[str, list[pa.Array]] = {name: [] for name in names}
    if image := image_of(manifest):
        names.append(image.name)
    # Where nothing is counted, one feature is read for the records' checksums.
    view = dataset[split.name].select(names or [*features][:1])
    prints = [np.empty(0, np.uint64)]
    positions = [np.empty(0, np.int64)]
    for start, stop in _ranges(manifest, split):
        positions.append(np.arange(start, stop))
        for batch in view[start:stop].batches(_TOGETHER):
            for name, column in zip(names, batch.columns, strict=False):
                if name in kept:
                    kept[name].append(column)
                else:
                    # A call for each image: its bytes are far more work.
                    contents = (value.as_py() or b"" for value in column)
                    hashes = map(fingerprint_image, contents)
                    prints.append(np.fromiter(hashes, np.uint64, len(column)))
    columns = {
        name: pa.concat_arrays(parts) if parts else pa.array([], pa.null())
        for name, parts in kept.items()
    }
    every, fingerprints = np.concatenate(positions), np.concatenate(prints)
    return Sample(split.name, columns, every, fingerprints)


def _ranges(manifest: Manifest, split: SplitFacts) -> Iterator[tuple[int, int]]:
    """Yields the ranges of records that are sampled, one for each shard."""
    shards = sum(len(facts.shards) for facts in manifest.splits)
    budget = _BYTES // max(shards, 1)
    start = 0
    for shard in split.shards:
        if shard.records:
            mean = shard.payload_bytes // shard.records + 1
            rows = min(shard.records, ROWS_A_SHARD, max(budget // mean, 1))
            yield start, start + rows
        start += shard.records


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
    def ids(self) -> Sequence[object]:
        """The values that records hold for the classes, in their order."""
        if self.facts.feature.kind is Kind.LABEL:
            return range(len(self.names))
        is_text = self.facts.feature.kind is Kind.TEXT
        return self.names if is_text else [*map(int, self.names)]

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
            return (
                [_table_of_classes(named, names, counted, sampled=True)]
                if names
                else []
            )
    return []


def counts_of(column: pa.Array) -> dict[str, int]:
    """Returns how often each sampled value occurs, by its text; of lists, each item."""
    counts = pc.value_counts(values_and_rows(column)[0].drop_null())
    texts = pc.cast(counts.field("values"), pa.string()).to_pylist()
    return dict(zip(texts, counts.field("counts").to_pylist(), strict=True))


def ends_of(totals: Sequence[int], most: int) -> list[int]:
    """Returns which classes are shown: all, or the largest and the smallest.

        >>> ends_of([5, 1, 9, 7, 3], 5), ends_of([5, 1, 9, 7, 3], 2)
        ([0, 1, 2, 3, 4], [2, 1])

    Args:
      totals: of each class.
      most: how many are shown.
    """
    if len(totals) <= most:
        return [*range(len(totals))]
    ranked = sorted(range(len(totals)), key=lambda n: (-totals[n], n))
    half = most // 2
    return ranked[: most - half] + (ranked[-half:] if half else [])
