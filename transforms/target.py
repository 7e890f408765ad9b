"""The output directory: what may be replaced, and its replacement in one step.

The dataset is built in the sibling `.<directory>.beam-tfrecord/`, on the same file
system, and published by a rename that replaces nothing (a fresh target) or by an
exchange of the two directories (an overwrite). Nothing is deleted but what an old
manifest names, by its exact name.
"""

import hashlib
import os

from transforms import files
from transforms.core.manifest import MANIFEST_NAME, Manifest
from transforms.errors import CommitError, DamageError, TargetError

__all__ = ["check_target", "publish", "read_manifest", "rejects_path", "work_folder"]

# How many foreign names an error shows.
_SHOWN = 5
_LONGEST_NAME_BYTES = 255


def work_folder(target: str) -> str:
    """Returns the folder for unfinished work on a target; it is ours alone."""
    parent, name = os.path.split(os.path.abspath(target))
    return os.path.join(parent, f".{name}.beam-tfrecord")


def rejects_path(target: str) -> str:
    """Returns where the rejects of a run that tolerated fewer are left."""
    return f"{os.path.abspath(target)}.rejects.jsonl"


def read_manifest(directory: str) -> Manifest:
    """Returns the manifest of a dataset.

    Raises:
      DamageError: it is damaged.
      FileNotFoundError: the directory is no dataset.
    """
    path = os.path.join(directory, MANIFEST_NAME)
    return Manifest.from_bytes(files.read_bytes(path), path)


def _state(directory: str) -> str:
    """Returns a word for what stands there now; "" for nothing."""
    try:
        names = sorted(os.listdir(directory))
        if not names:
            return ""
        data = files.read_bytes(os.path.join(directory, MANIFEST_NAME))
        inode = os.stat(directory).st_ino
    except FileNotFoundError:
        return ""
    except OSError as error:
        return f"unreadable: {error.errno}"
    digest = hashlib.sha256(data + "\0".join(names).encode("utf-8", "surrogateescape"))
    return f"{inode}-{digest.hexdigest()}"


def check_target(directory: str, *, overwrite: bool) -> str:
    """Returns what stands at the target, for `publish` to compare.

    Raises:
      TargetError: it cannot be made, holds a dataset that may not be replaced, or
        holds anything that its manifest does not name.
    """
    _check_path(directory)
    directory = os.path.abspath(directory)
    parent = os.path.dirname(directory)
    existing = parent
    while not os.path.lexists(existing):
        existing = os.path.dirname(existing)
    if not os.path.isdir(existing) or not os.access(existing, os.W_OK | os.X_OK):
        raise TargetError(
            f"The output's folder must be writable; {existing!r} is not. Choose "
            f"another output."
        )
    if not os.path.lexists(directory):
        return ""
    if not os.path.isdir(directory) or os.path.islink(directory):
        raise TargetError(
            f"The output must be a directory or not exist; {directory!r} is a file or "
            f"a link. Choose another output."
        )
    found = sorted(os.listdir(directory))
    if not found:
        return ""
    if MANIFEST_NAME not in found:
        raise TargetError(
            f"The output must be a dataset of this tool, empty, or not exist; "
            f"{directory!r} holds {_shown(found)} and no {MANIFEST_NAME}. Choose "
            f"another output, or empty it yourself."
        )
    try:
        manifest = read_manifest(directory)
    except (DamageError, OSError) as error:
        raise TargetError(
            f"What stands at {directory!r} cannot be replaced safely: {error} "
            f"Move it away, or choose another output."
        ) from error
    if foreign := sorted(set(found) - set(manifest.file_names)):
        raise TargetError(
            f"The output may hold only what its manifest names; {directory!r} also "
            f"holds {_shown(foreign)}. Move that away, or choose another output."
        )
    if not overwrite:
        raise TargetError(
            f"The output must not exist yet; {directory!r} holds the dataset "
            f"{manifest.name!r} of {manifest.records:,} records. Use --overwrite to "
            f"replace it, or choose another output."
        )
    return _state(directory)


def _check_path(directory: str) -> None:
    name = os.path.basename(os.path.abspath(directory))
    # The work folder's name is longer than the target's.
    longest = os.path.basename(work_folder(directory))
    try:
        directory.encode()
    except UnicodeEncodeError as error:
        raise TargetError(
            f"The output's path must be UTF-8; found {os.fsencode(directory)!r}."
        ) from error
    if not directory or "\0" in directory or not name:
        raise TargetError(
            f"The output must be the path of a directory; found {directory!r}."
        )
    if len(os.fsencode(longest)) > _LONGEST_NAME_BYTES:
        raise TargetError(
            f"The output's name may have at most "
            f"{_LONGEST_NAME_BYTES - len(longest) + len(name)} bytes, so that the work "
            f"folder beside it can have one; found {len(os.fsencode(name))}."
        )


def _shown(names: list[str]) -> str:
    more = len(names) - _SHOWN
    shown = ", ".join(repr(name) for name in names[:_SHOWN])
    return f"{shown} and {more} more" if more > 0 else shown


def publish(folder: str, target: str, *, seen: str) -> None:
    """Makes a finished folder the target, in one step.

    Args:
      folder: the dataset, whole and synced; on the target's file system.
      target: the output directory.
      seen: what `check_target` found there when the run started.

    Raises:
      CommitError: the target is no longer what it was; nothing has changed.
    """
    # The current folder cannot be renamed as ".", but under its own name it can.
    target = os.path.abspath(target)
    parent = os.path.dirname(target)
    if _state(target) != seen:
        raise CommitError(
            f"The target must be as it was when the run started; {target!r} was "
            f"written by another run since. Nothing was changed; run again."
        )
    if not seen:
        files.move_new(folder, target)
        files.sync_directory(parent)
        return
    old = read_manifest(target)
    if not files.exchange(folder, target):
        # No exchange here: first the old manifest goes, so that what a reader may
        # find half-way is no dataset rather than a mix of two.
        aside = f"{folder}.old"
        files.remove_file(os.path.join(target, MANIFEST_NAME))
        os.rename(target, aside)
        os.rename(folder, target)
        folder = aside
    files.sync_directory(parent)
    for name in old.file_names:
        files.remove_file(os.path.join(folder, name))
    # What somebody put there in the last instant goes back to where they put it.
    for name in os.listdir(folder):
        if not os.path.lexists(os.path.join(target, name)):
            os.rename(os.path.join(folder, name), os.path.join(target, name))
