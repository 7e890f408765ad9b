"""Files on this machine's disks, and on file systems that are mounted here.

What fails in passing is tried again: each read, each rename, each removal, and of a
file whose content is in memory the whole writing; see `transforms.storage.retry`. What
changes names, and publishes a directory, is in `transforms.storage.folders`.
"""

import bisect
import contextlib
import ctypes
import errno
import functools
import glob
import heapq
import io
import itertools
import os
import secrets
import shutil
import stat
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

from transforms.core.files import open_regular, open_stream, open_with_status
from transforms.storage import folders
from transforms.storage.drafts import Draft
from transforms.storage.paths import (
    HIDDEN_STARTS,
    FileEntry,
    is_hidden,
    is_remote,
    relative,
    stamp,
)
from transforms.storage.protocol import Look, Standing, StoredPath, TooLargeError
from transforms.storage.retry import is_transient, persistently

if TYPE_CHECKING:
    import pyarrow as pa

    from transforms.storage.file_list import FileList, FileLister

# The disk is given a file in pieces of this size.
_WRITEBACK_BYTES = 8 << 20
_SYNC_FILE_RANGE_WRITE = 2
# As many as one call of writev(2) takes.
_PIECES = 1024
# A file is written by calls of this size. Linux gives the page cache of a larger one
# blocks of memory of its size, and a virtual machine's host takes back free ones of 2
# MB: each of their pages is then a fault, which costs three times as much as the copy.
# With calls of 256 KB, 20,000 photos take 8 % more: threads wait for each other.
_WRITE_BYTES = 1 << 20
# A file of unknown length is read in pieces of this size.
_PIECE_BYTES = 1 << 24

_libc = ctypes.CDLL(None, use_errno=True)

_attempts = itertools.count()


class LocalPath(StoredPath):
    """A path that the operating system can open by name."""

    __slots__ = ()

    def standing(self) -> Standing:
        status = folders.status_of(self.path, followed=True)
        if status is None:
            # A link that leads nowhere; what has come since the look is none.
            return "other" if os.path.islink(self.path) else ""
        if stat.S_ISDIR(status.st_mode):
            return "folder"
        return "file" if stat.S_ISREG(status.st_mode) else "other"

    def is_inside(self, folder: str) -> bool:
        path, folder = os.path.realpath(self.path), os.path.realpath(folder)
        return os.path.commonpath([path, folder]) == folder

    def look(self) -> Look:
        if not self.is_file():
            return Look()
        status = os.stat(self.path)
        return Look(f"{status.st_size}-{status.st_mtime_ns}")

    def stat_entry(self, root: str) -> FileEntry:
        status = persistently(lambda: os.stat(self.path), path=self.path)
        return FileEntry(relative(self.path, root), status.st_size, status.st_mtime_ns)

    def expand(self) -> list[str]:
        matches = glob.glob(self.path, recursive=True)
        return sorted((p for p in matches if not os.path.isdir(p)), key=os.fsencode)

    def _listed(self) -> "FileList":
        # Here, because what only checks files is to start without Arrow.
        from transforms.storage.file_list import FileLister

        lister = FileLister()
        seen: set[tuple[int, int]] = set()
        # The first name in byte order is the one under which a folder counts.
        pending = [(b"", "")]
        while pending:
            _, folder = heapq.heappop(pending)
            full = os.path.join(self.path, folder) if folder else self.path
            scan = functools.partial(_scan, full, folder, seen, lister)
            for path in persistently(scan):
                heapq.heappush(pending, (os.fsencode(path), path))
        return lister.files()

    def names_in(self) -> list[str]:
        names = persistently(lambda: os.listdir(self.path), path=self.path)
        return sorted(names, key=os.fsencode)

    def entries_in(self, root: str) -> list[FileEntry]:
        paths = [os.path.join(self.path, name) for name in self.names_in()]
        return [
            LocalPath(path).stat_entry(root)
            if os.path.exists(path)
            else FileEntry(relative(path, root), 0, 0)
            for path in paths
            if not os.path.isdir(path)
        ]

    def open_unbuffered(self) -> BinaryIO:
        opened = functools.partial(_PersistentFile, self.path, opener=open_stream)
        return persistently(opened, path=self.path)

    def mapped(self) -> "pa.NativeFile":
        # Here, because what only checks files is to start without Arrow.
        import pyarrow as pa

        # Arrow opens the file by its name.
        os.close(open_regular(self.path, os.O_RDONLY))
        return pa.memory_map(self.path)

    def read_stamped(self, limit: int | None = None) -> tuple[bytes, int]:
        work = functools.partial(_read, self.path, 0, None, limit)
        return persistently(work, path=self.path)

    def _read_range(self, start: int, stop: int) -> tuple[bytes, int]:
        work = functools.partial(_read, self.path, start, stop)
        return persistently(work, path=self.path)

    def draft(self, *, attempts: str, durable: bool = True) -> Draft:
        return _LocalDraft(self.path, attempts, durable=durable)

    def copy_to(self, target: str) -> bool:
        if is_remote(target):
            return False
        try:
            os.link(self.path, target)
        except OSError:
            # Of another file system, or one without links: the copy says what fails.
            return False
        return True

    def remove_file(self, *, below: str = "") -> None:
        with (
            contextlib.suppress(FileNotFoundError),
            _name_below(self.path, below) as (name, folder),
        ):
            folders.remove(os.unlink, name, folder=folder, shown=self.path)

    def remove_tree(self, *, below: str = "") -> None:
        with (
            contextlib.suppress(FileNotFoundError),
            _name_below(self.path, below) as (name, folder),
        ):
            # A stopped run may just be making one more file there.
            work = functools.partial(shutil.rmtree, name, dir_fd=folder)
            persistently(work, path=self.path, also={errno.ENOTEMPTY})

    def sync_directory(self) -> None:
        persistently(functools.partial(_sync_directory, self.path), path=self.path)


