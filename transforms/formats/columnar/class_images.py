"""CIFAR and IDX files as tables: images, and the numbers of their classes.

    CIFAR-10    data_batch_1.bin ... test_batch.bin    label, 1 | pixels, 3 x 32 x 32
    CIFAR-100   train.bin, test.bin   coarse label, 1 | label, 1 | pixels, 3 x 32 x 32
    IDX         train-images-idx3-ubyte and train-labels-idx1-ubyte, .gz or not:
                00 00 | type, 1 | dimensions, 1 | each size, 4 | values, big-endian

The layouts are those of https://www.cs.toronto.edu/~kriz/cifar.html, which has files of
class names, one a line by id, and of http://yann.lecun.com/exdb/mnist.
"""

import abc
import contextlib
import dataclasses
import gzip
import itertools
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, ClassVar, Literal, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.core.image.png_encode import encode_png, png_channels
from transforms.core.model import Block, Rejection
from transforms.core.schema import Feature, Kind
from transforms.core.vocabulary import parse_names
from transforms.errors import InputError, SourceError, SpecError
from transforms.formats.columnar.arrow_batches import (
    ColumnarReader,
    raw_rows,
)
from transforms.formats.columnar.arrow_types import Classes
from transforms.formats.columnar.numpy_files import (
    Arrays,
    Header,
    StoredArray,
)
from transforms.formats.file_names import split_in_path
from transforms.formats.raw_rows import rejecter, rejection_of
from transforms.formats.table import (
    Complaint,
    InputFile,
    Planned,
    RawRows,
    SourceFile,
    TableSample,
    read_in_turn,
)
from transforms.storage.files import storage

Names = Mapping[str, tuple[str, ...]]
Listed = Iterable[tuple[str, int]]
Values = Mapping[str, npt.NDArray[Any]]

_BATCH = re.compile(r"(.*/)?(data|test)_batch[^/]*\.bin").fullmatch
_WHOLE = re.compile(r"(.*/)?(train|test)\.bin").fullmatch
# Its pickled version has the same names without a suffix.
_PICKLE = re.compile(r"(.*/)?(data|test)_batch(_\d)?").fullmatch
_IMAGES = re.compile(
    r"(?P<stem>(.*/)?[^/]*?)(?P<word>images)[-.]idx\d-[a-z]+(\.gz)?", re.IGNORECASE
).fullmatch
_LABELS = re.compile(r"(.*/)?[^/]*?labels[-.]idx\d-[a-z]+(\.gz)?", re.I).fullmatch
# MNIST calls its test files so: ten thousand.
_IS_TEST = re.compile(r"(?<![a-z0-9])t10k(?![a-z0-9])", re.IGNORECASE).search
_GZIP = b"\x1f\x8b"
_IDX_TYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}
_MAX_DIMENSIONS, _MAX_ITEM_BYTES = 8, 1 << 30
# An image may be encoded as PNG to be sampled: 1,000 of 32 x 32 take 0.2 s.
_SAMPLE_BYTES = 4 << 20


