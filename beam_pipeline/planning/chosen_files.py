"""Choose the files of a source: by patterns and suffixes, but no hidden ones."""

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

from beam_pipeline.settings.spec import Spec
from transforms.core.arrays import numpy_mask
from transforms.core.reasons import Skipped
from transforms.formats.file_names import IMAGE_SUFFIXES
from transforms.storage.file_list import FileList

MOST_OTHERS = 4096
"""Files left out for their suffix that are looked at for tables to name."""
YAML_NAME = re.compile(r"(?i)\.ya?ml$")
"""What the names of YAML files match."""


def _in_any_case(suffix: str) -> str:
    """Returns a regex for a suffix in small letters, capitals or both."""
    # Not by a flag: in Unicode, more than two characters are one letter.
    letters = (f"[{c}{c.upper()}]" if c.isalpha() else re.escape(c) for c in suffix)
    return "".join(letters)


# What nearly all names of images match.
_PLAIN = rf"[^/.](?:{'|'.join(map(_in_any_case, IMAGE_SUFFIXES))})$"


def are_plain_images(paths: pa.BinaryArray) -> npt.NDArray[np.bool_]:
    """Tells which of many paths are beyond doubt those of images.

    What is True is an image for `is_image_name`, and a file of no other format; what
    is False may be an image as well.
    """
    return numpy_mask(pc.match_substring_regex(paths, _PLAIN))


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


def choose_files(
    spec: Spec, files: FileList, takes: Callable[[str], bool] = lambda _: True
) -> Chosen:
    """Returns the files to read, and which were left out.

    A pattern is matched against the whole relative path and against the file name;
    `*` crosses folders. One that ends with `/` is for all files in folders of that
    name, at any depth. With `include`, what it matches is read whatever its suffix;
    without, what `takes` says, which must be the same of all plain names of images.

    Args:
      spec: the job, whose patterns `include` and `exclude` choose.
      files: in any order.
      takes: tells by a path whether the format reads such files.
    """
    include, exclude = spec.include, spec.exclude
    skipped: collections.Counter[str] = collections.Counter()
    takes_images = takes(f"a/a{IMAGE_SUFFIXES[0]}")

    def reason_of(path: str) -> str:
        if include and not _matches(path, include):
            return Skipped.NOT_INCLUDED
        if _matches(path, exclude):
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


def unmatched(files: FileList, patterns: Sequence[str]) -> list[str]:
    """Returns the patterns that match none of the files that are not hidden."""
    left = list(dict.fromkeys(patterns))
    for batch in files.batches():
        seen = batch["path"].filter(pc.invert(batch["hidden"]))
        for path in map(os.fsdecode, seen.to_pylist()):
            if not left:
                return []
            left = [p for p in left if not _matches(path, [p])]
    return left


def _matches(path: str, patterns: Sequence[str]) -> bool:
    """Whether a pattern fits a path or its name; "dir/" is for all in such a folder."""
    name = path.rpartition("/")[2]
    return any(
        fnmatch.fnmatchcase(f"/{path}", f"*/{p}*")
        if p.endswith("/")
        else fnmatch.fnmatchcase(path, p) or fnmatch.fnmatchcase(name, p)
        for p in patterns
    )


def without_other_yamls(entries: FileList, path: str) -> FileList:
    """Returns the files of a folder without the YAMLs other than the one at a path."""
    kept = os.fsencode(os.path.basename(path))

    def stays(batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        is_yaml = numpy_mask(pc.match_substring_regex(batch["path"], YAML_NAME.pattern))
        return ~is_yaml | numpy_mask(pc.equal(batch["path"], kept))

    return entries.filter(stays)
