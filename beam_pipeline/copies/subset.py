"""A subset of a dataset: choose its records, copy them, publish."""

import dataclasses
import functools
import os
from collections.abc import Callable, Mapping, Sequence

from beam_pipeline.copies.chosen_rows import ChosenRows, SubsetRequest, choose, with_key
from beam_pipeline.copies.publication import (
    Made,
    copied_manifest,
    look_at,
    publish_copy,
)
from beam_pipeline.copies.shard_copies import CopiedShard, copied, numbered_shards
from beam_pipeline.datasets.dataset import Dataset
from beam_pipeline.datasets.derived_files import catalogues_of
from beam_pipeline.datasets.open_dataset import open_dataset
from beam_pipeline.datasets.parts import class_counts
from beam_pipeline.terminal import count_text, counts_text
from transforms.core.manifest import FeatureFacts, Manifest, ShardFacts, SplitFacts
from transforms.core.schema import Feature, Kind
from transforms.core.statistics import Statistics, summarize_feature
from transforms.core.tfrecord.reader import TFRecordReader
from transforms.errors import ExampleError, InputError, bounded, first_few
from transforms.formats.tfrecord_files.stored_features import decode, record_types
from transforms.sidecars.label_map import LABEL_MAP_NAME, parse_label_map
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
    chosen = choose(rows, catalogues, request)
    if not any(mask.any() for mask in chosen.kept.values()):
        left_out = f": {counts_text(chosen.skipped)}" if chosen.skipped else ""
        raise InputError(
            f"A subset must have at least one record; of the {before.records:,} of "
            f"{dataset.directory!r} none is left{left_out}."
        )
    sources = _sources(dataset, chosen)
    stored = [f.feature for f in before.features if f.feature.record_keys]

    def build(store: Store) -> Manifest:
        shards: dict[str, list[ShardFacts]] = {name: [] for name in chosen.kept}
        values: dict[str, _Facts] = {name: {} for name in chosen.kept}
        for file, source in sources.items():
            shards[source.split].append(copied(source, file, store))
            facts = _facts_of(file, source, stored, store)
            values[source.split] = _merged_facts(values[source.split], facts)
            read(source.facts.bytes)
        whole = functools.reduce(_merged_facts, values.values())
        records = sum(shard.records for some in shards.values() for shard in some)
        features = tuple(_feature(facts, whole, records) for facts in before.features)
        splits = tuple(
            SplitFacts(name, tuple(facts), _classes(name, before, values, features))
            for name, facts in shards.items()
        )
        settings = {n: value for n, value in before.settings.items() if n != "parts"}
        subsets = [*settings.get("subsets", ()), request.to_json()]
        manifest = copied_manifest(
            *([before], features, splits),
            sha256=before.digest,
            skipped=chosen.skipped,
            settings={**settings, "subsets": subsets},
            # Which records the notes were about is not known.
            image_notes=before.image_notes if records == before.records else {},
        )
        run = {
            "subset_of": dataset.directory,
            "notes": _notes(chosen, before, manifest),
        }
        return dataclasses.replace(manifest, run=run)

    decides = [before.digest, request.to_json()]
    label_map = {}
    if LABEL_MAP_NAME in {facts.file for facts in before.files}:
        label_map = parse_label_map(storage(dataset.path(LABEL_MAP_NAME)).read_bytes())
    return publish_copy(output, decides, sources, build, label_map)


def _sources(dataset: Dataset, chosen: ChosenRows) -> dict[str, CopiedShard]:
    """Returns new shard -> the chosen records of the old one."""
    sources = numbered_shards(dataset.parts or (dataset,), chosen.kept, lambda *_: {})
    starts = dict.fromkeys(chosen.kept, 0)
    for file, shard in sources.items():
        start = starts[shard.split]
        starts[shard.split] = stop = start + shard.facts.records
        kept = chosen.kept[shard.split][start:stop]
        sources[file] = dataclasses.replace(shard, kept=kept)
    return sources


def _facts_of(
    name: str,
    shard: CopiedShard,
    features: Sequence[Feature],
    store: Store,
) -> _Facts:
    """Returns what is true of the values in a shard of a subset, which is read."""
    # What is only linked is read, and named if it is damaged, where it was.
    path = shard.path if shard.is_whole else os.path.join(store.dataset, name)
    compression = shard.dataset.manifest.compression
    types = {
        k: kind for feature in features for k, kind in record_types(feature).items()
    }
    with storage(path).open_unbuffered() as file:
        reader = TFRecordReader(file, compression=compression, allow_empty=True)
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
            facts = _merged_facts(facts, values)
    return facts


def _merged_facts(one: _Facts, other: _Facts) -> _Facts:
    """Returns facts of a subset by feature, those of features in both added up."""
    both = {n: one[n].merge(other[n]) for n in one.keys() & other.keys()}
    return one | other | both


def _feature(facts: FeatureFacts, whole: _Facts, records: int) -> FeatureFacts:
    """Returns what is true of a feature in all splits of the subset."""
    feature, names = facts.feature, tuple(facts.classes)
    if feature.vocabulary is not None:
        feature = dataclasses.replace(feature, vocabulary=names)
    values = whole.get(feature.name, Statistics())
    statistics = dataclasses.replace(values, classes={})
    return FeatureFacts(feature, statistics, names, values.present == records)


def _classes(
    split: str,
    before: Manifest,
    values: Mapping[str, _Facts],
    features: Sequence[FeatureFacts],
) -> dict[str, dict[str, int]]:
    """Returns records of a split by class, where the dataset had counted them."""
    counted = {s.name: s.classes for s in before.splits}[split]
    classes = {}
    for facts in features:
        name = facts.feature.name
        counts = values[split].get(name, Statistics()).classes
        if name not in counted or counts is None:
            continue
        if facts.feature.kind is Kind.LABEL:
            classes[name] = {c: counts.get(n, 0) for n, c in enumerate(facts.classes)}
        elif counts:
            classes[name] = {str(value): n for value, n in sorted(counts.items())}
    return classes


def _notes(chosen: ChosenRows, before: Manifest, after: Manifest) -> list[str]:
    """Returns notes on keys of no record, and on classes that lost all records."""
    notes = []
    if chosen.unknown_keys:
        notes.append(f"{chosen.unknown_keys:,} of the keys to drop are of no record")
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
