"""Choose the input files of a listing: hidden files, include and exclude patterns."""

import collections
import fnmatch
import os
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import numpy_mask
from transforms.core.reasons import Skipped
from transforms.formats.file_names import IMAGE_SUFFIXES
from transforms.storage.file_list import FileList

# Files left out for their suffix that are looked at for tables to name.
MOST_OTHERS = 4096


class Chosen(NamedTuple):
    """Files to read, and the others.

    Attributes:
      files: to read.
      skipped: how many were left out, by reason.
      others: the first of those that were left out for their suffix.
    """

    files: FileList
    skipped: dict[str, int]
    others: tuple[str, ...]


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
) -> "Chosen":
    """Returns the files to read, and which were left out.

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
            path = os.fsdecode(batch["path"][index].as_py())
            if reason := reason_of(path):
                skipped[reason] += 1
                kept[index] = False
                if reason is Skipped.OTHER_SUFFIX and len(others) < MOST_OTHERS:
                    others.append(path)
        return kept

    others: list[str] = []
    chosen = files.filter(keep)
    counts = {str(reason): count for reason, count in sorted(skipped.items())}
    return Chosen(chosen, counts, tuple(others))


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
