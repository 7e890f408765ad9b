"""Files in object stores and other remote file systems.

Paths have a scheme; see `transforms.storage.paths`. `pyarrow.fs` lists and reads them,
and the stores' own clients write them (`transforms.storage.stores`). Failures that pass
are tried again, the others become an OSError with a number.

Times of modification count in whole seconds: stores list them finer than they tell
them of one object. An object appears when its upload is complete; a file is first
finished in a temporary file of this machine. Clients send checksums with the bytes.
"""

import contextlib
import dataclasses
import datetime
import errno
import functools
import io
import itertools
import os
import tempfile
from collections.abc import Callable
from typing import IO, TYPE_CHECKING, Any, BinaryIO, TypeVar, cast

import google_crc32c

from transforms.core.files import is_data_folder
from transforms.errors import RaceError
from transforms.storage import stores
from transforms.storage.buckets import HDFS
from transforms.storage.drafts import Draft
from transforms.storage.paths import (
    SECOND_NS,
    FileEntry,
    is_remote,
    relative,
    split_remote,
    stamp,
)
from transforms.storage.protocol import Look, Standing, StoredPath, TooLargeError
from transforms.storage.retry import OvertakenError, asked, naming
from transforms.storage.s3 import S3Bucket

if TYPE_CHECKING:
    import pyarrow as pa

    from transforms.storage.file_list import FileList

_Result = TypeVar("_Result")
_COPY_BYTES = 8 << 20
# As many reads take no longer than to load a store's client library, 0.3 s.
_FEW_READS = 32

# Counts the reads of whole files and of parts.
_reads = itertools.count()
# Path -> bytes and time of a file that is read now; see `files.fetched`.
held: dict[str, tuple[bytes, int]] = {}


class RemotePath(StoredPath):
    """A path with a scheme; folders are prefixes where a store has none."""

    __slots__ = ()
    # Of small reads, many are one request: each costs a round trip.
    fetches = 8 << 20

    def standing(self) -> Standing:
        entry = stores.look(self.path)
        if entry is None:
            return ""
        return "folder" if entry.is_folder else "file"

    def is_inside(self, folder: str) -> bool:
        return f"{self.path}/".startswith(f"{folder.rstrip('/')}/")

    def look(self) -> Look:
        with contextlib.suppress(FileNotFoundError):
            return self._asked(stores.bucket_of(self.path).look)
        return Look()

    def stat_entry(self, root: str) -> FileEntry:
        return _entry_of(_there(self.path), root)

    def expand(self) -> list[str]:
        return stores.expand(self.path)

    def _listed(self) -> "FileList":
        return stores.list_below(self.path)

    def names_in(self) -> list[str]:
        names = (os.path.basename(entry.path) for entry in stores.look_in(self.path))
        return sorted(filter(None, names), key=os.fsencode)

    def entries_in(self, root: str) -> list[FileEntry]:
        entries = stores.look_in(self.path)
        return [_entry_of(entry, root) for entry in entries if not entry.is_folder]

    def open_unbuffered(self) -> BinaryIO:
        return cast(BinaryIO, _RemoteFile(self.path))

    def mapped(self) -> "pa.NativeFile":
        import pyarrow as pa

        return pa.BufferReader(_bytes_of(self.path, _there(self.path)))

    def read_stamped(self, limit: int | None = None) -> tuple[bytes, int]:
        data, modified_ns = read_all(self.path, limit)
        return data, stamp(len(data), modified_ns)

    def _read_range(self, start: int, stop: int) -> tuple[bytes, int]:
        if start < stop and (answer := _read_at_once(self.path, (start, stop))):
            return answer[0], stamp(*answer[1:])
        with _RemoteFile(self.path) as file:
            return file.read_range(start, stop), file.stamp

    def draft(self, *, attempts: str, durable: bool = True) -> Draft:
        return _RemoteDraft(self.path, attempts)

    def put_if(self, data: bytes, version: str, *, attempts: str = "") -> None:
        with naming(self.path), tempfile.TemporaryFile() as file:
            file.write(data)
            _put_if(self.path, file, version, attempts)

    def copy_to(self, target: str) -> bool:
        (place, _), (new_place, new_key) = map(split_remote, (self.path, target))
        if place != new_place or place.startswith(HDFS):
            return False
        if is_frozen(target) and stores.look(target) is not None:
            # Another run of the same job has put it; only its bytes say whether it is
            # equal.
            return False
        self._asked(stores.bucket_of(target).copy, new_key)
        return True

    def remove_file(self, *, below: str = "") -> None:
        self._asked(stores.bucket_of(self.path).remove)

    def remove_tree(self, *, below: str = "") -> None:
        self._asked(stores.bucket_of(self.path).remove_below)

    def _asked(self, work: Callable[..., _Result], *arguments: Any) -> _Result:
        """Calls a method of the bucket with the key and more, as `asked`."""
        key = split_remote(self.path)[1]
        return asked(self.path, functools.partial(work, key, *arguments))