def _scan(
    full: str, folder: str, seen: set[tuple[int, int]], found: "FileLister"
) -> list[str]:
    """Lists the files of a folder; returns the folders in it. Nothing if it was seen.

    Millions of names pass here.
    """
    below: list[str] = []
    status = os.stat(full)
    if (status.st_dev, status.st_ino) in seen:
        return below
    prefix = f"{folder}/" if folder else ""
    with os.scandir(full) as entries:
        for entry in entries:
            name = entry.name
            if name[0] in HIDDEN_STARTS and is_hidden(name):
                found.add(prefix + name, 0, 0, hidden=True)
                continue
            try:
                if entry.is_dir():
                    below.append(prefix + name)
                    continue
                status_of_file = entry.stat()
                size, modified_ns = status_of_file.st_size, status_of_file.st_mtime_ns
            except OSError as error:
                if is_transient(error):
                    raise
                # A dangling link, or one to itself: listed, so that reading it
                # becomes a reject by name.
                size, modified_ns = 0, 0
            found.add(prefix + name, size, modified_ns)
    seen.add((status.st_dev, status.st_ino))
    return below


class _PersistentFile(io.FileIO):
    """A file whose reads are repeated: a failed read does not move the position."""

    def readinto(self, buffer: Any, /) -> int | None:
        work = functools.partial(io.FileIO.readinto, self, buffer)
        return persistently(work, path=str(self.name))

    def readall(self) -> bytes:
        # `FileIO.readall` would lose what it had read before a failure.
        parts = []
        read = functools.partial(self.read, _PIECE_BYTES)
        while piece := persistently(read, path=str(self.name)):
            parts.append(piece)
        return b"".join(parts)


