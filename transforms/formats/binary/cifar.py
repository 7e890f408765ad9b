"""CIFAR-10 and CIFAR-100 in their binary version, and files of the same layout.

The layout is that of https://www.cs.toronto.edu/~kriz/cifar.html:

    CIFAR-10    data_batch_1.bin ... test_batch.bin    records of 3,073 bytes:
        label, 1 | red, 1,024 | green, 1,024 | blue, 1,024, each row by row
    CIFAR-100   train.bin, test.bin                    records of 3,074 bytes:
        coarse label, 1 | fine label, 1 | pixels, 3,072 as above

The names of the classes are beside them, by id: `batches.meta.txt`, and
`fine_label_names.txt` and `coarse_label_names.txt`.
"""

import dataclasses
import re
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, Literal

from transforms.errors import InputError
from transforms.formats.binary.fixed_length import Recognised, RecordsReader
from transforms.formats.binary.layout import BinaryField, Layout

__all__ = ["Cifar100Reader", "Cifar10Reader", "recognise"]

_BATCH = re.compile(r"(data|test)_batch[^/]*\.bin").fullmatch
_WHOLE = re.compile(r"(train|test)\.bin").fullmatch
# Its pickled version has the same names without a suffix.
_PICKLE = re.compile(r"(data|test)_batch(_\d)?").fullmatch
_PICKLE_START = b"\x80"

_NAMES_10 = "batches.meta.txt"
_FINE_NAMES = "fine_label_names.txt"
_COARSE_NAMES = "coarse_label_names.txt"
_SPLITS = {"data": "train", "train": "train", "test": "test"}


@dataclasses.dataclass(frozen=True, slots=True)
class _CifarReader(RecordsReader):
    """Base of the readers of CIFAR-10 and CIFAR-100.

    Attributes:
      encode: "raw" for `image` as 3,072 bytes (height, width, channels), or "png".
    """

    encode: Literal["raw", "png"] = "raw"

    # A source may lack the files of names; labels then stay numbers.
    names_required = False
    suffixes: ClassVar[frozenset[str]] = frozenset({".bin"})

    def split_of(self, origin: str) -> str:
        """Returns train or test by the file's name; empty for another name."""
        name = origin.rpartition("/")[2]
        found = _BATCH(name) or _WHOLE(name)
        return _SPLITS[found[1]] if found else ""


@dataclasses.dataclass(frozen=True, slots=True)
class Cifar10Reader(_CifarReader):
    """Reads CIFAR-10."""

    title = "CIFAR-10"

    @property
    def records(self) -> Layout:
        """`label` and `image`."""
        label = BinaryField(
            "label", "uint8", label=True, classes=_NAMES_10, class_count=10
        )
        return Layout((label, _pixels(self.encode)))


@dataclasses.dataclass(frozen=True, slots=True)
class Cifar100Reader(_CifarReader):
    """Reads CIFAR-100."""

    title = "CIFAR-100"

    @property
    def records(self) -> Layout:
        """`coarse_label`, `label` (the fine one) and `image`, the names of TFDS."""
        coarse = BinaryField(
            "coarse_label", "uint8", classes=_COARSE_NAMES, class_count=20
        )
        fine = BinaryField(
            "label", "uint8", label=True, classes=_FINE_NAMES, class_count=100
        )
        return Layout((coarse, fine, _pixels(self.encode)))


def _pixels(encode: str) -> BinaryField:
    store = "png" if encode == "png" else "tensor"
    return BinaryField("image", "uint8", (3, 32, 32), order="CHW", store=store)


def recognise(
    files: Iterable[tuple[str, int]],
    head: Callable[[str], bytes],
    *,
    encode: Literal["raw", "png"] = "raw",
) -> Recognised | None:
    """Returns which files are CIFAR's; None if none are.

    The names of CIFAR-10 say enough: a file of theirs with another size is not left
    out but found to be damaged when it is read. `train.bin` and `test.bin` may be
    anything, so one at least must have the size of whole records, and start with
    labels that CIFAR-100 has.

    Args:
      files: relative paths, `/` between, and sizes in bytes.
      head: the first bytes of a file, 16 at least, by its relative path.
      encode: "raw" or "png"; of the reader that is returned.

    Raises:
      InputError: there are both; or the pickled version.
    """
    batches = [path for path, _ in files if _BATCH(_name(path))]
    whole = [(path, size) for path, size in files if _WHOLE(_name(path))]
    is_100 = any(
        size and size % 3074 == 0 and _starts_with_labels(head(path))
        for path, size in whole
    )
    if batches and is_100:
        raise InputError(
            f"A source is CIFAR-10 or CIFAR-100; found {batches[0]} and {whole[0][0]}. "
            f"Convert the folders one by one."
        )
    if batches:
        beside = _beside(files, batches, (_NAMES_10,))
        return Recognised(Cifar10Reader(encode), tuple(batches), beside)
    if is_100:
        paths = [path for path, _ in whole]
        beside = _beside(files, paths, (_FINE_NAMES, _COARSE_NAMES))
        return Recognised(Cifar100Reader(encode), tuple(paths), beside)
    for path, _ in files:
        if _PICKLE(_name(path)) and head(path).startswith(_PICKLE_START):
            raise InputError(
                f"{path} is CIFAR's Python version, a pickle, which is never loaded: "
                f"that could run any code. Fetch the binary version, "
                f"cifar-10-binary.tar.gz."
            )
    return None


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _starts_with_labels(start: bytes) -> bool:
    return len(start) >= 2 and start[0] < 20 and start[1] < 100


def _beside(
    files: Iterable[tuple[str, int]], inputs: Sequence[str], names: Sequence[str]
) -> tuple[str, ...]:
    """Returns the files of such names in the inputs' folders."""
    folders = {path.rpartition("/")[0] for path in inputs}
    return tuple(
        path
        for path, _ in files
        if _name(path) in names and path.rpartition("/")[0] in folders
    )