def _entry_of(entry: FileEntry, root: str) -> FileEntry:
    """Returns a listed object as a file of a source, with its path below the root."""
    return dataclasses.replace(entry, path=relative(entry.path, root))


def _there(path: str) -> FileEntry:
    """Returns what a store has at a path; raises FileNotFoundError for nothing."""
    entry = stores.look(path)
    if entry is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    return entry


def read_all(path: str, limit: int | None = None) -> tuple[bytes, int]:
    """Returns a whole remote file and its time of modification.

    Raises:
      OSError: it cannot be read.
      TooLargeError: it has more bytes than `limit`, and was not read.
    """

    def within_limit(size: int, modified_ns: int) -> int:
        if limit is not None and size > limit:
            raise TooLargeError(path, size, modified_ns)
        return modified_ns

    def fetch() -> tuple[bytes, int]:
        # A stream: for a random access file Arrow asks Google's store once more.
        with system.open_input_stream(inside, compression=None) as stream:
            modified_ns = within_limit(*_facts_of(stream, path))
            return stream.read(), modified_ns

    if cached := held.get(path):
        return cached[0], within_limit(len(cached[0]), cached[1])
    if answer := _read_at_once(path, limit=limit):
        return answer[0], within_limit(*answer[1:])
    system, inside = stores.file_system(path)
    _check_there(path)
    return asked(path, fetch)


def _read_at_once(
    path: str, part: tuple[int, int] | None = None, limit: int | None = None
) -> tuple[bytes, int, int] | None:
    """Returns bytes, and size and time of their file, for which Arrow asks before.

    None where there is no such way, or it has failed, or its library would be loaded
    for a few files.
    """
    is_few = path in held or next(_reads) < _FEW_READS
    if is_few or not path.startswith("s3://"):
        return None
    with contextlib.suppress(OSError):
        # That the settings are no good finds out who asks in another way.
        if isinstance(client := stores.client_of(path), S3Bucket):
            return client.fetch(split_remote(path)[1], part, limit)
    return None


def _check_there(path: str) -> None:
    """Raises OSError for a remote file that HDFS's client fails on with a traceback."""
    if path.startswith(HDFS) and _there(path).is_folder:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)


def _facts_of(file: Any, path: str) -> tuple[int, int]:
    """Returns the size of an open remote file, and when it was written.

    Without another request where the answer that has opened it says so.
    """
    facts = file.metadata() or {}
    size = facts.get("Content-Length") or facts.get("size")
    text = facts.get("Last-Modified") or facts.get("updated")
    with contextlib.suppress(ValueError):
        written = datetime.datetime.fromisoformat((text or b"").decode())
        if size is not None:
            return int(size), int(written.timestamp()) * SECOND_NS
    entry = _there(path)
    return entry.size, entry.modified_ns


@functools.lru_cache(maxsize=4)
def _bytes_of(path: str, _state: FileEntry) -> bytes:
    """Returns the bytes of a remote file, which is read once in each state."""
    return read_all(path)[0]


