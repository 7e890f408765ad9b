"""How often each class occurs in each split: tables, imbalance, missing classes."""

import dataclasses
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import is_list
from transforms.core.manifest import FeatureFacts, Manifest
from transforms.core.schema import Kind


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
        return [sum(each) for each in zip(*self.counts.values(), strict=True)]

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
    found = []
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
        found.append(ClassCounts(facts, names, counts))
    return sorted(found, key=lambda each: not each.facts.feature.is_label)


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
    while is_list(column.type):
        column = pc.list_flatten(column)
    found = pc.value_counts(column.drop_null())
    texts = pc.cast(found.field("values"), pa.string()).to_pylist()
    return dict(zip(texts, found.field("counts").to_pylist(), strict=True))


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
