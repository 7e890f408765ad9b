"""Several datasets as one: their shards side by side, class ids joined by name.

The classes of the first dataset keep their ids; new classes of the others follow. So
only records of the others can need new ids, and all other shards stay as they are.
"""

import collections
import dataclasses
import functools
import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, BinaryIO

from beam_pipeline.copies.publication import (
    Made,
    look_at,
    publish_copy,
    with_sidecars,
)
from beam_pipeline.copies.shard_copies import (
    Changed,
    CopiedShard,
    copied,
    shards_of,
    with_range_of,
)
from beam_pipeline.copies.split_leaks import leak_notes
from beam_pipeline.datasets.dataset import Dataset
from transforms.core.label_map import LABEL_MAP_NAME
from transforms.core.manifest import (
    Account,
    FeatureFacts,
    Manifest,
    SplitFacts,
)
from transforms.core.naming import ShardName
from transforms.core.schema import Feature, Kind
from transforms.core.statistics import MAX_CLASSES, Statistics
from transforms.errors import InputError, UsageError
from transforms.formats.tfrecord_files.dataset import row_feature
from transforms.work.store import Store

# Feature -> class id -> the new one.
_Ids = Mapping[str, Mapping[int, int]]


def join_datasets(
    datasets: Sequence[Dataset],
    directory: str,
    *,
    overwrite: bool = False,
    optional: Collection[str] = (),
    opened: Callable[[str], BinaryIO],
    read: Callable[[int], None] = lambda _bytes: None,
) -> Made:
    """Writes several datasets as one; says which images several splits have.

    Args:
      datasets: two or more, with the same features.
      directory: where the new one goes.
      overwrite: whether a dataset there is replaced.
      optional: features that some of them may lack.
      opened: opens a file of one of the datasets for reading.
      read: called with the size of what is read in another way.

    Raises:
      UsageError: a dataset is named twice.
      InputError: their features or compression differ.
      TargetError: the output holds a dataset, or something else.
      DamageError: a dataset is damaged. Nothing was published.
    """
    _check(datasets, optional)
    output = look_at(directory, datasets, overwrite=overwrite)
    classes = _classes(datasets)
    leaks = leak_notes(datasets, read)
    shards = [_Part(dataset, _new_ids(dataset, classes)) for dataset in datasets]
    splits = [*dict.fromkeys(s.name for d in datasets for s in d.manifest.splits)]
    counts = collections.Counter[bool]()

    def build(store: Store) -> Manifest:
        counts.clear()
        sources: dict[str, CopiedShard] = {}
        written = [
            _split(name, shards, classes, store, opened, counts, sources)
            for name in splits
        ]
        manifest = _manifest(datasets, written, classes, leaks)
        return with_sidecars(manifest, {}, sources, store)

    decides = ["merge", [source.manifest.digest for source in datasets]]
    manifest = publish_copy(output, decides, build)
    return Made(manifest, counts[False], counts[True])


@dataclasses.dataclass(frozen=True, slots=True)
class _Part:
    """One of the datasets, and which of its class ids change."""

    dataset: Dataset
    ids: _Ids

    def changed(self, split: SplitFacts) -> dict[str, Mapping[int, int]]:
        """Returns the ids that change in a split, by their key in the records."""
        out = {}
        for facts in self.dataset.manifest.features:
            ids = self.ids.get(facts.feature.name, {})
            counts = split.classes.get(facts.feature.name)
            if counts is not None:
                names = facts.classes
                ids = {old: new for old, new in ids.items() if counts.get(names[old])}
            if ids:
                out[facts.feature.record_keys[0]] = ids
        return out


