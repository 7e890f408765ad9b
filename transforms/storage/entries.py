"""Values that local and remote storage share: entries, stamps, sinks, drafts."""

import contextlib
import dataclasses
import errno
import io
import os
import unicodedata
from collections.abc import Iterator
from typing import IO, Literal, Protocol, TypeVar

# What has a name: see `transforms.files.standing`.
Standing = Literal["", "file", "folder", "other"]
_Draft = TypeVar("_Draft", bound="Draft")


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
    """Returns a number that changes when the file changes."""
    mixed = (modified_ns * 0x9E3779B97F4A7C15 + size) % 2**64
    return mixed - 2**64 if mixed >= 2**63 else mixed


def stamp_of(file: IO[bytes] | io.RawIOBase | int) -> int:
    """Returns the stamp of an open file, or of a descriptor."""
    if not isinstance(file, int):
        stated = getattr(getattr(file, "raw", file), "stamp", None)
        if stated is not None:
            return int(stated)
        file = file.fileno()
    status = os.fstat(file)
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


class Sink(Protocol):
    """A file that is open for writing."""

    def write(self, data: bytes | memoryview, /) -> int:
        """Writes all of `data`; returns its length, or raises OSError."""


class Draft(Sink, Protocol):
    """A file that is being written and does not have its name yet.

    The steps are separate so that many files can be synced at the same time, and none
    be renamed before all are durable.

    Attributes:
      path: the final name.
    """

    path: str

    def sync(self) -> None:
        """Ends the file and makes its content durable; raises OSError.

        After a failure the file must be written again: the kernel may have dropped what
        it could not write, and a second sync would succeed.
        """

    def publish(self) -> None:
        """Gives a synced file its name, replacing what has it; raises OSError."""

    def discard(self) -> None:
        """Removes the file unless it has its name."""


@contextlib.contextmanager
def written(draft: _Draft) -> Iterator[_Draft]:
    """Gives a draft to write to; syncs and publishes it, or discards it on an error."""
    with discarded_on_error(draft):
        yield draft
        draft.sync()
        draft.publish()


@contextlib.contextmanager
def discarded_on_error(draft: _Draft) -> Iterator[_Draft]:
    """Gives a draft, and discards it where the block raises.

    A failed write or sync does not say of what: its error gets the path.
    """
    try:
        yield draft
    except BaseException as error:
        draft.discard()
        if isinstance(error, OSError) and error.errno and not error.filename:
            raise OSError(error.errno, error.strerror, draft.path) from error
        raise


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