class _Images(Arrays):
    """The images of one file, with their labels."""

    def __init__(
        self, reader: "ClassImageReader", stored: Sequence[StoredArray], names: Names
    ) -> None:
        self._reader = reader
        self._names = names
        super().__init__(stored, stored[0].origin)
        self.classes = dict(names)
        self.begin = 0 if self.packed else stored[0].begin

    def none(self) -> Values:
        """Returns no images, and no labels."""
        return self._reader.values([array.none() for array in self.stored])

    def columns(self, values: Sequence[npt.NDArray[Any]]) -> dict[str, pa.Array]:
        """Returns images as bytes, and names or numbers of classes; null for none."""
        read = self._reader.values(values)
        return {name: self._column(name, column) for name, column in read.items()}

    def _column(self, name: str, values: npt.NDArray[Any]) -> pa.Array:
        ready = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
        if names := self._names.get(name):
            ids = ready.astype(np.int64)
            unnamed = (ids < 0) | (ids >= len(names))
            _, most = self._reader.name_files.get(name, ("", 0))
            if unnamed[(ids >= 0) & (ids < most)].any():
                raise InputError(
                    f"The file of class names of {name!r} must name all of them in the "
                    f"order of their ids; it has {len(names)} names, and records of "
                    f"{self.stored[0].origin} have others. Add the missing names."
                )
            return pa.array(names, pa.string()).take(pa.array(ids, mask=unnamed))
        if ready.ndim == 1:
            return pa.array(ready)
        if self._reader.are_files:
            return encode_png(ready)
        width = math.prod(ready.shape[1:]) * ready.itemsize
        buffers = [None, pa.py_buffer(ready)]
        images = pa.Array.from_buffers(pa.binary(width), len(ready), buffers)
        return images.cast(pa.binary())

    def parts(
        self, file: InputFile, block_bytes: int, limit_rows: int | None
    ) -> Iterator[tuple[int, int]]:
        """Yields the rows of blocks, and the bytes of images up to their ends."""
        stop = 0
        for rows, end in super().parts(file, block_bytes, limit_rows):
            stop += rows
            images = self.begin + stop * self.stored[0].row_bytes
            yield rows, end if self.packed else images

    def raw(self, piece: Block, columns: Sequence[str]) -> RawRows:
        """Returns the rows of a piece but those of a class that there is not."""
        stored = self.take(piece.first_row, piece.rows)
        refused: dict[int, str] = {}
        for name, ids in self._reader.values(stored).items():
            _, most = self._reader.name_files.get(name, ("", 0))
            count = len(self._names.get(name, ())) or most
            if not count:
                continue
            wrong = np.flatnonzero((ids < 0) | (ids >= count))
            for row in wrong.tolist():
                refused[row] = (
                    f"field {name!r} holds {ids[row]}: "
                    f"the classes are numbered 0 to {count - 1}"
                )

        def rejection(complaint: Complaint) -> Rejection:
            row = complaint[0] - piece.first_row
            record = b"".join(values[row].tobytes() for values in stored)
            return rejection_of(piece.origin, complaint, record)

        raw = raw_rows(piece, self.columns(stored), columns, refused)
        return dataclasses.replace(raw, reject=rejecter(rejection))


@dataclasses.dataclass(frozen=True, slots=True)
class ClassImageReader(ColumnarReader):
    """Reads images, and the numbers of their classes.

    Attributes:
      name_files: by label, the file of class names beside the data, and how many
        classes there are.
      are_files: whether images are PNG, for an image policy, or else their values, by
        height, width and channel.
    """

    # An image is known by its file and number, as in other sources of images.
    content: ClassVar[Literal["none", "read", "all"]] = "none"
    by_bytes: ClassVar[bool] = True
    # There are no texts, so the setting is not for them.
    null_values: ClassVar[tuple[str, ...]] = ()  # type: ignore[misc]
    sample_bytes: ClassVar[int] = _SAMPLE_BYTES
    name_files: ClassVar[Mapping[str, tuple[str, int]]] = {}

    are_files: bool = False

    @abc.abstractmethod
    def opened(
        self, file: SourceFile, stack: contextlib.ExitStack
    ) -> Sequence[StoredArray]:
        """Returns the arrays that an input consists of, that of images first."""

    @abc.abstractmethod
    def values(self, stored: Sequence[npt.NDArray[Any]]) -> Values:
        """Returns n items of each array as n values of each feature, in their order."""

    def names(self, folder: str) -> Names:
        """Returns the names of the classes by label, where they are said."""
        paths = {n: os.path.join(folder, p) for n, (p, _) in self.name_files.items()}
        return {n: _read_names(p) for n, p in paths.items() if storage(p).exists()}

    @contextlib.contextmanager
    def open(
        self, file: SourceFile, columns: Sequence[str] | None = None
    ) -> Iterator[_Images]:
        """Opens a file of images, and that of their labels."""
        names = self.names(os.path.dirname(file.path))
        with contextlib.ExitStack() as stack:
            yield _Images(self, self.opened(file, stack), names)

    def planned(self, sample: TableSample, _classes: Classes) -> Planned:
        """Returns the plan without features; labels of a sample are names already."""
        return Planned(self, sample, ())

    def plan(self, files: Sequence[InputFile]) -> Planned:
        """Samples images spread evenly over the files.

        Raises:
          InputError: they differ in shape or class names, or share their labels.
        """
        sample = ColumnarReader.plan(self, files).sample
        owners: dict[object, str] = {}
        kinds: dict[str, str] = {}
        for file in read_in_turn(files):
            with self.open(file) as content:
                none, labels = content.none(), content.stored[-1].origin
            images = none["image"]
            kinds.setdefault(f"{images.shape[1:]} of {images.dtype.name}", file.origin)
            if (other := owners.setdefault(labels, file.origin)) != file.origin:
                raise InputError(
                    f"Every file of labels belongs to one of images; {labels} does to "
                    f"{other} and to {file.origin}. Keep one of the two."
                )
        if len(kinds) > 1:
            shown = [f"{origin} has {kind}" for kind, origin in kinds.items()]
            raise InputError(
                f"All images of a source have one shape and type; {shown[0]}, "
                f"{shown[1]}. Convert them one by one."
            )
        return Planned(self, sample, tuple(self._features(none, content.classes)))

    def _features(self, none: Values, names: Names) -> Iterator[Feature]:
        for name, values in none.items():
            shape, is_label = values.shape[1:], name == "label"
            if name in names:
                classes = names[name]
                yield Feature(name, Kind.LABEL, is_label=is_label, vocabulary=classes)
            elif not shape:
                yield Feature(name, Kind.INT64, is_label=is_label)
            elif not self.are_files:
                dtype = values.dtype.name
                yield Feature(
                    name, Kind.TENSOR, shape=shape, dtype=dtype, encoding="raw"
                )
            else:
                yield Feature(name, Kind.IMAGE, inline=True)
                for side in ("height", "width", "depth"):
                    yield Feature(side, Kind.INT64, derived=side, derived_from=name)