def _check(datasets: Sequence[Dataset], optional: Collection[str]) -> None:
    """Raises where datasets do not fit together."""
    first = datasets[0]
    features = {feature.name: feature for feature in _features(first)}
    holders: dict[str, Dataset] = {}
    for other in datasets:
        for digest in (other.manifest.digest, *_merged_in(other.manifest)):
            if (holder := holders.setdefault(digest, other)) is not other:
                raise UsageError(_twice(digest, holder, other))
    for other in datasets[1:]:
        if other.manifest.compression != first.manifest.compression:
            raise InputError(
                f"Datasets that are merged must be compressed alike; "
                f"{first.directory!r} has {first.manifest.compression!r}, "
                f"{other.directory!r} has {other.manifest.compression!r}. Convert one "
                f"with --compression."
            )
        others = {feature.name: feature for feature in _features(other)}
        for name in dict.fromkeys((*features, *others)):
            both = features.get(name), others.get(name)
            if None in both and name in optional:
                continue
            if both[0] != both[1]:
                raise InputError(
                    f"Datasets that are merged must have the same features; {name!r} "
                    f"is {_said(features.get(name))} in {first.directory!r} and "
                    f"{_said(others.get(name))} in {other.directory!r}. Convert one "
                    f"with --drop, or with another kind of this feature."
                )


def _merged_in(manifest: Manifest) -> list[str]:
    """Returns the digests of all datasets that a dataset was merged from, at any depth.

    Version 0.2 has noted the last merge only.
    """
    merged = manifest.settings.get("merged", ())
    own = [str(source["digest"]) for source in merged]
    deeper = [str(d) for source in merged for d in source.get("merged", ())]
    return own + deeper


def _twice(digest: str, first: Dataset, second: Dataset) -> str:
    """Says that records of one dataset would be merged twice."""
    if first.manifest.digest == second.manifest.digest:
        return (
            f"Datasets that are merged must differ; {second.directory!r} is the same "
            f"as {first.directory!r}. Name each once."
        )
    pairs = ((first, second), (second, first))
    for whole, piece in pairs:
        if piece.manifest.digest == digest:
            return (
                f"Datasets that are merged must have records of their own; those of "
                f"{piece.directory!r} are in {whole.directory!r}, which was merged "
                f"from it. Leave {piece.directory!r} out."
            )
    return (
        f"Datasets that are merged must have records of their own; "
        f"{first.directory!r} and {second.directory!r} were both merged from the "
        f"dataset with the digest {digest[:16]}. Merge what each was made of."
    )


def _features(dataset: Dataset) -> list[Feature]:
    """Returns what decides how records are read; class names do not."""
    return [
        dataclasses.replace(row_feature(facts), vocabulary=None)
        for facts in dataset.manifest.features
    ]


def _said(feature: Feature | None) -> str:
    return "absent" if feature is None else feature.in_words()


def _classes(datasets: Sequence[Dataset]) -> dict[str, tuple[str, ...]]:
    """Returns the class names of each label, those of the first dataset first."""
    names_of: dict[str, dict[str, None]] = {}
    for dataset in datasets:
        for facts in dataset.manifest.features:
            if facts.feature.kind is Kind.LABEL:
                names = names_of.setdefault(facts.feature.name, {})
                names.update(dict.fromkeys(facts.classes))
    return {feature: tuple(names) for feature, names in names_of.items()}


def _new_ids(dataset: Dataset, classes: Mapping[str, Sequence[str]]) -> _Ids:
    out = {}
    for facts in dataset.manifest.features:
        names = classes.get(facts.feature.name, ())
        places = {name: number for number, name in enumerate(names)}
        ids = {old: places[name] for old, name in enumerate(facts.classes)}
        out[facts.feature.name] = {old: new for old, new in ids.items() if old != new}
    return out


def _split(
    name: str,
    parts: Sequence[_Part],
    classes: Mapping[str, Sequence[str]],
    store: Store,
    opened: Callable[[str], BinaryIO],
    counts: collections.Counter[bool],
    sources: dict[str, CopiedShard],
) -> SplitFacts:
    """Writes the shards of a split, those of the first dataset first.

    Adds to `counts` whether ids of a shard change, and to `sources` where it is from.
    """
    written = [
        (source, split, shard)
        for source in parts
        for split in source.dataset.manifest.splits
        if split.name == name
        for shard in shards_of(source.dataset, split)
    ]
    of = parts[0].dataset.manifest
    shards = []
    for number, (source, split, shard) in enumerate(written):
        file = str(ShardName(of.name, name, number, len(written), of.compression))
        ids = source.changed(split) if shard.facts.records else {}
        counts[bool(ids)] += 1
        if ids:
            shard = dataclasses.replace(shard, changed=Changed(shard.kept, ids))
        sources[file] = shard
        shards.append(copied(shard, file, (), store, opened)[0])
    own = [split for source in parts for split in source.dataset.manifest.splits]
    return SplitFacts(
        name, tuple(shards), _counts([s for s in own if s.name == name], classes)
    )


