"""Publish a dataset that is made of others, as `convert` publishes one.

Its indexes and catalogue are made from those of the others: what is known of a shard
that was taken as it is comes from the dataset that it was in, and is not made again.
"""

import contextlib
import dataclasses
import datetime
import hashlib
import json
import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import google_crc32c
import numpy as np
import pyarrow as pa

from beam_pipeline.copies.shard_copies import CopiedShard, copy_whole
from beam_pipeline.datasets.dataset import Dataset
from beam_pipeline.datasets.derived_files import catalogues_of, indexes_of
from beam_pipeline.version import __version__, deciding_versions
from transforms.core.catalogue import (
    OWN_COLUMNS,
    catalogue_features,
    catalogue_schema,
)
from transforms.core.manifest import (
    DerivedFile,
    FileFacts,
    Manifest,
    ShardFacts,
    SplitFacts,
)
from transforms.core.schema import Feature, Kind
from transforms.core.tfrecord.record_index import index_file, text_index_file
from transforms.errors import (
    COMMITTED_NOTE,
    DamageError,
    StorageError,
    TargetError,
)
from transforms.publishing import target
from transforms.reading.catalogue import Catalogue
from transforms.reading.catalogue_of_shards import rows_of_shard, write_parts
from transforms.sidecars.render import render_sidecars
from transforms.storage import folders
from transforms.storage.files import storage
from transforms.storage.paths import absolute
from transforms.work.store import Store

_OF_SOURCES = ("_origin", "_row", "_key")


def derived_copies(
    manifest: Manifest, sources: Mapping[str, CopiedShard], store: Store
) -> list[FileFacts]:
    """Writes what the datasets had that the records come from; returns its facts.

    There is a catalogue if all of them have one.

    Args:
      manifest: of the new dataset, whose shards are written.
      sources: name of each shard -> where its records come from.
      store: where the shards are.

    Raises:
      DamageError: a derived file of a source is damaged.
      OSError, StorageError: a file cannot be read, or not be written.
    """
    written = _indexes(manifest, sources, store)
    datasets = {source.dataset.directory: source.dataset for source in sources.values()}
    catalogues = {path: catalogues_of(source) for path, source in datasets.items()}
    if catalogues and all(catalogues.values()):
        for split in manifest.splits:
            written += _catalogue(manifest, split, sources, catalogues, store)
    return written


def _indexes(
    manifest: Manifest, sources: Mapping[str, CopiedShard], store: Store
) -> list[FileFacts]:
    if manifest.compression != "none":
        return []  # version 0.2 wrote indexes of gzip files
    written = []
    datasets = {each.dataset.directory: each.dataset for each in sources.values()}
    had_by = {
        path: {each.file: each for each in dataset.manifest.derived}
        for path, dataset in datasets.items()
    }
    for split in manifest.splits:
        for facts in split.shards:
            source = sources[facts.file]
            had = had_by[source.dataset.directory]
            forms = [
                form
                for form in (index_file, text_index_file)
                if form(source.facts.file) in had
            ]
            if source.is_whole:
                for form in forms:
                    index = had[form(source.facts.file)]
                    name = form(facts.file)
                    store.announce(name)
                    copy_whole(
                        source.dataset.path(index.file),
                        os.path.join(store.dataset, name),
                        index,
                        attempts=store.attempts,
                    )
                    written.append(FileFacts(name, index.bytes, index.crc32c))
            elif forms:
                path = os.path.join(store.dataset, facts.file)
                contents, _ = indexes_of(path, facts.file)
                names = [form(facts.file) for form in forms]
                written += [write_beside(store, name, contents[name]) for name in names]
    return written


def write_beside(store: Store, name: str, data: bytes) -> FileFacts:
    """Writes a file beside the shards of a dataset; returns its facts."""
    store.announce(name)
    path = os.path.join(store.dataset, name)
    storage(path).write_file(data, attempts=store.attempts)
    return FileFacts(name, len(data), google_crc32c.value(data))


def _catalogue(
    manifest: Manifest,
    split: SplitFacts,
    sources: Mapping[str, CopiedShard],
    catalogues: Mapping[str, Mapping[str, Catalogue]],
    store: Store,
) -> list[FileFacts]:
    """Writes the parts of the catalogue of one split; returns their facts."""
    of_shards = [
        catalogues[sources[facts.file].dataset.directory][sources[facts.file].split]
        for facts in split.shards
    ]
    if not of_shards:
        return []
    everywhere = set.intersection(*(set(each.schema.names) for each in of_shards))
    features, _ = catalogue_features(
        [facts.feature for facts in manifest.features], texts=True
    )
    features = tuple(each for each in features if each.name in everywhere)
    classes = {
        facts.feature.name: pa.array([*facts.classes], pa.string())
        for facts in manifest.features
        if facts.feature.kind is Kind.LABEL and facts.classes
    }
    schema = catalogue_schema(
        features,
        classes,
        origins={"_origin", "_row"} <= everywhere,
        keys="_key" in everywhere,
    )

    def path_of(name: str) -> str:
        store.announce(name)
        return os.path.join(store.dataset, name)

    def rows_of(number: int) -> Iterator[Mapping[str, pa.Array]]:
        facts = split.shards[number]
        source, catalogue = sources[facts.file], of_shards[number]
        return _rows(number, facts, source, catalogue, features, schema, store)

    records = [facts.records for facts in split.shards]
    return write_parts(
        *(path_of, split.name, records, rows_of, schema, classes),
        attempts=store.attempts,
    )


