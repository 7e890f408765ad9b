"""The one file layer: list, read, write then rename, delete exact paths.

Nothing here expands a pattern on behalf of a write or a delete: names reach the
operating system as they are, whatever `*`, `[` or `?` they hold.

A file is written under a temporary name of its own attempt, flushed, synced and then
renamed, so that a name that exists is a whole file. Transient failures are retried.
`_storage` alone decides which storage a path is in: `LocalStorage` and `RemoteStorage`
have the same methods, one for each verb here.
"""

import contextlib
import errno
import functools
import io
import itertools
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, BinaryIO, cast

from transforms.errors import source_error
from transforms.storage.drafts import Draft as Draft
from transforms.storage.drafts import Sink as Sink
from transforms.storage.drafts import discarded_on_error as discarded_on_error
from transforms.storage.drafts import written as written
from transforms.storage.entries import FileEntry as FileEntry
from transforms.storage.entries import Standing as Standing
from transforms.storage.entries import changed
from transforms.storage.entries import is_hidden as is_hidden
from transforms.storage.entries import stamp as stamp
from transforms.storage.entries import stamp_of as stamp_of
from transforms.storage.local import LocalStorage
from transforms.storage.local import exclusive_lock as exclusive_lock
from transforms.storage.local import listed_so_far as listed_so_far
from transforms.storage.local import rename as rename
from transforms.storage.paths import is_remote
from transforms.storage.retry import storing

if TYPE_CHECKING:
    import pyarrow as pa

    from transforms.storage.file_list import FileList
    from transforms.storage.remote import RemoteStorage


_LOCAL = LocalStorage()


def _storage(path: str) -> "LocalStorage | RemoteStorage":
    """Returns the storage that a path is in."""
    return _remote() if is_remote(path) else _LOCAL


@functools.cache
def _remote() -> "RemoteStorage":
    # Loaded where a path wants it: most commands are done in half a second.
    from transforms.storage.remote import RemoteStorage

    return RemoteStorage()


def is_pattern(path: str) -> bool:
    """Whether the path is a glob; the literal name of an existing file is none."""
    return _storage(path).is_pattern(path)


def expand(pattern: str) -> list[str]:
    """Returns the files that a glob names, in byte order.

    What is no file and no folder is listed too, so that reading it is an error.
    """
    return _storage(pattern).expand(pattern)


def list_tree(root: str) -> "FileList":
    """Returns every file below `root`, in the byte order of their paths.

    Names that start with '.' or '__MACOSX' and the like are listed as skipped, so
    that every file is accounted for; hidden folders are not entered but counted as
    one entry. Links to folders are followed once.

    Raises:
      SourceError: the folder or one below it cannot be read.
      StorageError: nor could it when it was tried again.
    """
    return _storage(root).list_tree(root)


def exists(path: str) -> bool:
    """Whether anything has this name, even a dangling link."""
    return _storage(path).exists(path)


def is_file(path: str) -> bool:
    """Whether a file has this name, or a link to one."""
    return standing(path) == "file"


def is_folder(path: str) -> bool:
    """Whether a folder has this name; in a store, whether anything is below it."""
    return standing(path) == "folder"


def standing(path: str) -> Standing:
    """Returns the kind of what has this name, links followed; "" for nothing."""
    return _storage(path).standing(path)


def names_in(folder: str) -> list[str]:
    """Returns the names of what is in a folder, in byte order; raises OSError."""
    return sorted(_storage(folder).names_in(folder), key=os.fsencode)


def names_with(folder: str, inner: Collection[str]) -> list[str]:
    """Returns the names in a folder; of some folders in it, what is in those instead.

    That is, `index/a.u64` for the file `a.u64` in the folder `index`, if that is one of
    `inner`. An empty one of those gives no name. A link to a folder counts as itself.

    Raises OSError as `names_in`.
    """
    names = names_in(folder)
    found = [name for name in names if name not in inner]
    for name in names:
        if name not in inner:
            continue
        path = os.path.join(folder, name)
        if os.path.islink(path) or not is_folder(path):
            found.append(name)
            continue
        with contextlib.suppress(FileNotFoundError):
            found += [f"{name}/{each}" for each in names_in(path)]
    return sorted(found, key=os.fsencode)


def entries_in(folder: str, root: str) -> list[FileEntry]:
    """Returns the files in a folder, not those below it, as `expand`; raises OSError.

    A link that leads nowhere has no size.
    """
    return _storage(folder).entries_in(folder, root)


def stat_entry(path: str, root: str) -> FileEntry:
    """Returns the entry of a file that is below `root`; raises OSError."""
    return _storage(path).stat_entry(path, root)


def open_unbuffered(path: str) -> io.RawIOBase:
    """Opens a file for large reads without a copy; raises OSError."""
    return _storage(path).open_unbuffered(path)


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


