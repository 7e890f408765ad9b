"""The one file layer: list, read, write then rename, delete exact paths.

Nothing here expands a pattern on behalf of a write or a delete: names reach the
operating system as they are, whatever `*`, `[` or `?` they hold.

A file is written under a temporary name of its own attempt, flushed, synced and then
renamed, so that a name that exists is a whole file. What fails in passing is tried
again: each read, each rename, each removal, and of a file whose content is at hand the
whole writing; see `transforms.storage.retry`. What changes names, and publishes a
directory, is in `transforms.storage.folders`.
"""

import collections
import contextlib
import ctypes
import dataclasses
import errno
import fcntl
import functools
import glob
import heapq
import io
import itertools
import os
import secrets
import shutil
import stat
import unicodedata
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any, BinaryIO, Literal, Protocol, cast

from transforms.core.regular_files import open_regular, open_stream
from transforms.errors import TargetError, source_error
from transforms.storage import folders
from transforms.storage.limits import TooLargeError
from transforms.storage.paths import is_remote, relative
from transforms.storage.retry import is_transient, persistently, storing

if TYPE_CHECKING:
    import pyarrow as pa

    from transforms.storage import remote
else:

    class _Remote:
        """Files of other places: what reaches them is loaded where one is asked for.

        Most commands touch none, and are done in half a second.
        """

        def __getattr__(self, name: str) -> Any:
            from transforms.storage import remote

            return getattr(remote, name)

    remote = _Remote()

__all__ = [
    "FileEntry",
    "Sink",
    "Standing",
    "create",
    "entries_in",
    "exists",
    "exclusive_lock",
    "expand",
    "is_file",
    "is_folder",
    "is_hidden",
    "is_inside",
    "is_pattern",
    "list_tree",
    "listed_so_far",
    "mapped",
    "names_in",
    "open_input",
    "open_unbuffered",
    "opened",
    "read_bytes",
    "read_range",
    "rename",
    "remove_file",
    "remove_tree",
    "read_stamped",
    "size_of",
    "stat_entry",
    "stamp",
    "stamp_of",
    "standing",
    "sync_directory",
    "write_file",
]

# What has a name: see `standing`.
Standing = Literal["", "file", "folder", "other"]
# The disk is given a file in pieces of this size.
_WRITEBACK_BYTES = 8 << 20
_SYNC_FILE_RANGE_WRITE = 2
# A file of unknown length is read in pieces of this size.
_PIECE_BYTES = 1 << 24

_libc = ctypes.CDLL(None, use_errno=True)

_attempts = itertools.count()


@dataclasses.dataclass(frozen=True, slots=True)
class FileEntry:
    """One file of a source.

    Attributes:
      path: relative to the source's root, `/` between, as the file system has it.
      size: bytes.
      modified_ns: modification time, nanoseconds since the epoch.
      skipped: why it is not read: "hidden" or ""; see `list_tree`.
    """

    path: str
    size: int
    modified_ns: int
    skipped: str = ""

    @property
    def stamp(self) -> int:
        """See `stamp`."""
        return stamp(self.size, self.modified_ns)

    @property
    def origin(self) -> str:
        """The path in NFC: the identity that placement hashes."""
        return unicodedata.normalize("NFC", self.path)


def stamp(size: int, modified_ns: int) -> int:
    """Returns one number for the state of a file: another one when it has changed."""
    mixed = (modified_ns * 0x9E3779B97F4A7C15 + size) % 2**64
    return mixed - 2**64 if mixed >= 2**63 else mixed


def stamp_of(file: IO[bytes] | int) -> int:
    """Returns the stamp of an open file."""
    raw = getattr(file, "raw", file)
    if not isinstance(raw, int | io.FileIO) and isinstance(raw, remote.RemoteFile):
        return stamp(raw.size, raw.modified_ns)
    status = os.fstat(file if isinstance(file, int) else file.fileno())
    return stamp(status.st_size, status.st_mtime_ns)


