"""List a tree in a store: the folders below its first levels at the same time.

A store lists names in pages, of 1,000 mostly, each after the one before. So the first
levels are listed folder by folder, and all that is below each folder found there by
itself.
"""

import collections
import concurrent.futures
import itertools
import threading
from collections.abc import Iterable, Sequence

from transforms.storage.entries import is_hidden
from transforms.storage.file_list import FileList, FileLister
from transforms.storage.paths import relative
from transforms.storage.remote_look import Found, look_at_level, walk
from transforms.storage.row_spool import BATCH_ROWS

__all__ = ["list_below"]

# Folders listed at the same time, at most.
_AT_ONCE = 16
# Names in answers of the store, at a time: they take 0.2 KB each.
_NAMES_AT_ONCE = 1 << 18
# Fewer folders than that are listed one level deeper, up to this one.
_LEVELS = 3


def list_below(root: str) -> FileList:
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
