"""Files of CIFAR and IDX: what each holds, and which belong together by their names."""

import dataclasses
import itertools
import math
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import IO, Any

import numpy as np

from transforms.errors import InputError
from transforms.formats.table import unreadable
from transforms.formats.whole_files import Unpacked, is_packed, open_unpacked
from transforms.storage.files import storage

Names = Mapping[str, tuple[str, ...]]

BATCH = re.compile(r"(.*/)?(data|test)_batch[^/]*\.bin").fullmatch
WHOLE = re.compile(r"(.*/)?(train|test)\.bin").fullmatch
# Its pickled version has the same names without a suffix.
_PICKLE = re.compile(r"(.*/)?(data|test)_batch(_\d)?").fullmatch
_IMAGES = re.compile(
    r"(?P<stem>(.*/)?[^/]*?)images(?P<form>[-.]idx)\d-[a-z]+(\.gz)?", re.IGNORECASE
).fullmatch
_LABELS = re.compile(r"(.*/)?[^/]*?labels[-.]idx\d-[a-z]+(\.gz)?", re.I).fullmatch
# MNIST calls its test files so: ten thousand.
IS_TEST = re.compile(r"(?<![a-z0-9])t10k(?![a-z0-9])", re.IGNORECASE).search
# Of an item, and of a block: Arrow counts the bytes of a column in int32.
MAX_BYTES = 1 << 30
# Deflate's densest code: 258 bytes from two bits.
_MAX_DEFLATE_RATIO = 1032
_TYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}
_MAX_DIMENSIONS = 8


@dataclasses.dataclass(frozen=True, slots=True)
class Items:
    """A file of `size` bytes: `count` items of one type and shape after `start`."""

    origin: str
    path: str
    size: int
    start: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    count: int
    packed: bool = False

    @property
    def width(self) -> int:
        """Bytes of an item."""
        return math.prod(self.shape) * self.dtype.itemsize

    def __post_init__(self) -> None:
        """Raises InputError if the file cannot hold its items."""
        expected = self.start + self.count * self.width
        if self.packed and expected > self.size * _MAX_DEFLATE_RATIO:
            raise self._wrong_size(f"{self.size} compressed bytes")
        if not self.packed and expected != self.size:
            raise self._wrong_size(f"{self.size} bytes")

    def pieces(
        self, first: int, rows: int, step: int, stamp: int = 0
    ) -> Iterator[tuple[bytes, int]]:
        """Yields `step` items each, and the bytes of the file read before them.

        A packed file must end after its last item.
        """
        begin, width = self.start + first * self.width, self.width
        sizes = [min(step, rows - at) * width for at in range(0, rows, step)]
        if not self.packed:
            for size in sizes:
                stop = begin + size
                yield storage(self.path).read_range(begin, stop, stamp=stamp), begin
                begin = stop
            return
        with open_unpacked(self.path, self.origin, stamp=stamp) as stream:
            self._take(stream, begin)
            for size in sizes:
                before = stream.consumed
                yield self._take(stream, size), before
            if first + rows == self.count and stream.read(1):
                raise self._wrong_size("more")

    def _take(self, stream: Unpacked, size: int) -> bytes:
        data = _read(stream, size)
        if len(data) < size:
            raise self._wrong_size("less")
        stream.forget(stream.tell())
        return data

    def _wrong_size(self, found: str) -> InputError:
        return InputError(
            f"A file of {self.count} items of {self.width} bytes after {self.start} of "
            f"header has a size to match; {self.origin} has {found}. It is cut off or "
            f"damaged; fetch or write it again."
        )


def _read(stream: IO[bytes] | Unpacked, size: int) -> bytes:
    """Returns `size` bytes, or all there are: a member of gzip may end before."""
    parts = []
    while size and (chunk := stream.read(size)):
        parts.append(chunk)
        size -= len(chunk)
    return b"".join(parts)


