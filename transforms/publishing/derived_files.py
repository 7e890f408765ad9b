"""Add derived files to the dataset at a target on a disk, with its manifest.

    .<name>.beam-tfrecord/<work>/
      dataset/index/..., dataset/catalogue/...    the files, until they are whole
      adding.json    {"old": digest of the manifest, "new": the one that names them,
                      "replaced": names that may be replaced}

Nothing in the dataset changes before all files are written and synced and the note is.
Then each file is renamed into its place, and the manifest is replaced last. A run that
is killed in between has left the note, by which the next run or `clean` goes on.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Collection

from transforms.core.manifest import DERIVED_FOLDERS, MANIFEST_NAME, Manifest
from transforms.errors import CommitError, TargetError
from transforms.storage import folders
from transforms.storage.files import storage
from transforms.storage.folders import rename
from transforms.work.store import Store

_NOTE = "adding.json"


def add(
    store: Store,
    directory: str,
    manifest: Manifest,
    *,
    old: bytes,
    replaced: Collection[str],
) -> None:
    """Moves derived files into a dataset, and replaces its manifest.

    Args:
      store: with the files in `dataset`.
      directory: of the dataset.
      manifest: that names them.
      old: the manifest that it replaces.
      replaced: names of files that may be replaced.

    Raises: see `finish`.
    """
    _sync(store.dataset)
    note = {
        "old": hashlib.sha256(old).hexdigest(),
        "new": manifest.to_bytes().decode(),
        "replaced": sorted(replaced),
    }
    path = os.path.join(store.folder, _NOTE)
    storage(path).write_file(json.dumps(note).encode(), attempts=store.attempts)
    # A power loss must not keep a rename and lose the note.
    storage(store.folder).sync_directory()
    finish(store, directory)


def finish(store: Store, directory: str) -> None:
    """Does what is left to do of `add`; nothing where it had not begun.

    Raises:
      TargetError: a file of others has taken a name since; it stays.
      StorageError: a step failed though it was tried again.
    """
    noted = os.path.join(store.folder, _NOTE)
    try:
        note = json.loads(storage(noted).read_bytes())
    except FileNotFoundError:
        return
    path = os.path.join(directory, MANIFEST_NAME)
    try:
        current = hashlib.sha256(storage(path).read_bytes()).hexdigest()
    except (FileNotFoundError, NotADirectoryError):
        current = ""
    if current == note["old"]:
        for name in storage(store.dataset).names_with(DERIVED_FOLDERS):
            source, target = (
                os.path.join(at, name) for at in (store.dataset, directory)
            )
            folders.make(os.path.dirname(target))
            if name in note["replaced"]:
                rename(source, target)
                continue
            try:
                folders.move_new(source, target)
            except CommitError as error:
                raise taken_name(target) from error
        _sync(directory)
        data = note["new"].encode()
        storage(path).write_file(data, attempts=store.attempts)
    storage(noted).remove_file()


def taken_name(path: str) -> TargetError:
    """Returns the error of a derived file whose name a file of others has."""
    return TargetError(
        f"A derived file must be new, or one that the manifest names; {path!r} is "
        f"neither. Give --overwrite to replace it, or move it away."
    )


def _sync(folder: str) -> None:
    """Makes the names of derived files survive a power loss."""
    for name in DERIVED_FOLDERS:
        with contextlib.suppress(FileNotFoundError):
            storage(os.path.join(folder, name)).sync_directory()
    storage(folder).sync_directory()
