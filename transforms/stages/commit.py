"""The stage `commit`: the facts of all stages -> a published dataset, or nothing."""

import dataclasses
import datetime
import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import apache_beam as beam

from transforms.core.files import folder_of_parts
from transforms.core.manifest import (
    DERIVED_FOLDERS,
    MANIFEST_NAME,
    Account,
    DerivedFile,
    FeatureFacts,
    Manifest,
    ShardFacts,
    SplitFacts,
)
from transforms.core.model import Fact, PlaceFacts, ShardFile
from transforms.core.placing.sharding import ShardCounts
from transforms.core.schema import Kind
from transforms.core.statistics import Statistics, counts_by_class, merge_all
from transforms.core.vocabulary import get_names
from transforms.errors import (
    CommitError,
    ConservationError,
    DamageError,
)
from transforms.publishing import target
from transforms.publishing.parts import Model, announce
from transforms.publishing.published import manifest_or_none
from transforms.sidecars.text_protos import render_sidecars
from transforms.stages.account import Sums, account_of, check_account, summed
from transforms.stages.job_plan import JobPlan, PlanInput, Publication, Stage
from transforms.stages.remarks import (
    crowd_remarks,
    key_remarks,
    replacement_remarks,
    rounding_remarks,
    share_remarks,
    slip_remarks,
    step_remarks,
)
from transforms.storage import folders
from transforms.storage.files import storage
from transforms.storage.retry import storing
from transforms.work.rejects import remove_left, write_rejects
from transforms.work.split_tables import new_lock_in
from transforms.work.store import Store, crc32c_of

# Total size of shards up to which they are read again before publication.
_SMALL_BYTES = 64 << 20
# Its name among the versions that a run states.
_MAKER = "beam-tfrecord"


@dataclasses.dataclass
class CommitDataset(Stage):
    """Checks the sums, writes the sidecars and rejects, and publishes.

    Input: the facts of all stages. Output: what `commit` returns. A retry after success
    finds its own work and does nothing.

    Attributes:
      plan: what to publish and where.
      shard_counts: the one ShardCounts of the job.
      commit: commits the facts of a whole job.
    """

    plan: PlanInput
    shard_counts: beam.PCollection[ShardCounts]
    commit: Callable[[list[Fact], ShardCounts, JobPlan], Any]

    def expand(self, facts: beam.PCollection[Fact]) -> beam.PCollection[Any]:
        """Gathers all facts in one place."""
        # The counts are always there, so that a job without facts is committed, too.
        return (
            (facts, self.shard_counts)
            | "Flatten" >> beam.Flatten()
            | "To one worker" >> beam.Map(_to_one_worker)
            | "Gather facts" >> beam.GroupByKey()
            | "Publish" >> beam.Map(_split_facts_and_commit, self.plan, self.commit)
        )


def _to_one_worker(fact: Fact) -> tuple[None, Fact]:
    """Returns a fact without what the commit does not need.

    The counts alone need the names and the rows of each shard. There may be a million
    of them a batch, and the commit gathers what it gets in one place.
    """
    if isinstance(fact, PlaceFacts):
        total = sum(fact.rows.values())
        fact = dataclasses.replace(fact, rows={("", 0): total}, labels={})
    return None, fact


def _split_facts_and_commit(
    element: tuple[None, Iterable[Fact]],
    plan: JobPlan,
    commit: Callable[[list[Fact], ShardCounts, JobPlan], Any],
) -> Any:
    """Commits the facts of a job, parted from its one ShardCounts, on one worker."""
    plan.store.check_worker()
    gathered = [*element[1]]
    (shard_counts,) = [fact for fact in gathered if isinstance(fact, ShardCounts)]
    facts = [fact for fact in gathered if not isinstance(fact, ShardCounts)]
    with storing(plan.publication.directory):
        return commit(facts, shard_counts, plan)


