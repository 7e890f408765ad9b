"""Make shards durable together, then give them their names.

A sync of many small files at once costs less than one after another.
"""

import logging

from transforms.shards.shard_job import ShardJob, ShardTask
from transforms.shards.write_shard import (
    ShardDraft,
    draft_shard,
    finished_drafts,
    write_shard,
)
from transforms.storage.drafts import discard_all, most_drafts, publish_together
from transforms.work.receipts import ShardDone

# A group of large files gains nothing, and keeps their names from appearing.
_BYTES = 64 << 20

_log = logging.getLogger(__name__)


class ShardGroup:
    """Shards of one job that get their names together.

        group = ShardGroup(ShardJob(shard_counts, classes, layout, store))
        group.add(ShardTask(("train", 0), segments, rows=100, size=9_000))
        if group.is_full:
            for task, finished in group.finish():
                ...

    All files are synced before any is renamed. Where one sync fails for a moment, the
    whole group is written again, each shard by itself.
    """

    def __init__(self, job: ShardJob) -> None:
        self._job = job
        self._drafts: list[tuple[ShardTask, ShardDraft]] = []

    def add(self, task: ShardTask) -> None:
        """Writes a shard, which has no name yet; errors are those of `write_shard`."""
        self._drafts.append((task, draft_shard(task, self._job)))

    @property
    def is_full(self) -> bool:
        """Whether the group should be finished before another shard is added."""
        size = sum(draft.done.shard.bytes for _, draft in self._drafts)
        files = len(self._drafts) * self._job.layout.derived.files_per_shard
        return files >= most_drafts() or size >= _BYTES

    def finish(self) -> list[tuple[ShardTask, ShardDone]]:
        """Makes the shards durable and names them; the group is empty then.

        Returns:
          The facts of the shards, in the order in which they were added.

        Raises:
          StorageError: a shard could not be made durable, or not get its name.
          CommitError: the run was stopped; nothing was named.
        """
        drafted, self._drafts = self._drafts, []
        drafts = [draft for _, draft in drafted]
        try:
            # Last look before files get names: a stopped run must put nothing more.
            publish_together(
                [file for draft in drafts for file in draft.files],
                check=self._job.store.check_goes_on,
            )
        except OSError as error:
            # One that may pass.
            _log.warning(
                "%r: %s; the %d shards of its group are written again",
                *(error.filename, error.strerror or error, len(drafts)),
            )
            return [(task, write_shard(task, self._job)) for task, _ in drafted]
        finished = finished_drafts(drafts, self._job.store)
        return [(task, done) for (task, _), done in zip(drafted, finished, strict=True)]

    def discard(self) -> None:
        """Removes the files of the group."""
        drafted, self._drafts = self._drafts, []
        discard_all([file for _, draft in drafted for file in draft.files])
