"""Files in object stores and other remote file systems.

Paths have a scheme; see `transforms.storage.paths`. `pyarrow.fs` lists and reads them
(`transforms.storage.arrow`), and the stores' own clients write them
(`transforms.storage.buckets`). Failures that pass are tried again, the others become an
OSError with a number.

Times of modification count in whole seconds: stores list them finer than they tell
them of one object. An object appears when its upload is complete; a file is first
finished and read back in a temporary file of this machine.
"""

import contextlib
import datetime
import errno
import functools
import io
import itertools
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any, TypeVar

import google_crc32c

from transforms.core.manifest import is_data_folder
from transforms.errors import DamageError, RaceError, StorageError
from transforms.storage import arrow, clients
from transforms.storage.buckets import HDFS
from transforms.storage.clients import bucket_of
from transforms.storage.drafts import Draft
from transforms.storage.entries import (
    SECOND_NS,
    FileEntry,
    Found,
    Look,
    OvertakenError,
    Standing,
    TooLargeError,
    stamp,
)
from transforms.storage.paths import is_remote, relative, split_remote
from transforms.storage.protocol import StoredPath
from transforms.storage.read_ahead import read_ahead
from transforms.storage.retry import asked

if TYPE_CHECKING:
    import pyarrow as pa

    from transforms.storage.file_list import FileList

_Result = TypeVar("_Result")
# Reads of an open file fetch at least this much: each costs a round trip.
_FETCH_BYTES = 8 << 20
_COPY_BYTES = 8 << 20
_FILES_REMEMBERED = 4
# As many reads take no longer than to load a store's client library, 0.3 s.
_FEW_READS = 32

# Counts the reads of whole files and of parts.
_reads = itertools.count()
# Path -> the file's state when it was read, and its bytes.
_remembered: dict[str, tuple[Found, bytes]] = {}
# Path -> bytes and time of a file that was fetched ahead of those who read it now.
_held: dict[str, tuple[bytes, int]] = {}


class RemotePath(StoredPath):
    """A path with a scheme; folders are prefixes where a store has none."""

    __slots__ = ()

    def standing(self) -> Standing:
        entry = arrow.look(self.path)
        if entry is None:
            return ""
        return "folder" if entry.is_folder else "file"

    def exists(self) -> bool:
        return arrow.look(self.path) is not None

    def is_inside(self, folder: str) -> bool:
        return f"{self.path}/".startswith(f"{folder.rstrip('/')}/")

    def look(self) -> Look:
        return self._asked(bucket_of(self.path).look)

    def size_of(self) -> int:
        return self.stat_entry("").size

    def stat_entry(self, root: str) -> FileEntry:
        entry = arrow.look(self.path)
        if entry is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.path)
        return FileEntry(relative(self.path, root), entry.size, entry.modified_ns)

    def expand(self) -> list[str]:
        return arrow.expand(self.path)

    def _listed(self) -> "FileList":
        return arrow.list_below(self.path)

    def _names(self) -> list[str]:
        return [os.path.basename(entry.path) for entry in arrow.look_in(self.path)]

    def entries_in(self, root: str) -> list[FileEntry]:
        return [
            FileEntry(relative(entry.path, root), entry.size, entry.modified_ns)
            for entry in arrow.look_in(self.path)
            if not entry.is_folder
        ]

    def open_unbuffered(self) -> io.RawIOBase:
        return RemoteFile(self.path)

    def _open_input(self) -> io.BufferedReader:
        """Of small reads, many are one request."""
        return io.BufferedReader(RemoteFile(self.path), _FETCH_BYTES)

    def mapped(self) -> "pa.NativeFile":
        import pyarrow as pa

        return pa.BufferReader(_bytes_of(self.path))

    def read_stamped(self, limit: int | None = None) -> tuple[bytes, int]:
        data, modified_ns = _read_all(self.path, limit)
        return data, stamp(len(data), modified_ns)

    def _read_range(self, start: int, stop: int) -> tuple[bytes, int]:
        is_simple = start < stop and self.path not in _held
        if is_simple and (answer := _read_at_once(self.path, (start, stop))):
            return answer[0], stamp(*answer[1:])
        with RemoteFile(self.path) as file:
            return file.read_range(start, stop), file.stamp

    def draft(self, *, attempts: str, durable: bool = True) -> Draft:
        return RemoteDraft(self.path, attempts)

    def _write(
        self, pieces: Sequence[bytes | memoryview], attempts: str, durable: bool
    ) -> None:
        data = b"".join(pieces)
        version = "" if is_frozen(self.path) else None
        bucket = bucket_of(self.path, attempts)
        put = functools.partial(self._asked, bucket.put, data, version)
        _put(self.path, google_crc32c.value(data), put)

    def put_if(self, data: bytes, version: str, *, attempts: str = "") -> None:
        self._asked(bucket_of(self.path, attempts).put, data, version)

    def copy_to(self, target: str) -> bool:
        (place, _), (new_place, new_key) = map(split_remote, (self.path, target))
        if place != new_place or place.startswith(HDFS):
            return False
        if is_frozen(target) and arrow.look(target) is not None:
            # Another run of the same job has put it; only its bytes say whether it is
            # equal.
            return False
        self._asked(bucket_of(target).copy, new_key)
        return True

    def remove_file(self, *, below: str = "") -> None:
        self._asked(bucket_of(self.path).remove)

    def remove_tree(self, *, below: str = "") -> None:
        self._asked(bucket_of(self.path).remove_below)

    def sync_directory(self) -> None:
        """Does nothing."""

    def _asked(self, work: Callable[..., _Result], *arguments: Any) -> _Result:
        """Calls a method of the bucket with the key and more, as `asked`."""
        key = split_remote(self.path)[1]
        return asked(self.path, functools.partial(work, key, *arguments))