def is_pattern(path: str) -> bool:
    """Whether the path holds a glob; a name that exists as it stands does not."""
    if is_remote(path):
        return any(c in path for c in "*?[") and not exists(path)
    return not os.path.lexists(path) and any(c in path for c in "*?[")


def expand(pattern: str) -> list[str]:
    """Returns the files that a glob names, in byte order.

    What is no file and no folder is listed too, so that reading it is an error.
    """
    if is_remote(pattern):
        return remote.expand(pattern)
    found = glob.glob(pattern, recursive=True)
    return sorted((p for p in found if not os.path.isdir(p)), key=os.fsencode)


def list_tree(root: str) -> list[FileEntry]:
    """Returns every file below `root`, in the byte order of their paths.

    Names that start with '.' or '__MACOSX' and the like are listed as skipped, so
    that every file is accounted for; hidden folders are not entered but counted as
    one entry. Links to folders are followed once.

    Raises:
      SourceError: the folder or one below it cannot be read.
      StorageError: nor could it when it was tried again.
    """
    if is_remote(root):
        return _list_remote(root)
    entries: list[FileEntry] = []
    seen: set[tuple[int, int]] = set()
    # The first name in byte order is the one under which a folder counts.
    pending = [(b"", "")]
    while pending:
        _, folder = heapq.heappop(pending)
        full = os.path.join(root, folder) if folder else root
        try:
            found = persistently(functools.partial(_scan, full, folder, seen))
        except OSError as error:
            raise source_error(
                f"Every folder of the source must be readable; {full!r} is not: "
                f"{error.strerror}.",
                error,
            ) from error
        entries += found[0]
        _listed.append(len(entries))
        for path in found[1]:
            heapq.heappush(pending, (os.fsencode(path), path))
    entries.sort(key=lambda entry: os.fsencode(entry.path))
    return entries


# How many files the listing under way has found, for who shows it.
_listed: collections.deque[int] = collections.deque([0], maxlen=1)


def listed_so_far() -> int:
    """Returns how many files the last `list_tree` of this process has found yet."""
    return _listed[0]


def _list_remote(root: str) -> list[FileEntry]:
    try:
        found = remote.walk(root)
    except OSError as error:
        raise source_error(
            f"Every folder of the source must be readable; {root!r} is not: "
            f"{error.strerror}.",
            error,
        ) from error
    entries: dict[str, FileEntry] = {}
    for each in found:
        path = relative(each.path, root)
        parts = path.split("/")
        hidden = next((i for i, p in enumerate(parts) if is_hidden(p)), None)
        if hidden is None:
            entries[path] = FileEntry(path, each.size, each.modified_ns)
        else:
            # A hidden folder is one entry, whatever is in it.
            path = "/".join(parts[: hidden + 1])
            entries[path] = FileEntry(path, 0, 0, "hidden")
    return sorted(entries.values(), key=lambda entry: os.fsencode(entry.path))


def _scan(
    full: str, folder: str, seen: set[tuple[int, int]]
) -> tuple[list[FileEntry], list[str]]:
    """Returns the files of a folder, and the folders in it; nothing if it was seen."""
    entries: list[FileEntry] = []
    below: list[str] = []
    status = os.stat(full)
    if (status.st_dev, status.st_ino) in seen:
        return entries, below
    with os.scandir(full) as found:
        for entry in found:
            path = f"{folder}/{entry.name}" if folder else entry.name
            if is_hidden(entry.name):
                entries.append(FileEntry(path, 0, 0, "hidden"))
            elif _is_directory(entry):
                below.append(path)
            else:
                entries.append(_entry(path, entry))
    seen.add((status.st_dev, status.st_ino))
    return entries, below


def is_hidden(name: str) -> bool:
    """Whether systems and programs leave files of such a name beside a user's."""
    return name.startswith(".") or name in ("__MACOSX", "Thumbs.db", "desktop.ini")


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError as error:
        if is_transient(error):
            raise
        # A link to itself, say: no folder, and a reject by name when it is read.
        return False


