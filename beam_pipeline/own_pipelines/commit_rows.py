"""The commit of the rows of a pipeline: what attempts have reported -> a dataset."""

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from beam_pipeline.own_pipelines.locks import EarlierRuns
from beam_pipeline.own_pipelines.rows_plan import RowsPlan
from transforms.core import this_worker
from transforms.core.manifest import Manifest
from transforms.core.model import (
    CataloguePart,
    ReadFacts,
    RejectLog,
    Segment,
    ShardFile,
)
from transforms.core.placing.leakage import Fingerprints
from transforms.errors import CommitError, ConservationError
from transforms.publishing import target
from transforms.publishing.shared_run import SharedRun
from transforms.stages.commit import commit_dataset
from transforms.storage.retry import storing
from transforms.work.worker_check import counted, workers_of

_LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Committed:
    """A published dataset: the one element that `WriteDataset` gives.

    Attributes:
      path: the dataset's folder.
      digest: of the dataset; equal ones have equal bytes.
      records: of each split.
      rejected: rows that did not become records, by reason.
      status: "committed"; "up to date" where the dataset was there already; or
        "repeated" where an earlier attempt had published other rows, which were kept.
    """

    path: str
    digest: str
    records: Mapping[str, int]
    rejected: Mapping[str, int]
    status: str


@dataclasses.dataclass(frozen=True)
class Written:
    """A finished shard with the rows that it refused, and the attempt that wrote it.

    Attributes:
      attempt: the word of the attempt.
      shard, rejects: facts of the file, and of the rows.
      images: fingerprints of its images, where splits are compared.
      rows: its rows of the catalogue, where there is one.
    """

    attempt: str
    shard: ShardFile
    rejects: RejectLog | None
    images: Fingerprints | None
    rows: Segment | None

    @property
    def names(self) -> list[str]:
        """The names of its files."""
        return [self.shard.name, *(facts.file for facts in self.shard.indexes)]


@dataclasses.dataclass(frozen=True)
class WrittenPart:
    """A finished part of the catalogue, and the attempt that wrote it.

    Attributes:
      attempt: the word of the attempt.
      part: facts of its file.
    """

    attempt: str
    part: CataloguePart


@dataclasses.dataclass(frozen=True)
class ComparedKeys:
    """How many keys of a part of the hashes were compared; all of them differ."""

    keys: int


@dataclasses.dataclass(frozen=True)
class Refused:
    """The rows that a bundle has refused."""

    rejects: RejectLog


def commit_rows(
    found: Sequence[Written | WrittenPart | ComparedKeys | Refused | Fingerprints],
    plan: RowsPlan,
    run: SharedRun,
    before: EarlierRuns,
) -> Committed:
    """Publishes the shards that were reported; a second attempt gives the same.

    Args:
      found: what the stages have left.
      plan: of the rows.
      run: that they are of.
      before: what earlier runs have decided.

    Raises:
      CommitError: another job has published; or this one has ended, with other rows.
      WorkerError: a worker has other versions than the job's.
      Others: as `transforms.stages.commit.commit_dataset`.
    """
    publication = plan.publication
    with storing(run.directory):
        written = [each for each in found if isinstance(each, Written)]
        manifest = run.published(publication.job)
        if manifest is not None:
            status = "committed"
            if not _holds(manifest, [each.shard for each in written]):
                began_after = target.state(run.directory) == publication.seen
                if began_after or run.has_ended(publication.job):
                    raise _submitted_again(manifest)
                status = "repeated"
                _LOG.warning(
                    "An earlier attempt has published %r, and the rows of this one are "
                    "others. They are not in the dataset, which is whole and stays as "
                    "it is. If this graph was submitted twice, build the pipeline "
                    "again.",
                    run.directory,
                )
            before.keep(manifest, plan.layout.schema, run.store)
            return _committed(run, manifest, status)
        if run.has_ended(publication.job):
            return _unchanged(run, [each.shard for each in written])
        _check_compared([x for x in found if isinstance(x, ComparedKeys)], plan)
        parts = [each for each in found if isinstance(each, WrittenPart)]
        finished = [(each.attempt, name) for each in written for name in each.names]
        finished += [(each.attempt, each.part.file.file) for each in parts]
        store = run.open_commit(finished, seen=publication.seen)
        if workers := _workers([*plan.facts, *written, *parts], plan, run):
            versions = {**publication.run, "worker_versions": workers}
            publication = dataclasses.replace(publication, run=versions)
        # What rows consist of, boxes say, is not followed through the steps of users.
        shards = [
            dataclasses.replace(each.shard, parts={}, parts_gone={}) for each in written
        ]
        found_logs = [x.rejects for x in found if isinstance(x, Written | Refused)]
        logs = [log for log in found_logs if log is not None]
        before.check(run.store)
        prints = [x for x in found if isinstance(x, Fingerprints)]
        prints += [each.images for each in written if each.images is not None]
        findings = before.findings(prints, run.store)
        publication = dataclasses.replace(publication, new_lock=findings.lock)
        commit_dataset(
            [*plan.facts, *shards, *(each.part for each in parts), *logs, findings],
            plan.counts,
            publication=publication,
            store=store,
        )
        manifest, status = run.published(publication.job), "committed"
        if manifest is None:
            manifest, status = target.read_manifest(run.directory), "up to date"
        before.keep(manifest, plan.layout.schema, run.store)
        return _committed(run, manifest, status)


