"""An object store in a folder, which the program reaches at every `s3://` path.

Versions of objects are numbers of writes. Ages are 0 until a test says otherwise.
"""

import itertools
import pathlib

import pyarrow.fs as pafs
import pytest

from transforms.publishing.bucket import runs as bucket_runs
from transforms.storage import (
    object_clients,
    remote_look,
    remote_reads,
    remote_writes,
)
from transforms.storage.object_store import Listed, Look, OvertakenError
from transforms.work import versions

__all__ = ["FolderStore", "install", "new_store"]


class FolderStore:
    """Objects by key; see `transforms.storage.object_store.Client`.

    Attributes:
      root: the folder.
      ages: key -> seconds since it was put, for those that are not new.
    """

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        self.ages: dict[str, float] = {}
        self._numbers = itertools.count(1)
        self._versions: dict[str, str] = {}

    @property
    def keys(self) -> list[str]:
        """The keys, sorted."""
        return sorted(self._versions)

    def read(self, key: str) -> bytes:
        """Returns an object."""
        return (self.root / key).read_bytes()

    def look(self, key: str) -> Look:
        return Look(self._versions.get(key, ""), self.ages.get(key, 0.0))

    def put(self, key: str, data: bytes) -> None:
        path = self.root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        self.ages.pop(key, None)
        self._versions[key] = str(next(self._numbers))

    def put_file(self, key: str, local: str) -> None:
        self.put(key, pathlib.Path(local).read_bytes())

    def put_if(self, key: str, data: bytes, version: str) -> None:
        if self.look(key).version != version:
            raise OvertakenError(key)
        self.put(key, data)

    def remove(self, key: str) -> None:
        if self._versions.pop(key, None) is None:
            return
        path = self.root / key
        path.unlink()
        # There are no folders in a store, and so none that are empty.
        for parent in path.parents:
            if parent == self.root or any(parent.iterdir()):
                break
            parent.rmdir()

    def remove_below(self, folder: str) -> None:
        for key in self.keys:
            if key.startswith(f"{folder}/"):
                self.remove(key)

    def list_in(self, folder: str) -> list[Listed] | None:
        return None

    def uploads(self, prefix: str) -> list[tuple[str, str]]:
        return []

    def give_up(self, key: str, upload: str) -> None:
        raise AssertionError("there are no uploads in parts")


def install(store: FolderStore, patch: pytest.MonkeyPatch) -> None:
    """Puts a store in the place of every bucket, for this process."""

    def system(path: str) -> tuple[pafs.FileSystem, str]:
        local = pafs.SubTreeFileSystem(str(store.root), pafs.LocalFileSystem())
        return local, "/".join(path.split("/")[3:])

    for module in (remote_look, remote_reads, remote_writes):
        patch.setattr(module, "file_system", system)
    for client in (object_clients, bucket_runs, versions):
        patch.setattr(client, "client_of", lambda path: store)


def new_store(root: pathlib.Path, patch: pytest.MonkeyPatch) -> FolderStore:
    """Makes an empty store in a new folder, and installs it."""
    root.mkdir()
    store = FolderStore(root)
    install(store, patch)
    return store
