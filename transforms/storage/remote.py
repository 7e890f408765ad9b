"""Files in object stores and other remote file systems, over `pyarrow.fs`.

Paths have a scheme; see `transforms.storage.paths`. Failures that pass are tried again,
the others become an OSError with a number.

A store lists names in pages, of 1,000 mostly, each after the one before. So the first
levels are listed folder by folder, and all that is below each folder found there by
itself.
"""

import collections
import concurrent.futures
import errno
import io
import itertools
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from transforms.errors import SpecError, source_error
from transforms.storage.drafts import Draft
from transforms.storage.entries import FileEntry, Standing, is_hidden, stamp
from transforms.storage.file_list import FileList, FileLister
from transforms.storage.file_systems import CONNECTIONS
from transforms.storage.paths import relative
from transforms.storage.remote_look import (
    Found,
    expand,
    look,
    look_at_level,
    look_in,
    walk,
)
from transforms.storage.remote_reads import (
    RemoteFile,
    fetched,
    is_held,
    read_all,
    read_at_once,
    remembered,
)
from transforms.storage.remote_writes import (
    RemoteDraft,
    put,
    remove_file,
    remove_tree,
)
from transforms.storage.row_spool import BATCH_ROWS

if TYPE_CHECKING:
    import pyarrow as pa

# Reads of an open file fetch at least this much: each costs a round trip.
_FETCH_BYTES = 8 << 20
# Folders listed at the same time, at most.
_AT_ONCE = 16
# Names in answers of the store, at a time: they take 0.2 KB each.
_NAMES_AT_ONCE = 1 << 18
# Fewer folders than that are listed one level deeper, up to this one.
_LEVELS = 3


class RemoteStorage:
    """Files by paths with a scheme; folders are prefixes where a store has none.

    The methods do what the functions of `transforms.files` say.
    """

    def exists(self, path: str) -> bool:
        return look(path) is not None

    def is_pattern(self, path: str) -> bool:
        return any(c in path for c in "*?[") and not self.exists(path)

    def size_of(self, path: str) -> int:
        return self.stat_entry(path, "").size

    def sizes_of(self, paths: Iterable[str]) -> dict[str, int]:
        def ask(path: str) -> int | None:
            try:
                return self.size_of(path)
            except (OSError, SpecError):
                return None

        named = list(paths)
        # Each waits for a round trip and hardly needs this machine.
        with concurrent.futures.ThreadPoolExecutor(CONNECTIONS) as pool:
            found = zip(named, pool.map(ask, named), strict=True)
            return {path: size for path, size in found if size is not None}

    def standing(self, path: str) -> Standing:
        found = look(path)
        if found is None:
            return ""
        return "folder" if found.is_folder else "file"

    def expand(self, pattern: str) -> list[str]:
        return expand(pattern)

    def list_tree(self, root: str) -> "FileList":
        # Here, because what only checks files is to start without Arrow.

        try:
            return _list_below(root)
        except OSError as error:
            raise source_error(
                f"Every folder of the source must be readable; {root!r} is not: "
                f"{error.strerror}.",
                error,
            ) from error

    def names_in(self, folder: str) -> list[str]:
        return [os.path.basename(found.path) for found in look_in(folder)]

    def entries_in(self, folder: str, root: str) -> list[FileEntry]:
        return [
            FileEntry(relative(found.path, root), found.size, found.modified_ns)
            for found in look_in(folder)
            if not found.is_folder
        ]

    def stat_entry(self, path: str, root: str) -> FileEntry:
        found = look(path)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return FileEntry(relative(path, root), found.size, found.modified_ns)

    def open_unbuffered(self, path: str) -> io.RawIOBase:
        return RemoteFile(path)

    def open_input(self, path: str) -> io.BufferedReader:
        """Of small reads, many are one request."""
        return io.BufferedReader(RemoteFile(path), _FETCH_BYTES)

    def fetched(self, sizes: Sequence[tuple[str, int]], limit: int) -> Iterator[None]:
        return fetched(sizes, limit)

    def mapped(self, path: str) -> "pa.NativeFile":
        """The whole file is fetched."""
        import pyarrow as pa

        return pa.BufferReader(remembered(path))

    def read_stamped(self, path: str, limit: int | None) -> tuple[bytes, int]:
        data, modified_ns = read_all(path, limit)
        return data, stamp(len(data), modified_ns)

    def read_range(self, path: str, start: int, stop: int) -> tuple[bytes, int]:
        is_simple = start < stop and not is_held(path)
        if is_simple and (found := read_at_once(path, (start, stop))):
            return found[0], stamp(*found[1:])
        with RemoteFile(path) as file:
            return file.read_range(start, stop), file.stamp

    def draft(self, path: str, *, attempts: str, durable: bool) -> Draft:
        """`attempts` matters where files are renamed, as in HDFS."""
        return RemoteDraft(path, attempts)

    def write_file(
        self,
        path: str,
        pieces: Sequence[bytes | memoryview],
        *,
        attempts: str,
        durable: bool,
    ) -> None:
        put(path, b"".join(pieces), attempts=attempts)

    def remove_file(self, path: str, *, below: str) -> None:
        remove_file(path)

    def remove_tree(self, path: str, *, below: str) -> None:
        remove_tree(path)

    def sync_directory(self, path: str) -> None:
        """Does nothing: what a store has confirmed is durable."""

    def is_inside(self, path: str, folder: str) -> bool:
        return f"{path}/".startswith(f"{folder.rstrip('/')}/")


