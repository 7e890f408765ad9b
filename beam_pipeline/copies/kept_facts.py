"""What is true of the values of a subset, without reading what stays as it was.

Counts are those of the dataset less those of the records that are left out. A range is
that of the dataset, unless such a record was at an end of it. Then other records are
looked at until one is found that is there, too.
"""

import collections
import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from transforms.core.manifest import FeatureFacts
from transforms.core.schema import Feature, Kind
from transforms.core.statistics import Statistics, summarize_feature
from transforms.core.tfrecord.reader import PayloadBatch
from transforms.errors import ExampleError
from transforms.formats.tfrecord_files.columns import decode
from transforms.formats.tfrecord_files.features import record_types

_ENDS = ("min", "max", "fewest", "most")
# Feature -> what is known of its values.
Facts = Mapping[str, Statistics]


@dataclasses.dataclass
class Counted:
    """What was seen of some records; grows.

    Attributes:
      facts: of their values.
    """

    facts: dict[str, Statistics] = dataclasses.field(default_factory=dict)

    def add(self, more: Facts) -> None:
        """Adds what was seen of other records."""
        for name, statistics in more.items():
            known = self.facts.get(name)
            self.facts[name] = statistics if known is None else known.merge(statistics)


def summarized(
    payloads: PayloadBatch, features: Sequence[Feature], path: str
) -> dict[str, Statistics]:
    """Returns what is true of the values in records.

    Args:
      payloads: of n records.
      features: to look at.
      path: of the records' file, for messages.

    Raises:
      ExampleError: a record does not hold what a feature must.
    """
    types = {key: kind for each in features for key, kind in record_types(each).items()}
    decoded = decode(payloads, types)
    if decoded.refused:
        place, _, message = min(decoded.refused)
        record = payloads.first_record + place
        raise ExampleError(
            f"{path}: example {record:,}: {message}. Verify the dataset, and convert "
            f"it again."
        )
    return {each.name: summarize_feature(each, decoded.columns) for each in features}


def _ends(statistics: Statistics) -> dict[str, object]:
    """Returns the ends of a range, spelt as in a manifest."""
    stated = statistics.to_json()
    return {name: stated[name] for name in _ENDS if name in stated}


def open_features(
    whole: Iterable[FeatureFacts], gone: Facts, seen: Facts
) -> list[Feature]:
    """Returns the features whose range may have become smaller.

    Args:
      whole: what is true of the dataset.
      gone: of the records that were left out.
      seen: of some of the others.
    """
    out = []
    for facts in whole:
        name = facts.feature.name
        stated, lost = _ends(facts.statistics), _ends(gone.get(name, Statistics()))
        found = _ends(seen.get(name, Statistics()))
        if any(
            lost.get(end) == value and found.get(end) != value
            for end, value in stated.items()
        ):
            out.append(facts.feature)
    return out


def counts_left(
    facts: FeatureFacts, before: Mapping[str, int] | None, gone: Statistics
) -> dict[int, int] | None:
    """Returns class id -> records that were not left out; None where not counted.

    Args:
      facts: of the feature in the dataset.
      before: class name (or integer, as text) -> records of the split.
      gone: of the split's records that were left out.
    """
    if before is None or gone.classes is None:
        return None
    is_label = facts.feature.kind is Kind.LABEL
    places = {name: number for number, name in enumerate(facts.classes)}
    counts: collections.Counter[int] = collections.Counter()
    for name, number in before.items():
        counts[places[name] if is_label else int(name)] += number
    counts.subtract(gone.classes)
    return dict(counts)


def classes_by_name(
    feature: Feature,
    counts: Mapping[int, int],
    names: Sequence[str],
    ids: Mapping[int, int],
) -> dict[str, int]:
    """Returns class name (or integer, as text) -> records, as a manifest has it.

    Args:
      feature: a label, or an integer to be predicted.
      counts: class id -> records, before any id changed.
      names: the new class names, in the order of their ids.
      ids: class id -> the new one, of those that change.
    """
    if feature.kind is not Kind.LABEL:
        return {str(value): n for value, n in sorted(counts.items()) if n}
    changed: collections.Counter[int] = collections.Counter()
    for number, count in counts.items():
        changed[ids.get(number, number)] += count
    return {name: changed[number] for number, name in enumerate(names)}


def with_ids(
    statistics: Statistics, counts: Mapping[int, int] | None, classes: int
) -> Statistics:
    """Returns the range of class ids after some of them have changed.

    Args:
      statistics: of the label before.
      counts: class id -> records, of the new ids; None where they were not counted.
      classes: how many there are.
    """
    if not statistics.present:
        return statistics
    # Of classes too many to be counted the ends are not known.
    present = range(classes) if counts is None else [n for n, c in counts.items() if c]
    if not present:
        return statistics
    return dataclasses.replace(statistics, minimum=min(present), maximum=max(present))