def _entry(path: str, entry: os.DirEntry[str]) -> FileEntry:
    try:
        status = entry.stat()
    except OSError as error:
        if is_transient(error):
            raise
        # A dangling link, say: listed, so that reading it becomes a reject by name.
        return FileEntry(path, 0, 0)
    return FileEntry(path, status.st_size, status.st_mtime_ns)


def exists(path: str) -> bool:
    """Whether anything has this name, a link that leads nowhere too."""
    if is_remote(path):
        return remote.look(path) is not None
    return folders.status_of(path) is not None


def is_file(path: str) -> bool:
    """Whether a file has this name, or a link to one."""
    if is_remote(path):
        found = remote.look(path)
        return found is not None and not found.is_folder
    status = folders.status_of(path, followed=True)
    return status is not None and stat.S_ISREG(status.st_mode)


def is_folder(path: str) -> bool:
    """Whether a folder has this name; elsewhere, whether anything is below it."""
    if is_remote(path):
        found = remote.look(path)
        return found is not None and found.is_folder
    status = folders.status_of(path, followed=True)
    return status is not None and stat.S_ISDIR(status.st_mode)


def standing(path: str) -> Standing:
    """Returns what has this name, links followed; "" for nothing, in one look."""
    if is_remote(path):
        found = remote.look(path)
        if found is None:
            return ""
        return "folder" if found.is_folder else "file"
    if is_folder(path):
        return "folder"
    if is_file(path):
        return "file"
    return "other" if exists(path) else ""


def names_in(folder: str) -> list[str]:
    """Returns the names of what is in a folder, in byte order; raises OSError."""
    if is_remote(folder):
        names = remote.names_in(folder)
    else:
        names = persistently(lambda: os.listdir(folder), path=folder)
    return sorted(names, key=os.fsencode)


def entries_in(folder: str, root: str) -> list[FileEntry]:
    """Returns the files in a folder, not those below it, as `expand`; raises OSError.

    A link that leads nowhere has no size.
    """
    if is_remote(folder):
        return [
            FileEntry(relative(found.path, root), found.size, found.modified_ns)
            for found in remote.look_in(folder)
            if not found.is_folder
        ]
    paths = [os.path.join(folder, name) for name in names_in(folder)]
    return [
        stat_entry(path, root)
        if os.path.exists(path)
        else FileEntry(relative(path, root), 0, 0)
        for path in paths
        if not os.path.isdir(path)
    ]


def stat_entry(path: str, root: str) -> FileEntry:
    """Returns the entry of a file that is below `root`; raises OSError."""
    if is_remote(path):
        found = remote.look(path)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        size, modified_ns = found.size, found.modified_ns
    else:
        status = os.stat(path)
        size, modified_ns = status.st_size, status.st_mtime_ns
    return FileEntry(relative(path, root), size, modified_ns)


def open_unbuffered(path: str) -> io.RawIOBase:
    """Opens a file for large reads, of which none is copied; raises OSError."""
    if is_remote(path):
        return remote.open_input(path)
    return io.FileIO(path, opener=open_stream)


@contextlib.contextmanager
def opened(path: str) -> Iterator[BinaryIO]:
    """Gives a file for large reads, as `open_unbuffered`.

    Raises:
      SourceError: it cannot be opened.
    """
    try:
        file = open_unbuffered(path)
    except OSError as error:
        raise source_error(
            f"{path}: cannot be opened: {error.strerror or error}.", error
        ) from error
    with file:
        yield cast(BinaryIO, file)


def mapped(path: str) -> "pa.NativeFile":
    """Returns a file for reading at any place, mapped into memory; raises OSError."""
    # Here, because what only checks files is to start without Arrow.
    import pyarrow as pa

    if is_remote(path):
        return pa.BufferReader(remote.remembered(path))
    # Arrow opens the file by its name.
    os.close(open_regular(path, os.O_RDONLY))
    return pa.memory_map(path)


def size_of(path: str) -> int:
    """Returns the size of a file in bytes."""
    if is_remote(path):
        return stat_entry(path, "").size
    return persistently(lambda: os.stat(path).st_size, path=path)


