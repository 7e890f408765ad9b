"""The stores: how this process reaches them, and what is in them.

There is one connection of Arrow, which lists and reads, and one of the store's own
client for every place and process. Endpoints and credentials come from the usual
environment variables, or from URI parameters of the path.

A store lists names in pages, of 1,000 mostly, each after the one before. So the first
levels of a tree are listed folder by folder, and all that is below each folder found
there by itself.
"""

import collections
import concurrent.futures
import contextlib
import errno
import fnmatch
import functools
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from transforms.errors import TargetError
from transforms.storage.buckets import GOOGLE, HDFS, Bucket, HdfsBucket
from transforms.storage.google_azure import AzureBucket, GcsBucket
from transforms.storage.paths import (
    FileEntry,
    is_hidden,
    parameters_of,
    relative,
    split_remote,
)
from transforms.storage.retry import asked, client_errors, reason_of
from transforms.storage.s3 import S3Bucket

if TYPE_CHECKING:
    import pyarrow.fs as pafs

    from transforms.storage.file_list import FileList

# In the words of `transforms.storage.paths.SCHEMES`.
_KINDS: dict[str, type[Bucket]] = {
    "s3": S3Bucket,
    **dict.fromkeys(("gs", "gcs"), GcsBucket),
    **dict.fromkeys(("abfs", "abfss"), AzureBucket),
    "hdfs": HdfsBucket,
}
# By process.
_locks: dict[int, threading.Lock] = {}
# Folders listed at the same time, at most.
_AT_ONCE = 16
# Names in answers of the store, at a time: they take 0.2 KB each.
_NAMES_AT_ONCE = 1 << 18
# Fewer folders than that are listed one level deeper, up to this one.
_LEVELS = 3


def extra_of(path: str) -> str:
    """Returns the extra to install for the client of a place; "" for none."""
    return getattr(_KINDS.get(path.partition("://")[0]), "extra", "")


def file_system(path: str) -> tuple["pafs.FileSystem", str]:
    """Returns the file system of a path, and the path within it.

    Raises:
      OSError: what the environment or the parameters say makes no sense.
    """
    place, key = split_remote(path)
    system, base = _connection(place, by_arrow=True)
    return system, f"{base.rstrip('/')}/{key}" if key else base


def client_of(path: str, attempts: str = "") -> Bucket | None:
    """Returns the bucket of a path; None where the store's client is not installed.

    Args:
      path: of an object.
      attempts: in HDFS, a folder for files that are not whole; elsewhere nothing.

    Raises:
      OSError: it is, but the environment or the parameters make no sense.
    """
    place, _ = split_remote(path)
    if path.startswith(HDFS):
        return HdfsBucket(place, attempts, file_system(place)[0])
    client: Bucket | None = _connection(place, by_arrow=False)
    return client


def bucket_of(path: str, attempts: str = "") -> Bucket:
    """As `client_of`; raises TargetError where the client is not installed."""
    client = client_of(path, attempts)
    if client is None:
        raise TargetError(
            f"Writing to {split_remote(path)[0]!r} needs the store's own client, which "
            f"is not installed. Install it with pip install "
            f"'beam-tfrecord[{extra_of(path)}]', or choose another output."
        )
    return client


def _connection(place: str, *, by_arrow: bool) -> Any:
    """Returns a connection; of many threads that begin to read, one makes it."""
    said, process = tuple(sorted(parameters_of(place).items())), os.getpid()
    # A fork may copy a lock that is held.
    with _locks.setdefault(process, threading.Lock()):
        return _connected(place, said, process, by_arrow=by_arrow)


@functools.lru_cache(maxsize=64)
def _connected(
    place: str, said: tuple[tuple[str, str], ...], _process: int, *, by_arrow: bool
) -> Any:
    """Connects to a store once in each process: threads do not survive a fork."""
    kind: Any = _KINDS.get(place.partition("://")[0])
    if kind is None:
        reason = f"the store must be one of {', '.join(_KINDS)}"
        raise OSError(errno.EINVAL, reason, place)
    try:
        with client_errors(place):
            return (kind.connected if by_arrow else kind)(place, dict(said))
    except ImportError as error:
        if not by_arrow:
            return None
        reason = f"pyarrow is built without this store ({error}); install another one"
        raise OSError(errno.ENOSYS, reason, place) from error
    except (ValueError, TypeError, NotImplementedError, OSError) as error:
        # Those of Arrow have one of these types, and name no file.
        if getattr(error, "filename", None):
            raise
        raise OSError(errno.EINVAL, reason_of(error), place) from error


