"""The stage `commit`: the facts of all stages -> a published dataset, or nothing."""

import collections
import dataclasses
import datetime
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import apache_beam as beam
import google_crc32c

from transforms import files
from transforms.core.manifest import (
    DERIVED_FOLDERS,
    MANIFEST_NAME,
    Account,
    DerivedFile,
    FeatureFacts,
    FileFacts,
    Manifest,
    ShardFacts,
    SplitFacts,
)
from transforms.core.model import (
    CataloguePart,
    Fact,
    PlaceFacts,
    ReadFacts,
    RejectLog,
    ShardFile,
    added_rows,
    task_of,
)
from transforms.core.placing.leakage import SplitFindings
from transforms.core.placing.name_lists import get_names
from transforms.core.placing.shard_rows import ShardCounts
from transforms.core.placing.vocabulary import vocabulary_warnings
from transforms.core.reject_limit import account_facts, limit_message, tolerated
from transforms.core.remarks import (
    crowd_remarks,
    key_remarks,
    label_remarks,
    padding_remarks,
    replacement_remarks,
    rounding_remarks,
    share_remarks,
    step_remarks,
    turned_box_remarks,
)
from transforms.core.schema import Kind, Schema
from transforms.core.statistics import Statistics, merge_all
from transforms.errors import (
    CommitError,
    ConservationError,
    DamageError,
    InputError,
    RejectLimitError,
)
from transforms.publishing import target, work_folder
from transforms.sidecars.render import render_sidecars
from transforms.sidecars.tfds import pointers_to
from transforms.stages.job_plan import JobPlan, PlanInput, Publication
from transforms.storage import folders
from transforms.storage.retry import storing
from transforms.work.reject_files import leave_rejects, remove_left, write_rejects
from transforms.work.store import Store
from transforms.work.worker_check import counted, workers_of

# Total size of shards up to which they are read again before publication.
_SMALL_BYTES = 64 << 20
_READ_BYTES = 8 << 20
# Its name among the versions that a run states.
_MAKER = "beam-tfrecord"


@dataclasses.dataclass
class CommitDataset(beam.PTransform):
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

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, facts: beam.PCollection[Fact]) -> beam.PCollection[Any]:
        """Gathers all facts in one place."""
        # The counts are always there, so that a job without facts is committed, too.
        return (
            (facts, self.shard_counts)
            | "Flatten" >> beam.Flatten()
            | "To one worker" >> beam.Map(_to_one_worker)
            | "Gather facts" >> beam.GroupByKey()
            | "Publish" >> beam.Map(_commit, self.plan, self.commit)
        )


def _to_one_worker(fact: Fact) -> tuple[None, Fact]:
    return None, fact


def _commit(
    element: tuple[None, Iterable[Fact]],
    plan: JobPlan,
    commit: Callable[[list[Fact], ShardCounts, JobPlan], Any],
) -> Any:
    plan.store.check_worker()
    found = [*element[1]]
    (shard_counts,) = [each for each in found if isinstance(each, ShardCounts)]
    facts = [each for each in found if not isinstance(each, ShardCounts)]
    with storing(plan.publication.directory):
        return commit(facts, shard_counts, plan)


def commit_job(facts: Sequence[Fact], shard_counts: ShardCounts, plan: JobPlan) -> str:
    """Publishes the dataset of a job that was planned; returns its digest.

    Errors are those of `commit_dataset`.
    """
    publication, store = plan.publication, plan.store
    done = commit_dataset(facts, shard_counts, publication=publication, store=store)
    if publication.token:
        work_folder.end_handed_over(
            publication.directory,
            store,
            token=publication.token,
            keeps_work=publication.keeps_work,
        )
    return done


