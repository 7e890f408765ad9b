"""Encode many small shards together, make them durable, then give them their names.

Of a shard of some hundred rows, the calls cost more than the rows.

Syncing one small file after another makes each wait for a commit of the file system's
journal. Syncs at the same time share them.
"""

import concurrent.futures
import contextlib
import logging
import resource
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from transforms.errors import BeamTFRecordError
from transforms.shards.encode_shards import (
    EncodedShard,
    are_encoded_together,
    encode_shards,
)
from transforms.shards.shard_job import ShardJob, ShardTask
from transforms.shards.write_shard import Finished, ShardDraft, draft_shard
from transforms.storage.retry import is_transient, storing

__all__ = ["ShardGroup"]

# Syncs, or uploads, at the same time.
_SYNCS = 8
_SHARDS = 256
# A group of large files gains nothing, and keeps their names from appearing.
_BYTES = 64 << 20

_log = logging.getLogger(__name__)


class ShardGroup:
    """Shards of one job that get their names together.

        group = ShardGroup(ShardJob(load, shard_counts, layout, store))
        group.add(ShardTask(("train", 0), segments, rows=100, size=9_000))
        if group.is_full:
            for task, finished in group.finish():
                ...

    Small shards wait until they are encoded together. Where that fails, each is encoded
    by itself, which says what is wrong with which. All files are synced before any is
    renamed. Where one sync fails for a moment, the whole group is written again, each
    shard by itself. Each file keeps a descriptor open: a quarter of those that the
    process may have is the limit.
    """

    def __init__(self, job: ShardJob) -> None:
        self._job = job
        self._waiting: list[ShardTask] = []
        self._waiting_rows = 0
        self._waiting_bytes = 0
        self._drafts: list[tuple[ShardTask, ShardDraft]] = []
        self._bytes = 0

    def add(self, task: ShardTask) -> None:
        """Takes a shard; writes it now, or together with others.

        Errors are those of `write_shard`, for any shard of the group. Those before it
        are written then and can be finished; those behind it are dropped.
        """
        rows, size = self._waiting_rows + task.rows, self._waiting_bytes + task.size
        if not are_encoded_together(rows, size, self._job.layout.schema):
            self._write_waiting()
        self._waiting.append(task)
        self._waiting_rows += task.rows
        self._waiting_bytes += task.size

    @property
    def is_full(self) -> bool:
        """Whether the group should be finished before another shard is added."""
        return (
            len(self._drafts) + len(self._waiting) >= _most_shards()
            or self._bytes + self._waiting_bytes >= _BYTES
        )

    def finish(self) -> list[tuple[ShardTask, Finished]]:
        """Makes the shards durable and names them; the group is empty then.

        Returns:
          The facts of the shards, in the order in which they were added.

        Raises:
          StorageError: a shard could not be made durable, or not get its name.
          CommitError: the run was stopped; nothing was named.
          BeamTFRecordError: see `add`.
        """
        self._write_waiting()
        tasks, drafts = self._take()
        try:
            _for_each(_sync, drafts)
            # Last look before files get names: a stopped run must put nothing more.
            self._job.store.check_goes_on()
            _for_each(_publish, drafts)
        except OSError as error:
            # One that may pass: see `_reported`.
            _discard(drafts)
            _log.warning(
                "%r: %s; the %d shards of its group are written again",
                *(error.filename, error.strerror or error, len(drafts)),
            )
            finished = [draft.write_again() for draft in drafts]
        except BaseException:
            _discard(drafts)
            raise
        else:
            finished = [draft.finished for draft in drafts]
        return [*zip(tasks, finished, strict=True)]

    def discard(self) -> None:
        """Removes the files of the group."""
        self._take_waiting()
        _discard(self._take()[1])

    def _write_waiting(self) -> None:
        tasks = self._take_waiting()
        for task, encoded in zip(tasks, self._encoded(tasks), strict=True):
            draft = draft_shard(task, self._job, encoded)
            self._drafts.append((task, draft))
            self._bytes += draft.finished[0].bytes

    def _encoded(
        self, tasks: Sequence[ShardTask]
    ) -> Sequence[EncodedShard] | Sequence[None]:
        by_themselves = [None] * len(tasks)
        if len(tasks) < 2:
            return by_themselves
        try:
            return encode_shards(tasks, self._job)
        except (BeamTFRecordError, OSError, pa.ArrowException):
            return by_themselves

    def _take_waiting(self) -> list[ShardTask]:
        tasks, self._waiting = self._waiting, []
        self._waiting_rows = self._waiting_bytes = 0
        return tasks

    def _take(self) -> tuple[list[ShardTask], list[ShardDraft]]:
        found, self._drafts, self._bytes = self._drafts, [], 0
        return [task for task, _ in found], [draft for _, draft in found]


def _most_shards() -> int:
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed == resource.RLIM_INFINITY:
        return _SHARDS
    return max(min(_SHARDS, allowed // 4), 1)


def _for_each(work: Callable[[ShardDraft], None], drafts: Sequence[ShardDraft]) -> None:
    """Does the work for all drafts at the same time; raises the first error."""
    if len(drafts) < 2:
        for draft in drafts:
            work(draft)
        return
    with concurrent.futures.ThreadPoolExecutor(_SYNCS) as pool:
        for _ in pool.map(work, drafts):
            pass


def _sync(draft: ShardDraft) -> None:
    with _reported(draft):
        draft.file.sync()


def _publish(draft: ShardDraft) -> None:
    with _reported(draft):
        draft.file.publish()


@contextlib.contextmanager
def _reported(draft: ShardDraft) -> Iterator[None]:
    """Gives an error the path of the file; one that will last is a StorageError."""
    try:
        yield
    except OSError as error:
        path = draft.file.path
        if error.errno and not error.filename:
            # A failed sync does not say of what.
            error.filename = path
        if is_transient(error):
            raise
        with storing(path):
            raise


def _discard(drafts: Sequence[ShardDraft]) -> None:
    for draft in drafts:
        draft.file.discard()
