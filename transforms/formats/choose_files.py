"""Choose the input files of a listing: hidden files, include and exclude patterns."""

import collections
import fnmatch
from collections.abc import Callable, Sequence

from transforms.core.reasons import Skipped
from transforms.files import FileEntry

__all__ = ["choose_files"]


def choose_files(
    entries: Sequence[FileEntry],
    *,
    takes: Callable[[str], bool],
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
) -> tuple[list[FileEntry], dict[str, int]]:
    """Returns the files to read, and how many were left out by reason.

    A pattern is matched against the whole relative path and against the file name;
    `*` crosses folders. With `include`, what it matches is read whatever its suffix;
    without, what `takes` says.
    """
    kept: list[FileEntry] = []
    skipped: collections.Counter[str] = collections.Counter()
    for entry in entries:
        name = entry.path.rpartition("/")[2]
        if entry.skipped:
            skipped[Skipped.HIDDEN] += 1
        elif include and not _matches(entry.path, name, include):
            skipped[Skipped.NOT_INCLUDED] += 1
        elif _matches(entry.path, name, exclude):
            skipped[Skipped.EXCLUDED] += 1
        elif not include and not takes(entry.path):
            skipped[Skipped.OTHER_SUFFIX] += 1
        else:
            kept.append(entry)
    return kept, {str(reason): n for reason, n in sorted(skipped.items())}


def _matches(path: str, name: str, patterns: Sequence[str]) -> bool:
    return any(
        fnmatch.fnmatchcase(path, p) or fnmatch.fnmatchcase(name, p) for p in patterns
    )