def _counts(
    splits: Sequence[SplitFacts], classes: Mapping[str, Sequence[str]]
) -> dict[str, dict[str, int]]:
    """Returns feature -> class name (or integer, as text) -> records."""
    out = {}
    for feature in dict.fromkeys(name for split in splits for name in split.classes):
        counts: collections.Counter[str] = collections.Counter()
        if any(split.records and feature not in split.classes for split in splits):
            continue  # too many to be counted
        for split in splits:
            counts.update(split.classes.get(feature, {}))
        if feature in classes:
            out[feature] = {name: counts[name] for name in classes[feature]}
        elif len(counts) <= MAX_CLASSES:
            values = sorted(counts, key=int)
            out[feature] = {value: counts[value] for value in values}
    return out


def _manifest(
    datasets: Sequence[Dataset],
    splits: Sequence[SplitFacts],
    classes: Mapping[str, tuple[str, ...]],
    leaks: Sequence[str],
) -> Manifest:
    manifests = [dataset.manifest for dataset in datasets]
    first = manifests[0]
    records = sum(manifest.records for manifest in manifests)
    shards = [
        s for manifest in manifests for split in manifest.splits for s in split.shards
    ]
    digests = [manifest.digest for manifest in manifests]
    notes: collections.Counter[str] = collections.Counter()
    for manifest in manifests:
        notes.update(manifest.image_notes)
    settings: dict[str, Any] = {
        "merged": [
            {
                "name": manifest.name,
                "digest": manifest.digest,
                "records": manifest.records,
            }
            | ({"merged": before} if (before := _merged_in(manifest)) else {})
            for manifest in manifests
        ]
    }
    keys = {str(manifest.settings.get("key_column") or "") for manifest in manifests}
    if len(keys) == 1 and "" not in keys:
        settings["key_column"] = keys.pop()
    files = {facts.file for manifest in manifests for facts in manifest.files}
    unnamed = [f"{LABEL_MAP_NAME} was left out: ids of several may differ"]
    stored = {f.feature.name: f for m in reversed(manifests) for f in m.features}
    order = dict.fromkeys(f.feature.name for m in manifests for f in m.features)
    unnamed = unnamed if LABEL_MAP_NAME in files else []
    return Manifest(
        name=first.name,
        compression=first.compression,
        features=tuple(
            _facts(stored[name], manifests, splits, classes, records) for name in order
        ),
        splits=tuple(splits),
        files=(),
        account=Account(read=records, written=records),
        inputs={
            "files": len(shards),
            "bytes": sum(shard.bytes for shard in shards),
            "sha256": hashlib.sha256("".join(digests).encode()).hexdigest(),
        },
        settings=settings,
        image_notes=dict(sorted(notes.items())),
        run={
            "merged_from": [dataset.directory for dataset in datasets],
            "notes": [*unnamed, *leaks],
        },
    )


def _facts(
    facts: FeatureFacts,
    manifests: Sequence[Manifest],
    splits: Sequence[SplitFacts],
    classes: Mapping[str, tuple[str, ...]],
    records: int,
) -> FeatureFacts:
    """Returns what is true of a feature in all datasets."""
    feature = facts.feature
    alike = [f for m in manifests for f in m.features if f.feature.name == feature.name]
    merged = functools.reduce(Statistics.merge, (other.statistics for other in alike))
    statistics = dataclasses.replace(merged, classes={})
    names = classes.get(feature.name, ())
    if any(tuple(other.classes) != names for other in alike):
        places = {name: number for number, name in enumerate(names)}
        counts: collections.Counter[int] | None = collections.Counter()
        for split in splits:
            by_name = split.classes.get(feature.name)
            if by_name is None and split.records:
                counts = None
            elif by_name is not None and counts is not None:
                counts.update({places[name]: n for name, n in by_name.items()})
        statistics = with_range_of(statistics, counts, len(names))
    if feature.vocabulary is not None:
        feature = dataclasses.replace(feature, vocabulary=names)
    return FeatureFacts(feature, statistics, names, statistics.present == records)
