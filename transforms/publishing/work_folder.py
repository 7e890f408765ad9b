"""The work folder of a target across runs: hold it, take it over, leave it.

    .<name>.beam-tfrecord/   see `transforms.publishing.own_folder`
      <work digest>/         one job's unfinished work; see `transforms.work.store`

A run that dies or is stopped leaves its finished segments and shards, each with a
receipt; the next run of the same work digest takes them over. Any other run removes
them: there is one target, and the last command says what it is to be.
"""

import contextlib
import dataclasses
import json
import os
import re
import secrets
from collections.abc import Iterator

from transforms import files
from transforms.errors import TargetError, first_few
from transforms.publishing import target
from transforms.publishing.bucket import publication as bucket_publication
from transforms.publishing.bucket import runs as bucket_runs
from transforms.publishing.bucket import target as bucket
from transforms.publishing.own_folder import OwnFolder
from transforms.storage.paths import is_remote
from transforms.work import receipts
from transforms.work.store import Store

__all__ = [
    "Found",
    "Hold",
    "check",
    "clear",
    "end",
    "end_handed_over",
    "finished",
    "foreign_names",
    "held",
    "leave",
    "open_store",
    "recover",
    "take_over",
]

_TOKEN_BYTES = 6
_WORK_DIGEST = re.compile(r"[0-9a-f]{32}")
# What version 0.1 put into the folder of a job.
_PARTS = frozenset(
    (
        *("attempts", "segments", "rejects", "receipts", "dataset", "engine"),
        *("dataset.abandoned", "dataset.old", "dataset.publishing", "listing.arrow"),
        *("used.json", "split_ids.arrow", "earlier_lock.arrow", "split_lock.arrow"),
        "only_rejected.arrow",
    )
)
# How many names of others a message shows.
_SHOWN = 5


def _own(directory: str) -> OwnFolder:
    return OwnFolder(target.work_folder(directory), _WORK_DIGEST, _PARTS)


def check(directory: str) -> None:
    """Looks whether what has the name of a target's work folder is ours.

    Raises:
      TargetError: it is not. Nothing of it was touched.
    """
    if is_remote(directory):
        bucket.check_work_folder(directory)
    else:
        _own(directory).check()


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """What earlier runs have left.

    Attributes:
      blocks, shards: finished ones that this run may take over.
      discarded: whether finished work of another job was removed.
      foreign: names of what is not ours in the work folder, and stays there.
    """

    blocks: int
    shards: int
    discarded: bool
    foreign: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.blocks or self.shards)

    def in_words(self) -> str:
        """Returns a line for a person; empty where there is nothing to say."""
        said = []
        if self:
            said.append(
                f"going on where an earlier run ended: {self.blocks:,} blocks read, "
                f"{self.shards:,} shards written"
            )
        elif self.discarded:
            said.append(
                "starting afresh: the unfinished work of an earlier run was for other "
                "settings"
            )
        if self.foreign:
            shown = first_few([*map(repr, self.foreign)], _SHOWN)
            said.append(
                f"the work folder beside the output also holds {shown}, which "
                f"beam-tfrecord has not made; it is left there"
            )
        return "; ".join(said)


@dataclasses.dataclass(frozen=True, slots=True)
class Hold:
    """A work folder that a run holds.

    Attributes:
      directory: the target.
      folder: the work folder.
      apart: a word for the run where another may be at work there; else empty. See
        `transforms.publishing.bucket.target`.
    """

    directory: str
    folder: str
    apart: str = ""


@contextlib.contextmanager
def held(directory: str) -> Iterator[Hold]:
    """Holds the work folder of a target, made where it is missing.

    On leaving, the folder goes if nothing is left in it.

    Raises:
      TargetError: another run holds it, or it is not ours.
    """
    folder = target.work_folder(directory)
    if is_remote(directory):
        with bucket_runs.held(directory) as apart:
            yield Hold(directory, folder, apart)
        return
    with _own(directory).held():
        yield Hold(directory, folder)


def recover(directory: str) -> None:
    """Ends a publication that was killed half-way, if nobody is working there.

    In an object store that is done by `take_over` and `clear`.

    Raises:
      TargetError: the work folder is not ours.
    """
    if is_remote(directory) or not (own := _own(directory)).check():
        return
    with contextlib.suppress(TargetError), own.held():
        for name in own.run_names():
            target.recover(Store(os.path.join(own.path, name)).dataset, directory)


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
    own = _own(hold.directory)
    for name in own.run_names():
        if name != work_digest:
            discarded = discarded or any(_finished(os.path.join(folder, name)))
            own.remove_run(name)
    return Found(*_finished(store.folder), discarded, tuple(own.foreign_names()))


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
    store.remove_tree(store.attempts if any(_finished(store.folder)) else store.folder)
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
        # Where the run was stopped in between, old files may still be there.
        target.recover(store.dataset, hold.directory)
    if keeps_work and not hold.apart:
        _keep_for_next(store)
    else:
        store.remove_tree(store.folder)
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
      token: see `transforms.publishing.bucket.runs.note_job`.
      keeps_work: see `end`.
    """
    work = os.path.basename(store.folder)
    bucket_publication.recover(directory, [store.place or work])
    if keeps_work:
        _keep_for_next(store)
    else:
        store.remove_tree(store.folder)
    bucket.remove_notes(directory, work, place=store.place)
    bucket_runs.forget_job(directory, token)


def _keep_for_next(store: Store) -> None:
    used = json.loads(files.read_bytes(store.used))
    receipts.prune(store, used)
    for name in files.names_in(store.folder):
        path = os.path.join(store.folder, name)
        if path not in (store.receipts, store.segments, store.rejects):
            remove = store.remove_tree if files.is_folder(path) else store.remove_file
            remove(path)


def finished(directory: str) -> tuple[int, int, int]:
    """Returns what a target's work folder holds: jobs, finished blocks and shards."""
    folder = target.work_folder(directory)
    if is_remote(directory):
        names = bucket.works_in(folder)
    else:
        names = _own(directory).run_names()
    counts = [_finished(os.path.join(folder, name)) for name in names]
    blocks, shards = (sum(each) for each in zip((0, 0), *counts, strict=True))
    return len(names), blocks, shards


def foreign_names(directory: str) -> list[str]:
    """Returns the names of what is not ours in the work folder of a target."""
    if is_remote(directory):
        return bucket.foreign_names(target.work_folder(directory))
    return _own(directory).foreign_names()


def clear(directory: str, *, sure: bool = True) -> None:
    """Removes all unfinished work on a target; a begun publication is ended first.

    Args:
      directory: the target.
      sure: whether what other machines have begun in an object store is known to be
        dead; if not, it stays.

    Raises:
      TargetError: a run is at work there, or the work folder is not ours.
    """
    if is_remote(directory):
        bucket.clear(directory, sure=sure)
    elif (own := _own(directory)).check():
        with own.held():
            for name in own.run_names():
                target.recover(Store(os.path.join(own.path, name)).dataset, directory)
                own.remove_run(name)


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
