"""Choose the input files of a listing: hidden files, include and exclude patterns."""

import collections
import fnmatch
import os
import re
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import numpy_mask
from transforms.core.reasons import Skipped
from transforms.formats.file_names import IMAGE_SUFFIXES
from transforms.storage.file_list import FileList


def _in_any_case(suffix: str) -> str:
    # Not by a flag: in Unicode, more than two characters are one letter.
    letters = (f"[{c}{c.upper()}]" if c.isalpha() else re.escape(c) for c in suffix)
    return "".join(letters)


# What nearly all names of images match.
_PLAIN = rf"[^/.](?:{'|'.join(map(_in_any_case, IMAGE_SUFFIXES))})$"
# What names of annotations match that are for one image each.
_TEXT = r"(?i)[^/]\.(txt|json|xml)$"


def are_plain_images(paths: pa.BinaryArray) -> npt.NDArray[np.bool_]:
    """Tells which of many paths are beyond doubt those of images.

    What is True is an image for `is_image_name`, and a file of no other format; what
    is False may be an image as well.
    """
    return numpy_mask(pc.match_substring_regex(paths, _PLAIN))


def choose_files(
    files: FileList,
    *,
    takes: Callable[[str], bool],
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
) -> tuple[FileList, dict[str, int]]:
    """Returns the files to read, and how many were left out by reason.

    A pattern is matched against the whole relative path and against the file name;
    `*` crosses folders. One that ends with `/` is for all files in folders of that
    name, at any depth. With `include`, what it matches is read whatever its suffix;
    without, what `takes` says, which must be the same of all plain names of images.
    """
    skipped: collections.Counter[str] = collections.Counter()
    takes_images = takes(f"a/a{IMAGE_SUFFIXES[0]}")

    def reason_of(path: str) -> str:
        name = path.rpartition("/")[2]
        if include and not _matches(path, name, include):
            return Skipped.NOT_INCLUDED
        if _matches(path, name, exclude):
            return Skipped.EXCLUDED
        return "" if include or takes(path) else Skipped.OTHER_SUFFIX

    def keep(batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        kept = ~numpy_mask(batch["hidden"])
        if count := int((~kept).sum()):
            skipped[Skipped.HIDDEN] += count
        looked_at = kept
        if takes_images and not (include or exclude):
            looked_at = kept & ~are_plain_images(batch["path"])
        for index in np.flatnonzero(looked_at).tolist():
            if reason := reason_of(os.fsdecode(batch["path"][index].as_py())):
                skipped[reason] += 1
                kept[index] = False
        return kept

    chosen = files.filter(keep)
    return chosen, {str(reason): n for reason, n in sorted(skipped.items())}


def other_suffixes(
    files: FileList,
    *,
    takes: Callable[[str], bool],
    exclude: Sequence[str] = (),
    shown: int,
) -> tuple[str, ...]:
    """Returns the first files that `choose_files` leaves out for their suffix.

    Args:
      files, takes, exclude: as it was given them, with no pattern to include.
      shown: return no more than this many.
    """
    found: list[str] = []
    takes_images = takes(f"a/a{IMAGE_SUFFIXES[0]}")
    for batch in files.batches():
        looked_at = ~numpy_mask(batch["hidden"])
        if takes_images:
            looked_at &= ~are_plain_images(batch["path"])
        for index in np.flatnonzero(looked_at).tolist():
            path = os.fsdecode(batch["path"][index].as_py())
            name = path.rpartition("/")[2]
            if not takes(path) and not _matches(path, name, exclude):
                found.append(path)
                if len(found) == shown:
                    return tuple(found)
    return tuple(found)


def only_texts(files: FileList) -> FileList:
    """Returns the files that may hold annotations, each of one image."""

    def are_texts(batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        named = pc.match_substring_regex(batch["path"], _TEXT)
        return numpy_mask(named) & ~numpy_mask(batch["hidden"])

    return files.filter(are_texts)


def unmatched(files: FileList, patterns: Sequence[str]) -> list[str]:
    """Returns the patterns that match none of the files that are not hidden."""
    left = list(dict.fromkeys(patterns))
    for batch in files.batches():
        seen = batch["path"].filter(pc.invert(batch["hidden"]))
        for index in range(len(seen)):
            if not left:
                return []
            path = os.fsdecode(seen[index].as_py())
            name = path.rpartition("/")[2]
            left = [p for p in left if not _matches(path, name, [p])]
    return left


def _matches(path: str, name: str, patterns: Sequence[str]) -> bool:
    return any(
        fnmatch.fnmatchcase(f"/{path}", f"*/{p}*")
        if p.endswith("/")
        else fnmatch.fnmatchcase(path, p) or fnmatch.fnmatchcase(name, p)
        for p in patterns
    )
