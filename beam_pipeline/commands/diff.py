"""The command `diff`: what differs between two datasets, record by record.

Records, where they are, their classes, and features.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beam_pipeline.commands.compared_rows import Both, Rows, load_both
from beam_pipeline.datasets.dataset import Dataset, open_target
from beam_pipeline.reading.open_dataset import label_of
from beam_pipeline.reading.reading_plan import Found, find_records
from beam_pipeline.terminal.printing import print_prose, print_text, printable
from beam_pipeline.terminal.words import count_text
from transforms.core.schema import Feature
from transforms.errors import DamageError, UsageError
from transforms.storage.paths import plain

Longs = npt.NDArray[np.int64]

KINDS = {
    "added": "in the second alone",
    "gone": "in the first alone",
    "changed": "other content, the same class",
    "relabelled": "another class",
    "moved": "in another split",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Example:
    """A record that differs.

    Attributes:
      key: what it is known by; empty for its content.
      first, second: where it is in each dataset; empty for nowhere.
      first_class, second_class: its class there; empty for none.
    """

    key: str
    first: str
    second: str
    first_class: str
    second_class: str

    def to_json(self) -> dict[str, str]:
        """Returns plain JSON, without what is empty."""
        return {name: text for name, text in dataclasses.asdict(self).items() if text}


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
      examples: some of each kind.
      features: name -> how it differs.
    """

    known_by: tuple[str, ...]
    reads: str
    records: tuple[int, int]
    equal: int
    counts: Mapping[str, int]
    examples: Mapping[str, tuple[Example, ...]]
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
            "examples": {
                kind: [each.to_json() for each in found]
                for kind, found in self.examples.items()
                if found
            },
        }


@dataclasses.dataclass(frozen=True, slots=True)
class Side:
    """What is known of the n records of one dataset; equal numbers mean equal things.

    Attributes:
      ids: what a record is known by; several records may have the same.
      splits: where it is.
      payloads: what it holds.
    """

    ids: Longs
    splits: Longs
    payloads: Longs


@dataclasses.dataclass(frozen=True, slots=True)
class Pairs:
    """Records of two datasets that are each other.

    Attributes:
      first, second: m places in the first and in the second dataset.
      gone, added: places of records that are in the first or in the second alone,
        ascending.
    """

    first: Longs
    second: Longs
    gone: Longs
    added: Longs


def compare(
    first: str, second: str, *, key: str = "", exact: bool = False, limit: int = 5
) -> Differences:
    """Compares two datasets, or folders of TFRecord files, record by record.

    By their catalogues where both have one, else by reading the shards that are not
    the same file. Memory is some 300 bytes a record.

    Args:
      first, second: paths.
      key: the feature that tells records apart; empty for the key in the catalogues,
        or origin and row there; or the key column of both; or the content.
      exact: read every record, whatever manifests and catalogues state.
      limit: examples of each kind.

    Raises:
      UsageError, SpecError: there is nothing to compare, or no such feature.
      DamageError: a file is damaged.
    """
    found = find_records(first, {}), find_records(second, {})
    features = _features(*found)
    label = _label(*found)
    datasets = [_dataset(each) for each in (first, second)]
    digests = {None if each is None else each.manifest.digest for each in datasets}
    if len(digests) == 1 and None not in digests and not exact:
        return _same(found[0], features)
    both = load_both(found, datasets, key, label, exact=exact)
    sides = _sides(both.one, both.other)
    return _differences(both, sides, paired(*sides), features, limit)


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
    for found in (first, second):
        label = label_of(each for each in found.features if each.vocabulary)
        names.append("" if label is None else label.name)
    return names[0] if names[0] == names[1] else ""


def _same(found: Found, features: Mapping[str, str]) -> Differences:
    records = sum(shard.records or 0 for _, shard in found.shards)
    return Differences(
        *((), "digests", (records, records), records),
        counts=dict.fromkeys(KINDS, 0),
        examples={},
        features=features,
    )


