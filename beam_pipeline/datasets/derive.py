"""Add derived files to a committed dataset: all of it stays as it is, but its manifest.

On a disk the files are written in the work folder beside the dataset, and renamed when
all of them are whole; in a bucket each is put in its place, and noted there before. The
manifest that names them replaces the old one last, in one step. What a killed run has
left is finished, taken over or removed by the next run, of `index` or any other, and by
`clean`; see `transforms.publishing.derived_files`.
"""

import contextlib
import dataclasses
import hashlib
import os
from collections.abc import Iterator, Sequence

import google_crc32c

from transforms import files
from transforms.core.manifest import (
    MANIFEST_NAME,
    DerivedFile,
    FileFacts,
    Manifest,
)
from transforms.errors import BusyError
from transforms.publishing import target, work_folder
from transforms.publishing.derived_files import taken_name
from transforms.storage.object_store import OvertakenError
from transforms.storage.retry import storing
from transforms.work.store import Store
from transforms.work.versions import version_of

_MAKER = "beam-tfrecord"
_WORK = hashlib.blake2b(b"derived files", digest_size=16).hexdigest()


class Deriving:
    """Writes derived files of one dataset.

    Attributes:
      manifest: of the dataset, as it was at the start.
      attempts: a folder for temporary files.
      replaced: names of files that may be replaced.
      has_written: whether files are written that the dataset lacks, or has damaged.
    """

    def __init__(
        self,
        directory: str,
        manifest: Manifest,
        store: Store,
        *,
        version: str,
        overwrite: bool,
    ) -> None:
        self.manifest = manifest
        self.attempts = store.attempts
        self.replaced = {facts.file for facts in manifest.derived}
        self.has_written = False
        self._store = store
        self._directory = directory
        self._version = version
        self._overwrite = overwrite
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
        """Returns where a derived file is to be written; its folder is there.

        Raises:
          TargetError: a file of others has its name.
        """
        self.has_written = True
        path = self.manifest.path(self._directory, name)
        if name not in self.replaced:
            if not files.exists(path) or self._store.has_announced(name):
                self._store.announce(name)
            elif self._overwrite:
                self.replaced.add(name)
            else:
                raise taken_name(path)
        return os.path.join(self._store.dataset, name)

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
      BusyError: the dataset was replaced meanwhile, or another run is at work.
      DamageError: the manifest is damaged.
      StorageError: a file could not be written.
    """
    work_folder.recover(directory)
    place = target.at(directory)
    with storing(directory), work_folder.held(directory) as hold:
        seen = version_of(os.path.join(directory, MANIFEST_NAME))
        manifest = target.read_manifest(directory)
        folder = os.path.join(target.work_folder(directory), _WORK)
        store = place.open_derived(Store(folder), manifest, hold)
        try:
            work = Deriving(
                directory, manifest, store, version=version, overwrite=overwrite
            )
            yield work
            finished = work.finished()
            if work.has_written or finished != manifest:
                place.add_derived(store, finished, seen=seen, replaced=work.replaced)
        except OvertakenError as error:
            raise BusyError(
                f"The dataset must stay as it was at the start; {directory!r} was "
                f"written by another run meanwhile, and is as that has left it. Run "
                f"again."
            ) from error
        finally:
            place.leave_derived(store, hold=hold)
