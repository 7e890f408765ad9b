"""The commit of the rows of a pipeline: what attempts have reported -> a dataset."""

import dataclasses
import logging
from collections.abc import Mapping, Sequence

from transforms.core.manifest import Manifest
from transforms.core.model import Fact, ShardFile
from transforms.core.placing.shard_rows import ShardCounts
from transforms.errors import CommitError
from transforms.publishing import target
from transforms.publishing.shared_run import SharedRun
from transforms.stages.commit import commit_dataset
from transforms.stages.job_plan import JobPlan

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


def commit_rows(
    facts: list[Fact],
    counts: ShardCounts,
    plan: JobPlan,
    run: SharedRun,
) -> Committed:
    """Publishes the shards that were reported; a second attempt gives the same.

    Args:
      facts: what the stages have left.
      counts: of the rows.
      plan: of the rows.
      run: that they are of.

    Raises:
      CommitError: another job has published; or this one has ended, with other rows.
      WorkerError: a worker has other versions than the job's.
      Others: as `transforms.stages.commit.commit_dataset`.
    """
    publication = plan.publication
    shards = [fact for fact in facts if isinstance(fact, ShardFile)]
    manifest = run.published(publication.job)
    if manifest is not None:
        status = "committed"
        if not _holds(manifest, shards):
            began_after = target.at(run.directory).state() == publication.seen
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
        return _committed(run, manifest, status)
    if run.has_ended(publication.job):
        return _unchanged(run, shards)
    if target.at(run.directory).state() != publication.seen:
        raise target.overtaken(run.directory)
    # What rows consist of, boxes say, is not followed through the steps of users.
    facts = [
        dataclasses.replace(fact, parts={}, parts_gone={})
        if isinstance(fact, ShardFile)
        else fact
        for fact in facts
    ]
    commit_dataset(facts, counts, publication=publication, store=plan.store)
    manifest, status = run.published(publication.job), "committed"
    if manifest is None:
        manifest, status = target.read_manifest(run.directory), "up to date"
    return _committed(run, manifest, status)


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
        raise run.store.is_gone() from None
    if not _holds(manifest, shards):
        raise run.store.is_gone()
    return _committed(run, manifest, "up to date")


def _committed(run: SharedRun, manifest: Manifest, status: str) -> Committed:
    return Committed(
        path=run.directory,
        digest=manifest.digest,
        records={split.name: split.records for split in manifest.splits},
        rejected=dict(manifest.account.rejected),
        status=status,
    )
