"""Several datasets as one: their shards side by side, class ids joined by name.

The classes of the first dataset keep their ids; new classes of the others follow. So
only records of the others can need new ids, and all other shards stay as they are.
"""

import dataclasses
import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from beam_pipeline.copies.publication import (
    Made,
    copied_manifest,
    look_at,
    publish_copy,
)
from beam_pipeline.copies.shard_copies import Ids, copied, numbered_shards
from beam_pipeline.datasets.dataset import Dataset
from beam_pipeline.datasets.open_dataset import names_files, open_dataset
from beam_pipeline.datasets.parts import class_counts, joined_statistics, summed_counts
from beam_pipeline.terminal import size_text
from transforms.core.manifest import FeatureFacts, Manifest, ShardFacts, SplitFacts
from transforms.core.placing.hashes import UInt64s
from transforms.core.placing.leakage import (
    Leaks,
    Place,
    SplitFindings,
    Subject,
    find_shared,
    fingerprint_image,
)
from transforms.core.placing.splitting import usual_order
from transforms.core.schema import Feature, Kind
from transforms.core.statistics import MAX_CLASSES
from transforms.errors import InputError, UsageError
from transforms.formats.tfrecord_files.dataset import row_feature
from transforms.reading.view import View
from transforms.sidecars.text_protos import LABEL_MAP_NAME
from transforms.storage.paths import is_remote
from transforms.work.store import Store

# Label -> its class names in the order of their ids.
_Classes = Mapping[str, tuple[str, ...]]


