"""Look at what is in object stores and other remote file systems, by `pyarrow.fs`.

A store lists names in pages, of 1,000 mostly, each after the one before. So the first
levels of a tree are listed folder by folder, and all that is below each folder found
there by itself.
"""

import collections
import concurrent.futures
import contextlib
import errno
import fnmatch
import itertools
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from transforms.storage import clients
from transforms.storage.buckets import GOOGLE, HDFS
from transforms.storage.clients import file_system as file_system
from transforms.storage.entries import Found, is_hidden
from transforms.storage.paths import relative, split_remote
from transforms.storage.retry import asked

if TYPE_CHECKING:
    from transforms.storage.file_list import FileList

# Files that are listed together.
_FILES_AT_ONCE = 1 << 14
# Folders listed at the same time, at most.
_AT_ONCE = 16
# Names in answers of the store, at a time: they take 0.2 KB each.
_NAMES_AT_ONCE = 1 << 18
# Fewer folders than that are listed one level deeper, up to this one.
_LEVELS = 3


def write(path: str, data: bytes) -> None:
    """Writes a file whose name nobody else has, without the store's own client."""
    system, inside = file_system(path)

    def work() -> None:
        with system.open_output_stream(inside) as sink:
            sink.write(data)

    asked(path, work)


def look(path: str) -> Found | None:
    """Returns what is at a path; None for nothing. Raises OSError."""
    system, inside = file_system(path)
    if path.startswith(HDFS):
        from transforms.storage.hdfs import look_at

        return asked(path, lambda: look_at(system, inside, path))
    entry = Found.of(path, asked(path, lambda: system.get_file_info(inside)))
    if entry is None and path.startswith(GOOGLE):
        # Arrow finds folders by a listing. Where that fails it reports no folder.
        entry = Found(path, True) if any(walk(path)) else None
    return entry


def look_in(folder: str) -> list[Found]:
    """Returns what is in a folder. Raises OSError."""
    folder = folder.rstrip("/")
    if not folder.startswith(GOOGLE):
        entries = _look_below(folder, recursive=False)
        # A folder's name may be empty.
        return [entry for entry in entries if entry.path != f"{folder}/"]
    client = clients.client_of(folder)
    if client is None:
        out: dict[str, Found] = {}
        for entry in _look_below(folder, recursive=True):
            name, _, deeper = entry.path.removeprefix(f"{folder}/").partition("/")
            path = f"{folder}/{name}"
            out[name] = Found(path, True) if deeper else out.get(name, entry)
        return list(out.values())
    listed = asked(folder, lambda: client.list_in(split_remote(folder)[1]))
    if not listed:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), folder)
    return listed


def _look_below(
    folder: str, *, recursive: bool, missing_ok: bool = False
) -> Iterator[Found]:
    """Asks for what is below a folder; the answer takes 0.2 KB an entry."""
    import pyarrow.fs as pafs

    system, inside = file_system(folder)
    selector = pafs.FileSelector(
        inside, recursive=recursive, allow_not_found=missing_ok
    )
    infos = asked(folder, lambda: system.get_file_info(selector))

    def found(info: Any) -> Found | None:
        below = info.path.removeprefix(inside).removeprefix("/").rstrip("/")
        return Found.of(f"{folder}/{below}", info)

    return filter(None, map(found, infos))


def look_at_level(folder: str) -> list[Found] | None:
    """Returns what is in a folder; None where that does not lead to all below it.

    Where a folder's name is empty, Arrow says nothing of what is in it.
    """
    # HDFS answers from memory, and all at once.
    if folder.startswith(HDFS) or (
        folder.startswith(GOOGLE) and clients.client_of(folder) is None
    ):
        return None
    try:
        if folder.startswith(GOOGLE):
            entries = look_in(folder)
        else:
            entries = [*_look_below(folder, recursive=False, missing_ok=True)]
    except FileNotFoundError:
        return []
    names = [entry.path.removeprefix(f"{folder}/") for entry in entries]
    return entries if all(name and "/" not in name for name in names) else None


def walk(folder: str) -> Iterator[Found]:
    """Returns every file below a folder; none where there is no such folder."""
    in_hdfs = folder.startswith(HDFS)
    if in_hdfs and look(folder) is None:
        return iter(())
    # An HDFS without its name node would look empty as well.
    entries = _look_below(folder.rstrip("/"), recursive=True, missing_ok=not in_hdfs)
    return (entry for entry in entries if not entry.is_folder)