def _read_all(path: str, limit: int | None = None) -> tuple[bytes, int]:
    """Returns a whole file and its time of modification.

    Raises:
      OSError: it cannot be read.
      TooLargeError: it has more bytes than `limit`, and was not read.
    """
    if cached := _held.get(path):
        if limit is not None and len(cached[0]) > limit:
            raise TooLargeError(path, len(cached[0]), cached[1])
        return cached
    if answer := _read_at_once(path, limit=limit):
        data, size, modified_ns = answer
        if limit is not None and size > limit:
            raise TooLargeError(path, size, modified_ns)
        return data, modified_ns
    system, inside = arrow.file_system(path)
    _check_there(path)

    def fetch() -> tuple[bytes, int]:
        # A stream: for a random access file Arrow asks Google's store once more.
        with system.open_input_stream(inside, compression=None) as stream:
            size, modified_ns = _facts_of(stream, path)
            if limit is not None and size > limit:
                raise TooLargeError(path, size, modified_ns)
            return stream.read(), modified_ns

    return asked(path, fetch)


def _read_at_once(
    path: str, part: tuple[int, int] | None = None, limit: int | None = None
) -> tuple[bytes, int, int] | None:
    """Returns bytes, and size and time of their file, for which Arrow asks before.

    None where there is no such way, or it has failed, or its library would be loaded
    for a few files.
    """
    if next(_reads) < _FEW_READS or not path.startswith("s3://"):
        return None
    with contextlib.suppress(OSError):
        # That the settings are no good finds out who asks in another way.
        client = clients.client_of(path)
        if client and (answer := client.fetch(split_remote(path)[1], part, limit)):
            return answer[0], answer[1], answer[2] * SECOND_NS
    return None


def _check_there(path: str) -> None:
    """Raises FileNotFoundError where HDFS's client would print a traceback first."""
    if path.startswith(HDFS):
        entry = arrow.look(path)
        if entry is None or entry.is_folder:
            number = errno.ENOENT if entry is None else errno.EISDIR
            raise OSError(number, os.strerror(number), path)