def join_datasets(
    datasets: Sequence[Dataset],
    directory: str,
    *,
    overwrite: bool = False,
    optional: Collection[str] = (),
    read: Callable[[int], None] = lambda _bytes: None,
) -> Made:
    """Writes several datasets as one; says which images several splits have.

    Args:
      datasets: two or more, with the same features.
      directory: where the new one goes.
      overwrite: whether a dataset there is replaced.
      optional: features that some of them may lack.
      read: called with the bytes that were read.

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
    names = dict.fromkeys(s.name for d in datasets for s in d.manifest.splits)
    sources = numbered_shards(
        datasets, names, lambda dataset, split: _new_ids(dataset, split, classes)
    )

    def build(store: Store) -> Manifest:
        shards: dict[str, list[ShardFacts]] = {name: [] for name in names}
        for file, shard in sources.items():
            shards[shard.split].append(copied(shard, file, store))
            read(0 if shard.is_whole else shard.facts.bytes)
        splits = []
        for name, facts in shards.items():
            before = [s for d in datasets for s in d.manifest.splits if s.name == name]
            splits.append(SplitFacts(name, tuple(facts), _counts(before, classes)))
        return _merged_manifest(datasets, tuple(splits), classes, leaks)

    decides = ["merge", [source.manifest.digest for source in datasets]]
    return publish_copy(output, decides, sources, build, {})


def _check(datasets: Sequence[Dataset], optional: Collection[str]) -> None:
    """Raises where datasets do not fit together."""
    first = datasets[0]
    features = {feature.name: feature for feature in _features(first)}
    holders: dict[str, Dataset] = {}
    for other in datasets:
        for digest in (other.manifest.digest, *_merged_in(other.manifest)):
            if (holder := holders.setdefault(digest, other)) is not other:
                raise UsageError(
                    f"Datasets that are merged must have records of their own; "
                    f"{holder.directory!r} and {other.directory!r} both have those of "
                    f"the dataset with the digest {digest[:16]}. Name each once, and "
                    f"leave out what was merged before."
                )
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
            if both[0] == both[1] or (None in both and name in optional):
                continue
            one, two = ("absent" if side is None else side.in_words() for side in both)
            raise InputError(
                f"Datasets that are merged must have the same features; {name!r} is "
                f"{one} in {first.directory!r} and {two} in {other.directory!r}. "
                f"Convert one with --drop, or with another kind of this feature."
            )


def _merged_in(manifest: Manifest) -> list[str]:
    """Returns the digests of all datasets that a dataset was merged from, at any depth.

    Version 0.2 has noted the last merge only.
    """
    merged = manifest.settings.get("merged", ())
    own = [str(source["digest"]) for source in merged]
    deeper = [str(d) for source in merged for d in source.get("merged", ())]
    return own + deeper


def _features(dataset: Dataset) -> list[Feature]:
    """Returns what decides how records are read; class names do not."""
    features = map(row_feature, dataset.manifest.features)
    return [dataclasses.replace(feature, vocabulary=None) for feature in features]


def _classes(datasets: Sequence[Dataset]) -> _Classes:
    """Returns the class names of each label, those of the first dataset first."""
    names_of: dict[str, dict[str, None]] = {}
    for dataset in datasets:
        for facts in dataset.manifest.features:
            if facts.feature.kind is Kind.LABEL:
                names = names_of.setdefault(facts.feature.name, {})
                names.update(dict.fromkeys(facts.classes))
    return {feature: tuple(names) for feature, names in names_of.items()}


def _new_ids(dataset: Dataset, split: SplitFacts, classes: _Classes) -> dict[str, Ids]:
    """Returns the class ids that change in a split of a dataset; see `CopiedShard`."""
    ids: dict[str, Ids] = {}
    for facts in dataset.manifest.features:
        new = {c: n for n, c in enumerate(classes.get(facts.feature.name, ()))}
        counts = split.classes.get(facts.feature.name)
        moved = {
            old: new[c]
            for old, c in enumerate(facts.classes)
            if new.get(c, old) != old and (counts is None or counts.get(c))
        }
        if moved:
            ids[facts.feature.record_keys[0]] = moved
    return ids


def _counts(
    splits: Sequence[SplitFacts], classes: _Classes
) -> dict[str, dict[str, int]]:
    """Returns feature -> class name (or integer, as text) -> records merged."""
    out = {}
    for feature, counts in class_counts(splits).items():
        if feature in classes:
            out[feature] = {name: counts.get(name, 0) for name in classes[feature]}
        elif len(counts) <= MAX_CLASSES:
            out[feature] = {value: counts[value] for value in sorted(counts, key=int)}
    return out


def _merged_manifest(
    datasets: Sequence[Dataset],
    splits: tuple[SplitFacts, ...],
    classes: _Classes,
    leaks: Sequence[str],
) -> Manifest:
    """Returns the manifest of all: notes on leaks, settings only where they agree."""
    manifests = [dataset.manifest for dataset in datasets]
    settings: dict[str, object] = {"merged": [*map(_named, manifests)]}
    keys = {str(manifest.settings.get("key_column") or "") for manifest in manifests}
    if len(keys) == 1 and "" not in keys:
        settings["key_column"] = keys.pop()
    notes = [*leaks]
    if any(f.file == LABEL_MAP_NAME for m in manifests for f in m.files):
        notes.insert(0, f"{LABEL_MAP_NAME} was left out: ids of several may differ")
    image_notes = summed_counts(m.image_notes for m in manifests)
    stored = {f.feature.name: f for m in reversed(manifests) for f in m.features}
    features = tuple(
        _facts(stored[name].feature, manifests, splits, classes.get(name, ()))
        for name in dict.fromkeys(f.feature.name for m in manifests for f in m.features)
    )
    digests = "".join(manifest.digest for manifest in manifests)
    return copied_manifest(
        *(manifests, features, splits),
        sha256=hashlib.sha256(digests.encode()).hexdigest(),
        skipped={},
        settings=settings,
        image_notes=dict(sorted(image_notes.items())),
        run={"merged_from": [d.directory for d in datasets], "notes": notes},
    )


def _named(manifest: Manifest) -> dict[str, object]:
    """Returns what the settings of a merged dataset say of a source."""
    out: dict[str, object] = {
        name: getattr(manifest, name) for name in ("name", "digest", "records")
    }
    before = _merged_in(manifest)
    return out | ({"merged": before} if before else {})


def _facts(
    feature: Feature,
    manifests: Sequence[Manifest],
    splits: Sequence[SplitFacts],
    names: tuple[str, ...],
) -> FeatureFacts:
    """Returns what is true of a feature in all datasets."""
    statistics = joined_statistics(feature.name, manifests)
    if feature.kind is Kind.LABEL and statistics.present:
        counts = [s.classes.get(feature.name) for s in splits if s.records]
        # Of classes too many to be counted the ends are not known.
        ids = [
            number
            for number, name in enumerate(names)
            if None in counts or any(some[name] for some in counts if some)
        ]
        if ids:
            statistics = dataclasses.replace(
                statistics, minimum=ids[0], maximum=ids[-1]
            )
    if feature.vocabulary is not None:
        feature = dataclasses.replace(feature, vocabulary=names)
    records = sum(manifest.records for manifest in manifests)
    return FeatureFacts(feature, statistics, names, statistics.present == records)


# Shards are linked, not read. So images are only read where that takes seconds.
_MOST_BYTES = 4_000_000_000
_TOGETHER = 256
# The fingerprint of no bytes: of a record without an image.
_MISSING = 0
# Images that a note names.
_EXAMPLES = 3


def leak_notes(
    datasets: Sequence[Dataset], read: Callable[[int], None] = lambda _bytes: None
) -> list[str]:
    """Returns what a person should know of equal images in different splits.

    Args:
      datasets: with the same features.
      read: called with the size of images that were read.

    Raises:
      DamageError: a record is damaged.
    """
    features = [facts.feature for facts in datasets[0].manifest.features]
    images = (f.name for f in features if f.kind is Kind.IMAGE and not f.is_list)
    image = next(images, "")
    filled = [split for d in datasets for split in d.manifest.splits if split.records]
    names = tuple(usual_order({split.name for split in filled}))
    if not image or len(names) < 2:
        return []
    size = sum(split.bytes for split in filled)
    if size > _MOST_BYTES or any(is_remote(dataset.directory) for dataset in datasets):
        return [
            f"images of different splits were not compared: that reads "
            f"{size_text(size)}. 'report' compares samples of them"
        ]
    opened = [open_dataset(dataset.directory) for dataset in datasets]
    parts = [
        (rows, split) for rows in opened for split in names if split in rows.splits
    ]
    prints = [_fingerprints(rows[split].select([image]), read) for rows, split in parts]
    numbers = [names.index(split) for _, split in parts]
    splits = np.repeat(np.array(numbers, np.int16), [*map(len, prints)])
    values = np.concatenate(prints)
    there = values != _MISSING
    shared = find_shared(values[there], splits[there], count=len(names))
    few = shared.values[:_EXAMPLES]
    # Fingerprint -> split -> an example.
    places: dict[int, dict[str, Place]] = {value: {} for value in few.tolist()}
    for (rows, split), some in zip(parts, prints, strict=True):
        name = next((n for n, f in rows.features.items() if names_files(f)), image)
        view = rows[split].select([name])
        for position in np.flatnonzero(np.isin(some, few)).tolist():
            file = "" if name == image else view[position].get(name)
            where = (str(file), 0) if file else (rows.path, position)
            places[int(some[position])].setdefault(split, Place(split, *where))
    examples = tuple(tuple(found.values()) for found in places.values())
    leaks = Leaks(Subject.IMAGE, len(shared.values), shared.pairs(names), examples)
    return SplitFindings(leaks=(leaks,)).warnings()


def _fingerprints(images: View, read: Callable[[int], None]) -> UInt64s:
    """Returns a fingerprint of each record's image."""
    prints: list[int] = []
    for batch in images.batches(_TOGETHER):
        read(batch.nbytes)
        contents = (value.as_py() or b"" for value in batch.column(0))
        prints += map(fingerprint_image, contents)
    return np.array(prints, np.uint64)