def commit_dataset(
    facts: Sequence[Fact],
    shard_counts: ShardCounts,
    *,
    publication: Publication,
    store: Store,
) -> str:
    """Publishes the dataset that the facts describe; returns its digest.

    Raises:
      WorkerError: a fact is of a worker with other versions than the job's.
      ConservationError: something would have been lost or doubled.
      InputError: there is no item, and that was not allowed.
      RejectLimitError: too many rejects; they are left beside the target.
      CommitError: the target is no longer what it was.
    """
    workers = _workers([*facts, shard_counts], publication, store)
    if (digest := _already_done(publication, store)) is not None:
        remove_left(target.rejects_path(publication.directory))
        return digest
    sums = _Sums()
    for fact in facts:
        sums.add(fact)
    shards = sorted(sums.shards, key=lambda s: (s.split, s.index))
    logs = sums.logs
    account = _account(sums, shard_counts, publication)
    _check_account(account, logs, publication, store)
    if publication.steps and any(account.part_balances.values()):
        # Nothing says what became of the parts of rows that own steps have changed.
        account = dataclasses.replace(account, parts={})
    classes = {
        feature: tuple(get_names(part, store.get).to_pylist())
        for feature, part in shard_counts.classes.items()
    }
    manifest = _manifest(shards, account, classes, publication)
    sidecars = render_sidecars(manifest, publication.label_map)
    named = [_write_sidecar(store, *item) for item in sidecars.files.items()]
    version = publication.run.get("versions", {}).get(_MAKER, "")
    readers_files = [
        *(_write_sidecar(store, *each) for each in sidecars.derived.items()),
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
    finished = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    run = dict(publication.run) | {
        "job": publication.job,
        "finished": finished,
        "notes": [
            *publication.run.get("notes", ()),
            *(*sidecars.notes, *_warnings(sums), *_slips(manifest)),
            *key_remarks(shards),
            *publication.layout.catalogue_notes,
            *step_remarks(account),
            *_crowds(shard_counts, publication),
            *_replacement_remarks(manifest, publication),
            *share_remarks(
                {split.name: split.records for split in manifest.splits},
                publication.shares,
                sums.placed,
            ),
        ],
    }
    if workers:
        run["worker_versions"] = workers
    if publication.new_lock:
        lock = files.read_bytes(publication.new_lock)
        run["split_lock"] = hashlib.sha256(lock).hexdigest()
    if store.place:
        run["folder"] = store.place
        run["pointers"] = sorted(pointers_to(store.place, manifest))
    manifest = dataclasses.replace(
        manifest, files=tuple(named), run=run, derived=derived
    )
    _clear_folder(store, manifest)
    _check_folder(store.dataset, manifest)
    total = sum(shard.bytes for shard in shards)
    verified = publication.verified
    if verified or (verified is None and total <= _SMALL_BYTES):
        _check_shards(store.dataset, shards)
    if publication.keeps_work:
        used = sorted({fact.input_digest for fact in sums.placed})
        data = json.dumps(used).encode()
        files.write_file(store.used, data, attempts=store.attempts)
    if store.is_abandoned:
        raise CommitError("The run was stopped; nothing was committed. Run again.")
    if not _is_there(manifest, publication):
        place = target.at(publication.directory)
        place.publish(store, manifest, seen=publication.seen)
    remove_left(target.rejects_path(publication.directory))
    return manifest.digest


def _workers(
    facts: Sequence[Fact], publication: Publication, store: Store
) -> list[dict[str, Any]]:
    """Returns the versions of the workers that have made the facts.

    Raises:
      WorkerError: one of them has other versions than the job's.
    """
    if store.rules is None or not store.rules.named:
        return []
    versions = store.rules.versions
    readers = [fact for fact in facts if _is_of_reading(fact)]
    others = [fact for fact in facts if not _is_of_reading(fact)]
    return counted(
        workers_of(others, versions)
        | workers_of(readers, publication.reading or versions)
    )


def _is_of_reading(fact: Fact) -> bool:
    if isinstance(fact, RejectLog):
        return fact.task.startswith("read\0")
    return isinstance(fact, ReadFacts)


def _crowds(shard_counts: ShardCounts, publication: Publication) -> list[str]:
    sharding = publication.layout.sharding
    if not sharding.placeless:
        return []
    return crowd_remarks(shard_counts.rows, sharding.shards)


def _replacement_remarks(manifest: Manifest, publication: Publication) -> list[str]:
    if not publication.seen:
        return []
    try:
        before = target.read_manifest(publication.directory)
    except (OSError, DamageError):
        # It is no longer what was seen, which ends the publication.
        return []
    return replacement_remarks(before, manifest)


def _slips(manifest: Manifest) -> list[str]:
    """Returns remarks on probable slips: typos in names, labels that are missing."""
    features = [facts.feature for facts in manifest.features]
    out = padding_remarks(features)
    out += turned_box_remarks(
        features,
        manifest.image_notes.get("orientation", 0),
        applied=manifest.settings.get("exif") == "apply",
    )
    for facts in manifest.features:
        if facts.feature.is_label:
            lacking = manifest.records - facts.statistics.present
            out += label_remarks(facts.feature.name, lacking, manifest.records)
        if facts.feature.kind is not Kind.LABEL:
            continue
        name = facts.feature.name
        counts: collections.Counter[str] | None = collections.Counter()
        for split in manifest.splits:
            if counts is not None and name in split.classes:
                counts.update(split.classes[name])
            else:
                counts = None  # too many classes to be counted
        out += vocabulary_warnings(name, facts.classes, counts)
    return out


def _warnings(sums: "_Sums") -> list[str]:
    found = [text for each in sums.findings for text in each.warnings()]
    return [*found, *rounding_remarks(sums.read)]


def _already_done(publication: Publication, store: Store) -> str | None:
    """Returns the digest when an earlier attempt of this very job has published."""
    if not store.placed and files.is_folder(store.dataset):
        return None
    try:
        manifest = target.read_manifest(publication.directory)
    except FileNotFoundError:
        return None
    if manifest.run.get("job") != publication.job:
        return None
    if store.placed and manifest.folder != store.place:
        # Another run of the same job has published; this one has its own files.
        return None
    return manifest.digest


def _is_there(manifest: Manifest, publication: Publication) -> bool:
    """Whether the target holds an equal dataset, which is to stay as it is."""
    if not publication.keeps_equal or not publication.seen:
        return False
    if target.state(publication.directory) != publication.seen:
        return False
    found = target.read_manifest(publication.directory)
    return found.digest == manifest.digest


_Counts = collections.Counter[str]
# Where the rows of a piece of a block begin: origin and start.
_Place = tuple[str, int]


class _Sums:
    """The facts of a job by their stage, and what they add up to.

    Attributes:
      read, placed, shards, logs, catalogue, findings: the facts.
      passed: how often each piece passed `read` and `place`.
      rows_read: of all pieces.
      kept, rows: of each piece, the rows that `read` did not skip, and those placed.
      written: records of all shards.
      skipped, rejected: items, by reason.
      refused: rejected items, by task.
      parts: parts of items, by where they went and what they are.
    """

    def __init__(self) -> None:
        self.read: list[ReadFacts] = []
        self.placed: list[PlaceFacts] = []
        self.shards: list[ShardFile] = []
        self.logs: list[RejectLog] = []
        self.catalogue: list[CataloguePart] = []
        self.findings: list[SplitFindings] = []
        self.passed: dict[str, collections.Counter[_Place]]
        self.passed = {name: collections.Counter() for name in ("read", "place")}
        self.rows_read = self.written = 0
        self.kept: dict[_Place, int] = {}
        self.rows: dict[_Place, int] = {}
        self.skipped: _Counts = collections.Counter()
        self.rejected: _Counts = collections.Counter()
        self.refused: _Counts = collections.Counter()
        ends = ("read", "written", "rejected", "gone")
        self.parts: dict[str, _Counts] = {name: collections.Counter() for name in ends}

    def add(self, fact: Fact) -> None:
        """Adds a fact."""
        if isinstance(fact, ReadFacts):
            place = fact.origin, fact.start
            self.read.append(fact)
            self.passed["read"][place] += 1
            self.rows_read += fact.rows
            self.kept[place] = fact.rows - sum(fact.skipped.values())
            self.skipped.update(fact.skipped)
            self.parts["read"].update(fact.parts)
            self.parts["gone"].update(fact.parts_gone)
        elif isinstance(fact, PlaceFacts):
            place = fact.origin, fact.start
            self.placed.append(fact)
            self.passed["place"][place] += 1
            self.rows[place] = sum(fact.rows.values())
        elif isinstance(fact, ShardFile):
            self.shards.append(fact)
            self.written += fact.records
            self.parts["written"].update(fact.parts)
            self.parts["gone"].update(fact.parts_gone)
        elif isinstance(fact, RejectLog):
            self.logs.append(fact)
            self.rejected.update({str(reason): n for reason, n in fact.counts.items()})
            self.refused[fact.task] += fact.items
            self.parts["rejected"].update(fact.parts)
        elif isinstance(fact, CataloguePart):
            self.catalogue.append(fact)
        elif isinstance(fact, SplitFindings):
            self.findings.append(fact)


def _account(
    sums: _Sums, shard_counts: ShardCounts, publication: Publication
) -> Account:
    """Returns where every item went, after checking the sums of every stage."""
    for stage, pieces in sums.passed.items():
        twice = [piece for piece, count in pieces.items() if count > 1]
        if twice:
            raise ConservationError(
                f"Every block must pass '{stage}' once; {twice[0]} did so "
                f"{pieces[twice[0]]} times. A step between reading and writing must "
                f"give one batch at most for each."
            )
    rows_placed = sum(sums.rows.values())
    refused = sum(n for task, n in sums.refused.items() if task.startswith("place\0"))
    skipped = _summed([publication.skipped, sums.skipped])
    names = sorted({name for counts in sums.parts.values() for name in counts})
    account = Account(
        read=sums.rows_read + sum(publication.skipped.values()),
        written=sums.written,
        rejected=dict(sorted(sums.rejected.items())),
        skipped=skipped,
        parts={
            name: {where: counts[name] for where, counts in sums.parts.items()}
            for name in names
        },
        **_change_by_steps(sums, publication),
    )
    wanted = publication.expected_rows
    shards, files_wanted = sums.shards, len(shard_counts.rows)
    if (
        account.balance
        or (not publication.steps and any(account.part_balances.values()))
        or rows_placed != sum(shard_counts.rows.values())
        or (wanted is not None and wanted != sums.rows_read)
        or publication.expected_placed not in (None, rows_placed + refused)
        or len(shards) != files_wanted
        or len({shard.name for shard in shards}) != files_wanted
    ):
        raise ConservationError(
            f"Nothing may be lost or doubled, but the sums differ: expected "
            f"{'any number of' if wanted is None else f'{wanted:,}'} rows, read "
            f"{sums.rows_read:,}, placed {rows_placed:,}, written {account.written:,}, "
            f"rejected {sum(account.rejected.values()):,}, skipped "
            f"{sum(skipped.values()):,}; {len(shards):,} shards of {files_wanted:,}. "
            f"Nothing was committed."
        )
    return account


def _change_by_steps(sums: _Sums, publication: Publication) -> dict[str, int]:
    """Returns what users' steps have dropped or added, under the name in the account.

    Raises:
      ConservationError: there are more rows of a piece than were read, and nothing
        that tells them apart.
    """
    if not publication.steps:
        return {}
    before = {
        place: rows - sums.refused[task_of("read", *place)]
        for place, rows in sums.kept.items()
    }
    behind = 0
    for place, placed in sums.rows.items():
        rows = placed + sums.refused[task_of("place", *place)]
        if publication.steps == "drop" and rows > before.get(place, 0):
            raise ConservationError(added_rows(place[0], before.get(place, 0), rows))
        behind += rows
    change = behind - sum(before.values())
    if change > 0:
        return {"added_by_steps": change}
    return {"dropped_by_steps": -change}


def _summed(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    out: collections.Counter[str] = collections.Counter()
    for part in parts:
        out.update(part)
    return dict(sorted(out.items()))


def _check_account(
    account: Account,
    logs: Sequence[RejectLog],
    publication: Publication,
    store: Store,
) -> None:
    """Raises an error that says why too many items were rejected, or none is left."""
    rate = publication.max_reject_rate
    is_empty = not account.written and not publication.allow_empty
    if tolerated(account, rate) and not is_empty:
        return
    path = ""
    if logs:
        path = target.rejects_path(publication.directory)
        leave_rejects(logs, path, attempts=store.attempts)
    # An error that a worker raises arrives as text only, so the account goes to a file.
    data = json.dumps(account_facts(account, path)).encode()
    files.write_file(store.account, data, attempts=store.attempts)
    if is_empty and not account.rejected:
        gone = []
        if account.skipped:
            total = sum(account.skipped.values())
            gone.append(f"{total:,} were skipped, by reason: {dict(account.skipped)}")
        if account.dropped_by_steps:
            dropped = account.dropped_by_steps
            gone.append(f"{dropped:,} were dropped by your own steps")
        raise InputError(
            f"There must be at least one record; of {account.read:,} items read "
            f"{', and '.join(gone)}. Use --allow-empty to write an empty dataset."
            if account.read
            else "There must be at least one record; the source holds no item. Use "
            "--allow-empty to write an empty dataset."
        )
    # The target itself may hold a dataset of an earlier run, with its own rejects.
    raise RejectLimitError(
        limit_message(
            account,
            _examples(logs),
            rate=rate,
            listed=path,
            kinds={
                feature.source_column: feature.kind.value
                for feature in publication.layout.schema.features
            },
        )
    )


def _examples(logs: Sequence[RejectLog]) -> dict[str, str]:
    """Returns the first example of each reason and part, in order of the sources."""
    out: dict[str, str] = {}
    for log in sorted(logs, key=lambda log: log.runs[0][0]):
        for of, text in log.examples.items():
            out.setdefault(str(of), text)
    return out


def _manifest(
    shards: Sequence[ShardFile],
    account: Account,
    classes: Mapping[str, tuple[str, ...]],
    publication: Publication,
) -> Manifest:
    layout, known = publication.layout, publication.layout.sharding.rule.names
    by_split: dict[str, list[ShardFile]] = {name: [] for name in known}
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
                _class_counts(merged_by_split[name], layout.schema, classes),
            )
            for name, mine in by_split.items()
            if mine or name in known
        ),
        files=(),
        account=account,
        inputs=publication.inputs,
        settings=publication.settings,
        image_notes=_summed(shard.image_notes for shard in shards),
    )


