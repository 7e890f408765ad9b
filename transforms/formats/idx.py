"""Pairs of IDX files, as MNIST's: images, and the numbers of their classes.

    train-images-idx3-ubyte, train-labels-idx1-ubyte, .gz or not:
    00 00 | type, 1 | dimensions, 1 | each size, 4 | values, big-endian

The layout is that of http://yann.lecun.com/exdb/mnist.
"""

import dataclasses
import itertools
import math
import os
import re
import struct
from collections.abc import Callable, Sequence

import numpy as np

from transforms.core.image.png_encode import png_channels
from transforms.errors import InputError, SourceError
from transforms.formats import table
from transforms.formats.binary import (
    MAX_BYTES,
    Arrays,
    BinaryReader,
    Items,
    Listed,
    Names,
    read_up_to,
)
from transforms.formats.file_names import split_in_path
from transforms.formats.whole_files import Unpacked, open_content
from transforms.storage.files import storage

_IMAGES = re.compile(
    r"(?P<stem>(.*/)?[^/]*?)images(?P<form>[-.]idx)\d-[a-z]+(\.gz)?", re.IGNORECASE
).fullmatch
_LABELS = re.compile(r"(.*/)?[^/]*?labels[-.]idx\d-[a-z]+(\.gz)?", re.I).fullmatch
# MNIST calls its test files so: ten thousand.
_IS_TEST = re.compile(r"(?<![a-z0-9])t10k(?![a-z0-9])", re.IGNORECASE).search
_TYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}
_MAX_DIMENSIONS = 8


@dataclasses.dataclass(frozen=True, slots=True)
class IdxReader(BinaryReader):
    """Reads files of images, each with the labels that its name leads to.

    Attributes:
      vocabulary: the names of the classes, by id.
    """

    title = "IDX"
    vocabulary: tuple[str, ...] = ()

    def split_of(self, origin: str) -> str:
        """Returns the split by the words of the file's name, else of its folders."""
        return "test" if _IS_TEST(os.path.basename(origin)) else split_in_path(origin)

    def _opened(self, file: table.SourceFile, size: int) -> tuple[Items, ...]:
        path = _labels_of(file.path, lambda path: storage(path).is_file())
        beside = os.path.join(os.path.dirname(file.origin), os.path.basename(path))
        images, labels = _idx_items(file), _idx_items(table.SourceFile(beside, path))
        if labels.shape or labels.dtype.kind == "f" or not images.shape:
            raise InputError(
                f"Labels are one integer each, and images have sides; {beside} "
                f"holds {labels.dtype.name} of {labels.shape}, {file.origin} "
                f"{images.dtype.name} of {images.shape}."
            )
        if images.count != labels.count:
            raise InputError(
                f"Every image has a label; {file.origin} holds {images.count} images, "
                f"{beside} {labels.count} labels. Fetch or write them again."
            )
        return images, labels

    def _arrays(self, opened: Sequence[Items], data: Sequence[bytes]) -> Arrays:
        images, labels = (i.values(d) for i, d in zip(opened, data, strict=True))
        # Gray images get a channel axis, as TensorFlow's decoders give them.
        images = images[..., np.newaxis] if images.ndim == 3 else images
        dtype, shape = images.dtype.name, images.shape[1:]
        if self.are_files and png_channels(dtype, shape) is None:
            raise SourceError(
                f"Images of (height, width) in uint8 can become PNG; "
                f"{opened[0].file.origin} holds {dtype} of {shape}. "
                f"Leave out image_format."
            )
        return {"image": images, "label": labels}

    def _names(self, folder: str) -> Names:
        return {"label": self.vocabulary} if self.vocabulary else {}


def _idx_items(file: table.SourceFile) -> Items:
    """Returns what a file holds, by its header and its size.

    Raises:
      InputError: there is no IDX header, or an item is empty or over 1 GiB, or the
        size is another.
    """
    try:
        size = storage(file.path).size_of()
        with open_content(dataclasses.replace(file, stamp=0)) as stream:
            head = read_up_to(stream, 4 + 4 * _MAX_DIMENSIONS)
            packed = isinstance(stream, Unpacked)
    except OSError as error:
        raise table.unreadable(file.path, error) from error
    magic, code, dimensions = head[:2], *(*head[2:4], 0, 0)[:2]
    start = 4 + 4 * dimensions
    is_idx = magic == b"\0\0" and code in _TYPES and 0 < dimensions <= _MAX_DIMENSIONS
    if is_idx and len(head) >= start:
        count, *shape = struct.unpack(f">{dimensions}I", head[4:start])
        kind = np.dtype(_TYPES[code])
        if 0 < math.prod(shape) * kind.itemsize <= MAX_BYTES:
            return Items(file, size, start, kind, tuple(shape), count, packed)
    raise InputError(
        f"An IDX file starts with 00 00, a type, the number of dimensions (1 to "
        f"{_MAX_DIMENSIONS}) and the size of each, for items of up to 1 GiB; "
        f"{file.origin} starts with {head[:20].hex(' ') or 'nothing'}. It is damaged "
        f"or of another format."
    )


def _labels_of(path: str, exists: Callable[[str], bool]) -> str:
    """Returns the one file of labels for one of images; raises InputError."""
    labels: list[str] = []
    if match := _IMAGES(path):
        word = {"IMAGES": "LABELS", "Images": "Labels"}.get(
            path[match.end("stem") : match.start("form")], "labels"
        )
        ends = itertools.product("-.", ("ubyte", "byte", "short", "int"), ("", ".gz"))
        names = (f"{match['stem']}{word}{dot}idx1-{k}{gz}" for dot, k, gz in ends)
        labels = [name for name in names if exists(name)]
    if len(labels) != 1:
        shown = f"{' and '.join(labels)}; keep one" if labels else "none, .gz or not"
        raise InputError(
            f"Images in IDX files, NAME-images-idx3-ubyte, have one file of labels "
            f"beside them, NAME-labels-idx1-ubyte; {path} has "
            f"{shown if match else 'another name'}."
        )
    return labels[0]


def recognise(listed: Listed, _head: Callable[[str], bytes]) -> list[str] | None:
    """Returns the files of images of IDX pairs by their names; None if none are.

    Raises:
      InputError: images without labels, with two files of them, or labels without
        images.
    """
    paths = dict(listed)
    inputs = [path for path in paths if _IMAGES(path)]
    labels = {_labels_of(path, paths.__contains__) for path in inputs}
    for path in paths if inputs else ():
        if _LABELS(path) and path not in labels:
            raise InputError(
                f"Labels in IDX files have a file of images beside them, "
                f"NAME-images-idx3-ubyte; {path} has none."
            )
    return inputs or None
