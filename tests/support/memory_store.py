"""An object store in memory, which the program reaches at every `s3://` path.

The version of an object is a digest of its content, as that of S3 is. An object is as
old as a test says, and new until then.
"""

import datetime
import hashlib
import io
import time
from typing import IO, Any

import pyarrow.fs as pafs
import pytest

from transforms.storage import stores
from transforms.storage.buckets import Bucket
from transforms.storage.protocol import Look
from transforms.storage.retry import OvertakenError

# Seconds since 1970: ages are counted from the start of the test.
_NOW = int(time.time())
_SECOND_NS = 10**9


class MemoryStore(Bucket):
    """Objects by key; see `Bucket`."""

    place = "s3://memory"

    def __init__(self) -> None:
        # key -> content, version, age in seconds
        self._objects: dict[str, tuple[bytes, str, float]] = {}

    @property
    def keys(self) -> list[str]:
        """The keys, sorted."""
        return sorted(self._objects)

    @property
    def contents(self) -> frozenset[tuple[str, str, float]]:
        """(key, version, age) of all objects."""
        return frozenset((key, *found[1:]) for key, found in self._objects.items())

    def read(self, key: str) -> bytes:
        """Returns an object."""
        return self._objects[key][0]

    def age(self, seconds: float, *keys: str) -> None:
        """Lets objects be as old as that; all of them where none is named."""
        for key in keys or self.keys:
            self._objects[key] = (*self._objects[key][:2], seconds)

    def clear(self) -> None:
        """Removes all objects."""
        self._objects.clear()

    def look(self, key: str) -> Look:
        found = self._objects.get(key)
        return Look() if found is None else Look(*found[1:])

    def put(self, key: str, file: IO[bytes], size: int, version: str | None) -> None:
        if version is not None and self.look(key).version != version:
            raise OvertakenError(key)
        self.write(key, file.read())

    def write(self, key: str, data: bytes) -> None:
        """Writes an object."""
        word = hashlib.blake2b(data, digest_size=8).hexdigest()
        self._objects[key] = data, word, 0.0

    def copy(self, key: str, to: str) -> None:
        self.write(to, self.read(key))

    def remove(self, key: str) -> None:
        self._objects.pop(key, None)

    def remove_below(self, folder: str) -> None:
        for key in self.keys:
            if key.startswith(f"{folder}/"):
                self.remove(key)

    def get_file_info(self, asked: Any) -> Any:
        """What `pyarrow.fs.FileSystem.get_file_info` says."""
        if isinstance(asked, pafs.FileSelector):
            return self._below(asked)
        if isinstance(asked, list):
            return [self._info(key) for key in asked]
        return self._info(asked)

    def open_input_stream(self, key: str, compression: Any = None) -> "_Object":
        if key not in self._objects:
            raise FileNotFoundError(key)
        data, _, age = self._objects[key]
        return _Object(data, age)

    open_input_file = open_input_stream

    def _info(self, key: str) -> pafs.FileInfo:
        if key in self._objects:
            data, _, age = self._objects[key]
            written = int((_NOW - age) * _SECOND_NS)
            kind = pafs.FileType.File
            return pafs.FileInfo(key, kind, size=len(data), mtime_ns=written)
        below = any(each.startswith(f"{key.rstrip('/')}/") for each in self._objects)
        kind = pafs.FileType.Directory if below else pafs.FileType.NotFound
        return pafs.FileInfo(key, kind)

    def _below(self, asked: pafs.FileSelector) -> list[pafs.FileInfo]:
        top = f"{asked.base_dir.rstrip('/')}/"
        names = [key.removeprefix(top) for key in self.keys if key.startswith(top)]
        if not names and not asked.allow_not_found:
            raise FileNotFoundError(top)
        if not asked.recursive:
            names = [*dict.fromkeys(name.partition("/")[0] for name in names)]
        return [self._info(top + name) for name in names]


class _Object(io.BytesIO):
    """An object that is open for reading."""

    def __init__(self, data: bytes, age: float) -> None:
        super().__init__(data)
        self._age = age

    def metadata(self) -> dict[str, bytes]:
        written = datetime.datetime.fromtimestamp(_NOW - self._age, datetime.UTC)
        return {
            "Last-Modified": written.isoformat().encode(),
            "Content-Length": str(self.size()).encode(),
        }

    def size(self) -> int:
        return len(self.getbuffer())

    def read_at(self, size: int, start: int) -> bytes:
        return bytes(self.getbuffer()[start : start + size])


def install(store: MemoryStore, patch: pytest.MonkeyPatch) -> MemoryStore:
    """Puts a store in the place of every bucket, for this process; returns it."""

    def system(path: str) -> tuple[MemoryStore, str]:
        return store, "/".join(path.split("/")[3:])

    patch.setattr(stores, "file_system", system)
    patch.setattr(stores, "client_of", lambda path, attempts="": store)
    return store
