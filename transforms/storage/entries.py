"""Values that local and remote storage share: entries and stamps."""

import dataclasses
import errno
import io
import os
import unicodedata
from typing import IO, TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import pyarrow.fs as pafs

SECOND_NS = 10**9
"""Nanoseconds of a second."""
# What has a name: see `StoredPath.standing`.
Standing = Literal["", "file", "folder", "other"]


@dataclasses.dataclass(frozen=True, slots=True)
class FileEntry:
    """One file of a source, or what is in a store.

    Attributes:
      path: relative to the source's root, `/` between, as the file system has it;
        whole, with its scheme, where a store lists it.
      size: bytes.
      modified_ns: modification time, nanoseconds since the epoch; in stores, of whole
        seconds.
      skipped: why it is not read: "hidden" or ""; see `list_tree`.
      is_folder: whether it is a folder; in an object store, a prefix.
    """

    path: str
    size: int = 0
    modified_ns: int = 0
    skipped: str = ""
    is_folder: bool = False

    @classmethod
    def of(cls, path: str, info: "pafs.FileInfo") -> "FileEntry | None":
        """Returns what Arrow says of a path in a store; None for nothing."""
        import pyarrow.fs as pafs

        if info.type == pafs.FileType.NotFound:
            return None
        if info.type == pafs.FileType.Directory:
            return cls(path, is_folder=True)
        seconds = (info.mtime_ns or 0) // SECOND_NS
        return cls(path, info.size or 0, seconds * SECOND_NS)

    @property
    def stamp(self) -> int:
        """See `stamp`."""
        return stamp(self.size, self.modified_ns)

    @property
    def origin(self) -> str:
        """The path in NFC: the identity that placement hashes."""
        return unicodedata.normalize("NFC", self.path)


def stamp(size: int, modified_ns: int) -> int:
    """Returns a number that changes when the file changes."""
    mixed = (modified_ns * 0x9E3779B97F4A7C15 + size) % 2**64
    return mixed - 2**64 if mixed >= 2**63 else mixed


def stamp_of(file: IO[bytes] | io.RawIOBase) -> int:
    """Returns the stamp of an open file."""
    stated = getattr(getattr(file, "raw", file), "stamp", None)
    if stated is not None:
        return int(stated)
    status = os.fstat(file.fileno())
    return stamp(status.st_size, status.st_mtime_ns)


def changed(path: str) -> OSError:
    """Returns the error of a file that has changed since it was listed."""
    return OSError(errno.ESTALE, "it has changed since it was listed", path)


_HIDDEN = ("__MACOSX", "Thumbs.db", "desktop.ini")
HIDDEN_STARTS = frozenset((".", *(name[0] for name in _HIDDEN)))
"""With what hidden names begin; see `is_hidden`."""


def is_hidden(name: str) -> bool:
    """Whether it is a name that systems and programs give to files of their own."""
    return name.startswith(".") or name in _HIDDEN


class TooLargeError(OSError):
    """A file is larger than the limit.

    Attributes:
      size: of the file, in bytes.
      modified_ns: when it was last written.
    """

    def __init__(self, path: str, size: int, modified_ns: int) -> None:
        super().__init__(errno.EFBIG, os.strerror(errno.EFBIG), path)
        self.size = size
        self.modified_ns = modified_ns


@dataclasses.dataclass(frozen=True, slots=True)
class Look:
    """What one request tells about an object.

    Attributes:
      version: which every write changes; "" for no object.
      age: seconds since it was written; 0 where nothing tells it.
    """

    version: str = ""
    age: float = 0.0


class OvertakenError(Exception):
    """A conditional write failed: the object has another version than required."""