def _facts_of(file: Any, path: str) -> tuple[int, int]:
    """Returns the size of an open file, and when it was written.

    Without another request where the answer that has opened it says so.
    """
    facts = file.metadata() or {}
    size = facts.get("Content-Length") or facts.get("size")
    text = facts.get("Last-Modified") or facts.get("updated")
    try:
        written = datetime.datetime.fromisoformat((text or b"").decode())
    except ValueError:
        size = None
    if size is not None:
        return int(size), int(written.timestamp()) * SECOND_NS
    entry = arrow.look(path)
    if entry is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    return entry.size, entry.modified_ns


def fetched(sizes: Sequence[tuple[str, int]], limit: int) -> Iterator[None]:
    """Fetches small files ahead, side by side; see `files.fetched`."""

    def fetch(file: tuple[str, int]) -> tuple[bytes, int] | None:
        path, size = file
        try:
            return _read_all(path, limit) if size <= limit else None
        except (OSError, StorageError):
            # Whoever reads it next finds out why.
            return None

    contents = read_ahead(fetch, sizes, far=True)
    for (path, _), content in zip(sizes, contents, strict=True):
        if content is None:
            yield
            continue
        _held[path] = content
        try:
            yield
        finally:
            _held.pop(path, None)


def _reader(data: bytes) -> Any:
    import pyarrow as pa

    return pa.BufferReader(data)


def _bytes_of(path: str) -> bytes:
    """Returns the bytes of a file from a cache; reads it again after a change."""
    if path in _held:
        return _read_all(path)[0]
    cached = _remembered.get(path)
    if cached is None or arrow.look(path) != cached[0]:
        data, modified_ns = _read_all(path)
        cached = _remembered[path] = Found(path, False, len(data), modified_ns), data
        while len(_remembered) > _FILES_REMEMBERED:
            _remembered.pop(next(iter(_remembered)), None)
    return cached[1]


class RemoteFile(io.RawIOBase):
    """A file elsewhere, open for reading at any place.

    Attributes:
      name: its path.
      size: bytes.
      modified_ns: when it was last written.
    """

    def __init__(self, path: str) -> None:
        super().__init__()
        self.name = path
        self._place = 0
        self._file: Any = None
        if cached := _held.get(path):
            data, self.modified_ns = cached
            self._file, self.size = _reader(data), len(data)
            return
        _check_there(path)
        self.size, self.modified_ns = asked(path, self._facts)

    @property
    def stamp(self) -> int:
        """See `transforms.storage.entries.stamp`."""
        return stamp(self.size, self.modified_ns)

    def read_range(self, start: int, stop: int) -> bytes:
        """Returns bytes [start, stop), fewer where the file ends before."""
        stop = min(stop, self.size)
        if start >= stop:
            return b""
        return asked(self.name, lambda: self._read_at(start, stop - start))

    def _facts(self) -> tuple[int, int]:
        with self._reset_after_failure():
            return _facts_of(self._opened(), self.name)

    def _read_at(self, start: int, size: int) -> bytes:
        with self._reset_after_failure():
            data: bytes = self._opened().read_at(size, start)
        return data

    @contextlib.contextmanager
    def _reset_after_failure(self) -> Iterator[None]:
        """Lets the next attempt open the file again."""
        try:
            yield
        except OSError:
            self._file = None
            raise
        except ValueError as error:
            # Arrow opens a file of Google's store even where its first bytes were
            # refused, and later raises ValueError because the file is closed.
            self._file = None
            reason = "the connection was closed"
            raise OSError(errno.EIO, reason, self.name) from error

    def _opened(self) -> Any:
        if self._file is None:
            system, inside = arrow.file_system(self.name)
            self._file = system.open_input_file(inside)
        return self._file

    def readinto(self, buffer: Any, /) -> int:
        """Reads as `io.RawIOBase` has it."""
        view = memoryview(buffer).cast("B")
        data = self.read_range(self._place, self._place + len(view))
        view[: len(data)] = data
        self._place += len(data)
        return len(data)

    def read(self, size: int | None = -1, /) -> bytes:
        """Reads as `io.RawIOBase` has it, without a copy."""
        stop = self.size if size is None or size < 0 else self._place + size
        data = self.read_range(self._place, stop)
        self._place += len(data)
        return data

    def readall(self) -> bytes:
        """Reads as `io.RawIOBase` has it."""
        return self.read(-1)

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Seeks as `io.RawIOBase` has it."""
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self.size}
        self._place = max(start[whence] + offset, 0)
        return self._place

    def tell(self) -> int:
        """Tells as `io.RawIOBase` has it."""
        return self._place

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def close(self) -> None:
        """Lets the connection go."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None
        super().close()


