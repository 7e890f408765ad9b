"""What names of files say: a split, an image, a compressed file.

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

import os
import posixpath
import re
import unicodedata

_PACKED_SUFFIXES = (".gz", ".zst", ".zz")
_SPLITS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "valid", "val", "dev"), "validation"),
    **dict.fromkeys(("test", "testing", "eval", "evaluation"), "test"),
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
    """Returns the name of a file in NFC: tables and file systems may differ in form."""
    return path if path.isascii() else unicodedata.normalize("NFC", path)


def path_parts(path: str) -> list[str]:
    """Returns the names in a path, also one of Windows; ".." leads nowhere."""
    parts = posixpath.normpath(path.replace("\\", "/")).split("/")
    return [segment for segment in parts if segment not in ("", ".", "..")]


def bare_name(name: str) -> str:
    """Returns a file's name in small letters without marks: "No-Mask_1": "nomask1"."""
    return re.sub(r"[\W_]+", "", name.lower())
