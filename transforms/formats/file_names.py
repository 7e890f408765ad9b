"""What names of files say, and which files of a source are chosen by their names.

Names say a split, an image, a compressed file.

Words that denote a split:

    instances_train2017.json    train         valid/_annotations.coco.json  validation
    person_keypoints_val.json   validation    image_info_test-dev2017.json  test

A word counts where no letter is beside it. The file's own name comes before its
folders, the nearer folder before the farther, and in a name the first word wins.

The names of tables are free, and `photos of test tubes.csv` is no test split: of them
only the start of a numbered file and whole names of folders count.

    data/train-00000-of-00002-4e1f.parquet    train
    test/metadata.csv                         test

Several tables of which every one is called by such a word, train.csv beside test.csv,
say their splits too: `split_of_stem`. One alone may be called so for any reason.

Source of the words: Hugging Face datasets, `data_files.py`.
"""

import collections
import fnmatch
import os
import posixpath
import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import numpy_mask
from transforms.core.reasons import Skipped
from transforms.errors import InputError
from transforms.storage.entries import FileEntry
from transforms.storage.file_list import FileList

_PACKED_SUFFIXES = (".gz", ".zst", ".zz")
_SPLITS = {
    "train": "train",
    "training": "train",
    "validation": "validation",
    "valid": "validation",
    "val": "validation",
    "dev": "validation",
    "test": "test",
    "testing": "test",
    "eval": "test",
    "evaluation": "test",
}
_NUMBERED = re.compile(r"([a-z]+)-\d+-of-\d+[-.]")
_LETTERS = re.compile(r"[^\W\d_]+")
# Files left out for their suffix that are looked at for tables to name.
MOST_OTHERS = 4096
# Of images, whatever they hold.
IMAGE_SUFFIXES = tuple(
    (
        ".jpg .jpeg .jpe .jfif .png .bmp .dib .gif .webp .tif .tiff .jp2 .j2k .avif "
        ".heic .heif .ppm .pgm .pbm .pnm .ico .tga .psd .svg"
    ).split()
)


def _in_any_case(suffix: str) -> str:
    """Returns a regex for a suffix in small letters, capitals or both."""
    # Not by a flag: in Unicode, more than two characters are one letter.
    letters = (f"[{c}{c.upper()}]" if c.isalpha() else re.escape(c) for c in suffix)
    return "".join(letters)


# What nearly all names of images match.
_PLAIN = rf"[^/.](?:{'|'.join(map(_in_any_case, IMAGE_SUFFIXES))})$"


def is_split_word(name: str) -> bool:
    """Whether a name is nothing but a word for a split."""
    return name.lower() in _SPLITS


def split_in_path(path: str) -> str:
    """Returns the split that a path with `/` between says; empty for none."""
    for name in reversed(path.lower().split("/")):
        for word in _LETTERS.findall(name):
            if word in _SPLITS:
                return _SPLITS[word]
    return ""


def split_of_table(path: str) -> str:
    """Returns the split that the path of a table surely says; empty for none."""
    *folders, name = path.lower().split("/")
    numbered = _NUMBERED.match(name)
    words = [numbered[1] if numbered else "", *reversed(folders)]
    return next((_SPLITS[word] for word in words if word in _SPLITS), "")


def split_of_stem(path: str) -> str:
    """Returns the split that a file's whole name says, but for its suffixes."""
    stem, _ = posixpath.splitext(posixpath.basename(plain_name(path.lower())))
    return _SPLITS.get(stem, "")


def split_at_start(path: str) -> str:
    """Returns the split whose word a file's name begins with; empty for none."""
    words = _LETTERS.findall(posixpath.basename(path.lower()))
    return _SPLITS.get(words[0], "") if words else ""


def is_image_name(path: str) -> bool:
    """Whether a path ends like that of an image."""
    return os.path.splitext(path)[1].lower() in IMAGE_SUFFIXES


def plain_name(path: str) -> str:
    """Returns a path without the suffix of its compression, if it has one."""
    for suffix in _PACKED_SUFFIXES:
        if path.lower().endswith(suffix):
            return path[: -len(suffix)]
    return path


def in_nfc(path: str) -> str:
    """Returns a path in NFC: tables, archives and file systems may differ in form."""
    return path if path.isascii() else unicodedata.normalize("NFC", path)


def are_plain_images(paths: pa.BinaryArray) -> npt.NDArray[np.bool_]:
    """Tells which of many paths are beyond doubt those of images.

    What is True is an image for `is_image_name`, and a file of no other format; what
    is False may be an image as well.
    """
    return numpy_mask(pc.match_substring_regex(paths, _PLAIN))


def bare_name(name: str) -> str:
    """Returns a name in small letters without marks: "No-Mask_1" is "nomask1"."""
    return re.sub(r"[\W_]+", "", name.lower())


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
    """Whether a pattern fits a path or a name; "dir/" fits all below such a folder."""
    return any(
        fnmatch.fnmatchcase(f"/{path}", f"*/{p}*")
        if p.endswith("/")
        else fnmatch.fnmatchcase(path, p) or fnmatch.fnmatchcase(name, p)
        for p in patterns
    )


def in_source_order(entries: FileList) -> FileList:
    """Returns the input files by their origins' bytes.

    Raises:
      InputError: names that are equal in NFC or are not UTF-8.
    """
    ordered = entries.by_origin()
    # Paths of a tree differ, and plain ones are their origins.
    before: FileEntry | None = None
    for entry in ordered if ordered is not entries else ():
        try:
            entry.path.encode()
        except UnicodeEncodeError as error:
            raise InputError(
                f"File names must be UTF-8; {os.fsencode(entry.path)!r} is not. "
                f"Rename it, or leave it out with --exclude."
            ) from error
        if before and before.origin == entry.origin:
            raise InputError(
                f"File names must differ after Unicode normalisation (NFC); "
                f"{before.path.encode()!r} and {entry.path.encode()!r} do not. "
                f"Rename one."
            )
        before = entry
    return ordered
