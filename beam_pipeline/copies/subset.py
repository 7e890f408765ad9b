"""A subset of a dataset: choose its records, copy them, publish."""

import collections
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import BinaryIO

from beam_pipeline.copies.chosen_rows import (
    Chosen,
    Columns,
    Relabelling,
    Request,
    choose,
    relabelling_of,
)
from beam_pipeline.copies.publication import (
    Made,
    look_at,
    publish_copy,
    with_sidecars,
)
from beam_pipeline.copies.shard_copies import (
    Changed,
    CopiedShard,
    Facts,
    add_facts,
    classes_by_name,
    copied,
    shards_of,
    with_new_ids,
    with_range_of,
)
from beam_pipeline.datasets.dataset import Dataset
from beam_pipeline.datasets.derived_files import catalogues_of
from beam_pipeline.reading.open_dataset import open_dataset
from beam_pipeline.terminal.words import count_text, counts_text
from transforms.core.label_map import LABEL_MAP_NAME, parse_label_map
from transforms.core.manifest import (
    Account,
    FeatureFacts,
    Manifest,
    ShardFacts,
    SplitFacts,
)
from transforms.core.schema import Kind
from transforms.core.statistics import Statistics
from transforms.errors import InputError, bounded, first_few
from transforms.storage.files import storage
from transforms.work.store import Store

# How many names a note has.
_SHOWN = 10
# The column of a catalogue with the key of each record.
_KEY = "_key"


def make_subset(
    dataset: Dataset,
    directory: str,
    request: Request,
    *,
    overwrite: bool = False,
    opened: Callable[[str], BinaryIO],
) -> Made:
    """Writes a part of a dataset as a dataset of its own.

    Args:
      dataset: that it is a part of.
      directory: where it goes; may be that of the dataset, which it then replaces.
      request: what is asked of it.
      overwrite: whether a dataset there is replaced.
      opened: opens a file of the dataset for reading.

    Raises:
      TargetError: the output holds a dataset, or something else.
      UsageError, SpecError: the request does not fit the dataset.
      InputError: no record is left.
      DamageError: the dataset is damaged. Nothing was published.
    """
    there = look_at(directory, [dataset], overwrite=overwrite)
    rows = open_dataset(dataset.directory, labels="names")
    columns = Columns(rows, catalogues_of(dataset))
    request = _with_key(request, dataset.manifest, columns)
    relabelling = relabelling_of(rows, dataset.manifest, request)
    chosen = choose(columns, request, relabelling)
    if not any(mask.any() for mask in chosen.kept.values()):
        left_out = f": {counts_text(chosen.skipped)}" if chosen.skipped else ""
        raise InputError(
            f"A subset must have at least one record; of the "
            f"{dataset.manifest.records:,} of {dataset.directory!r} none is left"
            f"{left_out}."
        )
    splits = [s for s in dataset.manifest.splits if s.name in chosen.kept]
    names = [split.name for split in splits]
    shards = [
        _cut(shard, chosen, relabelling)
        for split in splits
        for shard in shards_of(dataset, split)
    ]

    def build(store: Store) -> Manifest:
        written, values = _write(dataset.manifest, names, shards, store, opened)
        facts = _features(dataset.manifest, written, values, relabelling)
        manifest = _manifest(dataset.manifest, request, chosen, *facts)
        notes = [*_remarks(chosen), *_emptied(dataset.manifest, manifest)]
        run = {"subset_of": dataset.directory, "notes": notes}
        manifest = dataclasses.replace(manifest, run=run)
        sources = {shard.facts.file: shard for shard in shards}
        label_map = _label_map(dataset, relabelling)
        return with_sidecars(manifest, label_map, sources, store)

    decides = [dataset.manifest.digest, request.to_json()]
    manifest = publish_copy(there, decides, build)
    whole = sum(shard.is_whole for shard in shards)
    return Made(manifest, whole, len(shards) - whole)


def _cut(
    shard: CopiedShard, chosen: Chosen, relabelling: Relabelling | None
) -> CopiedShard:
    """Returns a shard with the records of it that are chosen, and their new ids."""
    span = slice(shard.first, shard.first + shard.facts.records)
    touched = chosen.relabelled.get(shard.split)
    changed = None
    if relabelling is not None and touched is not None and touched[span].any():
        changed = Changed(touched[span], {relabelling.key: relabelling.changes.ids})
    kept = chosen.kept[shard.split][span]
    return dataclasses.replace(shard, kept=kept, changed=changed)