def fetched(sizes: Sequence[tuple[str, int]], *, limit: int) -> Iterator[None]:
    """Steps through files that are read one after another, of which many are small.

    While it is at a small one that is in a store, all of that file is in memory for the
    other functions here, and the next ones are being fetched side by side. A file that
    cannot be fetched is left to whoever reads it. On a disk nothing is fetched.

        for (path, _), _ in zip(sizes, fetched(sizes, limit=1 << 20)):
            data = read_bytes(path)

    Args:
      sizes: the files, all in one storage, and their bytes as they were listed.
      limit: bytes of the largest file that is fetched.
    """
    if sizes and is_remote(sizes[0][0]):
        return _remote().fetched(sizes, limit)
    return itertools.repeat(None, len(sizes))


def mapped(path: str) -> "pa.NativeFile":
    """Returns a file for reading at any place, mapped into memory; raises OSError."""
    return _storage(path).mapped(path)


def size_of(path: str) -> int:
    """Returns the size of a file in bytes."""
    return _storage(path).size_of(path)


def sizes_of(paths: Iterable[str]) -> dict[str, int]:
    """Returns path -> bytes of those files that can be found; each is asked for once.

    Raises:
      StorageError: a store did not answer, though it was asked again.
    """
    wanted = dict.fromkeys(paths)
    far = [path for path in wanted if is_remote(path)]
    sizes = _LOCAL.sizes_of(path for path in wanted if not is_remote(path))
    return sizes | _remote().sizes_of(far) if far else sizes


def open_input(path: str, *, stamp: int = 0) -> io.BufferedReader:
    """Opens a file for reading from any place.

    Raises:
      OSError: also when it has another stamp than a `stamp` given.
    """
    file = _storage(path).open_input(path)
    if stamp and stamp_of(file) != stamp:
        file.close()
        raise changed(path)
    return file


def read_bytes(path: str, *, stamp: int = 0) -> bytes:
    """Returns a whole file.

    Raises:
      OSError: also when it has another stamp than a `stamp` given.
    """
    data, found = read_stamped(path)
    if stamp and found != stamp:
        raise changed(path)
    return data


def read_stamped(path: str, limit: int | None = None) -> tuple[bytes, int]:
    """Returns a whole file and its stamp.

    Raises:
      OSError: it cannot be read.
      TooLargeError: it has more bytes than `limit`, and was not read.
    """
    return _storage(path).read_stamped(path, limit)


def read_range(path: str, start: int, stop: int, *, stamp: int = 0) -> bytes:
    """Returns bytes [start, stop) of a file.

    Raises:
      OSError: also when it is shorter, or has another stamp than a `stamp` given.
    """
    data, found = _storage(path).read_range(path, start, stop)
    if stamp and found != stamp:
        raise changed(path)
    if len(data) < stop - start:
        raise OSError(errno.EIO, "the file is shorter than it was", path)
    return data


def create(
    path: str, *, attempts: str, durable: bool = True
) -> contextlib.AbstractContextManager[Sink]:
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
    return written(draft(path, attempts=attempts, durable=durable))


def draft(path: str, *, attempts: str, durable: bool = True) -> Draft:
    """Returns a file to write to, which appears under `path` when it is published.

    Args:
      path, attempts, durable: see `create`.

    Raises:
      StorageError: the temporary file could not be made, though it was tried again.
    """
    return _storage(path).draft(path, attempts=attempts, durable=durable)


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
    with storing(path, size=sum(memoryview(piece).nbytes for piece in pieces)):
        _storage(path).write_file(path, pieces, attempts=attempts, durable=durable)


def remove_file(path: str, *, below: str = "") -> None:
    """Removes exactly this file; it may be gone already.

    Args:
      path: of the file.
      below: a folder above it; no link on the way from there is followed.
    """
    _storage(path).remove_file(path, below=below)


def remove_tree(path: str, *, below: str = "") -> None:
    """Removes exactly this folder and all below it; it may be gone already.

    Links in it are removed and not followed; a link to a folder is an error.

    Args:
      path, below: see `remove_file`.
    """
    _storage(path).remove_tree(path, below=below)


def sync_directory(path: str) -> None:
    """Makes the names in a folder survive a power loss.

    Other than that of a file, a failed sync of a folder is repeated: names go through
    the file system's journal, and one whose journal has failed takes no further sync.

    Raises:
      StorageError: it failed each time.
    """
    _storage(path).sync_directory(path)


def is_inside(path: str, folder: str) -> bool:
    """Whether `path` is `folder` or is below it, links resolved."""
    storage = _storage(folder if is_remote(folder) else path)
    return storage.is_inside(path, folder)
