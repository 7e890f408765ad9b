"""A subset of a dataset: choose its records, copy them, publish."""

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import BinaryIO, cast

from beam_pipeline.copies.chosen_rows import (
    ChosenRows,
    Relabelling,
    SubsetRequest,
    choose,
    relabelling_of,
    with_key,
)
from beam_pipeline.copies.publication import Made, look_at, publish_copy
from beam_pipeline.copies.shard_copies import (
    CopiedShard,
    Ids,
    copied,
    ids_in,
    shards_of,
)
from beam_pipeline.datasets.dataset import Dataset
from beam_pipeline.datasets.derived_files import catalogues_of
from beam_pipeline.datasets.parts import class_counts
from beam_pipeline.reading.open_dataset import open_dataset
from beam_pipeline.terminal.words import count_text, counts_text
from transforms.core.files import ShardName
from transforms.core.manifest import (
    Account,
    FeatureFacts,
    Manifest,
    ShardFacts,
    SplitFacts,
)
from transforms.core.schema import Feature, Kind
from transforms.core.statistics import Statistics, summarize_feature
from transforms.core.tfrecord import TFRecordReader
from transforms.core.vocabulary import LABEL_MAP_NAME, parse_label_map
from transforms.errors import ExampleError, InputError, bounded, first_few
from transforms.formats.tfrecord_files.columns import decode, record_types
from transforms.storage.files import storage
from transforms.work.store import Store

# How many names a note has.
_SHOWN = 10
# Feature -> what is true of its values.
_Facts = dict[str, Statistics]


def make_subset(
    dataset: Dataset,
    directory: str,
    request: SubsetRequest,
    *,
    overwrite: bool = False,
    read: Callable[[int], None] = lambda _bytes: None,
) -> Made:
    """Writes a part of a dataset as a dataset of its own.

    Args:
      dataset: that it is a part of; may consist of parts, which are joined then.
      directory: where it goes; may be that of the dataset, which it then replaces.
      request: what is asked of it.
      overwrite: whether a dataset there is replaced.
      read: called with the bytes of each shard that was read.

    Raises:
      TargetError: the output holds a dataset, or something else.
      UsageError, SpecError: the request does not fit the dataset.
      InputError: no record is left.
      DamageError: the dataset is damaged. Nothing was published.
    """
    output = look_at(directory, [dataset], overwrite=overwrite)
    before = dataset.manifest
    rows = open_dataset(dataset.directory, labels="names")
    catalogues = catalogues_of(dataset)
    request = with_key(request, before, catalogues)
    relabelling = relabelling_of(rows, before, request)
    chosen = choose(rows, catalogues, request)
    if not any(mask.any() for mask in chosen.kept.values()):
        left_out = f": {counts_text(chosen.skipped)}" if chosen.skipped else ""
        raise InputError(
            f"A subset must have at least one record; of the {before.records:,} of "
            f"{dataset.directory!r} none is left{left_out}."
        )
    sources = _sources(dataset, chosen, relabelling)

    def build(store: Store) -> Manifest:
        stored = [f.feature for f in before.features if f.feature.record_keys]
        splits, features_of = [], {}
        for split in chosen.kept:
            shards: list[ShardFacts] = []
            values: _Facts = {}
            for name, source in sources.items():
                if source.split == split:
                    shards.append(copied(source, name, store))
                    facts = _facts_of(name, source, stored, store)
                    read(source.facts.bytes)
                    values = _merged([values, facts])
            splits.append(SplitFacts(split, tuple(shards)))
            features_of[split] = values
        features = _features(before, splits, features_of, relabelling)
        counted = tuple(
            _with_classes(split, before, features_of[split.name], features)
            for split in splits
        )
        manifest = _manifest(before, request, chosen, counted, features)
        notes = _notes(chosen, before, manifest)
        run = {"subset_of": dataset.directory, "notes": notes}
        return dataclasses.replace(manifest, run=run)

    decides = [before.digest, request.to_json()]
    label_map = _label_map(dataset, relabelling)
    return publish_copy(output, decides, sources, build, label_map)


def _sources(
    dataset: Dataset, chosen: ChosenRows, relabelling: Relabelling | None
) -> dict[str, CopiedShard]:
    """Returns new shard -> the chosen records of the old one, and their new ids.

    Shards of parts are numbered anew: each part has a first one.
    """
    before = dataset.manifest
    sources: dict[str, CopiedShard] = {}
    for name, kept in chosen.kept.items():
        shards = [
            shard
            for part in dataset.parts or (dataset,)
            for split in part.manifest.splits
            if split.name == name
            for shard in shards_of(part, split)
        ]
        ids: dict[str, Ids] = {}
        if relabelling is not None:
            (split,) = (
                candidate for candidate in before.splits if candidate.name == name
            )
            ids = ids_in(split, relabelling.facts, relabelling.changes.ids)
        first = 0
        for number, shard in enumerate(shards):
            span = slice(first, first + shard.facts.records)
            first = span.stop
            file = shard.facts.file
            if dataset.parts:
                numbered = (before.name, name, number, len(shards), before.compression)
                file = str(ShardName(*numbered))
            sources[file] = dataclasses.replace(shard, kept=kept[span], ids=ids)
    return sources