def _sides(one: Rows, other: Rows) -> tuple[Side, Side]:
    """Returns what pairs are made from: numbers that mean the same in both."""
    names = [*dict.fromkeys((*one.splits, *other.splits))]
    splits = [
        np.array([names.index(name) for name in rows.splits], np.int64)[rows.split]
        for rows in (one, other)
    ]
    ids = one.payload, other.payload
    if one.identity:
        ids = _joined([*map(_codes, one.identity, other.identity)])
    return (
        Side(ids[0], splits[0], one.payload),
        Side(ids[1], splits[1], other.payload),
    )


def _codes(one: pa.Array, other: pa.Array) -> tuple[Longs, Longs]:
    """Returns a number for each value of two columns; -1 for missing ones."""
    count = len(one)
    if one.type != other.type:
        one, other = (each.cast(pa.large_string()) for each in (one, other))
    both = pa.concat_arrays([one, other]).dictionary_encode()
    codes = pc.fill_null(both.indices, -1).to_numpy(zero_copy_only=False)
    return codes[:count].astype(np.int64), codes[count:].astype(np.int64)


def _differences(
    both: Both,
    sides: tuple[Side, Side],
    pairs: Pairs,
    features: Mapping[str, str],
    limit: int,
) -> Differences:
    one, other = both.one, both.other
    first, second = pairs.first, pairs.second
    moved = sides[0].splits[first] != sides[1].splits[second]
    relabelled = np.zeros(len(first), np.bool_)
    if one.label is not None and other.label is not None:
        mine, others = _codes(one.label, other.label)
        relabelled = mine[first] != others[second]
    changed = (one.payload[first] != other.payload[second]) & ~relabelled
    differs = {"changed": changed, "relabelled": relabelled, "moved": moved}
    examples: dict[str, tuple[Example, ...]] = {
        "added": tuple(_example(both, None, n) for n in pairs.added[:limit].tolist()),
        "gone": tuple(_example(both, n, None) for n in pairs.gone[:limit].tolist()),
    }
    for kind, mask in differs.items():
        places = np.flatnonzero(mask)
        places = places[np.argsort(first[places])][:limit]
        examples[kind] = tuple(
            _example(both, *each)
            for each in zip(
                first[places].tolist(), second[places].tolist(), strict=True
            )
        )
    return Differences(
        both.asked.identity,
        both.reads,
        (len(one) + both.same, len(other) + both.same),
        both.same + int(np.count_nonzero(~(changed | relabelled | moved))),
        counts={
            "added": len(pairs.added),
            "gone": len(pairs.gone),
            **{kind: int(np.count_nonzero(mask)) for kind, mask in differs.items()},
        },
        examples=examples,
        features=features,
    )


def _example(both: Both, first: int | None, second: int | None) -> Example:
    one, other = both.one, both.other
    if first is not None:
        key = one.key(first)
    else:
        assert second is not None, "it is in one of them"
        key = other.key(second)
    return Example(
        key,
        "" if first is None else one.place(first),
        "" if second is None else other.place(second),
        "" if first is None else one.class_of(first),
        "" if second is None else other.class_of(second),
    )


def paired(one: Side, other: Side) -> Pairs:
    """Returns the pairs of records with the same id.

    Of several with one id those make a pair that are equal, then those of one split,
    then the others, in their order.

        >>> numbers = lambda *values: np.array(values, np.int64)
        >>> one = Side(numbers(7, 7, 8), numbers(0, 1, 0), numbers(1, 2, 3))
        >>> other = Side(numbers(9, 7), numbers(0, 1), numbers(4, 2))
        >>> found = paired(one, other)
        >>> found.first, found.second, found.gone, found.added
        (array([1]), array([1]), array([0, 2]), array([0]))
    """
    left, right = (np.arange(len(side.ids)) for side in (one, other))
    first, second = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for names in (("ids", "splits", "payloads"), ("ids", "splits"), ("ids",)):
        keys = _joined(
            [(getattr(one, name)[left], getattr(other, name)[right]) for name in names]
        )
        mine, others = _matched(*keys)
        first.append(left[mine])
        second.append(right[others])
        left, right = np.delete(left, mine), np.delete(right, others)
    return Pairs(np.concatenate(first), np.concatenate(second), left, right)