def open_input(path: str, *, stamp: int = 0) -> io.BufferedReader:
    """Opens a file for reading from any place.

    Raises:
      OSError: also when it has another stamp than a `stamp` given.
    """
    if is_remote(path):
        file = remote.buffered(path)
    else:
        opened = functools.partial(_PersistentFile, path, "rb", opener=open_regular)
        file = io.BufferedReader(persistently(opened, path=path))
    if stamp and stamp_of(file) != stamp:
        file.close()
        raise _changed(path)
    return file


def _changed(path: str) -> OSError:
    """Returns the error about a file that has another stamp than when it was listed."""
    return OSError(errno.ESTALE, "it has changed since it was listed", path)


class _PersistentFile(io.FileIO):
    """A file whose reads are tried again; one that has failed has not moved it."""

    def readinto(self, buffer: Any, /) -> int | None:
        return persistently(lambda: io.FileIO.readinto(self, buffer), path=self._path)

    def readall(self) -> bytes:
        # The plain one would lose what it had read before a failure.
        parts = []
        while part := persistently(lambda: self.read(_PIECE_BYTES), path=self._path):
            parts.append(part)
        return b"".join(parts)

    @property
    def _path(self) -> str:
        return os.fsdecode(self.name) if isinstance(self.name, str | bytes) else ""


def read_bytes(path: str, *, stamp: int = 0) -> bytes:
    """Returns a whole file.

    Raises:
      OSError: also when it has another stamp than a `stamp` given.
    """
    data, found = read_stamped(path)
    if stamp and found != stamp:
        raise _changed(path)
    return data


def read_stamped(path: str, limit: int | None = None) -> tuple[bytes, int]:
    """Returns a whole file and its stamp.

    Raises:
      OSError: it cannot be read.
      TooLargeError: it has more bytes than `limit`, and was not read.
    """
    if "://" in path and is_remote(path):
        data, size, modified_ns = remote.read_all(path, limit)
        return data, stamp(size, modified_ns)
    try:
        # Nearly always the first attempt is the only one, and images are many.
        return _read_stamped(path, limit)
    except OSError as error:
        if not is_transient(error):
            raise
    return persistently(functools.partial(_read_stamped, path, limit), path=path)


def _read_stamped(path: str, limit: int | None) -> tuple[bytes, int]:
    descriptor = open_regular(path, os.O_RDONLY)
    try:
        if limit is not None:
            status = os.fstat(descriptor)
            if status.st_size > limit:
                raise TooLargeError(path, status.st_size, status.st_mtime_ns)
        return _read_all(descriptor), stamp_of(descriptor)
    finally:
        os.close(descriptor)


def _read_all(descriptor: int) -> bytes:
    # One read is enough for nearly every file; the loop is for the rest.
    expected = os.fstat(descriptor).st_size
    data = os.read(descriptor, expected + 1)
    if len(data) == expected:
        return data
    parts = [data]
    while part := os.read(descriptor, _PIECE_BYTES):
        parts.append(part)
    return b"".join(parts)


def read_range(path: str, start: int, stop: int, *, stamp: int = 0) -> bytes:
    """Returns bytes [start, stop) of a file.

    Raises:
      OSError: also when it is shorter, or has another stamp than a `stamp` given.
    """
    if is_remote(path):
        found = _read_remote_range(path, start, stop, stamp)
    else:
        work = functools.partial(_read_range, path, start, stop, stamp)
        found = persistently(work, path=path)
    if isinstance(found, OSError):
        raise found
    return found


def _read_range(path: str, start: int, stop: int, stamp: int) -> bytes | OSError:
    """Returns the bytes, or an error that another try would not change."""
    with open(path, "rb", buffering=0, opener=open_regular) as file:
        if stamp and stamp_of(file) != stamp:
            return _changed(path)
        parts = []
        while start < stop:
            # Nearly always all of it at once, and then without a copy.
            part = os.pread(file.fileno(), stop - start, start)
            if not part:
                return OSError(errno.EIO, "the file is shorter than it was", path)
            parts.append(part)
            start += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _read_remote_range(
    path: str, start: int, stop: int, expected: int
) -> bytes | OSError:
    """As `_read_range`."""
    data, size, modified_ns = remote.read_range(path, start, stop)
    if expected and stamp(size, modified_ns) != expected:
        return _changed(path)
    if len(data) < stop - start:
        return OSError(errno.EIO, "the file is shorter than it was", path)
    return data


