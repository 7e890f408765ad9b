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
import secrets
from collections.abc import Iterator

from transforms import files, receipts
from transforms.errors import StorageError, TargetError
from transforms.publishing import bucket, bucket_publication, bucket_runs, target
from transforms.storage import folders
from transforms.storage.paths import is_remote
from transforms.store import Store

__all__ = [
    "Found",
    "Hold",
    "clear",
    "end",
    "end_handed_over",
    "finished",
    "held",
    "leave",
    "open_store",
    "recover",
    "take_over",
]

_LOCK = "lock"
_TOKEN_BYTES = 6


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


@dataclasses.dataclass(frozen=True, slots=True)
class Hold:
    """A work folder that a run holds.

    Attributes:
      directory: the target.
      folder: the work folder.
      apart: a word for the run where another may be at work there; else empty. See
        `transforms.publishing.bucket`.
    """

    directory: str
    folder: str
    apart: str = ""


@contextlib.contextmanager
def held(directory: str) -> Iterator[Hold]:
    """Holds the work folder of a target, made where it is missing.

    On leaving, the folder goes if nothing is left in it.

    Raises:
      TargetError: another run holds it.
    """
    folder = target.work_folder(directory)
    if is_remote(directory):
        with bucket_runs.held(directory) as apart:
            yield Hold(directory, folder, apart)
        return
    lock = os.path.join(folder, _LOCK)
    with contextlib.ExitStack() as stack:
        while True:
            folders.make(folder)
            try:
                stack.enter_context(files.exclusive_lock(lock))
                break
            except FileNotFoundError:
                # The run that has just ended has removed the folder in between.
                continue
        try:
            yield Hold(directory, folder)
        finally:
            files.remove_file(lock)
            with contextlib.suppress(OSError, StorageError):
                # Another run may have come in between; then the folder is its own.
                folders.remove_empty(folder)


def recover(directory: str) -> None:
    """Ends a publication that was killed half-way, if nobody is working there.

    In an object store that is done by `take_over` and `clear`.
    """
    folder = target.work_folder(directory)
    if is_remote(directory) or not files.is_folder(folder):
        return
    with contextlib.suppress(TargetError), held(directory):
        for name in _jobs(folder):
            target.recover(Store(os.path.join(folder, name)).dataset, directory)


def open_store(hold: Hold, store: Store, *, job: str, seen: str) -> Store:
    """Returns the store of a job with the place that its files go to.

    Args:
      hold: of the work folder.
      store: of the job.
      job: its digest.
      seen: the state of the target when the run started.

    Raises:
      CommitError: it is in another one, and files put there would be in its dataset.
    """
    if not is_remote(hold.directory):
        target.recover(store.dataset, hold.directory)
        return store
    folder = f"{store.folder}-{hold.apart}" if hold.apart else store.folder
    placed, notes = bucket.place_of(
        hold.directory,
        apart=hold.apart,
        job=job,
        work=os.path.basename(folder),
        seen=seen,
    )
    token = secrets.token_hex(_TOKEN_BYTES)
    return dataclasses.replace(
        store, folder=folder, placed=placed, notes=notes, token=token
    )


def take_over(hold: Hold, store: Store) -> Found:
    """Removes the work of other jobs from a held work folder; tells what is left.

    Args:
      hold: of the work folder.
      store: of the job, as `open_store` has given it.
    """
    folder, discarded = hold.folder, False
    work_digest = os.path.basename(store.folder)
    if hold.apart:
        return Found(0, 0, discarded)
    if is_remote(folder):
        bucket.remove_work(hold.directory, work=work_digest, place=store.place)
        return Found(*_finished(store.folder), discarded)
    for name in files.names_in(folder):
        if name not in (_LOCK, work_digest):
            discarded = discarded or any(_finished(os.path.join(folder, name)))
            files.remove_tree(os.path.join(folder, name))
    return Found(*_finished(store.folder), discarded)