def look(path: str) -> FileEntry | None:
    """Returns what a store has at a path; None for nothing. Raises OSError."""
    system, inside = file_system(path)
    if path.startswith(HDFS):
        there = HdfsBucket(split_remote(path)[0], "", system)
        return asked(path, lambda: there.entry(inside[1:]))
    entry = FileEntry.of(path, asked(path, lambda: system.get_file_info(inside)))
    if entry is None and path.startswith(GOOGLE):
        # Arrow finds folders by a listing. Where that fails it reports no folder.
        entry = FileEntry(path, is_folder=True) if any(walk(path)) else None
    return entry


def look_in(folder: str) -> list[FileEntry]:
    """Lists a folder of a store, also one without a name. Raises OSError."""
    folder = folder.rstrip("/")
    client = client_of(folder) if folder.startswith(GOOGLE) else None
    if isinstance(client, GcsBucket):
        listed = asked(folder, lambda: client.list_in(split_remote(folder)[1]))
        if not listed:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), folder)
        return listed
    if not folder.startswith(GOOGLE):
        return [*_look_below(folder, recursive=False)]
    # Arrow shows only folders that have an object of their own.
    out: dict[str, FileEntry] = {}
    for entry in _look_below(folder, recursive=True):
        name, _, deeper = entry.path.removeprefix(f"{folder}/").partition("/")
        path = f"{folder}/{name}"
        out[name] = FileEntry(path, is_folder=True) if deeper else out.get(name, entry)
    return list(out.values())


def _look_below(folder: str, *, recursive: bool) -> Iterator[FileEntry]:
    """Asks a store for what is below a folder; the answer takes 0.2 KB an entry."""
    import pyarrow.fs as pafs

    system, inside = file_system(folder)
    selector = pafs.FileSelector(inside, recursive=recursive)
    infos = asked(folder, lambda: system.get_file_info(selector))

    def found(info: Any) -> FileEntry | None:
        below = info.path.removeprefix(inside).removeprefix("/").rstrip("/")
        return FileEntry.of(f"{folder}/{below}", info)

    return filter(None, map(found, infos))


def look_at_level(folder: str) -> list[FileEntry] | None:
    """Lists a folder of a store; None where that does not lead to all below it.

    Where a folder's name is empty, Arrow says nothing of what is in it.
    """
    if folder.startswith(GOOGLE) and client_of(folder) is None:
        return None
    entries: list[FileEntry] = []
    with contextlib.suppress(FileNotFoundError):
        entries = look_in(folder)
    names = [entry.path.removeprefix(f"{folder}/") for entry in entries]
    return entries if all(name and "/" not in name for name in names) else None


def walk(folder: str) -> Iterator[FileEntry]:
    """Yields every file below a folder of a store; none where there is no folder."""
    entries: Iterable[FileEntry] = ()
    with contextlib.suppress(FileNotFoundError):
        entries = _look_below(folder.rstrip("/"), recursive=True)
    return (entry for entry in entries if not entry.is_folder)


def expand(pattern: str) -> list[str]:
    """Lists the files of a store that a glob names, `**` in it for any folders."""
    parts = pattern.split("/")
    first = next(i for i, name in enumerate(parts) if any(c in name for c in "*?["))
    folder, globs = "/".join(parts[:first]), parts[first:]
    entries: Iterable[FileEntry] = ()
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
    """Whether a listed path fits a glob as `glob.glob(recursive=True)` has it."""
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
    """Lists the files below a folder in a store; none where there is no such folder.

    Raises:
      OSError: it cannot be listed.
      StorageError: nor could it when it was tried again.
    """
    # Here, because what only checks files is to start without Arrow.
    from transforms.storage.file_list import FileLister

    lister, lock = FileLister(), threading.Lock()

    def add(found: Iterable[FileEntry]) -> int:
        """Adds files, and returns their number; any thread may call it."""
        count = 0
        for entry in found:
            count += 1
            path = relative(entry.path, root)
            with lock:
                if unread := _hidden_part(path):
                    lister.add(unread, 0, 0, hidden=True)
                else:
                    lister.add(path, entry.size, entry.modified_ns)
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
    add: Callable[[Iterable[FileEntry]], int],
) -> list[str]:
    """Lists folders of a store that hold all files below the root but those it adds."""
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


def _hidden_part(path: str) -> str:
    """Returns a listed path up to its first hidden name; empty where none is."""
    parts = path.split("/")
    hidden = [*map(is_hidden, parts)]
    return "/".join(parts[: hidden.index(True) + 1]) if any(hidden) else ""