def _facts_of(
    name: str,
    shard: CopiedShard,
    features: Sequence[Feature],
    store: Store,
) -> _Facts:
    """Returns what is true of the values in a new shard, which is read for it."""
    # What is only linked is read, and named if it is damaged, where it was.
    path = shard.path if shard.is_whole else os.path.join(store.dataset, name)
    compression = shard.dataset.manifest.compression
    types = {
        k: kind for feature in features for k, kind in record_types(feature).items()
    }
    with storage(path).open_unbuffered() as file:
        reader = TFRecordReader(
            cast(BinaryIO, file), compression=compression, allow_empty=True
        )
        facts: _Facts = {}
        for payloads in reader.batches():
            decoded = decode(payloads, types)
            if decoded.refused:
                row, _, message = min(decoded.refused)
                raise ExampleError(
                    f"{path}: example {payloads.first_record + row:,}: {message}. "
                    f"Verify the dataset, and convert it again."
                )
            values = {f.name: summarize_feature(f, decoded.columns) for f in features}
            facts = _merged([facts, values])
    return facts


def _merged(several: Iterable[_Facts]) -> _Facts:
    out: _Facts = {}
    for facts in several:
        for name, statistics in facts.items():
            out[name] = out[name].merge(statistics) if name in out else statistics
    return out


def _features(
    before: Manifest,
    splits: Sequence[SplitFacts],
    values: Mapping[str, _Facts],
    relabelling: Relabelling | None,
) -> tuple[FeatureFacts, ...]:
    """Returns what is true of each feature of the subset.

    Args:
      before: the manifest of the dataset that it is of.
      splits: of the subset.
      values: of each split.
      relabelling: of its classes; None for none.
    """
    whole = _merged(values.values())
    records = sum(split.records for split in splits)
    out = []
    for facts in before.features:
        feature, names = facts.feature, tuple(facts.classes)
        if relabelling is not None and feature.name == relabelling.facts.feature.name:
            names = relabelling.changes.names
        if feature.vocabulary is not None:
            feature = dataclasses.replace(feature, vocabulary=names)
        statistics = whole.get(feature.name, Statistics())
        always = statistics.present == records
        statistics = dataclasses.replace(statistics, classes={})
        out.append(FeatureFacts(feature, statistics, names, always))
    return tuple(out)


def _with_classes(
    split: SplitFacts,
    before: Manifest,
    values: _Facts,
    features: Sequence[FeatureFacts],
) -> SplitFacts:
    """Returns a split with its records by class, where the dataset had counted them."""
    counted = {s.name: s.classes for s in before.splits}[split.name]
    classes = {}
    for facts in features:
        name = facts.feature.name
        counts = values.get(name, Statistics()).classes
        if name not in counted or counts is None:
            continue
        if facts.feature.kind is Kind.LABEL:
            classes[name] = {c: counts.get(n, 0) for n, c in enumerate(facts.classes)}
        elif counts:
            classes[name] = {str(value): n for value, n in sorted(counts.items())}
    return dataclasses.replace(split, classes=classes)


def _notes(chosen: ChosenRows, before: Manifest, after: Manifest) -> list[str]:
    """Returns notes on keys of no record, and on classes that lost all records."""
    notes = []
    if chosen.unknown_keys:
        notes.append(
            f"{chosen.unknown_keys:,} of the keys to drop are those of no record"
        )
    old, new = class_counts(before.splits), class_counts(after.splits)
    for facts in after.features:
        name = facts.feature.name
        if name not in old or name not in new:
            continue
        empty = [c for c in facts.classes if old[name].get(c) and not new[name].get(c)]
        if empty:
            text = (
                f"{count_text(len(empty), 'class', 'classes')} of {name!r} without "
                f"records: {first_few(list(map(repr, empty)), _SHOWN)}. All ids stay "
                f"as they were, so a model has outputs for them. To number the others "
                f"from 0, convert the subset with --vocabulary FILE, their names one a "
                f"line"
            )
            notes.append(bounded(text))
    return notes


def _manifest(
    before: Manifest,
    request: SubsetRequest,
    chosen: ChosenRows,
    splits: tuple[SplitFacts, ...],
    features: tuple[FeatureFacts, ...],
) -> Manifest:
    """Returns the manifest without sidecars."""
    written = sum(split.records for split in splits)
    inputs = [shard for split in before.splits for shard in split.shards]
    return Manifest(
        name=before.name,
        compression=before.compression,
        features=features,
        splits=splits,
        files=(),
        account=Account(read=before.records, written=written, skipped=chosen.skipped),
        inputs={
            "files": len(inputs),
            "bytes": sum(shard.bytes for shard in inputs),
            "sha256": before.digest,
        },
        settings={
            **{name: s for name, s in before.settings.items() if name != "parts"},
            "subsets": [*before.settings.get("subsets", ()), request.to_json()],
        },
        # Which records the notes were about is not known.
        image_notes=before.image_notes if written == before.records else {},
    )


def _label_map(dataset: Dataset, relabelling: Relabelling | None) -> dict[int, str]:
    """Returns the dataset's label map, with new names; empty for none."""
    if LABEL_MAP_NAME not in {facts.file for facts in dataset.manifest.files}:
        return {}
    names = parse_label_map(storage(dataset.path(LABEL_MAP_NAME)).read_bytes())
    if relabelling is None:
        return names
    new = dict(zip(relabelling.facts.classes, relabelling.changes.names, strict=False))
    return {number: new.get(name, name) for number, name in names.items()}
