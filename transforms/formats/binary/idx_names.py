"""Names of IDX files: images or labels, and of which split."""

import re
from collections.abc import Sequence

from transforms.errors import InputError
from transforms.formats.split_words import split_in_path

__all__ = ["check_one", "is_images", "is_labels", "label_names", "split_of"]

_IMAGES = re.compile(
    r"(?P<stem>.*?)images(?P<form>[-.]idx)\d-[a-z]+(?P<packed>\.gz)?", re.IGNORECASE
).fullmatch
_LABELS = re.compile(r".*?labels[-.]idx\d-[a-z]+(\.gz)?", re.IGNORECASE).fullmatch
_LABEL_TYPES = ("ubyte", "byte", "short", "int")
# MNIST calls its test files so: ten thousand.
_IS_TEST = re.compile(r"(?<![a-z0-9])t10k(?![a-z0-9])", re.IGNORECASE).search


def is_images(path: str) -> bool:
    """Whether a path's name is one of images, `NAME-images-idx3-ubyte` say."""
    return _IMAGES(path.rpartition("/")[2]) is not None


def is_labels(path: str) -> bool:
    """Whether a path's name is one of labels, `NAME-labels-idx1-ubyte` say."""
    return _LABELS(path.rpartition("/")[2]) is not None


def split_of(origin: str) -> str:
    """Returns the split by the words of the file's name, else of its folders."""
    if _IS_TEST(origin.rpartition("/")[2]):
        return "test"
    return split_in_path(origin)


def check_one(origin: str, name: str, labels: Sequence[str]) -> None:
    """Raises InputError unless there is exactly one file of labels."""
    if len(labels) == 1:
        return
    if not _IMAGES(name):
        found = "has another name"
    elif labels:
        found = f"has {' and '.join(labels)}; keep one"
    else:
        found = "has none, under that name or with .gz"
    raise InputError(
        f"Images in IDX files, NAME-images-idx3-ubyte, have one file of labels beside "
        f"them, NAME-labels-idx1-ubyte; {origin} {found}."
    )


def label_names(name: str) -> list[str]:
    """Returns the names that the labels of a file of images may have."""
    found = _IMAGES(name)
    if not found:
        return []
    word = {"IMAGES": "LABELS", "Images": "Labels"}.get(
        name[found.end("stem") : found.start("form")], "labels"
    )
    return [
        f"{found['stem']}{word}{separator}idx1-{kind}{packed}"
        for separator in "-."
        for kind in _LABEL_TYPES
        for packed in ("", ".gz")
    ]