def _list_below(root: str) -> FileList:
    """Returns the files below a folder in a store; none where there is no such folder.

    Raises:
      OSError: it cannot be listed.
      StorageError: nor could it when it was tried again.
    """
    taken = _Taken(root)
    waiting: collections.deque[concurrent.futures.Future[int]] = collections.deque()
    # Until an answer says how long they are, one at a time.
    most = 1
    with concurrent.futures.ThreadPoolExecutor(_AT_ONCE) as pool:
        for folder in _spread(root, pool, taken):
            while len(waiting) >= most:
                longest = waiting.popleft().result()
                most = min(_AT_ONCE, max(_NAMES_AT_ONCE // max(longest, 1), 1))
            waiting.append(pool.submit(taken.add_below, folder))
        for each in waiting:
            each.result()
    return taken.files()


def _spread(root: str, pool: concurrent.futures.Executor, taken: "_Taken") -> list[str]:
    """Returns folders that hold all files below the root but those it has listed."""
    whole: list[str] = []
    wanted = [root]
    for _ in range(_LEVELS):
        if len(whole) + len(wanted) >= _AT_ONCE:
            break
        deeper: list[str] = []
        for folder, found in zip(wanted, pool.map(look_at_level, wanted), strict=True):
            if found is None:
                whole.append(folder)
                continue
            deeper += (each.path for each in found if each.is_folder)
            taken.add(each for each in found if not each.is_folder)
        wanted = deeper
    return whole + wanted


class _Taken:
    """The files that were found so far, by any thread."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._lister = FileLister()
        self._lock = threading.Lock()

    def add_below(self, folder: str) -> int:
        """Lists all below a folder; returns how many files there are."""
        return self.add(walk(folder))

    def add(self, found: Iterable[Found]) -> int:
        """Adds files, and returns their number; a hidden folder is one entry."""
        count = 0
        remaining = iter(found)
        while some := list(itertools.islice(remaining, BATCH_ROWS)):
            count += len(some)
            self._add_some(some)
        return count

    def _add_some(self, found: Sequence[Found]) -> None:
        paths: list[str] = []
        sizes: list[int] = []
        modified: list[int] = []
        hidden: list[str] = []
        for each in found:
            path = relative(each.path, self._root)
            parts = path.split("/")
            if any(map(is_hidden, parts)):
                first = next(i for i, part in enumerate(parts) if is_hidden(part))
                hidden.append("/".join(parts[: first + 1]))
                continue
            paths.append(path)
            sizes.append(each.size)
            modified.append(each.modified_ns)
        with self._lock:
            self._lister.add("", paths, sizes, modified)
            self._lister.add_hidden("", hidden)

    def files(self) -> FileList:
        """Returns all of them, in the byte order of their paths."""
        return self._lister.files()
