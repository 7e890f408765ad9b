"""What names of files say: a split, an image, a compressed file; and which file.

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
import os
import posixpath
import re
import unicodedata
from collections.abc import Iterable

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
# Of images, whatever they hold.
IMAGE_SUFFIXES = tuple(
    (
        ".jpg .jpeg .jpe .jfif .png .bmp .dib .gif .webp .tif .tiff .jp2 .j2k .avif "
        ".heic .heif .ppm .pgm .pbm .pnm .ico .tga .psd .svg"
    ).split()
)


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


class SourcePaths:
    r"""The files below a source, and their folders, as annotations name them.

    Annotations are written on other machines and in other folders. A path means its
    longest tail that exists below the source, first from the annotation's folder, then
    from the root; so nothing outside of the source is opened.

    >>> paths = SourcePaths(["train/images/a.jpg"])
    >>> paths.file("C:\\x\\images\\a.jpg", "train")
    'train/images/a.jpg'
    >>> paths.folder("../train/images")
    'train/images'
    >>> paths.file("b.jpg") is None
    True
    """

    def __init__(self, files: Iterable[str]) -> None:
        """Takes paths relative to the source's root."""
        self._files = {in_nfc(path): path for path in files}
        self._folders: dict[str, str] = {}
        for path in self._files.values():
            folder = posixpath.dirname(path)
            while folder and in_nfc(folder) not in self._folders:
                self._folders[in_nfc(folder)] = folder
                folder = posixpath.dirname(folder)
        self._named: dict[str, list[str]] = {}

    def __contains__(self, path: str) -> bool:
        return path in self._files

    def file(self, path: str, base: str = "") -> str | None:
        """Returns the file that a path means, written in the folder `base`."""
        return _longest_tail(path, base, self._files)

    def folder(self, path: str, base: str = "") -> str | None:
        """Returns the folder that a path means; `base` itself for its own name, "."."""
        if not _path_parts(path):
            return base
        return _longest_tail(path, base, self._folders)

    def called(self, name: str) -> list[str]:
        """Returns the files of a base name, or else those of a stem."""
        if not self._named:
            named = collections.defaultdict(list)
            for key, path in self._files.items():
                base = posixpath.basename(key)
                for alias in {base, f"{posixpath.splitext(base)[0]}/"}:
                    named[alias].append(path)
            self._named = dict(named)
        base = in_nfc(name.replace("\\", "/").rpartition("/")[2])
        return self._named.get(base) or self._named.get(f"{base}/", [])


def _path_parts(path: str) -> list[str]:
    """Returns the names in a path, also one of Windows; ".." leads nowhere."""
    parts = posixpath.normpath(path.replace("\\", "/")).split("/")
    return [segment for segment in parts if segment not in ("", ".", "..")]


def _longest_tail(path: str, base: str, known: dict[str, str]) -> str | None:
    """Returns what the longest known tail of a path means, from `base` or the root."""
    parts = _path_parts(in_nfc(path))
    folders = dict.fromkeys([in_nfc(base), ""])
    for first in range(len(parts)):
        for folder in folders:
            match = known.get(posixpath.join(folder, *parts[first:]))
            if match is not None:
                return match
    return None
