"""Read files in object stores and other remote file systems.

Times of modification count in whole seconds: stores list them finer than they tell
them of one object.
"""

import contextlib
import datetime
import errno
import io
import itertools
import os
from collections.abc import Iterator, Sequence
from typing import Any

from transforms.errors import StorageError
from transforms.storage import object_clients
from transforms.storage.entries import TooLargeError, stamp
from transforms.storage.file_systems import asked, file_system
from transforms.storage.paths import split_remote
from transforms.storage.read_ahead import read_ahead
from transforms.storage.remote_look import HDFS, Found, look

_FILES_REMEMBERED = 4
_SECOND = 10**9
# As many reads take no longer than to load a store's client library, 0.3 s.
_FEW_READS = 32

# Counts the reads of whole files and of parts.
_reads = itertools.count()
# Path -> the file's state when it was read, and its bytes.
_remembered: dict[str, tuple[Found, bytes]] = {}
# Path -> bytes and time of a file that was fetched ahead of those who read it now.
_held: dict[str, tuple[bytes, int]] = {}


def is_held(path: str) -> bool:
    """Whether a file was fetched ahead, see `fetched`, and waits for its reader."""
    return path in _held


def read_all(path: str, limit: int | None = None) -> tuple[bytes, int]:
    """Returns a whole file and its time of modification.

    Raises:
      OSError: it cannot be read.
      TooLargeError: it has more bytes than `limit`, and was not read.
    """
    if held := _held.get(path):
        if limit is not None and len(held[0]) > limit:
            raise TooLargeError(path, len(held[0]), held[1])
        return held
    if found := read_at_once(path, limit=limit):
        data, size, modified_ns = found
        if limit is not None and size > limit:
            raise TooLargeError(path, size, modified_ns)
        return data, modified_ns
    system, inside = file_system(path)
    _check_there(path)

    def fetch() -> tuple[bytes, int]:
        # A stream: for a random access file Arrow asks Google's store once more.
        with system.open_input_stream(inside, compression=None) as stream:
            modified_ns = _modified_ns(stream, path)
            if limit is not None and (size := _stated_size(stream, path)) > limit:
                raise TooLargeError(path, size, modified_ns)
            return stream.read(), modified_ns

    return asked(path, fetch)


def read_at_once(
    path: str, part: tuple[int, int] | None = None, limit: int | None = None
) -> tuple[bytes, int, int] | None:
    """Returns bytes, and size and time of their file, for which Arrow asks before.

    None where there is no such way, or it has failed, or its library would be loaded
    for a few files.
    """
    if next(_reads) < _FEW_READS or (reads := object_clients.reads_of(path)) is None:
        return None
    found = reads.read(split_remote(path)[1], part, limit)
    return None if found is None else (found[0], found[1], found[2] * _SECOND)


def _check_there(path: str) -> None:
    """Raises FileNotFoundError where HDFS's client would print a traceback first."""
    if path.startswith(HDFS):
        found = look(path)
        if found is None or found.is_folder:
            number = errno.ENOENT if found is None else errno.EISDIR
            raise OSError(number, os.strerror(number), path)


def _stated_size(file: Any, path: str) -> int:
    """Returns the size of an open file, without another request where it says."""
    facts = file.metadata() or {}
    text = facts.get("Content-Length") or facts.get("size")
    if text is not None:
        return int(text)
    found = look(path)
    return 0 if found is None else found.size


def _modified_ns(file: Any, path: str) -> int:
    """Returns when an open file was written, without another request where it says."""
    facts = file.metadata() or {}
    text = facts.get("Last-Modified") or facts.get("updated")
    try:
        written = datetime.datetime.fromisoformat((text or b"").decode())
    except ValueError:
        found = look(path)
        if found is None:
            raise FileNotFoundError(
                errno.ENOENT, os.strerror(errno.ENOENT), path
            ) from None
        return found.modified_ns
    return int(written.timestamp()) * _SECOND


def fetched(sizes: Sequence[tuple[str, int]], limit: int) -> Iterator[None]:
    """Fetches small files ahead, side by side; see `transforms.files.fetched`."""

    def fetch(file: tuple[str, int]) -> tuple[bytes, int] | None:
        path, size = file
        try:
            return read_all(path, limit) if size <= limit else None
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


def remembered(path: str) -> bytes:
    """Returns the bytes of a file from a cache; reads it again after a change."""
    if path in _held:
        return read_all(path)[0]
    known = _remembered.get(path)
    if known is None or look(path) != known[0]:
        data, modified_ns = read_all(path)
        known = _remembered[path] = Found(path, False, len(data), modified_ns), data
        while len(_remembered) > _FILES_REMEMBERED:
            _remembered.pop(next(iter(_remembered)), None)
    return known[1]


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
        if held := _held.get(path):
            data, self.modified_ns = held
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
            file = self._opened()
            return file.size(), _modified_ns(file, self.name)

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
            system, inside = file_system(self.name)
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
