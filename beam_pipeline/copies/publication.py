"""Publish a dataset that is made of others, as `convert` publishes one.

Sidecars, indexes and catalogue come along: what is known of a shard that was taken as
it is comes from the dataset that it was in, and is not made again.
"""

import dataclasses
import datetime
import hashlib
import json
import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from beam_pipeline.copies.shard_copies import CopiedShard, copy_whole
from beam_pipeline.datasets.dataset import Dataset
from beam_pipeline.datasets.derived_files import catalogues_of, indexes_of
from beam_pipeline.version import __version__, deciding_versions
from transforms.core.catalogue import OWN_COLUMNS, catalogue_features, catalogue_schema
from transforms.core.manifest import (
    Account,
    DerivedFile,
    FeatureFacts,
    FileFacts,
    Manifest,
    SplitFacts,
)
from transforms.core.schema import Feature, Kind
from transforms.core.tfrecord.index import index_file, text_index_file
from transforms.errors import TargetError
from transforms.publishing import target
from transforms.reading.catalogue import Catalogue
from transforms.reading.catalogue_of_shards import rows_of_shard, write_parts
from transforms.reading.rows import class_names
from transforms.sidecars.text_protos import render_sidecars
from transforms.storage import folders
from transforms.storage.files import storage
from transforms.storage.paths import absolute
from transforms.work.store import Store


@dataclasses.dataclass(frozen=True, slots=True)
class Made:
    """A dataset that was made of others and published.

    Attributes:
      manifest: of the new dataset.
      whole, changed: how many of its shards are as they were, and how many were written
        again.
    """

    manifest: Manifest
    whole: int
    changed: int


@dataclasses.dataclass(frozen=True, slots=True)
class Output:
    """Where a dataset is to be published.

    Attributes:
      directory: the target.
      seen: what `Target.state` said of it.
      started: when the run was.
    """

    directory: str
    seen: str
    started: str


def look_at(directory: str, sources: Sequence[Dataset], *, overwrite: bool) -> Output:
    """Looks at a target before anything is read for it.

    Args:
      directory: the target; may be that of a source, which is then replaced.
      sources: that it is made of.
      overwrite: whether a dataset there is replaced.

    Raises:
      TargetError: the output holds a dataset, or something else.
    """
    started, there = _now(), target.at(directory)
    there.recover()
    seen = there.state()
    for source in sources:
        within = absolute(directory), absolute(source.directory)
        if within[0] != within[1] and storage(within[0]).is_inside(within[1]):
            raise TargetError(
                f"The output must be outside of the dataset; {directory!r} is in "
                f"{source.directory!r}. Choose another output."
            )
    manifest = there.check_contents()
    if manifest is not None:
        if not overwrite:
            raise target.taken(directory, manifest)
        there.check_replaceable()
    return Output(directory, seen, started)


def publish_copy(
    output: Output,
    decides: object,
    sources: Mapping[str, CopiedShard],
    build: Callable[[Store], Manifest],
    label_map: Mapping[int, str],
) -> Made:
    """Builds a dataset in a work folder and publishes it, whole or not at all.

    Args:
      output: the target, as `look_at` has returned it.
      decides: JSON of all that decides the dataset's bytes.
      sources: name of each shard -> where its records come from.
      build: writes the shards into a store's `dataset`; returns the manifest, which
        the files beside the shards are to be added to.
      label_map: class id -> name, for a label map; empty for none.

    Raises:
      TargetError: another run is at work there.
      CommitError: the target has changed meanwhile. Nothing was published.
    """
    directory, seen = output.directory, output.seen
    text = json.dumps([decides, deciding_versions()]).encode()
    job = hashlib.blake2b(text, digest_size=16).hexdigest()
    there = target.at(directory)
    store = Store(there.work_path(job, seen=seen))
    with target.at_work(there, store, job=job, seen=seen) as (store, _):
        if not store.placed:
            # What a killed run has left there is made again: it left no receipts.
            store.remove_tree(store.dataset)
            folders.make(store.dataset)
        manifest = with_sidecars(build(store), label_map, sources, store)
        run = {
            **manifest.run,
            "started": output.started,
            "finished": _now(),
            "job": job,
            "versions": {"python": platform.python_version(), MAKER: __version__},
        }
        manifest = dataclasses.replace(manifest, run=run)
        there.publish(store, manifest, seen=seen)
    whole = sum(shard.is_whole for shard in sources.values())
    return Made(manifest, whole, len(sources) - whole)