def _class_counts(
    merged: Mapping[str, Statistics],
    schema: Schema,
    classes: Mapping[str, tuple[str, ...]],
) -> dict[str, dict[str, int]]:
    """Returns label feature -> class name (or integer, as text) -> records."""
    out = {}
    for feature in schema.features:
        counts = merged.get(feature.name, Statistics()).classes
        if counts is None:
            continue
        if feature.kind is Kind.LABEL:
            names = classes.get(feature.name, ())
            out[feature.name] = {name: counts.get(i, 0) for i, name in enumerate(names)}
        elif counts:
            out[feature.name] = {str(value): n for value, n in counts.items()}
    return out


def _write_sidecar(store: Store, name: str, data: bytes) -> FileFacts:
    path = os.path.join(store.dataset, name)
    store.announce(name)
    files.write_file(path, data, attempts=store.attempts)
    return FileFacts(name, len(data), google_crc32c.value(data))


def _clear_folder(store: Store, manifest: Manifest) -> None:
    """Removes finished files of earlier runs that are no part of this dataset.

    They are what the folder holds, which is ours alone; of the target itself, what
    the notes say.
    """
    names = files.names_with(store.notes or store.dataset, DERIVED_FOLDERS)
    for name in sorted(set(names) - set(manifest.file_names)):
        store.remove_file(os.path.join(store.dataset, name))
    if not store.placed:
        for name in DERIVED_FOLDERS:
            folders.remove_empty(os.path.join(store.dataset, name))