class Sink(Protocol):
    """A file that is open for writing."""

    def write(self, data: bytes | memoryview, /) -> int:
        """Writes all of `data`; returns its length, or raises OSError."""


class _WholeWrites:
    """Writes all it is given, where a bare file may take less.

    Of a durable one the disk is given each piece as soon as it is written, so that the
    sync at the end has little left to wait for.
    """

    def __init__(self, raw: io.FileIO, *, durable: bool) -> None:
        self._raw = raw
        self._durable = durable
        self._size = 0
        self._begun = 0

    def write(self, data: bytes | memoryview, /) -> int:
        view = memoryview(data)
        while view:
            view = view[self._raw.write(view) :]
        size = len(memoryview(data))
        self._size += size
        if self._durable and self._size - self._begun >= _WRITEBACK_BYTES:
            _begin_writeback(self._raw.fileno(), self._begun, self._size)
            self._begun = self._size
        return size


def _begin_writeback(descriptor: int, start: int, stop: int) -> None:
    """Asks the disk to take a piece of a file now; does not wait, may do nothing."""
    if hasattr(_libc, "sync_file_range"):
        _libc.sync_file_range(
            descriptor,
            ctypes.c_longlong(start),
            ctypes.c_longlong(stop - start),
            _SYNC_FILE_RANGE_WRITE,
        )


@contextlib.contextmanager
def create(path: str, *, attempts: str, durable: bool = True) -> Iterator[Sink]:
    """Writes a file that appears under `path` only when it is whole.

    Args:
      path: the final name; one that exists is replaced.
      attempts: a folder on the same file system for the temporary file; without
        meaning in an object store, where one is uploaded.
      durable: sync the data before the rename.

    Raises:
      OSError: nothing has appeared, and the temporary file is gone. Where the error
        is transient all of it may be done again.
      StorageError: the temporary file could not be made, or not be renamed, though it
        was tried again.
    """
    if is_remote(path):
        with remote.create(path, attempts=attempts) as spooled:
            yield spooled
        return
    raw = persistently(functools.partial(_new_attempt, attempts), path=path)
    temporary = str(raw.name)
    try:
        with raw:
            yield _WholeWrites(raw, durable=durable)
            if durable:
                os.fsync(raw.fileno())
        rename(temporary, path)
    except BaseException as error:
        # What went wrong first is what counts; the folder of attempts goes later.
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        if isinstance(error, OSError) and error.errno and not error.filename:
            # A failed write or sync does not say of what.
            raise OSError(error.errno, error.strerror, path) from error
        raise


def _new_attempt(folder: str) -> io.FileIO:
    name = f"{os.getpid()}-{next(_attempts)}-{secrets.token_hex(4)}.tmp"
    return open(os.path.join(folder, name), "xb", buffering=0)


def write_file(
    path: str,
    *pieces: bytes | memoryview,
    attempts: str,
    durable: bool = True,
) -> None:
    """Writes a file from bytes in memory, with retries.

    Args:
      path, attempts, durable: see `create`.
      pieces: the content.

    Raises:
      StorageError: it could not be written; nothing has appeared.
    """

    def once() -> None:
        with create(path, attempts=attempts, durable=durable) as file:
            for piece in pieces:
                file.write(piece)

    size = sum(memoryview(piece).nbytes for piece in pieces)
    if is_remote(path):
        with storing(path, size=size):
            remote.put(path, b"".join(pieces), attempts=attempts)
        return
    with storing(path, size=size):
        persistently(once, path=path)