def commit_dataset(
    facts: Sequence[Fact], shard_counts: ShardCounts, plan: JobPlan
) -> str:
    """Publishes the dataset that the facts describe; returns its digest.

    Raises:
      ConservationError: something would have been lost or doubled.
      InputError: there is no item, and that was not allowed.
      RejectLimitError: too many rejects; they are left beside the target.
      CommitError: the target is no longer what it was.
    """
    publication, store = plan.publication, plan.store
    if (digest := _already_done(publication, store)) is not None:
        remove_left(target.rejects_path(publication.directory))
        return digest
    sums = Sums(facts)
    shards = sorted(sums.shards, key=lambda s: (s.split, s.index))
    logs = sums.logs
    account = account_of(sums, shard_counts, publication)
    check_account(account, logs, publication, store)
    if publication.steps and any(account.part_balances.values()):
        # Nothing says what became of the parts of rows that own steps have changed.
        account = dataclasses.replace(account, parts={})
    classes = {
        feature: tuple(get_names(part, store.get).to_pylist())
        for feature, part in shard_counts.classes.items()
    }
    manifest = manifest_of(shards, account, classes, publication)
    sidecars = render_sidecars(manifest, publication.label_map)
    named = [store.write_beside(*item) for item in sidecars.files.items()]
    version = publication.run.get("versions", {}).get(_MAKER, "")
    readers_files = [
        *(store.write_beside(*entry) for entry in sidecars.derived.items()),
        *(part.file for part in sums.catalogue),
        *(facts for shard in shards for facts in shard.indexes),
    ]
    derived = tuple(
        DerivedFile(facts.file, facts.bytes, facts.crc32c, _MAKER, version)
        for facts in sorted(readers_files, key=lambda facts: facts.file)
    )
    if logs:
        named += write_rejects(
            logs, store.dataset, attempts=store.attempts, announce=store.announce
        )
    sharding, crowded = publication.layout.sharding, []
    if sharding.placeless:
        crowded = crowd_remarks(shard_counts.rows, sharding.shards)
    finished = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    run = dict(publication.run) | {
        "job": publication.job,
        "finished": finished,
        "notes": [
            *publication.run.get("notes", ()),
            *sidecars.notes,
            *(text for found in sums.findings for text in found.warnings()),
            *rounding_remarks(sums.read),
            *slip_remarks(manifest),
            *key_remarks(shards),
            *publication.layout.catalogue_notes,
            *step_remarks(account),
            *crowded,
            *_replacement_remarks(manifest, publication),
            *share_remarks(
                {split.name: split.records for split in manifest.splits},
                publication.shares,
                by_content=sharding.rule.by_content,
            ),
        ],
    }
    if publication.like and (drift := publication.like.found(classes)):
        run["drift"] = drift
    if plan.leaks is not None and plan.leaks.make_lock:
        lock = storage(new_lock_in(store)).read_bytes()
        run["split_lock"] = hashlib.sha256(lock).hexdigest()
    manifest = dataclasses.replace(
        manifest, files=tuple(named), run=run, derived=derived
    )
    if not store.placed:
        _clear_folder(store, manifest)
        _check_folder(store.dataset, manifest)
    if sum(shard.bytes for shard in shards) <= _SMALL_BYTES:
        _check_shards(store, shards)
    if store.is_abandoned:
        raise CommitError("The run was stopped; nothing was committed. Run again.")
    if not _is_there(manifest, publication):
        if publication.shared_settings:
            part = Model.of(manifest, publication.shared_settings)
            folder = folder_of_parts(publication.directory)
            announce(folder, part, attempts=store.attempts)
        destination = target.at(publication.directory)
        destination.publish(store, manifest, seen=publication.seen)
    remove_left(target.rejects_path(publication.directory))
    return manifest.digest


def _replacement_remarks(manifest: Manifest, publication: Publication) -> list[str]:
    """Returns remarks on what differs from the replaced dataset, if there is one."""
    if not publication.seen:
        return []
    try:
        before = target.read_manifest(publication.directory)
    except (OSError, DamageError):
        # It is no longer what was seen, which ends the publication.
        return []
    return replacement_remarks(before, manifest)


def _already_done(publication: Publication, store: Store) -> str | None:
    """Returns the digest when an earlier attempt of this very job has published."""
    if not store.placed and storage(store.dataset).is_folder():
        return None
    manifest = manifest_or_none(publication.directory)
    if manifest is None or manifest.run.get("job") != publication.job:
        return None
    if store.placed and manifest.folder != store.place:
        # Another run of the same job has published; this one has its own files.
        return None
    return manifest.digest


