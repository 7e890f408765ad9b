"""What is published at a target, on a disk or in an object store."""

import contextlib
import os
from collections.abc import Sequence

from transforms.core.manifest import MANIFEST_NAME, Manifest
from transforms.errors import (
    DamageError,
    RaceError,
    StorageError,
    TargetError,
    first_few,
)
from transforms.storage.files import storage

SHARED = "rows-"
"""How the names of shared runs begin; see `transforms.publishing.shared_run`."""
# How many names of others a message shows.
_SHOWN = 5


def read_manifest(directory: str) -> Manifest:
    """Returns the manifest of a dataset.

    Raises:
      DamageError: it is damaged.
      FileNotFoundError: the directory is no dataset.
    """
    path = os.path.join(directory, MANIFEST_NAME)
    return Manifest.from_bytes(storage(path).read_bytes(), path)


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
