"""One protocol for disks and stores: what can be done with a path.

A file is written under a temporary name of its own attempt, flushed, synced and then
renamed, so that a name that exists is a whole file; in a store it is uploaded. What
fails in passing is tried again. Nothing here expands a pattern on behalf of a write or
a delete: names reach the operating system as they are, whatever `*`, `[` or `?` they
hold.
"""

import contextlib
import dataclasses
import errno
import io
import os
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, Literal, Protocol

from transforms.errors import source_error
from transforms.storage.drafts import Draft, Sink, written
from transforms.storage.paths import FileEntry, changed, stamp_of
from transforms.storage.retry import OvertakenError, persistently, storing

if TYPE_CHECKING:
    import pyarrow as pa

    from transforms.storage.file_list import FileList

# What has a name: see `StoredPath.standing`.
Standing = Literal["", "file", "folder", "other"]


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


class StoredPath(Protocol):
    """A path, whatever it is of: a file, a folder, or nothing yet.

    Attributes:
      path: as it was given.
      fetches: bytes that a buffered file reads at once.
    """

    __slots__ = ("path",)
    path: str
    fetches: ClassVar[int] = io.DEFAULT_BUFFER_SIZE

    def __init__(self, path: str) -> None:
        self.path = path

    def standing(self) -> Standing:
        """Returns the kind of what has this name, links followed; "" for nothing."""

    def exists(self) -> bool:
        """Whether anything has this name, even a dangling link."""
        return self.standing() != ""

    def is_file(self) -> bool:
        """Whether a file has this name, or a link to one."""
        return self.standing() == "file"

    def is_folder(self) -> bool:
        """Whether a folder has this name; in a store, whether anything is below it."""
        return self.standing() == "folder"

    def is_inside(self, folder: str) -> bool:
        """Whether this is the folder or is below it, links resolved."""

    def look(self) -> Look:
        """Returns the version and the age of a file; see `put_if`."""

    def size_of(self) -> int:
        """Returns the size of a file in bytes."""
        return self.stat_entry("").size

    def stat_entry(self, root: str) -> FileEntry:
        """Returns the entry of a file that is below `root`; raises OSError."""

    def is_pattern(self) -> bool:
        """Whether the path is a glob; the literal name of an existing file is not."""
        return any(c in self.path for c in "*?[") and not self.exists()

    def expand(self) -> list[str]:
        """Returns the files that a glob names, in byte order.

        What is no file and no folder is listed too, so that reading it is an error.
        """

    def list_tree(self) -> "FileList":
        """Returns every file below the path, in the byte order of their paths.

        Names that start with '.' or '__MACOSX' and the like are listed as skipped, so
        that every file is accounted for; hidden folders are not entered but counted as
        one entry. Links to folders are followed once.

        Raises:
          SourceError: the folder or one below it cannot be read.
          StorageError: nor could it when it was tried again.
        """
        try:
            return self._listed()
        except OSError as error:
            raise source_error(
                f"Every folder of the source must be readable; "
                f"{error.filename or self.path!r} is not: {error.strerror}.",
                error,
            ) from error

    def _listed(self) -> "FileList":
        """As `list_tree`; raises OSError."""

    def names_in(self) -> list[str]:
        """Returns the names of what is in a folder, in byte order; raises OSError."""

    def names_if_there(self) -> list[str]:
        """As `names_in`; none where there is no such folder."""
        try:
            return self.names_in()
        except (FileNotFoundError, NotADirectoryError):
            return []

    def names_with(self, inner: Collection[str]) -> list[str]:
        """Returns the names here; of some folders, what is in those instead.

        That is, `index/a.u64` for the file `a.u64` in the folder `index`, if that is
        one of `inner`. An empty one of those gives no name. A link to a folder counts
        as itself.

        Raises OSError as `names_in`.
        """
        names = {*self.names_in()}
        for name in names & {*inner}:
            below = type(self)(os.path.join(self.path, name))
            if below.is_folder() and not os.path.islink(below.path):
                names.remove(name)
                names |= {f"{name}/{child}" for child in below.names_if_there()}
        return sorted(names, key=os.fsencode)

    def entries_in(self, root: str) -> list[FileEntry]:
        """Returns the files here, not those below, as `expand`; raises OSError.

        A link that leads nowhere has no size.
        """

    def open_unbuffered(self) -> BinaryIO:
        """Opens a file for large reads without a copy; raises OSError."""

    @contextlib.contextmanager
    def opened(self) -> Iterator[BinaryIO]:
        """Gives a file for large reads, as `open_unbuffered`.

        Raises:
          SourceError: it cannot be opened.
        """
        try:
            file = self.open_unbuffered()
        except OSError as error:
            raise source_error(
                f"{self.path}: cannot be opened: {error.strerror or error}.", error
            ) from error
        with file:
            yield file

    def mapped(self) -> "pa.NativeFile":
        """Returns a file to be read at any place, mapped into memory; raises OSError.

        Of a store, the whole file is fetched.
        """

    def open_input(self, *, stamp: int = 0) -> io.BufferedReader:
        """Opens a file for reading from any place.

        Raises:
          OSError: also when it has another stamp than a `stamp` given.
        """
        raw: Any = self.open_unbuffered()
        file = io.BufferedReader(raw, self.fetches)
        if stamp and stamp_of(file) != stamp:
            file.close()
            raise changed(self.path)
        return file

    def read_bytes(self, *, stamp: int = 0) -> bytes:
        """Returns a whole file.

        Raises:
          OSError: also when it has another stamp than a `stamp` given.
        """
        data, current = self.read_stamped()
        if stamp and current != stamp:
            raise changed(self.path)
        return data

    def read_stamped(self, limit: int | None = None) -> tuple[bytes, int]:
        """Returns a whole file and its stamp.

        Raises:
          OSError: it cannot be read.
          TooLargeError: it has more bytes than `limit`, and was not read.
        """

    def read_range(self, start: int, stop: int, *, stamp: int = 0) -> bytes:
        """Returns bytes [start, stop) of a file.

        Raises:
          OSError: also when it is shorter, or has another stamp than a `stamp` given.
        """
        data, current = self._read_range(start, stop)
        if stamp and current != stamp:
            raise changed(self.path)
        if len(data) < stop - start:
            raise OSError(errno.EIO, "the file is shorter than it was", self.path)
        return data

    def _read_range(self, start: int, stop: int) -> tuple[bytes, int]:
        """Returns bytes of a file, fewer where it is shorter, and its stamp."""

    def create(
        self, *, attempts: str, durable: bool = True
    ) -> contextlib.AbstractContextManager[Sink]:
        """Writes a file that appears under this name only when it is whole.

        Args:
          attempts: a folder on the same file system for the temporary file; without
            meaning in an object store, where one is uploaded.
          durable: sync the data before the rename.

        Raises:
          OSError: nothing has appeared, and the temporary file is gone. Where the error
            is transient all of it may be done again.
          StorageError: the temporary file could not be made, or not be renamed, though
            it was tried again.
        """
        return written(self.draft(attempts=attempts, durable=durable))

    def draft(self, *, attempts: str, durable: bool = True) -> Draft:
        """Returns a file to write to, which gets this name when it is published.

        Args:
          attempts, durable: see `create`.

        Raises:
          StorageError: the temporary file could not be made, though it was tried again.
        """

    def write_file(
        self, *pieces: bytes | memoryview, attempts: str, durable: bool = True
    ) -> None:
        """Writes a file from bytes in memory, with retries.

        Args:
          pieces: the content.
          attempts, durable: see `create`.

        Raises:
          StorageError: it could not be written; nothing has appeared.
        """

        def once() -> None:
            with self.create(attempts=attempts, durable=durable) as file:
                for piece in pieces:
                    file.write(piece)

        size = sum(memoryview(piece).nbytes for piece in pieces)
        with storing(self.path, size=size):
            persistently(once, path=self.path)

    def put_if(self, data: bytes, version: str, *, attempts: str = "") -> None:
        """Writes a file on the condition that it still has a version.

        In an object store, the store decides which of two writers wins; elsewhere both
        may write that look at the same moment.

        Args:
          data: the new content.
          version: as `look` has given it; "" means that the file must not exist.
          attempts: see `create`.

        Raises:
          OvertakenError: it has another version; nothing was written.
        """
        if self.look().version != version:
            raise OvertakenError(self.path)
        self.write_file(data, attempts=attempts)

    def copy_to(self, target: str) -> bool:
        """Gives a file another name, too; in an object store, makes the store copy it.

        On a disk both names are those of one file (a hard link).

        Args:
          target: the name, which is not taken.

        Returns:
          Whether it was done; else nothing has changed, and the bytes must be copied:
          the two are on different file systems, say.

        Raises:
          OSError: the store cannot copy the file.
        """

    def remove_file(self, *, below: str = "") -> None:
        """Removes exactly this file; it may be gone already.

        Args:
          below: a folder above it; no link on the way from there is followed.
        """

    def remove_tree(self, *, below: str = "") -> None:
        """Removes exactly this folder and all below it; it may be gone already.

        Links in it are removed and not followed; a link to a folder is an error.

        Args:
          below: see `remove_file`.
        """

    def sync_directory(self) -> None:
        """Makes the names in a folder survive a power loss.

        Other than that of a file, a failed sync of a folder is repeated: names go
        through the file system's journal, and one whose journal has failed takes no
        further sync. What a store has confirmed is durable.

        Raises:
          StorageError: it failed each time.
        """
        return
