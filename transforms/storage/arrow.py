"""Look at what is in object stores and other remote file systems, by `pyarrow.fs`.

There is one connection for each place and process. Its endpoint and credentials come
from the usual environment variables, or from URI parameters of the path.

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
import itertools
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from transforms.storage.buckets import GOOGLE, HDFS
from transforms.storage.entries import Found, is_hidden
from transforms.storage.paths import parameters_of, relative, split_remote
from transforms.storage.retry import asked, reason_of

if TYPE_CHECKING:
    import pyarrow.fs as pafs

    from transforms.storage.file_list import FileList
    from transforms.storage.gcs import GcsBucket

_SECOND_NS = 10**9
# Files that are listed together.
_FILES_AT_ONCE = 1 << 14
# Folders listed at the same time, at most.
_AT_ONCE = 16
# Names in answers of the store, at a time: they take 0.2 KB each.
_NAMES_AT_ONCE = 1 << 18
# Fewer folders than that are listed one level deeper, up to this one.
_LEVELS = 3


def file_system(path: str) -> tuple["pafs.FileSystem", str]:
    """Returns the file system of a path, and the path within it.

    Raises:
      OSError: what the environment or the parameters say makes no sense.
    """
    place, key = split_remote(path)
    said = tuple(sorted(parameters_of(place).items()))
    system, base = _connected(place, said, os.getpid())
    return system, f"{base.rstrip('/')}/{key}" if key else base


@functools.lru_cache(maxsize=64)
def _connected(
    place: str, said: tuple[tuple[str, str], ...], _process: int
) -> tuple["pafs.FileSystem", str]:
    """Connects once to each place, in each process: threads do not survive a fork."""
    # Here, because it loads the clients of all clouds.
    import pyarrow as pa

    from transforms.storage import azure, gcs, hdfs, s3

    scheme, _, authority = place.partition("://")
    parameters = dict(said)
    try:
        if scheme == "s3":
            return s3.connected(parameters, authority), authority
        if scheme in ("gs", "gcs"):
            return gcs.connected(parameters), authority
        if scheme in ("abfs", "abfss"):
            return azure.connected(parameters, place)
        return hdfs.connected(parameters, place), ""
    except (ValueError, pa.ArrowException, OSError) as error:
        raise OSError(errno.EINVAL, reason_of(error), place) from error


def write(path: str, data: bytes) -> None:
    """Writes a file whose name nobody else has, without the store's own client."""
    system, inside = file_system(path)

    def work() -> None:
        with system.open_output_stream(inside) as sink:
            sink.write(data)

    asked(path, work)


def look(path: str) -> Found | None:
    """Returns what is at a path; None for nothing. Raises OSError."""
    if path.startswith(HDFS):
        return asked(path, functools.partial(_look_in_hdfs, path))
    system, inside = file_system(path)
    found = _found(path, asked(path, lambda: system.get_file_info(inside)))
    if found is None and path.startswith(GOOGLE):
        # Arrow finds folders by a listing. Where that fails it reports no folder.
        found = Found(path, True) if any(walk(path)) else None
    return found


def _look_in_hdfs(path: str) -> Found | None:
    """As `look`, where Arrow says of all that could not be asked that it is missing."""
    import pyarrow.fs as pafs

    system, inside = file_system(path)
    if (found := _found(path, system.get_file_info(inside))) is None:
        with contextlib.suppress(FileNotFoundError):
            # Fails with another error where the name node does not answer.
            system.get_file_info(pafs.FileSelector(inside))
            found = Found(path, True)
    return found


def look_in(folder: str) -> list[Found]:
    """Returns what is in a folder. Raises OSError."""
    if folder.startswith(GOOGLE):
        return _look_in_flat(folder.rstrip("/"))
    return list(_look_below(folder, recursive=False))


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
    top = folder.rstrip("/")

    def found(info: Any) -> Found | None:
        # A folder's name may be empty.
        below = info.path.removeprefix(inside).removeprefix("/").rstrip("/")
        return _found(f"{top}/{below}", info) if below else None

    return filter(None, map(found, infos))


