"""The file under a TFRecord reader: counts and checksums its raw bytes."""

import contextlib
import os
import stat
from collections.abc import Iterator
from typing import BinaryIO, cast

import google_crc32c

from transforms.core.regular_files import open_stream
from transforms.errors import InputError, source_error

Source = str | os.PathLike[str] | BinaryIO

_PEEK_BYTES = 1 << 16


class StoredBytes:
    """The file as it is on disk, counted and checksummed while it is read."""

    def __init__(self, file: BinaryIO, path: str) -> None:
        self._file = file
        self._path = path
        self._head = b""
        self.size_read = 0
        self.crc32c = 0
        # Bytes from the file's position to its end; None for a pipe.
        self.size = _remaining(file)
        self._stamp = _stamp(file)

    def peek(self, size: int) -> bytes:
        """Returns the next `size` bytes, fewer only at the end, without using them."""
        while len(self._head) < size and (more := self._fetch(_PEEK_BYTES)):
            self._head += more
        return self._head[:size]

    def read(self, size: int) -> bytes:
        """Returns 1 to `size` bytes, or b"" at the end."""
        if self._head:
            data, self._head = self._head[:size], self._head[size:]
            return data
        return self._fetch(size)

    def _fetch(self, size: int) -> bytes:
        try:
            data = self._file.read(size)
        except OSError as error:
            raise InputError(
                f"{self._path}: cannot be read at byte {self.size_read:,}: "
                f"{error.strerror or error}"
            ) from error
        self.size_read += len(data)
        self.crc32c = google_crc32c.extend(self.crc32c, data)
        return data

    def check_unchanged(self) -> None:
        """Raises InputError if the file was written to since the start."""
        if _stamp(self._file) != self._stamp:
            raise InputError(
                f"{self._path}: the file changed while it was read. Read it again "
                "when its writer is done."
            )


def source_name(source: Source) -> str:
    """Returns what messages call the source."""
    if isinstance(source, str | os.PathLike):
        return os.fspath(source)
    return str(getattr(source, "name", "<stream>"))


@contextlib.contextmanager
def opened(source: Source, path: str) -> Iterator[BinaryIO]:
    """Gives the source open for reading; closes only what it opened itself.

    Raises:
      SourceError: it cannot be opened.
    """
    if not isinstance(source, str | os.PathLike):
        yield source
        return
    try:
        # Unbuffered: reads are large, and a buffer would copy each of them again.
        file = open(source, "rb", buffering=0, opener=open_stream)  # noqa: SIM115
    except OSError as error:
        raise source_error(
            f"{path}: cannot be opened: {error.strerror or error}.", error
        ) from error
    with file:
        yield cast(BinaryIO, file)


def _remaining(file: BinaryIO) -> int | None:
    """Returns how many bytes are left to read; None for what cannot seek."""
    if not file.seekable():
        return None
    here = file.tell()
    size = file.seek(0, os.SEEK_END) - here
    file.seek(here)
    return size


def _stamp(file: BinaryIO) -> tuple[int, int] | None:
    """Returns size and modification time of a regular file; None for others."""
    try:
        status = os.fstat(file.fileno())
    except (OSError, AttributeError):
        return None
    regular = stat.S_ISREG(status.st_mode)
    return (status.st_size, status.st_mtime_ns) if regular else None
