"""Where a dataset is published, on a disk or in an object store.

`Target` is the one way there: look what is there, prepare the work of a job, publish,
and clean up. `transforms.publishing.local` has that of a disk, and
`transforms.publishing.bucket` that of an object store; `at` alone chooses.
"""

import contextlib
from collections.abc import Collection
from typing import Protocol

from transforms.core.manifest import Manifest
from transforms.errors import TargetError, first_few
from transforms.publishing.bucket import BucketTarget
from transforms.publishing.local import LocalTarget
from transforms.publishing.published import overtaken as overtaken
from transforms.publishing.published import read_manifest as read_manifest
from transforms.storage.paths import absolute, is_remote
from transforms.work.receipts import count_finished
from transforms.work.store import Store

REJECTS_SUFFIX = ".rejects.jsonl"
"""Ends the name of the rejects that a failed run leaves beside its target."""
# How many names of others a message shows.
_SHOWN = 5


class Target(Protocol):
    """An output directory, and the work folder beside it."""

    def state(self) -> str:
        """Returns a word that every publication changes; "" for no dataset."""

    def check_contents(self) -> Manifest | None:
        """Refuses foreign files; returns the manifest of the dataset, if any.

        Raises:
          TargetError: it cannot be made, or holds anything but a dataset of ours, and
            in an object store what runs of ours are putting there; or on a disk the
            work folder's name is that of something else.
        """

    def check_replaceable(self) -> None:
        """Raises TargetError where a dataset cannot be replaced safely.

        In an object store a run whose workers come and go needs the same.
        """

    def held(self) -> contextlib.AbstractContextManager[None]:
        """Holds the work folder where one run at a time may be at work.

        Afterwards the folder is removed if it is empty.

        Raises:
          TargetError: another run holds it, or it is not ours.
        """

    def recover(self) -> None:
        """Finishes a publication that was killed, unless a run is at work there.

        Raises:
          TargetError: the work folder is not ours.
        """

    def work_path(self, digest: str, *, seen: str) -> str:
        """Returns the folder for the unfinished work of a job.

        Args:
          digest: of the work.
          seen: the state of the target when the run started.
        """

    def open_store(
        self, store: Store, *, job: str, seen: str, alone: bool = False
    ) -> Store:
        """Returns the store of a job, with the place where its files go.

        Args:
          store: of the job.
          job: its digest.
          seen: the state of the target when the run started.
          alone: whether another run of the same job may write other bytes.

        Raises:
          RaceError: the target is in another state.
        """

    def remove_others(self, store: Store) -> tuple[bool, list[str]]:
        """Removes the work of other jobs, where it is known to be dead.

        Returns whether there was any that was finished, and names of what is not ours.
        """

    def make_shared(self, store: Store) -> None:
        """Makes the folders of a shared run; they may exist."""

    def open_plan(self, store: Store) -> Store:
        """Returns the store of a plan of a shared run; any attempt may open it."""

    def end_shared(self, store: Store) -> None:
        """Removes the work of a shared run that has published; it may be gone."""

    def publish(self, store: Store, manifest: Manifest, *, seen: str) -> None:
        """Publishes the dataset whose files are in a store.

        Args:
          store: of the job.
          manifest: of the dataset.
          seen: the state of the target when the run started.

        Raises:
          RaceError: another run has published meanwhile; its dataset stays.
        """

    def end(self, store: Store) -> None:
        """Cleans up after a success; again where a run was killed meanwhile."""

    def leave(self, store: Store, *, seen: str) -> bool:
        """Cleans up after a failure: finished work stays.

        Returns whether another run has published meanwhile.
        """

    def open_derived(self, store: Store, manifest: Manifest) -> Store:
        """Returns the store for files that are added to the dataset at the target."""

    def add_derived(
        self, store: Store, manifest: Manifest, *, seen: str, replaced: Collection[str]
    ) -> None:
        """Adds the files of a store to the dataset, with the manifest that names them.

        Args:
          store: from `open_derived`.
          manifest: that names them.
          seen: the version of the manifest when they were begun.
          replaced: names of files that may be replaced.

        Raises:
          OvertakenError: the dataset was replaced meanwhile.
        """

    def leave_derived(self, store: Store) -> None:
        """Ends what `open_derived` has begun."""

    def clear(self, *, sure: bool) -> None:
        """Removes unfinished work, if it is known to be dead.

        That is so on a disk alone; a begun publication is finished first.

        Args:
          sure: whether pipelines are known to have ended; if not, their rows stay.

        Raises:
          TargetError: a run is at work there, or the work folder is not ours.
        """

    def work_names(self) -> list[str]:
        """Returns the names in the work folder that are of jobs."""

    def foreign_names(self) -> list[str]:
        """Returns the names of what is not ours in the work folder."""


def at(directory: str) -> Target:
    """Returns the target at a path: in an object store, or on a disk."""
    return BucketTarget(directory) if is_remote(directory) else LocalTarget(directory)


def rejects_path(target: str) -> str:
    """Returns where a run that failed for too many rejects leaves them."""
    return f"{absolute(target)}{REJECTS_SUFFIX}"


def taken(directory: str, manifest: Manifest, why: str = "") -> TargetError:
    """Returns the error of a target that holds a dataset already."""
    return TargetError(
        f"The output must not exist yet; {directory!r} holds the dataset "
        f"{manifest.name!r} of {manifest.records:,} records"
        f"{f' ({why})' if why else ''}. Use --overwrite to replace it, or choose "
        f"another output."
    )


def take_over(target: Target, store: Store) -> tuple[bool, str]:
    """Removes the work of other dead jobs, and looks for what is left of this one.

    Args:
      target: whose work folder is held.
      store: of the job, as `Target.open_store` has given it.

    Returns:
      Whether this run may take finished work over, and a line for the user, which is
      empty where there is nothing to say.
    """
    discarded, foreign = target.remove_others(store)
    said, done = [], []
    for count, noun, verb in zip(
        count_finished(store), ("block", "shard"), ("read", "written"), strict=True
    ):
        if count:
            done.append(f"{count:,} {noun}{'s' if count != 1 else ''} {verb}")
    if done:
        said.append(
            f"going on where an earlier run ended: {', '.join(done)}; what is of "
            f"unchanged files and whole is used again"
        )
    elif discarded:
        said.append(
            "starting afresh: the unfinished work of an earlier run was for other "
            "settings"
        )
    if foreign:
        shown = first_few([*map(repr, foreign)], _SHOWN)
        said.append(
            f"the work folder beside the output also holds {shown}, which "
            f"beam-tfrecord has not made; it is left there"
        )
    return bool(done), "; ".join(said)