def rename(source: str, target: str) -> None:
    """Gives a file another name on its file system, in place of what has it; retried.

    Raises:
      OSError: it could not be done; both are as they were.
      StorageError: nor could it when it was tried again.
    """
    before = persistently(lambda: os.lstat(source), path=source)
    folders.once_only(
        lambda: os.replace(source, target),
        lambda: folders.is_same(before, target),
        path=target,
    )


def remove_file(path: str, *, below: str = "") -> None:
    """Removes exactly this file; it may be gone already.

    Args:
      path: of the file.
      below: a folder above it; no link on the way from there is followed.
    """
    if is_remote(path):
        remote.remove_file(path)
        return
    with (
        contextlib.suppress(FileNotFoundError),
        _name_below(path, below) as (name, folder),
    ):
        before = persistently(lambda: os.lstat(name, dir_fd=folder), path=path)
        # What has the name next may be somebody else's.
        folders.once_only(
            lambda: os.unlink(name, dir_fd=folder),
            lambda: not folders.is_same(before, name, folder=folder),
            path=path,
        )


def remove_tree(path: str, *, below: str = "") -> None:
    """Removes exactly this folder and all below it; it may be gone already.

    Links in it are removed and not followed; a link to a folder is an error.

    Args:
      path, below: see `remove_file`.
    """
    if is_remote(path):
        remote.remove_tree(path)
        return
    with (
        contextlib.suppress(FileNotFoundError),
        _name_below(path, below) as (name, folder),
    ):
        # A stopped run may just be making one more file there.
        work = functools.partial(shutil.rmtree, name, dir_fd=folder)
        persistently(work, path=path, also={errno.ENOTEMPTY})


@contextlib.contextmanager
def _name_below(path: str, below: str) -> Iterator[tuple[str, int | None]]:
    """Gives a file's name and a descriptor of its folder; see `remove_file`."""
    if not below:
        yield path, None
        return
    with folders.opened_below(os.path.dirname(path), below) as descriptor:
        yield os.path.basename(path), descriptor


def sync_directory(path: str) -> None:
    """Makes the names in a folder survive a power loss.

    Other than that of a file, a failed sync of a folder is repeated: names go through
    the file system's journal, and one whose journal has failed takes no further sync.

    Raises:
      StorageError: it failed each time.
    """
    if not is_remote(path):
        persistently(functools.partial(_sync_directory, path), path=path)


def _sync_directory(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_inside(path: str, folder: str) -> bool:
    """Whether `path` is `folder` or is below it, links resolved."""
    if is_remote(path) or is_remote(folder):
        return f"{path}/".startswith(f"{folder.rstrip('/')}/")
    path, folder = os.path.realpath(path), os.path.realpath(folder)
    return os.path.commonpath([path, folder]) == folder


@contextlib.contextmanager
def exclusive_lock(path: str) -> Iterator[None]:
    """Holds a lock that the operating system drops when the process dies.

    Raises:
      TargetError: another process holds it, or its name is that of something else.
    """
    while True:
        with persistently(
            lambda: open(path, "ab", opener=_open_lock), path=path
        ) as file:
            persistently(functools.partial(_lock, file, path), path=path)
            if _is_at(file, path):
                yield
                return
        # Its last holder has removed the file meanwhile; the name is another file's.


def _open_lock(path: str, flags: int) -> int:
    """Opens a lock; a link would never be the file, and a pipe might wait for ever."""
    flags |= os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags, 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK, errno.ENXIO, errno.EISDIR):
            raise _no_lock(path) from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _no_lock(path)
    return descriptor


def _no_lock(path: str) -> TargetError:
    return TargetError(
        f"The lock of a target must be a regular file; {path!r} is a link or "
        f"something else. Remove it, and run again."
    )


def _lock(file: IO[bytes], path: str) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise TargetError(
            f"Only one run may write to a target at a time; another holds "
            f"{path!r}. Wait for it, or write to another output."
        ) from error


def _is_at(file: IO[bytes], path: str) -> bool:
    found = folders.status_of(path)
    return found is not None and os.path.samestat(os.fstat(file.fileno()), found)
