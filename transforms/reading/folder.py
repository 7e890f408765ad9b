"""The files of a dataset as they were when it was opened."""

import functools
import logging
import os
import threading
from collections.abc import Sequence

import pyarrow as pa

from transforms.core.files import open_regular
from transforms.errors import DamageError, SourceError, source_error
from transforms.formats.tfrecord_files.dataset import Edition, Shard
from transforms.storage.drafts import most_files
from transforms.storage.files import storage
from transforms.storage.paths import common_folder, is_remote

# A lock for each process: one that another thread holds in the middle of a fork is
# never released in the child.
ForkSafeLocks = dict[int, threading.Lock]


def lock_of(locks: ForkSafeLocks) -> threading.Lock:
    """Returns the lock of this process."""
    return locks.setdefault(os.getpid(), threading.Lock())


class OpenFile:
    """A file on a disk. It is closed when nobody holds it: no read loses it.

    Attributes:
      descriptor: of the open file.
      size: its bytes, when it was opened.
    """

    __slots__ = ("descriptor", "size")
    # When the interpreter ends, modules are emptied before the last objects go.
    _close = staticmethod(os.close)

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.size = os.fstat(descriptor).st_size

    def __del__(self) -> None:
        self._close(self.descriptor)


class Folder:
    """A folder of shards; on a disk, the one that had the name when it was opened.

    Args:
      path: of the folder; empty where the names are whole paths.

    Attributes:
      open: the files that are open, by name.

    Raises:
      SourceError: there is no such folder.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.is_remote = is_remote(path)
        self.open: dict[str, OpenFile] = {}
        self._folder: OpenFile | None = None
        if path and not self.is_remote:
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except OSError as error:
                raise _unreadable(path, error) from error
            self._folder = OpenFile(descriptor)

    def place(self, name: str) -> str:
        """Returns the path of a file, for messages."""
        return os.path.join(self.path, name) if self.path else name

    def opened(self, name: str) -> OpenFile:
        """Returns a file of a disk, open; another call may give it again.

        Raises:
          SourceError: it is not there, or cannot be read.
        """
        file = self.open.get(name)
        if file is None:
            if len(self.open) >= most_files():
                # Those that are being read now are closed after that.
                self.open.clear()
            file = self.open[name] = self._newly_opened(name)
        return file

    def _newly_opened(self, name: str) -> OpenFile:
        beside = None if self._folder is None else self._folder.descriptor
        try:
            return OpenFile(open_regular(name, os.O_RDONLY, beside))
        except OSError as error:
            raise _unreadable(self.place(name), error) from error

    def size_of(self, name: str) -> int:
        """Returns the bytes of a file. Raises SourceError."""
        if not self.is_remote:
            return self.opened(name).size
        try:
            return storage(self.place(name)).size_of()
        except OSError as error:
            raise _unreadable(self.place(name), error) from error

    def mapped(self, name: str) -> memoryview:
        """Returns all of a file; of a disk, mapped. No descriptor is kept for it.

        Raises:
          SourceError: it is not there, or cannot be read.
        """
        if self.is_remote:
            return memoryview(self.read(name, 0, self.size_of(name)))
        file = self._newly_opened(name)
        if not file.size:
            return memoryview(b"")
        try:
            # Unlike Python's, this map has no descriptor of its own.
            with pa.memory_map(f"/dev/fd/{file.descriptor}") as content:
                return memoryview(content.read_buffer())
        except OSError as error:
            raise _unreadable(self.place(name), error) from error

    def read(self, name: str, start: int, stop: int) -> bytes:
        """Returns a part of a file; less where it is shorter. Raises SourceError."""
        try:
            if self.is_remote:
                return storage(self.place(name)).read_range(start, stop)
            file = self.open.get(name) or self.opened(name)
            return os.pread(file.descriptor, stop - start, start)
        except OSError as error:
            raise _unreadable(self.place(name), error) from error


def _unreadable(path: str, error: OSError) -> SourceError:
    """Returns the error about a file that cannot be read, with the system's reason."""
    message = f"{path}: cannot be read: {error.strerror or error}"
    return source_error(message, error)


_log = logging.getLogger(__name__)


@functools.lru_cache(maxsize=256)
def warn_once(message: str) -> None:
    """Logs a warning, unless this process has said the same before."""
    _log.warning("%s", message)


def folder_of(shards: Sequence[Shard]) -> str:
    """Returns the folder of all shards; in a store, the lowest one above all of them.

    Empty where those of a disk are in several.
    """
    folders = {os.path.dirname(shard.path) for shard in shards}
    if len(folders) < 2:
        return next(iter(folders), "")
    paths = [shard.path for shard in shards]
    return common_folder(paths) if is_remote(paths[0]) else ""


def replaced(edition: Edition) -> DamageError | None:
    """Returns the error of a dataset that was replaced; None where it was not."""
    change = edition.replacement()
    if not change:
        return None
    return DamageError(
        f"The dataset must stay as it was when it was opened; it was replaced while "
        f"open: {change}. Open it again."
    )
