"""The work folder of a target over the life of several runs: held, taken over, left.

    .<name>.beam-tfrecord/
      lock             held by the run that works here
      <work digest>/   one job's unfinished work; see `transforms.store`

A run that dies or is stopped leaves its finished segments and shards, each with a
receipt; the next run of the same work digest takes them over. Any other run removes
them: there is one target, and the last command says what it is to be.
"""

import contextlib
import dataclasses
import json
import os
from collections.abc import Iterator

from transforms import files, receipts, target
from transforms.errors import TargetError
from transforms.store import Store

__all__ = [
    "Found",
    "clear",
    "finished",
    "held",
    "keep_for_next",
    "leave",
    "recover",
    "take_over",
]

_LOCK = "lock"


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """What earlier runs have left.

    Attributes:
      blocks, shards: finished ones that this run may take over.
      discarded: whether finished work of another job was removed.
    """

    blocks: int
    shards: int
    discarded: bool

    def __bool__(self) -> bool:
        return bool(self.blocks or self.shards)

    def in_words(self) -> str:
        """Returns a line for a person; empty where there is nothing to say."""
        if self:
            return (
                f"going on where an earlier run ended: {self.blocks:,} blocks read, "
                f"{self.shards:,} shards written"
            )
        if self.discarded:
            return (
                "starting afresh: the unfinished work of an earlier run was for other "
                "settings"
            )
        return ""


@contextlib.contextmanager
def held(directory: str) -> Iterator[str]:
    """Holds the work folder of a target, made where it is missing; yields its path.

    On leaving, the folder goes if nothing is left in it.

    Raises:
      TargetError: another run holds it.
    """
    folder = target.work_folder(directory)
    lock = os.path.join(folder, _LOCK)
    with contextlib.ExitStack() as stack:
        while True:
            os.makedirs(folder, exist_ok=True)
            try:
                stack.enter_context(files.exclusive_lock(lock))
                break
            except FileNotFoundError:
                # The run that has just ended has removed the folder in between.
                continue
        try:
            yield folder
        finally:
            files.remove_file(lock)
            with contextlib.suppress(OSError):
                # Another run may have come in between; then the folder is its own.
                os.rmdir(folder)


def recover(directory: str) -> None:
    """Ends a publication that was killed half-way, if nobody is working there."""
    folder = target.work_folder(directory)
    if not os.path.isdir(folder):
        return
    with contextlib.suppress(TargetError), held(directory):
        for name in _jobs(folder):
            target.recover(Store(os.path.join(folder, name)).dataset, directory)


def take_over(folder: str, work_digest: str) -> Found:
    """Removes the work of other jobs from a held work folder; tells what is left."""
    discarded = False
    for name in sorted(os.listdir(folder)):
        if name not in (_LOCK, work_digest):
            discarded = discarded or any(_finished(os.path.join(folder, name)))
            files.remove_tree(os.path.join(folder, name))
    return Found(*_finished(os.path.join(folder, work_digest)), discarded)


def leave(store: Store) -> None:
    """Leaves a folder after a failure: what is finished stays, and nothing else."""
    if any(_finished(store.folder)):
        files.remove_tree(store.attempts)
    else:
        files.remove_tree(store.folder)


def keep_for_next(store: Store) -> None:
    """Leaves a folder after a success: the segments of its blocks stay."""
    used = json.loads(files.read_bytes(store.used))
    receipts.prune(store, used)
    for name in sorted(os.listdir(store.folder)):
        path = os.path.join(store.folder, name)
        if path not in (store.receipts, store.segments, store.rejects):
            files.remove_tree(path) if os.path.isdir(path) else files.remove_file(path)


def finished(folder: str) -> tuple[int, int]:
    """Returns how many finished blocks and shards a work folder holds."""
    counts = [_finished(os.path.join(folder, name)) for name in _jobs(folder)]
    return sum(blocks for blocks, _ in counts), sum(shards for _, shards in counts)


def clear(directory: str) -> None:
    """Removes all unfinished work on a target; a begun publication is ended first.

    Raises:
      TargetError: a run is at work there.
    """
    folder = target.work_folder(directory)
    if os.path.isdir(folder):
        with held(directory):
            for name in _jobs(folder):
                target.recover(Store(os.path.join(folder, name)).dataset, directory)
                files.remove_tree(os.path.join(folder, name))


def _jobs(folder: str) -> list[str]:
    return sorted(
        name for name in os.listdir(folder) if os.path.isdir(os.path.join(folder, name))
    )


def _finished(job: str) -> tuple[int, int]:
    """Returns how many finished blocks and shards a job has left."""
    try:
        names = os.listdir(Store(job).receipts)
    except (FileNotFoundError, NotADirectoryError):
        return 0, 0
    return (
        sum(name.endswith(".block") for name in names),
        sum(name.endswith(".shard") for name in names),
    )