def leave(hold: Hold, store: Store, *, seen: str) -> bool:
    """Leaves a folder after a failure: what is finished stays, and nothing else.

    Returns whether another run has published meanwhile, and so this one could not.

    Args:
      hold: of the work folder.
      store: of the job.
      seen: the state of the target when the run started.
    """
    if store.placed:
        overtaken = target.state(hold.directory) != seen
        if overtaken or hold.apart or not any(_finished(store.folder)):
            bucket.remove_job(hold.directory, os.path.basename(store.folder))
        return overtaken
    if any(_finished(store.folder)):
        files.remove_tree(store.attempts)
    else:
        files.remove_tree(store.folder)
    return False


def end(hold: Hold, store: Store, *, keeps_work: bool) -> None:
    """Leaves a folder after a success.

    Args:
      hold: of the work folder.
      store: of the job.
      keeps_work: whether the segments of its blocks stay, for the next run.
    """
    work = os.path.basename(store.folder)
    if store.placed:
        # Where the run was stopped in between, all that follows is still to be done.
        bucket_publication.recover(hold.directory, [store.place or work])
        if not hold.apart:
            bucket.remove_work(hold.directory, work=work, place=store.place)
    else:
        # Where the run was stopped in between, old files may still lie there.
        target.recover(store.dataset, hold.directory)
    if keeps_work and not hold.apart:
        _keep_for_next(store)
    else:
        files.remove_tree(store.folder)
    if store.placed:
        bucket.remove_notes(hold.directory, work, place=store.place)


def end_handed_over(
    directory: str, store: Store, *, token: str, keeps_work: bool
) -> None:
    """Leaves a folder after the success of a job that nobody waited for.

    Others may be at work there by now. A second attempt finds it done.

    Args:
      directory: the target, in an object store.
      store: of the job.
      token: see `transforms.publishing.bucket_runs.note_job`.
      keeps_work: see `end`.
    """
    work = os.path.basename(store.folder)
    bucket_publication.recover(directory, [store.place or work])
    if keeps_work:
        _keep_for_next(store)
    else:
        files.remove_tree(store.folder)
    bucket.remove_notes(directory, work, place=store.place)
    bucket_runs.forget_job(directory, token)


def _keep_for_next(store: Store) -> None:
    used = json.loads(files.read_bytes(store.used))
    receipts.prune(store, used)
    for name in files.names_in(store.folder):
        path = os.path.join(store.folder, name)
        if path not in (store.receipts, store.segments, store.rejects):
            remove = files.remove_tree if files.is_folder(path) else files.remove_file
            remove(path)


def finished(folder: str) -> tuple[int, int]:
    """Returns how many finished blocks and shards a work folder holds."""
    counts = [_finished(os.path.join(folder, name)) for name in _jobs(folder)]
    return sum(blocks for blocks, _ in counts), sum(shards for _, shards in counts)


def clear(directory: str, *, sure: bool = True) -> None:
    """Removes all unfinished work on a target; a begun publication is ended first.

    Args:
      directory: the target.
      sure: whether what other machines have begun in an object store is known to be
        dead; if not, it stays.

    Raises:
      TargetError: a run is at work there.
    """
    folder = target.work_folder(directory)
    if is_remote(directory):
        bucket.clear(directory, sure=sure)
    elif files.is_folder(folder):
        with held(directory):
            for name in _jobs(folder):
                target.recover(Store(os.path.join(folder, name)).dataset, directory)
                files.remove_tree(os.path.join(folder, name))


def _jobs(folder: str) -> list[str]:
    return [
        name
        for name in files.names_in(folder)
        if files.is_folder(os.path.join(folder, name))
    ]


def _finished(job: str) -> tuple[int, int]:
    """Returns how many finished blocks and shards a job has left."""
    try:
        names = files.names_in(Store(job).receipts)
    except (FileNotFoundError, NotADirectoryError):
        return 0, 0
    return (
        sum(name.endswith(".block") for name in names),
        sum(name.endswith(".shard") for name in names),
    )