def expand(pattern: str) -> list[str]:
    """Returns the files that a glob names, `**` in it for any folders."""
    parts = pattern.split("/")
    first = next(i for i, name in enumerate(parts) if any(c in name for c in "*?["))
    folder, globs = "/".join(parts[:first]), parts[first:]
    entries: Iterable[Found] = ()
    # As on a disk, a pattern in a missing folder names nothing.
    with contextlib.suppress(FileNotFoundError):
        entries = look_in(folder) if len(globs) == 1 else walk(folder)
    return sorted(
        (
            entry.path
            for entry in entries
            if not entry.is_folder
            and _matches(entry.path.removeprefix(f"{folder}/").split("/"), globs)
        ),
        key=os.fsencode,
    )


def _matches(parts: list[str], wanted: list[str]) -> bool:
    """Whether a path fits a glob as `glob.glob(recursive=True)` has it."""
    if not wanted:
        return not parts
    if wanted[0] == "**":
        hidden = next((i for i, p in enumerate(parts) if p.startswith(".")), len(parts))
        return any(_matches(parts[i:], wanted[1:]) for i in range(hidden + 1))
    return (
        bool(parts)
        and fnmatch.fnmatchcase(parts[0], wanted[0])
        and (wanted[0].startswith(".") or not parts[0].startswith("."))
        and _matches(parts[1:], wanted[1:])
    )


def list_below(root: str) -> "FileList":
    """Returns the files below a folder in a store; none where there is no such folder.

    Raises:
      OSError: it cannot be listed.
      StorageError: nor could it when it was tried again.
    """
    # Here, because what only checks files is to start without Arrow.
    from transforms.storage.file_list import FileLister

    lister, lock = FileLister(), threading.Lock()

    def add(found: Iterable[Found]) -> int:
        """Adds files, and returns their number; any thread may call it."""
        count, left = 0, iter(found)
        while some := [*itertools.islice(left, _FILES_AT_ONCE)]:
            count += len(some)
            columns = _columns(some, root)
            with lock:
                lister.add("", *columns[:3])
                lister.add_hidden("", columns[3])
        return count

    waiting: collections.deque[concurrent.futures.Future[int]] = collections.deque()
    # Until an answer says how long they are, one at a time.
    most = 1
    with concurrent.futures.ThreadPoolExecutor(_AT_ONCE) as pool:
        for folder in _spread(root, pool, add):
            while len(waiting) >= most:
                longest = waiting.popleft().result()
                most = min(_AT_ONCE, max(_NAMES_AT_ONCE // max(longest, 1), 1))
            waiting.append(pool.submit(lambda folder: add(walk(folder)), folder))
        for future in waiting:
            future.result()
    return lister.files()


def _spread(
    root: str,
    pool: concurrent.futures.Executor,
    add: Callable[[Iterable[Found]], int],
) -> list[str]:
    """Returns folders that hold all files below the root but those it has added."""
    whole: list[str] = []
    level = [root]
    for _ in range(_LEVELS):
        if len(whole) + len(level) >= _AT_ONCE:
            break
        deeper: list[str] = []
        for folder, entries in zip(level, pool.map(look_at_level, level), strict=True):
            if entries is None:
                whole.append(folder)
                continue
            deeper += (entry.path for entry in entries if entry.is_folder)
            add(entry for entry in entries if not entry.is_folder)
        level = deeper
    return whole + level


def _columns(
    found: Iterable[Found], root: str
) -> tuple[list[str], list[int], list[int], list[str]]:
    """Returns paths, sizes and times of files; hidden ones, and folders, by name."""
    paths: list[str] = []
    sizes: list[int] = []
    modified: list[int] = []
    hidden: list[str] = []
    for entry in found:
        path = relative(entry.path, root)
        parts = path.split("/")
        if any(map(is_hidden, parts)):
            first = next(i for i, name in enumerate(parts) if is_hidden(name))
            hidden.append("/".join(parts[: first + 1]))
            continue
        paths.append(path)
        sizes.append(entry.size)
        modified.append(entry.modified_ns)
    return paths, sizes, modified, hidden
