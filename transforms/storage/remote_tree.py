"""List a tree in a store: the folders below its first levels at the same time.

A store lists names in pages, of 1,000 mostly, each after the one before. So the first
levels are listed folder by folder, and all that is below each folder found there by
itself.
"""

import collections
import concurrent.futures
from collections.abc import Iterable

from transforms.storage.entries import is_hidden
from transforms.storage.file_list import FileList, FileLister
from transforms.storage.paths import relative
from transforms.storage.remote_look import Found, look_at_level, walk

__all__ = ["list_below"]

# Folders listed at the same time. What each holds is in memory until it is taken.
_AT_ONCE = 16
# Fewer folders than that are listed one level deeper, up to this one.
_LEVELS = 3


def list_below(root: str) -> FileList:
    """Returns the files below a folder in a store; none where there is no such folder.

    Raises:
      OSError: it cannot be listed.
      StorageError: nor could it when it was tried again.
    """
    lister = FileLister()
    waiting: collections.deque[concurrent.futures.Future[list[Found]]]
    waiting = collections.deque()
    with concurrent.futures.ThreadPoolExecutor(_AT_ONCE) as pool:
        for folder in _spread(root, pool, lister):
            waiting.append(pool.submit(walk, folder))
            if len(waiting) == _AT_ONCE:
                _take(waiting.popleft().result(), root, lister)
        while waiting:
            _take(waiting.popleft().result(), root, lister)
    return lister.files()


def _spread(
    root: str, pool: concurrent.futures.Executor, lister: FileLister
) -> list[str]:
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
            _take((each for each in found if not each.is_folder), root, lister)
        wanted = deeper
    return whole + wanted


def _take(found: Iterable[Found], root: str, lister: FileLister) -> None:
    """Adds files to a list; a hidden folder is one entry, whatever is in it."""
    paths: list[str] = []
    sizes: list[int] = []
    modified: list[int] = []
    for each in found:
        path = relative(each.path, root)
        parts = path.split("/")
        if any(map(is_hidden, parts)):
            first = next(i for i, part in enumerate(parts) if is_hidden(part))
            lister.add_hidden("", ["/".join(parts[: first + 1])])
            continue
        paths.append(path)
        sizes.append(each.size)
        modified.append(each.modified_ns)
    lister.add("", paths, sizes, modified)