def _check_shards(folder: str, shards: Sequence[ShardFile]) -> None:
    """Raises unless every shard reads as what was written.

    What a disk or the memory has spoilt must not be found by the training.
    """
    for shard in shards:
        path = os.path.join(folder, shard.name)
        crc = 0
        for start in range(0, shard.bytes, _READ_BYTES):
            stop = min(start + _READ_BYTES, shard.bytes)
            crc = google_crc32c.extend(crc, files.read_range(path, start, stop))
        if crc != shard.crc32c:
            # The next run must not take it over.
            files.remove_file(path)
            raise DamageError(
                f"A shard must read as it was written; {shard.name!r} has the "
                f"checksum {crc:08x} and not {shard.crc32c:08x}. Nothing was "
                f"committed; look after the disk and the memory, and run again."
            )


def _check_folder(folder: str, manifest: Manifest) -> None:
    """Raises unless the folder holds what the manifest names, in size, and no more."""
    shards = [shard for split in manifest.splits for shard in split.shards]
    named = {facts.file: facts.bytes for facts in (*shards, *manifest.beside)}
    found = {
        entry.path: entry.size
        for inner in {"", *map(os.path.dirname, named)}
        for entry in files.entries_in(os.path.join(folder, inner).rstrip("/"), folder)
        if entry.path != MANIFEST_NAME
    }
    if named != found:
        differing = sorted(
            name
            for name in named.keys() | found.keys()
            if named.get(name) != found.get(name)
        )
        raise ConservationError(
            f"The finished files must be the ones that the stages reported; these "
            f"differ in presence or size: {differing[:5]}. Nothing was committed; "
            f"run again."
        )
