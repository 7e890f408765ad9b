"""The output directory: what may be replaced, and its replacement in one step.

The dataset is built in the sibling `.<directory>.beam-tfrecord/`, on the same file
system, and published by a rename that replaces nothing (a fresh target) or by an
exchange of the two directories (an overwrite). Nothing is deleted but what an old
manifest names, by its exact name.
"""

import errno
import hashlib
import json
import os

from transforms import files
from transforms.core.manifest import MANIFEST_NAME, Manifest
from transforms.errors import CommitError, DamageError, StorageError, TargetError

__all__ = [
    "check_contents",
    "check_target",
    "publish",
    "read_manifest",
    "recover",
    "rejects_path",
    "state",
    "taken",
    "work_folder",
]

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


def state(directory: str) -> str:
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
    manifest = check_contents(directory)
    if manifest is not None and not overwrite:
        raise taken(directory, manifest)
    return state(directory)


def taken(directory: str, manifest: Manifest, why: str = "") -> TargetError:
    """Returns the error of a target that holds a dataset already."""
    return TargetError(
        f"The output must not exist yet; {directory!r} holds the dataset "
        f"{manifest.name!r} of {manifest.records:,} records"
        f"{f' ({why})' if why else ''}. Use --overwrite to replace it, or choose "
        f"another output."
    )


def check_contents(directory: str) -> Manifest | None:
    """Returns the manifest of the dataset at the target; None where nothing stands.

    Raises:
      TargetError: it cannot be made, or holds anything but a dataset of ours and
        what its manifest names.
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
        return None
    if not os.path.isdir(directory) or os.path.islink(directory):
        raise TargetError(
            f"The output must be a directory or not exist; {directory!r} is a file or "
            f"a link. Choose another output."
        )
    found = sorted(os.listdir(directory))
    if not found:
        return None
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
    return manifest


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

    Where the system has no exchange of two folders, the old manifest goes first and
    the new one comes last: what stands there in between is no dataset, and `recover`
    finishes it.

    Args:
      folder: the dataset, whole and synced; on the target's file system.
      target: the output directory.
      seen: what `check_target` found there when the run started.

    Raises:
      CommitError: the target is no longer what it was; nothing has changed.
    """
    # The current folder cannot be renamed as ".", but under its own name it can.
    target = os.path.abspath(target)
    if state(target) != seen:
        raise CommitError(
            f"The target must be as it was when the run started; {target!r} was "
            f"written by another run since. Nothing was changed; run again."
        )
    if not seen:
        files.move_new(folder, target)
        files.sync_directory(os.path.dirname(target))
        return
    # Who comes after a kill has to know what is old here, and what is new.
    _note(folder, target)
    try:
        exchanged = files.exchange(folder, target)
    except OSError:
        files.remove_file(_note_path(folder))
        raise
    if exchanged:
        files.sync_directory(os.path.dirname(target))
        files.rename(folder, _aside(folder))
    else:
        files.remove_file(os.path.join(target, MANIFEST_NAME))
        try:
            _replace(folder, target)
        except (OSError, StorageError):
            _put_back(folder, target)
            raise
    _clear_aside(folder, target)


def recover(folder: str, target: str) -> None:
    """Ends what a publication that was killed has begun; safe to call at any time.

    Args:
      folder: the dataset that was being published, or what is left of it.
      target: the output directory.
    """
    target = os.path.abspath(target)
    noted = _noted(folder)
    if noted is None:
        return
    old, new = noted
    aside = _aside(folder)
    stands = _manifest_in(target)
    former = hashlib.sha256(old).hexdigest()
    if stands is None and _manifest_in(folder) == new:
        # Only the way without an exchange leaves a target without its manifest.
        known = {*Manifest.from_bytes(old).file_names}
        if not os.path.lexists(target) or set(os.listdir(target)) <= known:
            _replace(folder, target)
            stands = new
    if stands == new:
        if not os.path.lexists(aside) and _manifest_in(folder) == former:
            files.rename(folder, aside)
        if os.path.lexists(aside):
            _clear_aside(folder, target)
    files.remove_file(_note_path(folder))


def _replace(folder: str, target: str) -> None:
    if os.path.lexists(target) and not os.path.lexists(_aside(folder)):
        files.rename(target, _aside(folder))
    files.rename(folder, target)
    files.sync_directory(os.path.dirname(target))


def _put_back(folder: str, target: str) -> None:
    """Makes the target what it was before `_replace`."""
    if not os.path.lexists(target):
        files.rename(_aside(folder), target)
    noted = _noted(folder)
    if noted is not None and os.path.lexists(folder):
        path = os.path.join(target, MANIFEST_NAME)
        files.write_file(path, noted[0], attempts=os.path.dirname(folder))
        files.remove_file(_note_path(folder))


def _clear_aside(folder: str, target: str) -> None:
    """Removes the old files, each by its name, and the folder that held them."""
    aside = _aside(folder)
    noted = _noted(folder)
    named = () if noted is None else Manifest.from_bytes(noted[0]).file_names
    for name in named:
        files.remove_file(os.path.join(aside, name))
    # What somebody put there in the last instant goes back to where they put it.
    for name in sorted(os.listdir(aside)):
        if not os.path.lexists(os.path.join(target, name)):
            files.rename(os.path.join(aside, name), os.path.join(target, name))
    try:
        os.rmdir(aside)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        # A file of somebody else whose name is taken now: it stays where it is found.
        stranded = f"{target}.{os.path.basename(aside)}"
        files.move_new(aside, stranded)
    files.remove_file(_note_path(folder))


def _note(folder: str, target: str) -> None:
    old, new = (
        files.read_bytes(os.path.join(place, MANIFEST_NAME))
        for place in (target, folder)
    )
    parts = {"old": old.decode(), "new": hashlib.sha256(new).hexdigest()}
    attempts = os.path.dirname(folder)
    data = json.dumps(parts).encode()
    files.write_file(_note_path(folder), data, attempts=attempts)
    files.sync_directory(attempts)


def _noted(folder: str) -> tuple[bytes, str] | None:
    """Returns the old manifest, and the digest of the new one."""
    try:
        parts = json.loads(files.read_bytes(_note_path(folder)))
    except FileNotFoundError:
        return None
    return parts["old"].encode(), parts["new"]


def _manifest_in(folder: str) -> str | None:
    try:
        data = files.read_bytes(os.path.join(folder, MANIFEST_NAME))
    except (FileNotFoundError, NotADirectoryError):
        return None
    return hashlib.sha256(data).hexdigest()


def _note_path(folder: str) -> str:
    return f"{folder}.publishing"


def _aside(folder: str) -> str:
    return f"{folder}.old"
