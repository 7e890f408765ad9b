"""CIFAR and IDX files as tables: images of bytes, and the numbers of their classes.

    CIFAR-10    data_batch_1.bin ... test_batch.bin    label, 1 | pixels, 3 x 32 x 32
    CIFAR-100   train.bin, test.bin   coarse label, 1 | label, 1 | pixels, 3 x 32 x 32
    IDX         train-images-idx3-ubyte and train-labels-idx1-ubyte, .gz or not:
                00 00 08 | dimensions, 1 | each size, 4, big-endian | values, 1 each

The layouts are those of https://www.cs.toronto.edu/~kriz/cifar.html, which has files of
class names, one a line by id, and of http://yann.lecun.com/exdb/mnist.
"""

import contextlib
import dataclasses
import gzip
import io
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, ClassVar, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.core.image.png import MAX_PNG_BYTES, encode_png, png_channels
from transforms.core.model import Block
from transforms.core.reasons import Rejection
from transforms.core.schema import Feature, Kind
from transforms.core.vocabulary import parse_names
from transforms.errors import InputError, SpecError
from transforms.formats.columnar.arrow_batches import ColumnarReader, raw_rows
from transforms.formats.columnar.numpy_files import Arrays, Header, StoredArray
from transforms.formats.file_names import split_in_path
from transforms.formats.raw_rows import Complaint, RawRows, rejecter, rejection_of
from transforms.formats.table import SourceFile
from transforms.storage.files import storage

Listed = Iterable[tuple[str, int]]
# Of the classes of each label; their numbers where nothing names them.
Names = Mapping[str, tuple[str, ...] | range]
Values = Sequence[npt.NDArray[Any]]

_BATCH = re.compile(r"(.*/)?(data|test)_batch[^/]*\.bin").fullmatch
_WHOLE = re.compile(r"(.*/)?(train|test)\.bin").fullmatch
# Its pickled version has the same names without a suffix.
_PICKLE = re.compile(r"(.*/)?(data|test)_batch(_\d)?").fullmatch
_IDX = re.compile(r"((?:.*/)?[^/]*?)(images|labels)[-.]idx\d-[a-z]+(\.gz)?").fullmatch
_PAIR = "images-idx3", "images.idx3", "images-idx4", "labels-idx1", "labels.idx1"
# MNIST calls its test files so: ten thousand.
_IS_TEST = re.compile(r"(?<![a-z0-9])t10k(?![a-z0-9])", re.IGNORECASE).search


class _Images(Arrays):
    """The images of one file, with their labels."""

    def __init__(
        self, stored: Sequence[StoredArray], names: Names, are_files: bool
    ) -> None:
        self._names, self._are_files = names, are_files
        super().__init__(stored, stored[0].origin)
        self.begin = 0 if self.packed else stored[0].begin
        self.features = {feature.name: feature for feature in self._features()}

    def _values(self, stored: Values) -> Mapping[str, npt.NDArray[Any]]:
        """Returns labels, and pixels by height, width and channel."""
        records, *labels = stored
        if not labels:
            pixels = records["image"].transpose(0, 2, 3, 1)
            return {**{name: records[name] for name in self._names}, "image": pixels}
        gray = records[..., np.newaxis] if records.ndim == 3 else records
        return {"image": gray, "label": labels[0]}

    def _features(self) -> Iterator[Feature]:
        none = self._values([array.none() for array in self.stored])
        for name, values in none.items():
            is_label, names = name == "label", self._names.get(name)
            if isinstance(names, tuple):
                yield Feature(name, Kind.LABEL, is_label=is_label, vocabulary=names)
            elif names:
                yield Feature(name, Kind.INT64, is_label=is_label)
            elif not self._are_files:
                shape = values.shape[1:]
                yield Feature(
                    name, Kind.TENSOR, shape=shape, dtype="uint8", encoding="raw"
                )
            else:
                yield Feature(name, Kind.IMAGE, inline=True)
                for side in ("height", "width", "depth"):
                    yield Feature(side, Kind.INT64, derived=side, derived_from=name)

    def columns(self, values: Values) -> dict[str, pa.Array]:
        """Returns images as bytes, and the numbers of their classes."""
        out: dict[str, pa.Array] = {}
        for name, column in self._values(values).items():
            if name in self._names:
                out[name] = pa.array(column)
            elif self._are_files:
                out[name] = encode_png(column)
            else:
                kind = pa.binary(math.prod(column.shape[1:]))
                buffers = [None, pa.py_buffer(np.ascontiguousarray(column))]
                pixels = pa.Array.from_buffers(kind, len(column), buffers)
                out[name] = pixels.cast(pa.binary())
        return out

    def raw(self, piece: Block, columns: Sequence[str]) -> RawRows:
        """Returns the rows of a piece but those of a class that there is not."""
        stored = self.take(piece.first_row, piece.rows)
        values = self._values(stored)
        refused: dict[int, str] = {}
        for name, names in self._names.items():
            for row in np.flatnonzero(values[name] >= len(names)).tolist():
                refused[row] = (
                    f"field {name!r} holds {values[name][row]}: "
                    f"the classes are numbered 0 to {len(names) - 1}"
                )
        raw = raw_rows(piece, self.columns(stored), columns, refused)
        return dataclasses.replace(raw, reject=rejecter(_rejected, piece, stored))


