"""A stand-in for an object store that is too large, or too odd, for a real server."""

import datetime
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow.fs as pafs
import pytest

from transforms.storage import stores

WRITTEN = datetime.datetime(2024, 5, 1, tzinfo=datetime.UTC)


class FlatStore:
    """Objects by key, listed as Arrow lists those of S3; none can be read.

    Attributes:
      bucket: what their paths begin with.
      listed: the folders that were listed, and whether with all below them.
    """

    def __init__(self, bucket: str) -> None:
        self.bucket = bucket
        self.listed: list[tuple[str, bool]] = []

    def keys(self, prefix: str) -> Iterable[tuple[str, int]]:
        """Yields the keys that begin so, and sizes; this store has none."""
        return ()

    def get_file_info(self, asked: Any) -> Any:
        """Answers for `pafs.FileSystem`: a selector with a list, a path with one."""
        if isinstance(asked, pafs.FileSelector):
            self.listed.append((asked.base_dir, asked.recursive))
            return list(self._infos(asked.base_dir, asked.recursive))
        found = any(True for _ in self.keys(f"{self._key(asked)}/".lstrip("/")))
        kind = pafs.FileType.Directory if found else pafs.FileType.NotFound
        return pafs.FileInfo(asked, kind)

    def _key(self, path: str) -> str:
        return path.removeprefix(self.bucket).lstrip("/")

    def _infos(self, base: str, recursive: bool) -> Iterator[pafs.FileInfo]:
        key = self._key(base)
        prefix = f"{key}/" if key else ""
        folders: set[str] = set()
        for each, size in self.keys(prefix):
            name, slash, _ = each.removeprefix(prefix).partition("/")
            if recursive or not slash:
                path = f"{self.bucket}/{each}"
                yield pafs.FileInfo(path, pafs.FileType.File, mtime=WRITTEN, size=size)
            elif name not in folders:
                folders.add(name)
                yield pafs.FileInfo(
                    f"{self.bucket}/{prefix}{name}", pafs.FileType.Directory
                )


def install(store: FlatStore, patch: pytest.MonkeyPatch) -> None:
    """Reaches all places of this process in the store."""

    def system(path: str) -> tuple[FlatStore, str]:
        return store, path.partition("://")[2]

    patch.setattr(stores, "file_system", system)