def is_frozen(path: str) -> bool:
    """Whether a path is that of a file in a folder of a dataset, in an object store.

    A manifest may name such a file at any time, so it is never replaced: who would
    write another one must find the same bytes there.
    """
    return is_remote(path) and any(map(is_data_folder, path.split("/")[3:-1]))


@contextlib.contextmanager
def _temporary() -> Iterator[tuple[IO[bytes], str]]:
    """Gives a temporary file and a name of it, which is no other process's.

    Where the kernel names open files, it has no name in a folder: a killed process
    leaves nothing.
    """
    if os.path.isdir("/proc/self/fd"):
        with tempfile.TemporaryFile() as file:
            yield file, f"/proc/self/fd/{file.fileno()}"
    else:
        with tempfile.NamedTemporaryFile(prefix="beam-tfrecord-") as named:
            yield named, named.name


class RemoteDraft:
    """A file that is written here, and uploaded when it gets its name."""

    def __init__(self, path: str, attempts: str) -> None:
        self.path = path
        self._attempts = attempts
        self._open = contextlib.ExitStack()
        self._file, self._name = self._open.enter_context(_temporary())
        self._crc32c = 0

    def write(self, data: bytes | memoryview, /) -> int:
        """Writes all of `data`; returns its length, or raises OSError."""
        self._file.write(data)
        self._crc32c = google_crc32c.extend(self._crc32c, bytes(data))
        return memoryview(data).nbytes

    def sync(self) -> None:
        """Raises DamageError unless the file reads as it was written."""
        self._file.flush()
        self._file.seek(0)
        crc = 0
        while piece := self._file.read(_COPY_BYTES):
            crc = google_crc32c.extend(crc, piece)
        if crc != self._crc32c:
            raise DamageError(
                f"What is written must read the same; the temporary file for "
                f"{self.path!r} has the checksum {crc:08x} and not "
                f"{self._crc32c:08x}. Nothing was uploaded; look after the disk and "
                f"the memory, and run again."
            )

    def publish(self) -> None:
        """Uploads the file."""
        with self._open:
            bucket = bucket_of(self.path, self._attempts)
            key = split_remote(self.path)[1]
            new = is_frozen(self.path)
            put = functools.partial(bucket.put_file, key, self._name, new=new)
            _put(self.path, self._crc32c, functools.partial(asked, self.path, put))

    def discard(self) -> None:
        """Forgets the file."""
        self._open.close()


def _put(path: str, crc32c: int, put: Callable[[], None]) -> None:
    """Writes a file; where one is there that is never replaced, it must be equal.

    Args:
      path: the final name.
      crc32c: of the content.
      put: writes it; if `is_frozen`, on the condition that nothing is there.

    Raises:
      RaceError: a file is there with other bytes.
    """
    with contextlib.suppress(OvertakenError):
        put()
        return
    stored = 0
    with RemoteFile(path) as file:
        while piece := file.read(_COPY_BYTES):
            stored = google_crc32c.extend(stored, piece)
    if stored != crc32c:
        raise RaceError(
            f"A file of a dataset is never replaced; {path!r} has the CRC32C "
            f"{stored:08x}, and this run has made {crc32c:08x}. Another run has put it "
            f"there, whose inputs or libraries were others, though nothing tells them "
            f"apart. Nothing was committed. If no run is at work there, remove what "
            f"is left with 'beam-tfrecord clean --older-than 0', and run again."
        )