def _read(
    path: str, start: int = 0, stop: int | None = None, limit: int | None = None
) -> tuple[bytes, int]:
    """Returns bytes [start, stop) of a file, fewer at its end, and its stamp.

    Without a stop, all from the start; TooLargeError for a file beyond `limit`.
    """
    # Images are many, and each call here takes part of a microsecond.
    descriptor, status = open_with_status(path, os.O_RDONLY)
    try:
        if limit is not None and status.st_size > limit:
            raise TooLargeError(path, status.st_size, status.st_mtime_ns)
        parts = []
        # One byte more than there should be says whether the file has grown.
        left = (status.st_size + 1 if stop is None else stop) - start
        while left > 0 and (piece := os.pread(descriptor, left, start)):
            parts.append(piece)
            start += len(piece)
            if start == status.st_size:
                break
            left = _WRITE_BYTES if stop is None else stop - start
        status = os.fstat(descriptor)
        # One piece is not copied.
        return b"".join(parts), stamp(status.st_size, status.st_mtime_ns)
    finally:
        os.close(descriptor)


class _LocalDraft:
    """A file without its final name; takes all that is written, as a bare one may not.

    Pieces of a durable file go to the disk while it is being written, so that the sync
    at the end has little left to wait for. The descriptor stays open until then: one
    opened later may not learn of a failed write-back.
    """

    def __init__(self, path: str, attempts: str, *, durable: bool) -> None:
        self.path = path
        self._raw = persistently(functools.partial(_open_attempt, attempts), path=path)
        self._temporary = str(self._raw.name)
        self._durable = durable
        self._unsent = 0

    def write(self, data: bytes | memoryview, /) -> int:
        view = memoryview(data)
        size = len(view)
        while view:
            view = view[self._raw.write(view[:_WRITE_BYTES]) :]
        self._written(size)
        return size

    def write_all(self, pieces: Sequence[bytes | memoryview], /) -> None:
        ends = [0, *itertools.accumulate(map(len, pieces))]
        start = 0
        while start < len(pieces):
            fits = bisect.bisect_right(ends, ends[start] + _WRITE_BYTES) - 1
            stop = min(max(fits, start + 1), start + _PIECES)
            some = pieces[start:stop]
            if len(some) == 1:
                # It may be large.
                self.write(some[0])
            else:
                written = os.writev(self._raw.fileno(), some)
                self._written(written)
                if written < ends[stop] - ends[start]:
                    # A signal came, or the disk is nearly full: the write says which.
                    self.write(memoryview(b"".join(some))[written:])
            start = stop

    def _written(self, size: int) -> None:
        self._unsent += size
        if self._durable and self._unsent >= _WRITEBACK_BYTES:
            _begin_writeback(self._raw.fileno())
            self._unsent = 0

    def sync(self) -> None:
        with self._raw:
            if self._durable:
                os.fsync(self._raw.fileno())

    def publish(self) -> None:
        folders.rename(self._temporary, self.path)

    def discard(self) -> None:
        # What went wrong first is what counts; the folder of attempts goes later.
        with contextlib.suppress(OSError):
            self._raw.close()
        with contextlib.suppress(OSError):
            os.unlink(self._temporary)


def _begin_writeback(descriptor: int) -> None:
    """Asks the disk to take now what it lacks of a file; does not wait for it."""
    if hasattr(_libc, "sync_file_range"):
        # From the first byte to the last.
        zero = ctypes.c_longlong(0)
        _libc.sync_file_range(descriptor, zero, zero, _SYNC_FILE_RANGE_WRITE)


def _open_attempt(folder: str) -> io.FileIO:
    """Opens a new file for writing, named for this process and attempt alone."""
    name = f"{os.getpid()}-{next(_attempts)}-{secrets.token_hex(4)}.tmp"
    return open(os.path.join(folder, name), "xb", buffering=0)


@contextlib.contextmanager
def _name_below(path: str, below: str) -> Iterator[tuple[str, int | None]]:
    """Gives a file's name and a descriptor of its folder; see `remove_file`."""
    if not below:
        yield path, None
        return
    with folders.opened_below(os.path.dirname(path), below) as descriptor:
        yield os.path.basename(path), descriptor


def _sync_directory(path: str) -> None:
    """Makes a rename durable: a new name is in the folder, not in the file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
