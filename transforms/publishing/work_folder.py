"""The work folder of a target across runs: hold it, take it over, leave it.

    .<name>.beam-tfrecord/   see `transforms.publishing.own_folder`
      <work digest>/         one job's unfinished work; see `transforms.work.store`

A run that dies or is stopped leaves its finished segments and shards, each with a
receipt; the next run of the same work digest takes them over. Any other run removes
them: there is one target, and the last command says what it is to be.
"""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator

from transforms.errors import first_few
from transforms.publishing import target
from transforms.publishing.bucket import runs as bucket_runs
from transforms.publishing.bucket.runs import Hold, State, state_of
from transforms.publishing.bucket.target import SHARED, BucketTarget
from transforms.work.receipts import count_finished, keep_for_next
from transforms.work.store import Store

__all__ = [
    "PROGRAM",
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
    "pipelines",
    "recover",
    "take_over",
]

PROGRAM = "program"
"""Of a pipeline's run: the note on the process that it is part of."""
# How many names of others a message shows.
_SHOWN = 5


def check(directory: str) -> None:
    """Checks that the work folder of a target was made by beam-tfrecord, if it exists.

    Raises:
      TargetError: something else has its name. It was not touched.
    """
    target.at(directory).check_work_folder()


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """What earlier runs have left.

    Attributes:
      blocks, shards: how many finished ones this run may take over.
      discarded: whether finished work of another job was removed.
      foreign: names of files of others in the work folder, which stay there.
    """

    blocks: int
    shards: int
    discarded: bool
    foreign: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.blocks or self.shards)

    def in_words(self) -> str:
        """Returns a line for the user; empty where there is nothing to say."""
        said = []
        if self:
            counts = [
                f"{count:,} {noun}{'s' if count != 1 else ''} {done}"
                for count, noun, done in (
                    (self.blocks, "block", "read"),
                    (self.shards, "shard", "written"),
                )
                if count
            ]
            said.append(
                f"going on where an earlier run ended: {', '.join(counts)}; what is of "
                f"unchanged files and whole is used again"
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


@contextlib.contextmanager
def held(
    directory: str, job: str = "", say: Callable[[str], None] = lambda _text: None
) -> Iterator[Hold]:
    """Holds the work folder of a target, made where it is missing.

    Afterwards the folder is removed if it is empty.

    Args:
      directory: the target.
      job, say: see `transforms.publishing.bucket.runs.held`.

    Raises:
      TargetError: another run holds it, or it is not ours.
    """
    with target.at(directory).held(job, say) as hold:
        yield hold


def recover(directory: str) -> None:
    """Finishes a publication that was killed, unless a run is at work there.

    In an object store that is done by `take_over` and `clear`.

    Raises:
      TargetError: the work folder is not ours.
    """
    target.at(directory).recover()


def open_store(
    directory: str, hold: Hold, store: Store, *, job: str, seen: str
) -> Store:
    """Returns the store of a job, with the place where its files go.

    Args:
      directory: the target.
      hold: of the work folder.
      store: of the job.
      job: its digest.
      seen: the state of the target when the run started.

    Raises:
      CommitError: it is in another one, and files put there would be in its dataset.
    """
    return target.at(directory).open_store(store, hold=hold, job=job, seen=seen)


def take_over(directory: str, hold: Hold, store: Store) -> Found:
    """Removes the work of other jobs from a held work folder; returns what is left.

    Args:
      directory: the target.
      hold: of the work folder.
      store: of the job, as `open_store` has given it.
    """
    if hold.apart:
        return Found(0, 0, False)
    discarded, foreign = target.at(directory).remove_others(store, hold)
    return Found(*count_finished(store), discarded, tuple(foreign))


def leave(directory: str, hold: Hold, store: Store, *, seen: str) -> bool:
    """Cleans up after a failure: only finished work stays.

    Returns whether another run has published meanwhile, and so this one could not.

    Args:
      directory: the target.
      hold: of the work folder.
      store: of the job.
      seen: the state of the target when the run started.
    """
    return target.at(directory).leave(store, hold=hold, seen=seen)


def end(directory: str, hold: Hold, store: Store, *, keeps_work: bool) -> None:
    """Cleans up after a success.

    Args:
      directory: the target.
      hold: of the work folder.
      store: of the job.
      keeps_work: whether the segments of its blocks stay, for the next run.
    """
    place = target.at(directory)
    # A run that was stopped in between has left all of this to be done.
    if place.end_publication(store, hold):
        _end_work(place, store, keeps_work=keeps_work and not hold.apart)


def end_handed_over(
    directory: str, store: Store, *, token: str, keeps_work: bool
) -> None:
    """Cleans up after the success of a job that nobody waited for.

    Others may be at work there by now. A second attempt finds nothing to do.

    Args:
      directory: the target, in an object store.
      store: of the job.
      token: see `transforms.publishing.bucket.runs.note_job`.
      keeps_work: see `end`.
    """
    place = target.at(directory)
    place.end_publication(store, Hold(apart=token))
    _end_work(place, store, keeps_work=keeps_work)
    bucket_runs.forget_job(directory, token)


def _end_work(
    place: target.LocalTarget | BucketTarget, store: Store, *, keeps_work: bool
) -> None:
    if keeps_work:
        keep_for_next(store)
    else:
        store.remove_tree(store.folder)
    place.forget(store)


def finished(directory: str) -> tuple[int, int, int]:
    """Returns what a target's work folder holds: jobs, finished blocks and shards."""
    folder = target.work_folder(directory)
    names = target.at(directory).work_names()
    counts = [count_finished(Store(os.path.join(folder, name))) for name in names]
    blocks, shards = (sum(each) for each in zip((0, 0), *counts, strict=True))
    return len(names), blocks, shards


def pipelines(directory: str) -> list[State]:
    """Returns what is known of the pipelines whose rows a target's work folder holds.

    Args:
      directory: the target. See `transforms.publishing.shared_run`.
    """
    folder = target.work_folder(directory)
    names = target.at(directory).work_names()
    return [
        state_of(os.path.join(folder, name, PROGRAM))
        for name in names
        if name.startswith(SHARED)
    ]


def foreign_names(directory: str) -> list[str]:
    """Returns the names of what is not ours in the work folder of a target."""
    return target.at(directory).foreign_names()


def clear(directory: str, *, sure: bool = True) -> None:
    """Removes all unfinished work on a target; finishes a begun publication first.

    Args:
      directory: the target.
      sure: whether what other machines have begun in an object store, and pipelines
        (`pipelines`) anywhere, is known to be dead; if not, it stays.

    Raises:
      TargetError: a run is at work there, or the work folder is not ours.
    """
    target.at(directory).clear(sure=sure)
