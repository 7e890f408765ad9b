"""What a target is, on a disk or in an object store, and what is published there."""

import contextlib
import os
from collections.abc import Sequence
from typing import Protocol

from transforms.core.manifest import (
    MANIFEST_NAME,
    PARTS_NAME,
    Manifest,
)
from transforms.errors import (
    DamageError,
    RaceError,
    StorageError,
    TargetError,
    first_few,
)
from transforms.storage.files import storage
from transforms.work.store import Store

SHARED = "rows-"
"""How the names of shared runs begin; see `transforms.publishing.target`."""
# How many names of others a message shows.
_SHOWN = 5


class Target(Protocol):
    """An output directory, and the work folder beside it.

    Look what is there, prepare the work of a job, publish, and clean up.

    Attributes:
      directory: the output.
    """

    directory: str

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
        return contextlib.nullcontext()

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

    def remove_others(self, store: Store) -> bool:
        """Removes the work of other jobs, where it is known to be dead.

        Returns whether there was any that was finished.
        """
        return False

    def make_shared(self, store: Store) -> None:
        """Makes the folders of a shared run; they may exist."""
        return

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
        """Cleans up after a success; again where a run was killed while it did so.

        Also ends what `open_derived` has begun.
        """

    def leave(self, store: Store, *, seen: str) -> bool:
        """Cleans up after a failure: finished work stays.

        Returns whether another run has published meanwhile.
        """

    def open_derived(self, store: Store, manifest: Manifest) -> Store:
        """Returns the store for files that are added to the dataset at the target."""

    def add_derived(self, store: Store, manifest: Manifest, *, seen: str) -> None:
        """Adds the files of a store to the dataset, with the manifest that names them.

        Args:
          store: from `open_derived`.
          manifest: that names them.
          seen: the version of the manifest when they were begun.

        Raises:
          OvertakenError: the dataset was replaced meanwhile.
          TargetError: files of the dataset can have no hard links.
        """

    def clear(self, *, sure: bool) -> None:
        """Removes unfinished work, if it is known to be dead.

        That is so on a disk alone; a begun publication is finished first.

        Args:
          sure: whether pipelines are known to have ended; if not, their rows stay.

        Raises:
          TargetError: a run is at work there, or the work folder is not ours.
        """
        return


def read_manifest(directory: str) -> Manifest:
    """Returns the manifest of a dataset.

    Raises:
      DamageError: it is damaged.
      FileNotFoundError: the directory is no dataset.
    """
    path = os.path.join(directory, MANIFEST_NAME)
    return Manifest.from_bytes(storage(path).read_bytes(), path)


def manifest_or_none(directory: str) -> Manifest | None:
    """As `read_manifest`; None where the directory is no dataset."""
    try:
        return read_manifest(directory)
    except FileNotFoundError:
        return None


def bytes_or_none(path: str) -> bytes | None:
    """Returns a whole file; None where there is none."""
    try:
        return storage(path).read_bytes()
    except FileNotFoundError:
        return None


def manifest_to_replace(directory: str) -> Manifest:
    """As `read_manifest`, of a dataset that may be replaced.

    Raises:
      TargetError: it is damaged, or cannot be read.
    """
    try:
        return read_manifest(directory)
    except (DamageError, OSError) as error:
        raise TargetError(
            f"What is at {directory!r} cannot be replaced safely: {error} Move it "
            f"away, or choose another output."
        ) from error


def holds_others(
    directory: str, manifest: Manifest | None, names: Sequence[str]
) -> TargetError:
    """Returns the error of an output that holds files of others, by their names."""
    if PARTS_NAME in names:
        return TargetError(
            f"{directory!r} is a dataset of parts, which 'convert --part NAME' writes "
            f"one at a time. Name a part so, or choose another output."
        )
    what = "what its manifest names" if manifest else "a dataset of this tool"
    shown = first_few([*map(repr, names)], _SHOWN)
    return TargetError(
        f"The output may hold only {what}; {directory!r} holds {shown}. Move that "
        f"away, or choose another output."
    )


def overtaken(directory: str) -> RaceError:
    """Returns the error of a run that another run has overtaken; it says which."""
    who = ""
    with contextlib.suppress(DamageError, OSError, StorageError):
        there = read_manifest(directory)
        finished = there.run.get("finished", "an unknown time")
        who = (
            f": it holds the dataset {there.name!r} of {there.records:,} records, "
            f"finished at {finished} by the job {str(there.run.get('job'))[:12]!r}"
        )
    return RaceError(
        f"The target must be as it was when the run started; {directory!r} was "
        f"written by another run since{who}. The dataset of that run stays, and this "
        f"one has committed nothing; run again."
    )
