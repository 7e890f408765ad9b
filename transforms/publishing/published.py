"""What is published at a target, on a disk or in an object store."""

import contextlib
import os

from transforms.core.manifest import MANIFEST_NAME, Manifest
from transforms.errors import DamageError, RaceError, StorageError
from transforms.storage.files import storage

SHARED = "rows-"
"""How the names of shared runs begin; see `transforms.publishing.shared_run`."""


def read_manifest(directory: str) -> Manifest:
    """Returns the manifest of a dataset.

    Raises:
      DamageError: it is damaged.
      FileNotFoundError: the directory is no dataset.
    """
    path = os.path.join(directory, MANIFEST_NAME)
    return Manifest.from_bytes(storage(path).read_bytes(), path)


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