def _google(path: str) -> "GcsBucket | None":
    """Returns a bucket by Google's client; None where that is not installed."""
    place = split_remote(path)[0]
    said = tuple(sorted(parameters_of(place).items()))
    return _google_connected(place, said, os.getpid())


@functools.lru_cache(maxsize=64)
def _google_connected(
    place: str, said: tuple[tuple[str, str], ...], _process: int
) -> "GcsBucket | None":
    try:
        from transforms.storage.gcs import GcsBucket, gcs_errors

        with gcs_errors(place):
            return GcsBucket(place, dict(said))
    except ImportError:
        return None


def _look_in_flat(folder: str) -> list[Found]:
    """As `look_in`, where Arrow shows only folders that have objects of their own."""
    client = _google(folder)
    if client is None:
        out: dict[str, Found] = {}
        for each in _look_below(folder, recursive=True):
            name, _, deeper = each.path.removeprefix(f"{folder}/").partition("/")
            path = f"{folder}/{name}"
            out[name] = Found(path, True) if deeper else out.get(name, each)
        return list(out.values())
    found = asked(folder, lambda: client.list_in(split_remote(folder)[1]))
    if not found:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), folder)
    return found


def look_at_level(folder: str) -> list[Found] | None:
    """Returns what is in a folder; None where that does not lead to all below it.

    Where a folder's name is empty, Arrow says nothing of what is in it.
    """
    if folder.startswith(HDFS):
        # It answers from memory, and all at once.
        return None
    if folder.startswith(GOOGLE):
        if _google(folder) is None:
            return None
        try:
            listed = _look_in_flat(folder)
        except FileNotFoundError:
            return []
        return listed if all(_is_name(each.path, folder) for each in listed) else None
    import pyarrow.fs as pafs

    system, inside = file_system(folder)
    selector = pafs.FileSelector(inside, allow_not_found=True)
    infos = asked(folder, lambda: system.get_file_info(selector))
    if not all(_is_name(info.path, inside) for info in infos):
        return None
    paths = (f"{folder}/{info.path.removeprefix(f'{inside}/')}" for info in infos)
    return [each for p, i in zip(paths, infos, strict=True) if (each := _found(p, i))]


def _is_name(path: str, folder: str) -> bool:
    """Whether a path is that of the folder, and a name behind it."""
    name = path.removeprefix(f"{folder}/")
    return bool(name) and "/" not in name


def walk(folder: str) -> Iterator[Found]:
    """Returns every file below a folder; none where there is no such folder."""
    in_hdfs = folder.startswith(HDFS)
    if in_hdfs and look(folder) is None:
        return iter(())
    # An HDFS without its name node would look empty as well.
    found = _look_below(folder, recursive=True, missing_ok=not in_hdfs)
    return (each for each in found if not each.is_folder)


def _found(path: str, info: Any) -> Found | None:
    import pyarrow.fs as pafs

    if info.type == pafs.FileType.NotFound:
        return None
    if info.type == pafs.FileType.Directory:
        return Found(path, True)
    seconds = (info.mtime_ns or 0) // _SECOND_NS
    return Found(path, False, info.size or 0, seconds * _SECOND_NS)


def expand(pattern: str) -> list[str]:
    """Returns the files that a glob names, `**` in it for any folders."""
    parts = pattern.split("/")
    first = next(i for i, part in enumerate(parts) if any(c in part for c in "*?["))
    folder, wanted = "/".join(parts[:first]), parts[first:]
    found: Iterable[Found] = ()
    # As on a disk, a pattern in a missing folder names nothing.
    with contextlib.suppress(FileNotFoundError):
        found = look_in(folder) if len(wanted) == 1 else walk(folder)
    return sorted(
        (
            each.path
            for each in found
            if not each.is_folder
            and _matches(each.path.removeprefix(f"{folder}/").split("/"), wanted)
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
        # Here, because what only checks files is to start without Arrow.
        from transforms.storage.file_list import FileLister

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
        while some := list(itertools.islice(remaining, _FILES_AT_ONCE)):
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

    def files(self) -> "FileList":
        """Returns all of them, in the byte order of their paths."""
        return self._lister.files()