class _RemoteFile(io.RawIOBase):
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
        if cached := held.get(path):
            import pyarrow as pa

            data, self.modified_ns = cached
            self._file, self.size = pa.BufferReader(data), len(data)
            return
        _check_there(path)
        self.size, self.modified_ns = self._asked(lambda file: _facts_of(file, path))

    @property
    def stamp(self) -> int:
        """See `transforms.storage.paths.stamp`."""
        return stamp(self.size, self.modified_ns)

    def read_range(self, start: int, stop: int) -> bytes:
        """Returns bytes [start, stop), fewer where the file ends before."""
        stop = min(stop, self.size)
        if start >= stop:
            return b""
        data: bytes = self._asked(lambda file: file.read_at(stop - start, start))
        return data

    def _asked(self, work: Callable[[Any], _Result]) -> _Result:
        """Works with the open file; opens it again after a failure."""

        def once() -> _Result:
            try:
                if self._file is None:
                    system, inside = stores.file_system(self.name)
                    self._file = system.open_input_file(inside)
                return work(self._file)
            except (OSError, ValueError) as error:
                self._file = None
                if isinstance(error, OSError):
                    raise
                # Arrow opens a file of Google's store even where its first bytes were
                # refused, and later raises ValueError because the file is closed.
                reason = "the connection was closed"
                raise OSError(errno.EIO, reason, self.name) from error

        return asked(self.name, once)

    def readinto(self, buffer: Any, /) -> int:
        view = memoryview(buffer).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)

    def read(self, size: int | None = -1, /) -> bytes:
        # Without the copy that the base class makes.
        stop = self.size if size is None or size < 0 else self._place + size
        data = self.read_range(self._place, stop)
        self._place += len(data)
        return data

    def readall(self) -> bytes:
        return self.read(-1)

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self.size}
        self._place = max(start[whence] + offset, 0)
        return self._place

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None
        super().close()


def is_frozen(path: str) -> bool:
    """Whether a path is that of a remote file in a folder of a dataset.

    A manifest may name such a file at any time, so it is never replaced: who would
    write another one must find the same bytes there.
    """
    return is_remote(path) and any(map(is_data_folder, path.split("/")[3:-1]))


class _RemoteDraft:
    """A file that is written here, and uploaded when it gets its name."""

    def __init__(self, path: str, attempts: str) -> None:
        self.path = path
        self._attempts = attempts
        # It has no name, so a killed process leaves nothing.
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - see `discard`
        self._crc32c = 0

    def write(self, data: bytes | memoryview, /) -> int:
        self._file.write(data)
        self._crc32c = google_crc32c.extend(self._crc32c, bytes(data))
        return memoryview(data).nbytes

    def sync(self) -> None:
        self._file.flush()

    def publish(self) -> None:
        with self._file:
            _put(self.path, self._file, self._crc32c, self._attempts)

    def discard(self) -> None:
        self._file.close()


def _put_if(path: str, source: IO[bytes], version: str | None, attempts: str) -> None:
    """Uploads a remote file if it has a version; None for any, or none.

    Raises:
      OvertakenError: it has another one; nothing has changed.
    """
    bucket, key = stores.bucket_of(path, attempts), split_remote(path)[1]

    def once() -> None:
        size = source.seek(0, os.SEEK_END)
        source.seek(0)
        bucket.put(key, source, size, version)

    try:
        asked(path, once)
    except FileNotFoundError as error:
        if version:
            # The object was removed, so no version matches.
            raise OvertakenError(path) from error
        if not bucket.conditional:
            # HDFS has no buckets: a folder has gone.
            raise
        reason = "there is no such bucket, or not for these credentials"
        raise FileNotFoundError(errno.ENOENT, reason, bucket.place) from error


def _put(path: str, source: IO[bytes], crc32c: int, attempts: str) -> None:
    """Uploads a remote file; one that is there and never replaced must be equal.

    Args:
      path: the final name.
      source: an open file that has the content.
      crc32c: of the content.
      attempts: see `StoredPath.create`.

    Raises:
      RaceError: a file is there with other bytes.
    """
    with contextlib.suppress(OvertakenError):
        _put_if(path, source, "" if is_frozen(path) else None, attempts)
        return
    stored = 0
    with _RemoteFile(path) as file:
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
