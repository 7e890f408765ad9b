"""The command `diff`: what differs between two datasets, record by record.

Records, where they are, their classes, and features. What is compared of records is in
the catalogues; of datasets without them all records are read.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from beam_pipeline.commands.compared_rows import (
    Rows,
    codes,
    of_catalogues,
    of_shards,
    paired,
    sides_of,
)
from beam_pipeline.datasets.dataset import Dataset, open_target
from beam_pipeline.datasets.derived_files import catalogues_of
from beam_pipeline.reading.open_dataset import label_of
from beam_pipeline.reading.reading_plan import Found, find_records
from beam_pipeline.terminal.printing import print_prose, print_text, printable
from beam_pipeline.terminal.words import count_text
from transforms.core.schema import Feature
from transforms.errors import DamageError, UsageError
from transforms.storage.paths import plain

KINDS = {
    "added": "in the second alone",
    "gone": "in the first alone",
    "changed": "other content, the same class",
    "relabelled": "another class",
    "moved": "in another split",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Differences:
    """What differs between two datasets.

    Attributes:
      known_by: what records are known by: names of columns; empty for their content.
      reads: "catalogues", "records", or "digests" where these are the same.
      records: of the first and of the second dataset.
      equal: how many records do not differ.
      counts: how many differ, by the words of `KINDS`. A record can be both moved and
        changed, or moved and relabelled.
      examples: some of each kind: what a record is known by (`key`), where it is in
        each dataset (`first`, `second`), and its classes there.
      features: name -> how it differs.
    """

    known_by: tuple[str, ...]
    reads: str
    records: tuple[int, int]
    equal: int
    counts: Mapping[str, int]
    examples: Mapping[str, Sequence[Mapping[str, str]]]
    features: Mapping[str, str]

    @property
    def is_equal(self) -> bool:
        """Whether nothing differs."""
        return not any(self.counts.values()) and not self.features

    def to_json(self) -> dict[str, Any]:
        """Returns plain JSON."""
        return {
            "is_equal": self.is_equal,
            "known_by": list(self.known_by),
            "reads": self.reads,
            "records": list(self.records),
            "equal": self.equal,
            **self.counts,
            "features": dict(self.features),
            "examples": {kind: [*some] for kind, some in self.examples.items() if some},
        }


def compare(first: str, second: str, *, key: str = "", limit: int = 5) -> Differences:
    """Compares two datasets, or folders of TFRecord files, record by record.

    By their catalogues where both have one, else by reading all records. Memory is some
    300 bytes a record.

    Args:
      first, second: paths.
      key: the feature that tells records apart; empty for the key in the catalogues,
        or origin and row there; or the key column of both; or the content.
      limit: examples of each kind.

    Raises:
      UsageError, SpecError: there is nothing to compare, or no such feature.
      DamageError: a file is damaged.
    """
    records = find_records(first, {}), find_records(second, {})
    features = _features(*records)
    label = _label(*records)
    datasets = [_dataset(each) for each in (first, second)]
    digests = {None if each is None else each.manifest.digest for each in datasets}
    if len(digests) == 1 and None not in digests:
        return _same(records[0], features)
    catalogues = [{} if each is None else catalogues_of(each) for each in datasets]
    loaded = of_catalogues(catalogues, key, label) if all(catalogues) else None
    if loaded is not None:
        return _differences(*loaded, "catalogues", features, limit)
    key = key or _key_column(records, datasets)
    identity = (key,) if key else ()
    one, other = (of_shards(each, identity, label) for each in records)
    return _differences(one, other, identity, "records", features, limit)


def _key_column(records: Sequence[Found], datasets: Sequence[Dataset | None]) -> str:
    """Returns the feature that both datasets were made with as key; empty for none."""
    columns = {
        ""
        if dataset is None
        else str(dataset.manifest.settings.get("key_column") or "")
        for dataset in datasets
    }
    name = columns.pop() if len(columns) == 1 else ""
    features = [{feature.name for feature in dataset.features} for dataset in records]
    return name if all(name in names for names in features) else ""


def _dataset(path: str) -> Dataset | None:
    """Returns the dataset at a path; None for files that no manifest names."""
    try:
        target = open_target(path)
    except (UsageError, DamageError):
        return None
    return target if isinstance(target, Dataset) else None


def _features(first: Found, second: Found) -> dict[str, str]:
    """Returns how features differ, by their names."""
    one, other = (
        {feature.name: _said(feature) for feature in each.features}
        for each in (first, second)
    )
    out = {}
    for name in dict.fromkeys((*one, *other)):
        if name not in other:
            out[name] = "in the first alone"
        elif name not in one:
            out[name] = "in the second alone"
        elif one[name][0] != other[name][0]:
            out[name] = f"{one[name][0]} in the first, {other[name][0]} in the second"
        elif one[name][1] != other[name][1]:
            out[name] = "other class names, or in another order"
            if shifted := _shifted(one[name][1], other[name][1]):
                out[name] += (
                    f"; {shifted:,} of them with another id, so that their records "
                    f"count as changed even if all else is the same"
                )
    return out


def _shifted(one: Sequence[str], other: Sequence[str]) -> int:
    """Returns how many class names that both have are of other ids."""
    places = {name: number for number, name in enumerate(one)}
    return sum(places.get(name, at) != at for at, name in enumerate(other))


def _said(feature: Feature) -> tuple[str, tuple[str, ...]]:
    sizes = ", ".join("any" if size is None else str(size) for size in feature.shape)
    kind = f"{feature.kind} of shape ({sizes})" if feature.shape else str(feature.kind)
    return kind, tuple(feature.vocabulary or ())


def _label(first: Found, second: Found) -> str:
    """Returns the label that both have, with class names; empty for none."""
    names = []
    for records in (first, second):
        label = label_of(feature for feature in records.features if feature.vocabulary)
        names.append("" if label is None else label.name)
    return names[0] if names[0] == names[1] else ""


def _same(files: Found, features: Mapping[str, str]) -> Differences:
    records = sum(shard.records or 0 for _, shard in files.shards)
    return Differences(
        *((), "digests", (records, records), records),
        counts=dict.fromkeys(KINDS, 0),
        examples={},
        features=features,
    )


def _differences(
    one: Rows,
    other: Rows,
    identity: tuple[str, ...],
    reads: str,
    features: Mapping[str, str],
    limit: int,
) -> Differences:
    sides = sides_of(one, other)
    pairs = paired(*sides)
    first, second = pairs.first, pairs.second
    moved = sides[0][1, first] != sides[1][1, second]
    relabelled = np.zeros(len(first), np.bool_)
    if one.label is not None and other.label is not None:
        mine, others = codes(one.label, other.label)
        relabelled = mine[first] != others[second]
    changed = (one.payload[first] != other.payload[second]) & ~relabelled
    differs = {"changed": changed, "relabelled": relabelled, "moved": moved}

    def example(left: int | None, right: int | None) -> dict[str, str]:
        records = {"first": (one, left), "second": (other, right)}
        there = {name: (r, n) for name, (r, n) in records.items() if n is not None}
        texts = {"key": next(rows.key(number) for rows, number in there.values())}
        texts |= {name: rows.place(n) for name, (rows, n) in there.items()}
        texts |= {f"{name}_class": r.class_of(n) for name, (r, n) in there.items()}
        return {name: text for name, text in texts.items() if text}

    examples = {
        "added": [example(None, n) for n in pairs.added[:limit].tolist()],
        "gone": [example(n, None) for n in pairs.gone[:limit].tolist()],
    }
    for kind, mask in differs.items():
        places = np.flatnonzero(mask)
        places = places[np.argsort(first[places])][:limit]
        both = zip(first[places].tolist(), second[places].tolist(), strict=True)
        examples[kind] = [example(*pair) for pair in both]
    return Differences(
        identity,
        reads,
        (len(one.split), len(other.split)),
        int(np.count_nonzero(~(changed | relabelled | moved))),
        counts={
            "added": len(pairs.added),
            "gone": len(pairs.gone),
            **{kind: int(np.count_nonzero(mask)) for kind, mask in differs.items()},
        },
        examples=examples,
        features=features,
    )


_HOW = {
    "catalogues": "by the catalogues",
    "records": "by the records",
    "digests": "by the digests, which are the same",
}


def run(
    first: str,
    second: str,
    *,
    key: str = "",
    limit: int = 5,
    as_json: bool = False,
) -> int:
    """Prints what differs; returns 0 where nothing does, else 1.

    Args:
      first, second: paths of datasets.
      key, limit: see `compare`.
      as_json: print JSON.

    Errors are those of `compare`.
    """
    first, second = plain(first), plain(second)
    differences = compare(first, second, key=key, limit=limit)
    if as_json:
        print_text(json.dumps(differences.to_json(), indent=1))
    else:
        _print(first, second, differences)
    return 0 if differences.is_equal else 1


def _print(first: str, second: str, differences: Differences) -> None:
    key = ", ".join(map(repr, differences.known_by)) or "their content"
    by_key = "" if differences.reads == "digests" else f", known by {printable(key)}"
    one, other = (count_text(count, "record") for count in differences.records)
    print_prose(
        f"{printable(first)}: {one}; {printable(second)}: {other}; compared "
        f"{_HOW[differences.reads]}{by_key}"
    )
    rows = [
        ("equal", differences.equal, ""),
        *((k, differences.counts[k], KINDS[k]) for k in KINDS),
    ]
    width = max(len(f"{count:,}") for _, count, _ in rows)
    for kind, count, meaning in rows:
        print_text(f"{kind:<10}  {f'{count:,}':>{width}}  {meaning}".rstrip())
    for name, how in differences.features.items():
        print_prose(f"feature {printable(repr(name))}: {how}")
    for kind, examples in differences.examples.items():
        for example in examples:
            print_text(f"{kind:<10}  {printable(_text(example))}")


def _text(example: Mapping[str, str]) -> str:
    """Returns an example as one line."""
    pairs = [
        [example[name] for name in names if name in example]
        for names in (("first", "second"), ("first_class", "second_class"))
    ]
    texts = [" -> ".join(dict.fromkeys(pair)) for pair in pairs if pair]
    return "; ".join([example["key"], *texts] if "key" in example else texts)