class Cifar10Reader(ClassImageReader):
    """Reads CIFAR-10."""

    title = "CIFAR-10"
    name_files: ClassVar[Mapping[str, tuple[str, int]]] = {
        "label": ("batches.meta.txt", 10)
    }

    def split_of(self, origin: str) -> str:
        """Returns train or test by the file's name; empty for another name."""
        match = _BATCH(origin) or _WHOLE(origin)
        return match[2].replace("data", "train") if match else ""

    def opened(
        self, file: SourceFile, stack: contextlib.ExitStack
    ) -> Sequence[StoredArray]:
        """Returns the records of a file: the bytes of labels, then those of pixels."""
        stream = stack.enter_context(file.open())
        size = stream.seek(0, os.SEEK_END)
        labels = [(name, "u1") for name in self.name_files]
        record = np.dtype([*labels, ("image", "u1", 3072)])
        header: Header = (size // record.itemsize,), False, record
        at = stream, file.origin, 0, size
        return [StoredArray("image", *at, header=lambda _stream: header)]

    def values(self, stored: Sequence[npt.NDArray[Any]]) -> Values:
        """Returns labels, and pixels by height, width and channel."""
        (records,) = stored
        pixels = records["image"].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        return {**{name: records[name] for name in self.name_files}, "image": pixels}


class Cifar100Reader(Cifar10Reader):
    """Reads CIFAR-100, with a coarse and a fine label; the names are those of TFDS."""

    title = "CIFAR-100"
    name_files: ClassVar[Mapping[str, tuple[str, int]]] = {
        "coarse_label": ("coarse_label_names.txt", 20),
        "label": ("fine_label_names.txt", 100),
    }


@dataclasses.dataclass(frozen=True, slots=True)
class IdxReader(ClassImageReader):
    """Reads files of images, each with the labels that its name leads to.

    Attributes:
      vocabulary: the names of the classes, by id.
    """

    title = "IDX"

    vocabulary: tuple[str, ...] = ()

    def names(self, _folder: str) -> Names:
        """Returns the names that the setting gives."""
        return {"label": self.vocabulary} if self.vocabulary else {}

    def split_of(self, origin: str) -> str:
        """Returns the split by the words of the file's name, else of its folders."""
        return "test" if _IS_TEST(os.path.basename(origin)) else split_in_path(origin)

    def opened(
        self, file: SourceFile, stack: contextlib.ExitStack
    ) -> Sequence[StoredArray]:
        """Returns images and labels, whose headers must agree."""
        path = _labels_of(file.path, lambda path: storage(path).is_file())
        origin = os.path.join(os.path.dirname(file.origin), os.path.basename(path))
        images = _idx_array("image", file, stack)
        labels = _idx_array("label", SourceFile(origin, path), stack)
        one, many = labels.none(), images.none()
        if one.ndim > 1 or one.dtype.kind == "f" or many.ndim == 1:
            raise InputError(
                f"Labels are one integer each, and images have sides; {origin} holds "
                f"{one.dtype.name} of {one.shape[1:]}, {file.origin} "
                f"{many.dtype.name} of {many.shape[1:]}."
            )
        if images.rows != labels.rows:
            raise InputError(
                f"Every image has a label; {file.origin} holds {images.rows} images, "
                f"{origin} {labels.rows} labels. Fetch or write them again."
            )
        return [images, labels]

    def values(self, stored: Sequence[npt.NDArray[Any]]) -> Values:
        """Returns gray images with a channel axis, as TensorFlow's decoders give."""
        images, labels = stored
        images = images[..., np.newaxis] if images.ndim == 3 else images
        dtype, shape = images.dtype.name, images.shape[1:]
        if self.are_files and png_channels(dtype, shape) is None:
            raise SourceError(
                f"Images of (height, width) in uint8 can become PNG; these are {dtype} "
                f"of {shape}. Leave out image_format."
            )
        return {"image": images, "label": labels}


def _idx_array(name: str, file: SourceFile, stack: contextlib.ExitStack) -> StoredArray:
    """Returns what a file holds by its header; raises InputError."""
    stored = stack.enter_context(file.open())
    packed = stored.peek(2)[:2] == _GZIP
    size = None if packed else stored.seek(0, os.SEEK_END)
    stream = cast("IO[bytes]", gzip.GzipFile(fileobj=stored) if packed else stored)
    at = stream, file.origin, 0, size
    return StoredArray(name, *at, header=_idx_header, packed=packed)


def _idx_header(stream: IO[bytes]) -> Header:
    """Reads the header of an IDX file; raises ValueError."""
    magic = stream.read(4)
    _, _, code, dimensions = magic.ljust(4, b"\0")[:4]
    sizes = stream.read(4 * min(dimensions, _MAX_DIMENSIONS))
    is_idx = magic[:2] == b"\0\0" and code in _IDX_TYPES
    if is_idx and 0 < len(sizes) == 4 * dimensions:
        shape = tuple(np.frombuffer(sizes, ">u4").tolist())
        kind = np.dtype(_IDX_TYPES[code])
        if 0 < math.prod(shape[1:]) * kind.itemsize <= _MAX_ITEM_BYTES:
            return shape, False, kind
    raise ValueError(
        f"it must start with 00 00, a type, the number of dimensions (1 to "
        f"{_MAX_DIMENSIONS}) and the size of each, for items of up to 1 GiB; it starts "
        f"with {(magic + sizes).hex(' ') or 'nothing'}"
    )


def _labels_of(path: str, exists: Callable[[str], bool]) -> str:
    """Returns the one file of labels for one of images; raises InputError."""
    labels: list[str] = []
    if match := _IMAGES(path):
        word = {"IMAGES": "LABELS", "Images": "Labels"}.get(match["word"], "labels")
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


def recognise_idx(listed: Listed, _head: Callable[[str], bytes]) -> list[str] | None:
    """Returns the files of images of IDX pairs by their names; None if none are.

    Raises:
      InputError: images without labels, or labels without images.
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


def recognise_cifar(listed: Listed, head: Callable[[str], bytes]) -> list[str] | None:
    """Returns which files are CIFAR's; None if none are.

    The names of CIFAR-10 say enough: a file of theirs with another size is damaged.
    `train.bin` and `test.bin` may be anything, so one at least must have the size of
    whole records, and start with labels of CIFAR-100.

    Raises:
      InputError: there are both; or the pickled version.
    """
    batches = [path for path, _ in listed if _BATCH(path)]
    whole = [path for path, _ in listed if _WHOLE(path)]
    starts = [head(p)[:2] for p, n in listed if _WHOLE(p) and n and n % 3074 == 0]
    is_100 = any(len(two) == 2 and two[0] < 20 and two[1] < 100 for two in starts)
    if batches and is_100:
        raise InputError(
            f"A source is CIFAR-10 or CIFAR-100; there are {batches[0]} and "
            f"{whole[0]}. Convert the folders one by one."
        )
    for path, _ in () if batches or is_100 else listed:
        if _PICKLE(path) and head(path).startswith(b"\x80"):
            raise InputError(
                f"{path} is CIFAR's Python version, a pickle, which is never loaded: "
                f"that could run any code. Fetch the binary version, "
                f"cifar-10-binary.tar.gz."
            )
    return batches or (whole if is_100 else None)


def _read_names(path: str) -> tuple[str, ...]:
    """Returns the names of classes in a file, by id; blank lines may end it."""
    lines = storage(path).read_bytes().rstrip().split(b"\n")
    try:
        names = parse_names(b"\n".join(map(bytes.strip, lines)), path=path)
    except SpecError as error:
        raise InputError(str(error)) from error
    if not names:
        raise InputError(f"{path!r} must hold the names of classes; it is empty.")
    return names
