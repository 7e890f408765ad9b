"""How often each class occurs in each split: tables, imbalance, missing classes."""

import dataclasses
from collections.abc import Mapping, Sequence

from transforms.core.manifest import FeatureFacts, Manifest
from transforms.core.schema import Kind

__all__ = ["ClassCounts", "class_counts", "ends_of"]


@dataclasses.dataclass(frozen=True, slots=True)
class ClassCounts:
    """The classes of a label.

    Attributes:
      facts: of the label.
      names: of the classes, in the order of their ids.
      counts: of each split, of each class: records, or of lists values.
    """

    facts: FeatureFacts
    names: Sequence[str]
    counts: Mapping[str, Sequence[int]]

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
    """Returns the counts of each label that the manifest counts, what is to be
    predicted first.
    """
    found = []
    for facts in manifest.features:
        name = facts.feature.name
        counted = {s.name: s.classes[name] for s in manifest.splits if name in s.classes}
        if facts.feature.internal or not counted:
            continue
        if facts.feature.kind is Kind.LABEL:
            names = [*facts.classes]
        else:
            names = sorted({value for each in counted.values() for value in each}, key=int)
        counts = {
            s.name: [counted.get(s.name, {}).get(each, 0) for each in names]
            for s in manifest.splits
        }
        found.append(ClassCounts(facts, names, counts))
    return sorted(found, key=lambda each: not each.facts.feature.is_label)


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