def idx_items(path: str, origin: str) -> Items:
    """Returns what a file holds, by its header and its size.

    Raises:
      InputError: there is no IDX header, or an item is empty or over 1 GiB, or the
        size is another.
    """
    try:
        packed, size = is_packed(path), storage(path).size_of()
        with (
            open_unpacked(path, origin)
            if packed
            else storage(path).open_input() as stream
        ):
            head = _read(stream, 4 + 4 * _MAX_DIMENSIONS)
    except OSError as error:
        raise unreadable(path, error) from error
    magic, code, dimensions = head[:2], *(*head[2:4], 0, 0)[:2]
    start = 4 + 4 * dimensions
    is_idx = magic == b"\0\0" and code in _TYPES and 0 < dimensions <= _MAX_DIMENSIONS
    if is_idx and len(head) >= start:
        count, *shape = struct.unpack(f">{dimensions}I", head[4:start])
        kind = np.dtype(_TYPES[code])
        if 0 < math.prod(shape) * kind.itemsize <= MAX_BYTES:
            return Items(origin, path, size, start, kind, tuple(shape), count, packed)
    raise InputError(
        f"An IDX file starts with 00 00, a type, the number of dimensions (1 to "
        f"{_MAX_DIMENSIONS}) and the size of each, for items of up to 1 GiB; "
        f"{origin} starts with {head[:20].hex(' ') or 'nothing'}. It is damaged "
        f"or of another format."
    )


def check_owner(owner: dict[str, str], images: str, labels: str) -> None:
    """Raises InputError for a file of labels that belongs to other images too."""
    first = owner.setdefault(labels, images)
    if first != images:
        raise InputError(
            f"Every file of labels belongs to one of images; {labels} does to {first} "
            f"and to {images}. Keep one of the two."
        )


def shared_names(found: Mapping[str, Names]) -> Names:
    """Returns the class names that all folders share."""
    one = next(iter(found), "")
    for folder, names in found.items():
        if names != found[one]:
            raise InputError(
                f"Class names must be the same, in the same order, beside all files of "
                f"a source; those in {one!r} and {folder!r} differ. Convert the "
                f"folders one by one."
            )
    return found.get(one, {})


def read_names(path: str) -> tuple[str, ...]:
    """Returns the names of classes in a file, by id; blank lines may end it."""
    lines, problem = [""], ""
    try:
        text = storage(path).read_bytes().decode("utf-8-sig")
        lines = [line.strip() for line in text.rstrip().split("\n")]
    except (OSError, UnicodeDecodeError) as error:
        problem = str(error)
    if not problem and "" in lines:
        problem = f"line {lines.index('') + 1} is blank"
    if not problem and (twice := [line for line in lines if lines.count(line) > 1]):
        problem = f"{twice[0]!r} stands there twice"
    if problem:
        raise InputError(
            f"A file of class names must be UTF-8 text with one name a line, the first "
            f"for id 0, each once; {path!r} is not: {problem}."
        )
    return tuple(lines)


def labels_of(path: str, exists: Callable[[str], bool]) -> str:
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


def idx_files(
    listed: Iterable[tuple[str, int]], _head: Callable[[str], bytes]
) -> tuple[str, ...] | None:
    """Returns the files of images of IDX pairs by their names; None if none are.

    Raises:
      InputError: images without labels or labels without images, or one of them twice,
        plain and compressed.
    """
    paths = dict(listed)
    inputs = [path for path in paths if _IMAGES(path)]
    owner: dict[str, str] = {}
    for path in inputs:
        check_owner(owner, path, labels_of(path, paths.__contains__))
    for path in paths if inputs else ():
        if _LABELS(path) and path not in owner:
            raise InputError(
                f"Labels in IDX files have a file of images beside them, "
                f"NAME-images-idx3-ubyte; {path} has none."
            )
    return tuple(inputs) or None


def cifar_files(
    listed: Iterable[tuple[str, int]], head: Callable[[str], bytes]
) -> tuple[str, ...] | None:
    """Returns which files are CIFAR's; None if none are.

    The names of CIFAR-10 say enough: a file of theirs with another size is not left
    out but damaged when it is read. `train.bin` and `test.bin` may be anything, so one
    at least must have the size of whole records, and start with labels of CIFAR-100.

    Raises:
      InputError: there are both; or the pickled version.
    """
    batches = [path for path, _ in listed if BATCH(path)]
    whole = [path for path, _ in listed if WHOLE(path)]
    width = 3074
    starts = [head(p)[:2] for p, n in listed if WHOLE(p) and n and n % width == 0]
    is_100 = any(len(two) == 2 and two[0] < 20 and two[1] < 100 for two in starts)
    if batches and is_100:
        raise InputError(
            f"A source is CIFAR-10 or CIFAR-100; found {batches[0]} and {whole[0]}. "
            f"Convert the folders one by one."
        )
    for path, _ in () if batches or is_100 else listed:
        if _PICKLE(path) and head(path).startswith(b"\x80"):
            raise InputError(
                f"{path} is CIFAR's Python version, a pickle, which is never loaded: "
                f"that could run any code. Fetch the binary version, "
                f"cifar-10-binary.tar.gz."
            )
    return tuple(batches or (whole if is_100 else ())) or None