def copied_manifest(
    before: Sequence[Manifest],
    features: tuple[FeatureFacts, ...],
    splits: tuple[SplitFacts, ...],
    *,
    sha256: str,
    skipped: Mapping[str, int],
    **more: Any,
) -> Manifest:
    """Returns the manifest of copied shards, without the files beside them.

    Args:
      before: the manifests of the datasets that the shards come from.
      features, splits: of the copy.
      sha256: identifies those datasets.
      skipped: records that were left out, by reason.
      more: the settings, image notes and run of the manifest.
    """
    shards = [shard for m in before for split in m.splits for shard in split.shards]
    size = sum(shard.bytes for shard in shards)
    return Manifest(
        name=before[0].name,
        compression=before[0].compression,
        features=features,
        splits=splits,
        files=(),
        account=Account(
            read=sum(manifest.records for manifest in before),
            written=sum(split.records for split in splits),
            skipped=skipped,
        ),
        inputs={"files": len(shards), "bytes": size, "sha256": sha256},
        **more,
    )


def _now() -> str:
    """Returns the time in UTC to the second, for the start and end in a manifest."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


MAKER = "beam-tfrecord"
"""The program that a manifest names."""
# What the shards do not tell.
_OF_SOURCES = ("_origin", "_row", "_key")
_Sources = Mapping[str, CopiedShard]


def with_sidecars(
    manifest: Manifest, label_map: Mapping[int, str], sources: _Sources, store: Store
) -> Manifest:
    """Writes the files beside the shards; returns the manifest, which names them.

    There is a catalogue if all datasets that the records come from have one.

    Args:
      manifest: of the dataset, whose shards are written.
      label_map: class id -> name, for a label map; empty for none.
      sources: name of each shard -> where its records come from.
      store: where the files go.

    Raises:
      DamageError: a derived file of a source is damaged.
      OSError, StorageError: a file cannot be read, or not be written.
    """
    sidecars = render_sidecars(manifest, label_map)
    named = [store.write_beside(*sidecar) for sidecar in sidecars.files.items()]
    derived = [store.write_beside(*sidecar) for sidecar in sidecars.derived.items()]
    datasets = {shard.dataset.directory: shard.dataset for shard in sources.values()}
    if manifest.compression == "none":  # version 0.2 wrote indexes of gzip files
        had = {
            path: {facts.file: facts for facts in dataset.manifest.derived}
            for path, dataset in datasets.items()
        }
        for name, source in sources.items():
            derived += _indexes(name, source, had[source.dataset.directory], store)
    catalogues = {path: catalogues_of(dataset) for path, dataset in datasets.items()}
    if all(catalogues.values()):
        for split in manifest.splits:
            if split.shards:
                derived += _catalogue(manifest, split, sources, catalogues, store)
    made = [
        DerivedFile(**dataclasses.asdict(facts), maker=MAKER, version=__version__)
        for facts in sorted(derived, key=lambda facts: facts.file)
    ]
    notes = [*manifest.run.get("notes", ()), *sidecars.notes]
    run = {**manifest.run, "notes": notes}
    return dataclasses.replace(
        manifest, files=tuple(named), derived=tuple(made), run=run
    )


def _indexes(
    shard: str,
    source: CopiedShard,
    had: Mapping[str, FileFacts],
    store: Store,
) -> Iterator[FileFacts]:
    """Publishes beside a shard the indexes that it had; yields their facts."""
    made: Mapping[str, bytes] = {}
    for form in (index_file, text_index_file):
        before = had.get(form(source.facts.file))
        if before is None:
            continue
        name = form(shard)
        if source.is_whole:
            path, target = source.dataset.path(before.file), store.announce(name)
            copy_whole(path, target, before, attempts=store.attempts)
            yield FileFacts(name, before.bytes, before.crc32c)
            continue
        made = made or indexes_of(os.path.join(store.dataset, shard), shard)[0]
        yield store.write_beside(name, made[name])


def _catalogue(
    manifest: Manifest,
    split: SplitFacts,
    sources: _Sources,
    catalogues: Mapping[str, Mapping[str, Catalogue]],
    store: Store,
) -> list[FileFacts]:
    """Publishes the parts of the catalogue of one split; returns their facts.

    Args:
      manifest: of the new dataset.
      split: of it, with shards.
      sources: name of each shard -> where its records come from.
      catalogues: of each split of the datasets that they are from, by their folders.
      store: where the shards are.
    """
    shards = [sources[facts.file] for facts in split.shards]
    before = [catalogues[source.dataset.directory][source.split] for source in shards]
    everywhere = set.intersection(*(set(source.schema.names) for source in before))
    features = [f.feature for f in manifest.features if f.feature.name in everywhere]
    columns, _ = catalogue_features(_with_names(features, manifest), texts=True)
    classes = class_names(columns)
    schema = catalogue_schema(
        columns,
        classes,
        origins={"_origin", "_row"} <= everywhere,
        keys="_key" in everywhere,
    )

    def rows_of(number: int) -> Iterator[Mapping[str, pa.Array]]:
        shard = shards[number]
        if shard.is_whole and manifest.compression == "none":
            return _rows_before(number, shard, before[number], columns, schema)
        path = os.path.join(store.dataset, split.shards[number].file)
        return _rows_read(number, path, shard, before[number], columns, schema)

    records = [facts.records for facts in split.shards]
    return write_parts(
        store.announce,
        *(split.name, records, rows_of, schema, classes),
        attempts=store.attempts,
    )


def _with_names(features: Sequence[Feature], manifest: Manifest) -> list[Feature]:
    """Returns features to publish, whose labels have the class names of a dataset."""
    names = {f.feature.name: tuple(f.classes) or None for f in manifest.features}
    return [
        dataclasses.replace(f, vocabulary=names[f.name]) if f.kind is Kind.LABEL else f
        for f in features
    ]


def _rows_before(
    number: int,
    shard: CopiedShard,
    catalogue: Catalogue,
    features: Sequence[Feature],
    schema: pa.Schema,
) -> Iterator[Mapping[str, pa.Array]]:
    """Yields the catalogue rows to publish of a shard that stays as it is."""
    span = shard.first, shard.first + shard.facts.records
    own = [name for name in schema.names if name in OWN_COLUMNS and name != "_shard"]
    typed = _with_names(features, shard.dataset.manifest)
    columns = catalogue.batches(own, *span), catalogue.typed_batches(typed, *span)
    for places, values in zip(*columns, strict=True):
        yield {
            "_shard": pa.array(np.full(places.num_rows, number, np.int32)),
            **dict(zip(own, places.columns, strict=True)),
            **dict(zip(values.schema.names, values.columns, strict=True)),
        }


def _rows_read(
    number: int,
    path: str,
    shard: CopiedShard,
    catalogue: Catalogue,
    features: Sequence[Feature],
    schema: pa.Schema,
) -> Iterator[Mapping[str, pa.Array]]:
    """Yields the catalogue rows to publish of a new shard, also what it lacks."""
    before: dict[str, pa.Array] = {}
    names = [name for name in _OF_SOURCES if name in schema.names]
    if names and shard.facts.records:
        stop = shard.first + shard.facts.records
        table = pa.Table.from_batches(catalogue.batches(names, shard.first, stop))
        kept = table.filter(pa.array(shard.kept)).unify_dictionaries()
        before = {name: kept[name].combine_chunks() for name in names}
    done = 0
    for batch in rows_of_shard(path, number, features):
        count = len(batch["_size"])
        yield {**batch, **{name: c.slice(done, count) for name, c in before.items()}}
        done += count
