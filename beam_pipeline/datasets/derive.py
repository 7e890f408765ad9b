"""Add derived files to a committed dataset: all of it stays as it is, but its manifest.

The files are written under temporary names in the work folder beside the dataset, and
get their own names when they are whole. The manifest that names them replaces the old
one last, in one step. Killed before that, a run leaves files that no manifest names;
the same command again takes them over.
"""

import contextlib
import dataclasses
import hashlib
import os
from collections.abc import Iterator, Sequence

import google_crc32c

from transforms import files
from transforms.core.manifest import (
    DERIVED_FOLDERS,
    MANIFEST_NAME,
    DerivedFile,
    FileFacts,
    Manifest,
)
from transforms.errors import TargetError
from transforms.publishing import target, work_folder
from transforms.storage.object_store import OvertakenError
from transforms.storage.paths import is_remote
from transforms.storage.retry import storing
from transforms.work.store import Store
from transforms.work.versions import put_if, version_of

__all__ = ["Deriving", "deriving"]

_MAKER = "beam-tfrecord"
_WORK = hashlib.blake2b(b"derived files", digest_size=16).hexdigest()


class Deriving:
    """Writes derived files of one dataset.

    Attributes:
      manifest: of the dataset, as it was at the start.
      attempts: a folder for temporary files.
    """

    def __init__(
        self,
        directory: str,
        manifest: Manifest,
        attempts: str,
        *,
        version: str,
        overwrite: bool,
    ) -> None:
        self.manifest = manifest
        self.attempts = attempts
        self._directory = directory
        self._version = version
        self._overwrite = overwrite
        self._known = {facts.file for facts in manifest.derived}
        self._facts: dict[str, FileFacts] = {}

    def write(self, name: str, data: bytes) -> None:
        """Writes a derived file.

        Raises:
          TargetError: a file of others has its name.
        """
        path = self.manifest.path(self._directory, name)
        if not files.exists(path) or files.read_bytes(path) != data:
            files.write_file(self.free_path_of(name), data, attempts=self.attempts)
        self.add([FileFacts(name, len(data), google_crc32c.value(data))])

    def free_path_of(self, name: str) -> str:
        """Returns the path of a derived file that is to be written; makes its folder.

        Raises:
          TargetError: a file of others has its name.
        """
        path = self.manifest.path(self._directory, name)
        is_ours = name in self._known or self._overwrite
        if not is_ours and files.exists(path):
            raise TargetError(
                f"A derived file must be new, or one that the manifest names; {path!r} "
                f"is neither. Give --overwrite to replace it, or move it away."
            )
        if not is_remote(path):
            with contextlib.suppress(FileExistsError):
                os.mkdir(os.path.dirname(path))
        return path

    def add(self, facts: Sequence[FileFacts]) -> None:
        """Notes files that are written."""
        self._facts |= {each.file: each for each in facts}

    def finished(self) -> Manifest:
        """Returns the manifest with what was written."""
        made = {
            name: DerivedFile(name, facts.bytes, facts.crc32c, _MAKER, self._version)
            for name, facts in self._facts.items()
        }
        merged = {facts.file: facts for facts in self.manifest.derived} | made
        derived = tuple(merged[name] for name in sorted(merged))
        return dataclasses.replace(self.manifest, derived=derived)


@contextlib.contextmanager
def deriving(
    directory: str, *, version: str, overwrite: bool = False
) -> Iterator[Deriving]:
    """Gives what writes derived files of a dataset, and replaces its manifest after.

    Args:
      directory: of the dataset.
      version: of this program, which the manifest states.
      overwrite: whether files of others that have their names are replaced.

    Raises:
      TargetError: the dataset was replaced meanwhile, or another run is at work.
      DamageError: the manifest is damaged.
      StorageError: a file could not be written.
    """
    work_folder.recover(directory)
    with storing(directory), work_folder.held(directory):
        path = os.path.join(directory, MANIFEST_NAME)
        seen = version_of(path)
        manifest = target.read_manifest(directory)
        store = Store(os.path.join(target.work_folder(directory), _WORK))
        if not is_remote(directory):
            store.make()
        try:
            work = Deriving(
                directory,
                manifest,
                store.attempts,
                version=version,
                overwrite=overwrite,
            )
            yield work
            finished = work.finished()
            if finished != manifest:
                _sync(directory)
                _replace(path, finished, seen, store)
        finally:
            if not is_remote(directory):
                store.remove_tree(store.folder)


def _sync(directory: str) -> None:
    """Makes names survive a power loss, before the manifest has them."""
    if is_remote(directory):
        return
    for name in DERIVED_FOLDERS:
        with contextlib.suppress(FileNotFoundError):
            files.sync_directory(os.path.join(directory, name))
    files.sync_directory(directory)


def _replace(path: str, manifest: Manifest, seen: str, store: Store) -> None:
    try:
        put_if(path, manifest.to_bytes(), seen, attempts=store.attempts)
    except OvertakenError as error:
        raise TargetError(
            f"The dataset must stay as it was at the start; {path!r} was replaced "
            f"meanwhile, and is as the other run has left it. Run again."
        ) from error