def _workers(
    facts: Sequence[Any], plan: RowsPlan, run: SharedRun
) -> list[dict[str, Any]]:
    """Returns the versions of the workers that have made the rows; see `check_facts`.

    Raises:
      WorkerError: one of them has other versions than the job's.
    """
    if run.rules is None or not run.rules.named:
        return []
    own = {*plan.workers, this_worker.stamp()}
    readers: set[str] = set()
    for fact in facts:
        of = fact.shard if isinstance(fact, Written) else fact
        of = of.part if isinstance(of, WrittenPart) else of
        stamps = readers if isinstance(of, ReadFacts | RejectLog) else own
        stamps.add(getattr(of, "worker", ""))
    versions = run.rules.versions
    found = workers_of(own, versions) | workers_of(readers, plan.reading or versions)
    return counted(found)


def _submitted_again(manifest: Manifest) -> CommitError:
    """Returns the error of a job that finds other rows published under its name.

    They were published before it has looked at its target, or its run has ended. So
    either an engine has started a job again that had ended, or somebody has submitted
    one graph twice, and the rows of the second job would be lost.
    """
    return CommitError(
        f"A graph must be submitted once; this one has already published "
        f"{manifest.name!r} of {manifest.records:,} records, and these are other "
        f"rows. That dataset is whole and unchanged. Build the pipeline again for "
        f"each run, with overwrite=True to replace a dataset."
    )


def _holds(manifest: Manifest, shards: Sequence[ShardFile]) -> bool:
    """Whether a dataset consists of these shards."""
    published = {
        (shard.file, shard.bytes, shard.crc32c)
        for split in manifest.splits
        for shard in split.shards
    }
    return published == {(shard.name, shard.bytes, shard.crc32c) for shard in shards}


def _unchanged(run: SharedRun, shards: Sequence[ShardFile]) -> Committed:
    """Returns what the commit has given before the end of its run.

    That has left an equal dataset as it was, whose manifest has another run's token.

    Raises:
      CommitError: there is no such dataset; not the end has removed the run's work.
    """
    try:
        manifest = target.read_manifest(run.directory)
    except FileNotFoundError:
        raise run.is_gone() from None
    if not _holds(manifest, shards):
        raise run.is_gone()
    return _committed(run, manifest, "up to date")


def _check_compared(parts: Sequence[ComparedKeys], plan: RowsPlan) -> None:
    compared = sum(part.keys for part in parts)
    rows = sum(plan.counts.rows.values())
    if parts and compared != rows:
        raise ConservationError(
            f"The keys of all rows must have been compared; of {rows:,} rows "
            f"{compared:,} were. Nothing was committed; run again."
        )


def _committed(run: SharedRun, manifest: Manifest, status: str) -> Committed:
    return Committed(
        path=run.directory,
        digest=manifest.digest,
        records={split.name: split.records for split in manifest.splits},
        rejected=dict(manifest.account.rejected),
        status=status,
    )