def _joined(columns: list[tuple[Longs, Longs]]) -> tuple[Longs, Longs]:
    """Returns a number for each row of columns: equal where all columns are."""
    count = len(columns[0][0])
    found = np.zeros(count + len(columns[0][1]), np.int64)
    for pair in columns:
        values, codes = np.unique(np.concatenate(pair), return_inverse=True)
        # Both are below the number of rows, so the product fits.
        found = found * max(len(values), 1) + codes
        found = np.unique(found, return_inverse=True)[1].astype(np.int64)
    return found[:count], found[count:]


def _matched(one: Longs, other: Longs) -> tuple[Longs, Longs]:
    """Returns the places of equal keys, the k-th of one with the k-th of the other."""
    left, right = _occurrences(one), _occurrences(other)
    most = 1 + max((int(each.max()) for each in (left, right) if len(each)), default=0)
    _, mine, others = np.intersect1d(
        one * most + left, other * most + right, assume_unique=True, return_indices=True
    )
    order = np.argsort(mine)
    return mine[order], others[order]


def _occurrences(keys: Longs) -> Longs:
    """Returns how many equal keys come before each."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    is_first = np.ones(len(keys), np.bool_)
    is_first[1:] = ordered[1:] != ordered[:-1]
    firsts = np.flatnonzero(is_first)
    counts = np.diff(firsts, append=len(keys))
    found = np.empty(len(keys), np.int64)
    found[order] = np.arange(len(keys)) - np.repeat(firsts, counts)
    return found


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
    exact: bool = False,
    limit: int = 5,
    as_json: bool = False,
) -> int:
    """Prints what differs; returns 0 where nothing does, else 1.

    Args:
      first, second: paths of datasets.
      key, exact, limit: see `compare`.
      as_json: print JSON.

    Errors are those of `compare`.
    """
    first, second = plain(first), plain(second)
    found = compare(first, second, key=key, exact=exact, limit=limit)
    if as_json:
        print_text(json.dumps(found.to_json(), indent=1))
    else:
        _print(first, second, found)
    return 0 if found.is_equal else 1


def _print(first: str, second: str, found: Differences) -> None:
    known = ", ".join(map(repr, found.known_by)) or "their content"
    print_prose(
        f"{printable(first)}: {count_text(found.records[0], 'record')}; "
        f"{printable(second)}: {count_text(found.records[1], 'record')}; compared "
        f"{_HOW[found.reads]}"
        + (f", known by {printable(known)}" if found.reads != "digests" else "")
    )
    rows = [
        ("equal", found.equal, ""),
        *((k, found.counts[k], KINDS[k]) for k in KINDS),
    ]
    width = max(len(f"{count:,}") for _, count, _ in rows)
    for kind, count, meaning in rows:
        print_text(f"{kind:<10}  {f'{count:,}':>{width}}  {meaning}".rstrip())
    for name, how in found.features.items():
        print_prose(f"feature {printable(repr(name))}: {how}")
    for kind, examples in found.examples.items():
        for each in examples:
            print_text(f"{kind:<10}  {printable(_text(each))}")


def _text(example: Example) -> str:
    """Returns an example as one line."""
    parts = [example.key] if example.key else []
    places = [place for place in (example.first, example.second) if place]
    parts.append(" -> ".join(dict.fromkeys(places)))
    classes = [each for each in (example.first_class, example.second_class) if each]
    if classes:
        parts.append(" -> ".join(dict.fromkeys(classes)))
    return "; ".join(parts)