def _write(
    manifest: Manifest,
    names: Sequence[str],
    shards: Sequence[CopiedShard],
    store: Store,
    opened: Callable[[str], BinaryIO],
) -> tuple[tuple[SplitFacts, ...], dict[str, Facts]]:
    """Writes the shards of some splits; returns these, and what holds for their values.

    Args:
      manifest: of the dataset that the subset is of.
      names: of the splits.
      shards: where the records of each shard come from.
      store: where the shards go.
      opened: opens a file of the dataset.
    """
    features = [f.feature for f in manifest.features if f.feature.record_keys]
    written: dict[str, list[ShardFacts]] = {name: [] for name in names}
    values: dict[str, Facts] = {name: {} for name in names}
    for shard in shards:
        facts, more = copied(shard, shard.facts.file, features, store, opened)
        written[shard.split].append(facts)
        add_facts(values[shard.split], more)
    return tuple(SplitFacts(n, tuple(some)) for n, some in written.items()), values


def _features(
    manifest: Manifest,
    splits: Sequence[SplitFacts],
    values: Mapping[str, Facts],
    relabelling: Relabelling | None,
) -> tuple[tuple[SplitFacts, ...], tuple[FeatureFacts, ...]]:
    """Returns the splits with their classes, and what is true of each feature.

    Args:
      manifest: of the dataset that the subset is of.
      splits: as `_write` returned them.
      values: of each split, before any class id is changed.
      relabelling: of its classes; None for none.
    """
    counted = {split.name: split.classes for split in manifest.splits}
    classes: dict[str, dict[str, dict[str, int]]] = {s.name: {} for s in splits}
    whole: Facts = {}
    for of_split in values.values():
        add_facts(whole, of_split)
    features = []
    records = sum(split.records for split in splits)
    for facts in manifest.features:
        feature, names = facts.feature, tuple(facts.classes)
        ids: Mapping[int, int] = {}
        if relabelling is not None and feature.name == relabelling.feature:
            names, ids = relabelling.changes.names, relabelling.changes.ids
        statistics = whole.get(feature.name, Statistics())
        if ids:
            counts = with_new_ids(statistics.classes, ids)
            statistics = with_range_of(statistics, counts, len(names))
        for split, by_feature in values.items():
            seen = by_feature.get(feature.name, Statistics())
            counts = with_new_ids(seen.classes, ids)
            if feature.name in counted[split] and counts is not None:
                by_name = classes_by_name(feature, counts, names)
                if by_name or feature.kind is Kind.LABEL:
                    classes[split][feature.name] = by_name
        if feature.vocabulary is not None and names != tuple(facts.classes):
            feature = dataclasses.replace(feature, vocabulary=names)
        always = statistics.present == records
        statistics = dataclasses.replace(statistics, classes={})
        features.append(FeatureFacts(feature, statistics, names, always))
    named = (dataclasses.replace(s, classes=classes[s.name]) for s in splits)
    return tuple(named), tuple(features)


def _with_key(request: Request, manifest: Manifest, columns: Columns) -> Request:
    """Returns the request with the feature that holds the keys."""
    dropped = request.dropped
    if dropped is None or dropped.feature:
        return request
    key = str(manifest.settings.get("key_column") or "")
    if _KEY in columns.names:
        dropped = dataclasses.replace(dropped, feature=_KEY)
    by_column = {
        facts.feature.column or facts.feature.name: facts for facts in manifest.features
    }
    if key not in by_column:
        return request
    feature = by_column[key].feature.name
    return dataclasses.replace(
        request, dropped=dataclasses.replace(dropped, feature=feature)
    )


def _remarks(chosen: Chosen) -> list[str]:
    if not chosen.unknown_keys:
        return []
    return [f"{chosen.unknown_keys:,} of the keys to drop are those of no record"]


def _emptied(before: Manifest, after: Manifest) -> list[str]:
    """Returns a note for each label with classes that have lost all records."""
    out = []
    for facts in after.features:
        name = facts.feature.name
        old, new = (_counts(each, name) for each in (before, after))
        if old is None or new is None:
            continue
        empty = [each for each in facts.classes if old[each] and not new[each]]
        if empty:
            out.append(
                bounded(
                    f"{count_text(len(empty), 'class', 'classes')} of {name!r} without "
                    f"records: {first_few(list(map(repr, empty)), _SHOWN)}. All ids "
                    f"stay as they were, so a model has outputs for them. To number "
                    f"the others from 0, convert the subset with --vocabulary FILE, "
                    f"their names one a line"
                )
            )
    return out


def _counts(manifest: Manifest, feature: str) -> collections.Counter[str] | None:
    """Returns class name -> records; None where some were not counted."""
    counts: collections.Counter[str] = collections.Counter()
    for split in manifest.splits:
        if split.records and feature not in split.classes:
            return None
        counts.update(split.classes.get(feature, {}))
    return counts


def _manifest(
    before: Manifest,
    request: Request,
    chosen: Chosen,
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
        settings=dict(before.settings)
        | {"subsets": [*before.settings.get("subsets", ()), request.to_json()]},
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
    new: dict[str, str] = {}
    for facts in dataset.manifest.features:
        if facts.feature.name == relabelling.feature:
            new = dict(zip(facts.classes, relabelling.changes.names, strict=False))
    return {number: new.get(name, name) for number, name in names.items()}