def _rows(
    number: int,
    facts: ShardFacts,
    source: CopiedShard,
    catalogue: Catalogue,
    features: Sequence[Feature],
    schema: pa.Schema,
    store: Store,
) -> Iterator[Mapping[str, pa.Array]]:
    """Yields the rows of a new shard; those that it had, if it was not changed."""
    first, stop = source.first, source.first + source.facts.records
    own = [name for name in schema.names if name in OWN_COLUMNS and name != "_shard"]
    if source.is_whole:
        facts_of = {f.feature.name: f for f in source.dataset.manifest.features}
        typed = [
            dataclasses.replace(each, vocabulary=tuple(facts_of[each.name].classes))
            if each.kind is Kind.LABEL
            else each
            for each in features
        ]
        pairs = zip(
            catalogue.batches(own, first, stop),
            catalogue.typed_batches(typed, first, stop),
            strict=True,
        )
        for places, values in pairs:
            count = places.num_rows
            columns = dict(zip(own, places.columns, strict=True))
            if source.dataset.manifest.compression != "none":
                # Version 0.2 named the places of gzip members.
                columns["_offset"] = pa.nulls(count, pa.int64())
            yield {
                "_shard": pa.array(np.full(count, number, np.int32)),
                **columns,
                **dict(zip(values.schema.names, values.columns, strict=True)),
            }
        return
    of_source = [name for name in own if name in _OF_SOURCES]
    before: dict[str, pa.Array] = {}
    if of_source:
        table = pa.Table.from_batches(catalogue.batches(of_source, first, stop))
        kept = table.filter(pa.array(source.kept)).unify_dictionaries()
        before = {name: kept[name].combine_chunks() for name in of_source}
    path, done = os.path.join(store.dataset, facts.file), 0
    for batch in rows_of_shard(path, number, features):
        count = len(batch["_size"])
        places = {name: each.slice(done, count) for name, each in before.items()}
        yield {**batch, **places}
        done += count


_MAKER = "beam-tfrecord"


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
class Place:
    """Where a dataset is to be published.

    Attributes:
      directory: the target.
      seen: what `Target.state` said of it.
      started: when the run was.
    """

    directory: str
    seen: str
    started: str


def look_at(directory: str, sources: Sequence[Dataset], *, overwrite: bool) -> Place:
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
    return Place(directory, seen, started)


def publish_copy(
    output: Place,
    decides: object,
    build: Callable[[Store], Manifest],
) -> Manifest:
    """Builds a dataset in a work folder and publishes it, whole or not at all.

    Args:
      output: the target, as `look_at` has returned it.
      decides: JSON of all that decides the dataset's bytes.
      build: writes the files into a store's `dataset`; returns the manifest, whose
        `run` is to be completed.

    Raises:
      TargetError: another run is at work there.
      CommitError: the target has changed meanwhile. Nothing was published.
    """
    directory, seen = output.directory, output.seen
    text = json.dumps([decides, deciding_versions()]).encode()
    job = hashlib.blake2b(text, digest_size=16).hexdigest()
    there = target.at(directory)
    store = Store(there.work_path(job, seen=seen))
    with there.held():
        store = there.open_store(store, job=job, seen=seen)
        target.take_over(there, store)
        store.make()
        if not store.placed:
            # What a killed run has left there is made again: it left no receipts.
            store.remove_tree(store.dataset)
            folders.make(store.dataset)
        try:
            manifest = build(store)
            run = _run(manifest, output, job)
            manifest = dataclasses.replace(manifest, run=run)
            there.publish(store, manifest, seen=seen)
        except BaseException as error:
            # The first error is the one to report; the next run clears up.
            with contextlib.suppress(OSError, StorageError):
                if _has_published(directory, job, seen):
                    error.add_note(COMMITTED_NOTE)
                    there.end(store)
                else:
                    there.leave(store, seen=seen)
            raise
        try:
            there.end(store)
        except (OSError, StorageError) as error:
            error.add_note(COMMITTED_NOTE)
            raise
    return manifest


def _run(manifest: Manifest, output: Place, job: str) -> dict[str, Any]:
    return {
        **manifest.run,
        "started": output.started,
        "finished": _now(),
        "job": job,
        "versions": {"python": platform.python_version(), _MAKER: __version__},
    }


def _has_published(directory: str, job: str, seen: str) -> bool:
    """Whether what is at the target was written by this very run."""
    try:
        manifest = target.read_manifest(directory)
        return manifest.run.get("job") == job and target.at(directory).state() != seen
    except (OSError, DamageError, StorageError):
        return False


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def with_sidecars(
    manifest: Manifest,
    label_map: Mapping[int, str],
    sources: Mapping[str, CopiedShard],
    store: Store,
) -> Manifest:
    """Writes the sidecars of a dataset; returns its manifest, which names them.

    Args:
      manifest: of the dataset, whose shards are written.
      label_map: class id -> name, for a label map; empty for none.
      sources: name of each shard -> where its records come from.
      store: where the files go.
    """
    sidecars = render_sidecars(manifest, label_map)
    named = [write_beside(store, *sidecar) for sidecar in sidecars.files.items()]
    readers_files = [
        *(write_beside(store, *sidecar) for sidecar in sidecars.derived.items()),
        *derived_copies(manifest, sources, store),
    ]
    derived = tuple(
        DerivedFile(**dataclasses.asdict(facts), maker=_MAKER, version=__version__)
        for facts in sorted(readers_files, key=lambda facts: facts.file)
    )
    notes = [*manifest.run.get("notes", ()), *sidecars.notes]
    return dataclasses.replace(
        manifest,
        files=tuple(named),
        derived=derived,
        run={**manifest.run, "notes": notes},
    )