def _rejected(piece: Block, stored: Values, complaint: Complaint) -> Rejection:
    """Returns the reject of an image, whose raw item is the bytes of all its arrays."""
    row = complaint[0] - piece.first_row
    record = b"".join(array[row].tobytes() for array in stored)
    return rejection_of(piece.origin, complaint, record)


@dataclasses.dataclass(frozen=True, slots=True)
class ClassImageReader(ColumnarReader):
    """Reads images, and the numbers of their classes."""

    # An image is known by its file and number, as in other sources of images.
    content = "none"
    by_bytes = True
    # An image may be encoded as PNG to be sampled: 1,000 of 32 x 32 take 0.2 s.
    sample_bytes = 4 << 20
    # There are no texts, so the setting is not for them.
    null_values: ClassVar[tuple[str, ...]] = ()  # type: ignore[misc]

    # PNG, for an image policy; else the pixels by height, width and channel.
    are_files: bool = False


class Cifar10Reader(ClassImageReader):
    """Reads CIFAR-10."""

    title = "CIFAR-10"
    # The file of class names of each, and how many classes there are.
    labels: ClassVar = {"label": ("batches.meta.txt", 10)}

    def split_of(self, origin: str) -> str:
        """Returns train or test by the file's name; empty for another name."""
        match = _BATCH(origin) or _WHOLE(origin)
        return match[2].replace("data", "train") if match else ""

    @contextlib.contextmanager
    def open(self, file: SourceFile, columns: object = None) -> Iterator[_Images]:
        """Opens a file of records: the bytes of labels, then those of pixels."""
        with file.open() as stream:
            size = stream.seek(0, os.SEEK_END)
            fields = [*((name, "u1") for name in self.labels)]
            record = np.dtype([*fields, ("image", "u1", (3, 32, 32))])
            header: Header = (size // record.itemsize,), False, record
            at = stream, file.origin, 0, size
            records = StoredArray("image", *at, header=lambda _stream: header)
            folder, labels = os.path.dirname(file.path), self.labels.items()
            names = {n: _names(os.path.join(folder, p), k) for n, (p, k) in labels}
            yield _Images([records], names, self.are_files)


class Cifar100Reader(Cifar10Reader):
    """Reads CIFAR-100, with a coarse and a fine label; the names are those of TFDS."""

    title = "CIFAR-100"
    labels: ClassVar = {
        "coarse_label": ("coarse_label_names.txt", 20),
        "label": ("fine_label_names.txt", 100),
    }


@dataclasses.dataclass(frozen=True, slots=True)
class IdxReader(ClassImageReader):
    """Reads files of images, each with the labels that its name leads to."""

    title = "IDX"
    # The names of the classes, by id.
    vocabulary: tuple[str, ...] = ()

    def split_of(self, origin: str) -> str:
        """Returns the split by the words of the file's name, else of its folders."""
        return "test" if _IS_TEST(os.path.basename(origin)) else split_in_path(origin)

    @contextlib.contextmanager
    def open(self, file: SourceFile, columns: object = None) -> Iterator[_Images]:
        """Opens a file of images, and that of their labels."""
        path = _labels_of(file.path, lambda path: storage(path).is_file())
        origin = os.path.join(os.path.dirname(file.origin), os.path.basename(path))
        with file.open() as first, SourceFile(origin, path).open() as second:
            images = _idx_array("image", first, file.origin)
            labels = _idx_array("label", second, origin)
            if images.rows != labels.rows:
                raise InputError(
                    f"Every image has a label; {file.origin} has {images.rows} images, "
                    f"{origin} {labels.rows} labels. Fetch or write them again."
                )
            names = {"label": self.vocabulary or range(256)}
            yield _Images([images, labels], names, self.are_files)


def _idx_array(name: str, stored: io.BufferedReader, origin: str) -> StoredArray:
    """Returns what a file holds by its header; raises InputError."""

    def header(stream: IO[bytes]) -> Header:
        magic = stream.read(4)
        sizes = stream.read(4 * magic.ljust(4, b"\0")[3])
        if magic.startswith(b"\0\0\x08") and sizes and len(sizes) == 4 * magic[3]:
            rows, *shape = np.frombuffer(sizes, ">u4").tolist()
            is_image = png_channels("uint8", tuple(shape)) is not None
            is_image &= math.prod(shape) <= MAX_PNG_BYTES
            if is_image if name == "image" else not shape:
                return (rows, *shape), False, np.dtype("u1")
        raise ValueError(
            f"images are (height, width) or (height, width, 1 to 4) bytes, labels one "
            f"byte; it starts with {(magic + sizes)[:20].hex(' ')!r}. Load others with "
            f"NumPy for convert(rows)"
        )

    packed = stored.peek(2)[:2] == b"\x1f\x8b"
    size = None if packed else stored.seek(0, os.SEEK_END)
    stream = cast("IO[bytes]", gzip.GzipFile(fileobj=stored) if packed else stored)
    return StoredArray(name, stream, origin, 0, size, header=header, packed=packed)


def _labels_of(path: str, exists: Callable[[str], bool]) -> str:
    """Returns the one file of labels for one of images; raises InputError."""
    match = _IDX(path)
    stem = match[1] if match else path
    names = (f"{stem}{end}-ubyte{gz}" for end in _PAIR for gz in ("", ".gz"))
    others = [name for name in names if name != path and exists(name)]
    if len(others) == 1 and others[0].startswith(f"{stem}labels"):
        return others[0]
    raise InputError(
        f"Images in IDX files, NAME-images-idx3-ubyte, have one file of labels beside "
        f"them, NAME-labels-idx1-ubyte, each .gz or not; beside {path} there are "
        f"{' and '.join(others) or 'none'}. Add it, or keep one of each."
    )


def recognise_idx(listed: Listed, _head: Callable[[str], bytes]) -> list[str] | None:
    """Returns the images of IDX pairs, None without any; InputError for half a pair."""
    paths = {path: match[2] for path, _ in listed if (match := _IDX(path))}
    inputs = [path for path, word in paths.items() if word == "images"]
    labels = {_labels_of(path, paths.__contains__) for path in inputs}
    if inputs and (alone := paths.keys() - labels - {*inputs}):
        raise InputError(
            f"Labels in IDX files have a file of images beside them, "
            f"NAME-images-idx3-ubyte; {min(alone)} has none."
        )
    return inputs or None


def recognise_cifar(listed: Listed, head: Callable[[str], bytes]) -> list[str] | None:
    """Returns which files are CIFAR's; None if none are.

    The names of CIFAR-10 say enough: a file of theirs with another size is damaged.
    `train.bin` and `test.bin` may be anything, so one at least must have the size of
    whole records, and start with labels of CIFAR-100.
    """
    batches = [path for path, _ in listed if _BATCH(path)]
    whole = {path: size for path, size in listed if _WHOLE(path)}
    starts = [head(path)[:2] for path, size in whole.items() if size % 3074 == 0]
    is_100 = any(len(two) == 2 and two[0] < 20 and two[1] < 100 for two in starts)
    if batches and is_100:
        raise InputError(
            f"A source is CIFAR-10 or CIFAR-100; there are {batches[0]} and "
            f"{min(whole)}. Convert the folders one by one."
        )
    for path, _ in () if batches or is_100 else listed:
        if _PICKLE(path) and head(path).startswith(b"\x80"):
            raise InputError(
                f"{path} is CIFAR's Python version, a pickle. It is never loaded: it "
                f"can run any code. Fetch the binary version, cifar-10-binary.tar.gz."
            )
    return batches or (list(whole) if is_100 else None)


def _names(path: str, count: int) -> tuple[str, ...] | range:
    """Returns the names of classes in a file, by id; their numbers without a file."""
    if not storage(path).exists():
        return range(count)
    lines = storage(path).read_bytes().rstrip().split(b"\n")
    try:
        names = parse_names(b"\n".join(map(bytes.strip, lines)), path=path)
    except SpecError as error:
        raise InputError(str(error)) from error
    if len(names) < count:
        raise InputError(
            f"{path!r} must hold the names of {count} classes, one a line; it has "
            f"{len(names)}. Add the others."
        )
    return names
