"""Look at what is at a path, in a folder, or below it, in a store."""

import contextlib
import dataclasses
import errno
import fnmatch
import functools
import os
from collections.abc import Iterable, Iterator
from typing import Any

from transforms.storage import object_clients
from transforms.storage.file_systems import asked, file_system
from transforms.storage.paths import split_remote

HDFS = "hdfs://"
_WITHOUT_FOLDERS = ("gs://", "gcs://")
_SECOND = 10**9


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """What is at a remote path.

    Attributes:
      path: whole, with its scheme.
      is_folder: whether it is a folder; of an object store, a prefix.
      size: bytes of a file.
      modified_ns: of a file, whole seconds.
    """

    path: str
    is_folder: bool
    size: int = 0
    modified_ns: int = 0


def look(path: str) -> Found | None:
    """Returns what is at a path; None for nothing. Raises OSError."""
    if path.startswith(HDFS):
        return asked(path, functools.partial(_look_in_hdfs, path))
    system, inside = file_system(path)
    found = _found(path, asked(path, lambda: system.get_file_info(inside)))
    if found is None and path.startswith(_WITHOUT_FOLDERS):
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


def look_in(folder: str, *, recursive: bool = False) -> list[Found]:
    """Returns what is in a folder, or anywhere below it. Raises OSError."""
    if not recursive and folder.startswith(_WITHOUT_FOLDERS):
        return _look_in_flat(folder.rstrip("/"))
    return list(_look_below(folder, recursive=recursive))


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


def _look_in_flat(folder: str) -> list[Found]:
    """As `look_in`, where Arrow shows only folders that have objects of their own."""
    client = object_clients.client_of(folder)
    listed = None
    if client is not None:
        listed = asked(folder, lambda: client.list_in(split_remote(folder)[1]))
    if listed is None:
        out: dict[str, Found] = {}
        for each in look_in(folder, recursive=True):
            name, _, deeper = each.path.removeprefix(f"{folder}/").partition("/")
            path = f"{folder}/{name}"
            out[name] = Found(path, True) if deeper else out.get(name, each)
        return list(out.values())
    if not listed:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), folder)
    return [
        Found(f"{folder}/{it.name}", it.is_folder, it.size, it.modified * _SECOND)
        for it in listed
    ]


def look_at_level(folder: str) -> list[Found] | None:
    """Returns what is in a folder; None where that does not lead to all below it.

    Where a folder's name is empty, Arrow says nothing of what is in it.
    """
    if folder.startswith(HDFS):
        # It answers from memory, and all at once.
        return None
    if folder.startswith(_WITHOUT_FOLDERS):
        if object_clients.client_of(folder) is None:
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
    seconds = (info.mtime_ns or 0) // _SECOND
    return Found(path, False, info.size or 0, seconds * _SECOND)


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
