"""What the page counts: the first records of each shard, and the classes of all.

Records are in the order of a hash, unless the dataset was written without shuffling; so
the first ones of the shards are a uniform sample. Images are not kept: of each, its
size and a fingerprint.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import google_crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beam_pipeline.reading.open_dataset import OpenDataset
from transforms.core.arrays import values_and_rows
from transforms.core.manifest import FeatureFacts, Manifest, SplitFacts
from transforms.core.schema import Feature, Kind

ROWS_A_SHARD = 20_000
# Of all shards together: one second of reading from a disk or two.
_BYTES = {True: 1 << 30, False: 1 << 28}
_TOGETHER = 4_096

Longs = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True, slots=True)
class Sample:
    """The sampled records of a split.

    Attributes:
      split: its name.
      columns: of each feature; of images, their sizes in bytes.
      positions: of the records in the split, ascending.
      fingerprints: of the image of each record, CRC32C << 32 | size; 0 for none. Empty
        where records have no image.
    """

    split: str
    columns: Mapping[str, pa.Array]
    positions: Longs
    fingerprints: npt.NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.positions)


def image_of(manifest: Manifest) -> Feature | None:
    """Returns the first image that records have; None for none."""
    images = (facts.feature for facts in manifest.features)
    return next((e for e in images if e.kind is Kind.IMAGE and not e.internal), None)


def sample_split(dataset: OpenDataset, manifest: Manifest, split: SplitFacts) -> Sample:
    """Reads the first records of each shard of a split.

    Raises:
      TFRecordError: a record is damaged.
      ExampleError: it does not hold what a feature must.
      OSError: a shard cannot be read.
    """
    view, image = dataset[split.name], image_of(manifest)
    schema = view.arrow_schema
    kept: dict[str, list[pa.Array]] = {name: [] for name in schema.names}
    prints = [np.empty(0, np.uint64)]
    positions = _positions(manifest, split)
    for start, stop in positions:
        for batch in view[start:stop].batches(_TOGETHER):
            for name, column in zip(schema.names, batch.columns, strict=True):
                if dataset.features[name].kind is Kind.IMAGE:
                    if image is not None and name == image.name:
                        prints.append(_fingerprints(column))
                    column = _sizes(column)
                kept[name].append(column)
    columns = {name: _joined(parts) for name, parts in kept.items()}
    numbers = [np.arange(start, stop) for start, stop in positions]
    every = np.concatenate([np.empty(0, np.int64), *numbers])
    return Sample(split.name, columns, every, np.concatenate(prints))


def _positions(manifest: Manifest, split: SplitFacts) -> list[tuple[int, int]]:
    """Returns the ranges of records that are sampled, one for each shard."""
    shards = sum(len(facts.shards) for facts in manifest.splits)
    budget = _BYTES[image_of(manifest) is not None] // max(shards, 1)
    ranges, start = [], 0
    for shard in split.shards:
        if shard.records:
            mean = shard.payload_bytes // shard.records + 1
            rows = min(shard.records, ROWS_A_SHARD, max(budget // mean, 1))
            ranges.append((start, start + rows))
        start += shard.records
    return ranges


def _joined(parts: list[pa.Array]) -> pa.Array:
    return pa.concat_arrays(parts) if parts else pa.array([], pa.null())


def _sizes(images: pa.Array) -> pa.Array:
    """Returns the size of each image; of lists, a list."""
    if pa.types.is_list(images.type):
        sizes = pc.cast(pc.binary_length(images.flatten()), pa.int64())
        lists = pa.ListArray.from_arrays(_offsets(images), sizes)
        return lists
    return pc.cast(pc.binary_length(images), pa.int64())


def _offsets(lists: pa.ListArray) -> pa.Array:
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    return pa.array(np.concatenate(([0], np.cumsum(lengths))), pa.int32())


def _fingerprints(images: pa.Array) -> npt.NDArray[np.uint64]:
    """Returns a fingerprint of each image; of lists, of the first.

    A call for each image: its bytes are far more work.
    """
    return np.fromiter(_each_print(images), np.uint64, len(images))


def _each_print(images: pa.Array) -> Iterator[int]:
    nested = pa.types.is_list(images.type)
    for value in images:
        if nested and value.is_valid:
            value = value.values[0] if len(value.values) else pa.scalar(None)
        if not value.is_valid:
            yield 0
            continue
        data = value.as_py()
        yield google_crc32c.value(data) << 32 | len(data) & 0xFFFFFFFF


@dataclasses.dataclass(frozen=True, slots=True)
class ClassCounts:
    """The classes of a label.

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
        match self.facts.feature.kind:
            case Kind.LABEL:
                return range(len(self.names))
            case Kind.TEXT:
                return self.names
            case _:
                return [*map(int, self.names)]

    @property
    def totals(self) -> list[int]:
        """Of each class, over all splits."""
        return [sum(counts) for counts in zip(*self.counts.values(), strict=True)]

    def imbalance(self, split: str) -> float | None:
        """Returns largest / smallest class of a split, of those that it has."""
        there = [count for count in self.counts[split] if count]
        return max(there) / min(there) if len(there) > 1 else None

    def missing(self, split: str) -> list[str]:
        """Returns the classes that occur in the dataset and not in a split."""
        return [
            name
            for name, count, total in zip(
                self.names, self.counts[split], self.totals, strict=True
            )
            if total and not count
        ]


def class_counts(manifest: Manifest) -> list[ClassCounts]:
    """Returns the counts of each label in the manifest, the one to predict first."""
    tables = []
    for facts in manifest.features:
        name = facts.feature.name
        counted = {
            s.name: s.classes[name] for s in manifest.splits if name in s.classes
        }
        if facts.feature.internal or not counted:
            continue
        if facts.feature.kind is Kind.LABEL:
            names = [*facts.classes]
        else:
            names = sorted(
                {value for each in counted.values() for value in each}, key=int
            )
        counts = {
            s.name: [counted.get(s.name, {}).get(each, 0) for each in names]
            for s in manifest.splits
        }
        tables.append(ClassCounts(facts, names, counts))
    return sorted(tables, key=lambda each: not each.facts.feature.is_label)


def object_counts(
    manifest: Manifest, columns: Mapping[str, Mapping[str, pa.Array]]
) -> list[ClassCounts]:
    """Returns the counts of the classes of boxes; none where there are no boxes.

    The manifest does not count them. They are beside the boxes, under the names of
    TensorFlow's Object Detection API: `image/object/bbox`, `image/object/class/text`.

    Args:
      manifest: of the dataset.
      columns: of each split the sampled ones, by feature.
    """
    features = {facts.feature.name: facts for facts in manifest.features}
    for facts in manifest.features:
        stem = facts.feature.name.removesuffix("bbox")
        named = features.get(f"{stem}class/text")
        if facts.feature.kind is not Kind.BOX or named is None:
            continue
        counted = {
            split: counts_of(some[named.feature.name])
            for split, some in columns.items()
        }
        names = sorted(set().union(*counted.values()))
        counts = {
            split: [some.get(name, 0) for name in names]
            for split, some in counted.items()
        }
        return [ClassCounts(named, names, counts, sampled=True)] if names else []
    return []


def counts_of(column: pa.Array) -> dict[str, int]:
    """Returns how often each value occurs, by its text; of lists, each item."""
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
