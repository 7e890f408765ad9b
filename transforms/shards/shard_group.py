"""Make many shards durable together, then give them their names.

Syncing one small file after another makes each wait for a commit of the file system's
journal. Syncs at the same time share them.
"""

import concurrent.futures
import contextlib
import logging
import resource
from collections.abc import Callable, Iterator, Sequence

from transforms.shards.write_shard import Finished, ShardDraft
from transforms.storage.retry import is_transient, storing

__all__ = ["ShardGroup"]

# Syncs, or uploads, at the same time.
_SYNCS = 8
_SHARDS = 256
# A group of large files gains nothing, and keeps their names from appearing.
_BYTES = 64 << 20

_log = logging.getLogger(__name__)


class ShardGroup:
    """Shards that are written and wait to be made durable and named.

        group.add(draft_shard(key, load, shard_counts, layout=layout, store=store))
        if group.is_full:
            finished = group.finish()

    All are synced before any is renamed. Where one sync fails for a moment, the whole
    group is written again, each shard by itself. Each draft keeps a descriptor open:
    a quarter of those that the process may have is the limit.
    """

    def __init__(self) -> None:
        self._drafts: list[ShardDraft] = []
        self._bytes = 0

    def add(self, draft: ShardDraft) -> None:
        """Takes a shard that is written."""
        self._drafts.append(draft)
        self._bytes += draft.finished[0].bytes

    @property
    def is_full(self) -> bool:
        """Whether the group should be finished before another shard is written."""
        return len(self._drafts) >= _most_shards() or self._bytes >= _BYTES

    def finish(self) -> list[Finished]:
        """Makes the shards durable and names them; the group is empty then.

        Returns:
          The facts of the shards, in the order in which they were added.

        Raises:
          StorageError: a shard could not be made durable, or not get its name.
          CommitError: the run was stopped; nothing was named.
        """
        drafts = self._take()
        try:
            _for_each(_sync, drafts)
            # Last look before files get names: a stopped run must put nothing more.
            for store in {draft.store.token: draft.store for draft in drafts}.values():
                store.check_goes_on()
            _for_each(_publish, drafts)
        except OSError as error:
            # One that may pass: see `_reported`.
            _discard(drafts)
            _log.warning(
                "%r: %s; the %d shards of its group are written again",
                *(error.filename, error.strerror or error, len(drafts)),
            )
            return [draft.write_again() for draft in drafts]
        except BaseException:
            _discard(drafts)
            raise
        return [draft.finished for draft in drafts]

    def discard(self) -> None:
        """Removes the files of the group."""
        _discard(self._take())

    def _take(self) -> list[ShardDraft]:
        drafts, self._drafts, self._bytes = self._drafts, [], 0
        return drafts


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