def _is_there(manifest: Manifest, publication: Publication) -> bool:
    """Whether the target holds an equal dataset, which is to stay as it is.

    Raises:
      TargetError: it holds another one, which must not be replaced.
    """
    if not publication.keeps_equal or not publication.seen:
        return False
    if target.at(publication.directory).state() != publication.seen:
        return False
    existing = target.read_manifest(publication.directory)
    if existing.digest == manifest.digest:
        return True
    if not publication.keeps_others:
        return False
    # What is given of the classes differs with those of other parts.
    if _records_of(existing) == _records_of(manifest):
        return True
    raise target.taken(publication.directory, existing, "its rows are others")


def _records_of(manifest: Manifest) -> tuple[Any, ...]:
    """Returns what a dataset holds, however its features were decided."""
    classes = {facts.feature.name: facts.classes for facts in manifest.features}
    return manifest.splits, classes, manifest.account


def _clear_folder(store: Store, manifest: Manifest) -> None:
    """Removes finished files of earlier runs that are no part of this dataset."""
    names = storage(store.dataset).names_with(DERIVED_FOLDERS)
    for name in sorted(set(names) - set(manifest.file_names)):
        store.remove_file(os.path.join(store.dataset, name))
    for name in DERIVED_FOLDERS:
        folders.remove_empty(os.path.join(store.dataset, name))


def _check_shards(store: Store, shards: Sequence[ShardFile]) -> None:
    """Raises unless every shard reads as what was written.

    What a disk or the memory has spoilt must not be found by the training.
    """
    for shard in shards:
        path = os.path.join(store.dataset, shard.name)
        crc = crc32c_of(path, 0, shard.bytes)
        if crc != shard.crc32c:
            if not store.placed:
                # The next run must not take it over.
                storage(path).remove_file()
            raise DamageError(
                f"A shard must read as it was written; {shard.name!r} has the "
                f"checksum {crc:08x} and not {shard.crc32c:08x}. Nothing was "
                f"committed; look after the disk and the memory, and run again."
            )


def _check_folder(folder: str, manifest: Manifest) -> None:
    """Raises unless the folder holds what the manifest names, in size, and no more."""
    shards = [shard for split in manifest.splits for shard in split.shards]
    named = {facts.file: facts.bytes for facts in (*shards, *manifest.beside)}
    present = {
        entry.path: entry.size
        for inner in {"", *map(os.path.dirname, named)}
        for entry in storage(os.path.join(folder, inner).rstrip("/")).entries_in(folder)
        if entry.path != MANIFEST_NAME
    }
    if named != present:
        differing = sorted(
            name
            for name in named.keys() | present.keys()
            if named.get(name) != present.get(name)
        )
        raise ConservationError(
            f"The finished files must be the ones that the stages reported; these "
            f"differ in presence or size: {differing[:5]}. Nothing was committed; "
            f"run again."
        )


def manifest_of(
    shards: Sequence[ShardFile],
    account: Account,
    classes: Mapping[str, tuple[str, ...]],
    publication: Publication,
) -> Manifest:
    """Returns the manifest of a dataset, without the files beside its shards.

    Args:
      shards: of all splits, in their order.
      account: of all items.
      classes: label feature -> its class names in the order of their ids.
      publication: of the job.
    """
    layout, split_names = publication.layout, publication.layout.sharding.rule.names
    by_split: dict[str, list[ShardFile]] = {name: [] for name in split_names}
    for shard in shards:
        by_split.setdefault(shard.split, []).append(shard)
    merged_by_split = {
        name: merge_all([shard.statistics for shard in mine])
        for name, mine in by_split.items()
    }
    merged = merge_all([*merged_by_split.values()])
    records = sum(shard.records for shard in shards)
    features = []
    for feature in layout.schema.stored:
        facts = merged.get(feature.name, Statistics())
        if feature.kind is Kind.FILE:
            feature = dataclasses.replace(feature, kind=Kind.BYTES)
        names = classes.get(feature.name, ())
        always = facts.present == records
        features.append(FeatureFacts(feature, facts, names, always))
    return Manifest(
        name=layout.name,
        compression=layout.compression,
        features=tuple(features),
        splits=tuple(
            SplitFacts(
                name,
                tuple(
                    ShardFacts(s.name, s.bytes, s.crc32c, s.records, s.payload_bytes)
                    for s in mine
                ),
                counts_by_class(merged_by_split[name], layout.schema.features, classes),
            )
            for name, mine in by_split.items()
            if mine or name in split_names
        ),
        files=(),
        account=account,
        inputs=publication.inputs,
        settings=publication.settings,
        image_notes=summed(shard.image_notes for shard in shards),
    )
