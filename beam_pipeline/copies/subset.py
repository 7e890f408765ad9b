"""A subset of a dataset: choose its records, copy them, publish."""

import collections
import dataclasses
from collections.abc import Callable
from typing import BinaryIO

from beam_pipeline.copies.chosen_rows import (
    Chosen,
    Columns,
    Relabelling,
    Request,
    choose,
    relabelling_of,
)
from beam_pipeline.copies.kept_shards import KeptShards
from beam_pipeline.copies.publication import (
    Made,
    look_at,
    publish_copy,
    with_sidecars,
)
from beam_pipeline.datasets.dataset import Dataset
from beam_pipeline.datasets.derived_files import catalogues_of
from beam_pipeline.reading.open_dataset import open_dataset
from beam_pipeline.terminal.words import count_text, counts_text
from transforms.core.label_map import LABEL_MAP_NAME, parse_label_map
from transforms.core.manifest import Account, Manifest
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
    place = look_at(directory, [dataset], overwrite=overwrite)
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
    shards = KeptShards(dataset, chosen, relabelling, opened)

    def build(store: Store) -> Manifest:
        manifest = _manifest(dataset.manifest, request, chosen, shards, store)
        notes = [*_remarks(chosen), *_emptied(dataset.manifest, manifest)]
        run = {"subset_of": dataset.directory, "notes": notes}
        manifest = dataclasses.replace(manifest, run=run)
        names = _label_map(dataset, relabelling)
        return with_sidecars(manifest, names, shards.sources(), store)

    decides = [dataset.manifest.digest, request.to_json()]
    manifest = publish_copy(place, decides, build)
    return Made(manifest, shards.whole, shards.changed)


def _with_key(request: Request, manifest: Manifest, columns: Columns) -> Request:
    """Returns the request with the feature that holds the keys."""
    dropped = request.dropped
    if dropped is None or dropped.feature:
        return request
    key = str(manifest.settings.get("key_column") or "")
    if _KEY in columns.names:
        dropped = dataclasses.replace(dropped, feature=_KEY)
    known = {
        facts.feature.column or facts.feature.name: facts for facts in manifest.features
    }
    if key not in known:
        return request
    feature = known[key].feature.name
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
    shards: KeptShards,
    store: Store,
) -> Manifest:
    """Writes the shards; returns the manifest without sidecars."""
    splits, features = shards.facts(shards.write(store))
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
