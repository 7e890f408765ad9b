"""CIFAR-10 and CIFAR-100, and what they share with IDX files: images and class numbers.

    CIFAR-10    data_batch_1.bin ... test_batch.bin     label, 1 | pixels, 3 x 32 x 32
    CIFAR-100   train.bin, test.bin     coarse label, 1 | label, 1 | pixels, 3 x 32 x 32

The layouts are those of https://www.cs.toronto.edu/~kriz/cifar.html, which has files of
class names, one a line by id. Plain files are cut into blocks; a compressed one is a
single block that is read piece by piece.
"""

import abc
import dataclasses
import itertools
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.core.image.png_encode import encode_png
from transforms.core.model import Block, Reason, Rejection
from transforms.core.schema import Feature, Kind
from transforms.errors import InputError
from transforms.formats import table
from transforms.formats.whole_files import Unpacked, open_content
from transforms.storage.files import storage

Arrays = Mapping[str, npt.NDArray[Any]]
Names = Mapping[str, tuple[str, ...]]
Listed = Iterable[tuple[str, int]]

_BATCH = re.compile(r"(.*/)?(data|test)_batch[^/]*\.bin").fullmatch
_WHOLE = re.compile(r"(.*/)?(train|test)\.bin").fullmatch
# Its pickled version has the same names without a suffix.
_PICKLE = re.compile(r"(.*/)?(data|test)_batch(_\d)?").fullmatch
# Of an item, and of a block: Arrow counts the bytes of a column in int32.
MAX_BYTES = 1 << 30
# Deflate's densest code: 258 bytes from two bits.
_MAX_DEFLATE_RATIO = 1032
_SAMPLE_ROWS, _SAMPLE_BYTES = 1024, 64 << 20
_PIECE_BYTES = 4 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class Items:
    """A file of `size` bytes: `count` items of one type and shape after `start`."""

    file: table.SourceFile
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

    def pieces(self, block: Block, step: int) -> Iterator[tuple[bytes, int]]:
        """Yields the items of a block, `step` at a time, and the bytes read before.

        A packed file must end after its last item.
        """
        stop = block.first_row + block.rows
        with open_content(self.file) as stream:
            begin = self.start + block.first_row * self.width
            self._take(stream, begin) if self.packed else stream.seek(begin)
            for first in range(block.first_row, stop, step):
                before = stream.consumed if isinstance(stream, Unpacked) else 0
                yield self._take(stream, min(step, stop - first) * self.width), before
            if self.packed and stop == self.count and stream.read(1):
                raise self._wrong_size("more")

    def _take(self, stream: IO[bytes] | Unpacked, size: int) -> bytes:
        data = read_up_to(stream, size)
        if len(data) < size:
            raise self._wrong_size("less")
        return data

    def values(self, data: bytes) -> npt.NDArray[Any]:
        """Returns items as an array."""
        return np.frombuffer(data, self.dtype).reshape(-1, *self.shape)

    def _wrong_size(self, found: str) -> InputError:
        return InputError(
            f"A file of {self.count} items of {self.width} bytes after {self.start} of "
            f"header has a size to match; {self.file.origin} has {found}. It is cut "
            f"off or damaged; fetch or write it again."
        )


def read_up_to(stream: IO[bytes] | Unpacked, size: int) -> bytes:
    """Returns `size` bytes, or all there are: a member of gzip may end before."""
    parts = []
    while size and (chunk := stream.read(size)):
        parts.append(chunk)
        size -= len(chunk)
        if isinstance(stream, Unpacked):
            stream.forget(stream.tell())
    return b"".join(parts)


@dataclasses.dataclass(frozen=True, slots=True)
class BinaryReader(table.TableReader):
    """Reads images, and the numbers of their classes.

    Attributes:
      are_files: whether images are PNG, for an image policy, or else their values, by
        height, width and channel.
      classes: by label, the file of class names beside the data, which may be missing,
        and how many classes there are.
    """

    are_files: bool = False
    classes: ClassVar[Mapping[str, tuple[str, int]]] = {}

    @abc.abstractmethod
    def _opened(self, file: table.SourceFile, size: int) -> tuple[Items, ...]:
        """Returns the files that an input consists of, itself first."""

    @abc.abstractmethod
    def _arrays(self, opened: Sequence[Items], data: Sequence[bytes]) -> Arrays:
        """Returns n items of each file as n values of each feature, in their order."""

    def plan(self, files: Sequence[table.InputFile]) -> table.Planned:
        """Samples up to 1,024 images, the first of each file by its share.

        Raises:
          InputError: they differ in shape or class names, or names are missing.
        """
        opened = [self._opened(file, file.size) for file in files]
        _check_alike(opened)
        names = self._shared_names(files)
        total, at, read = sum(items[0].count for items in opened), 0, 0
        sampled: list[table.RawRows] = []
        rows = min(total, _SAMPLE_ROWS, max(1, _SAMPLE_BYTES // opened[0][0].width))
        for file, items in zip(files, opened, strict=True):
            at += items[0].count
            share = at * rows // max(total, 1) - read
            read += share
            try:
                block = file.block(0, 0, rows=share)
                pieces = [*_pieces(items, block)] if share else []
            except OSError as error:
                raise table.unreadable(file.path, error) from error
            for piece, data in pieces:
                self._check_named(file.origin, self._arrays(items, data), names)
                sampled.append(self._rows(piece, items, data, names))
        arrays = self._arrays(opened[0], [b""] * len(opened[0]))
        columns = {
            name: pa.chunked_array([raw.columns[name] for raw in sampled])
            for name in arrays
            if sampled
        }
        good = sum(len(raw.numbers) for raw in sampled)
        sample = table.TableSample(
            columns, good, rows - good, total_rows=total, complete=rows == total
        )
        return table.Planned(self, sample, tuple(self._features(arrays, names)))

    def blocks(
        self, file: table.InputFile, *, block_bytes: int, limit_rows: int | None
    ) -> Iterator[Block]:
        """Yields blocks of whole items, by their bytes as they are stored."""
        items = self._opened(file, file.size)[0]
        count = items.count if limit_rows is None else min(items.count, limit_rows)
        if items.packed:
            # Also for no items: only the end shows whether the file is whole.
            yield file.whole(rows=count)
            return
        step = min(-(-block_bytes // items.width), MAX_BYTES // items.width) or 1
        for first in range(0, count, step):
            start, rows = items.start + first * items.width, min(step, count - first)
            stop = start + rows * items.width
            yield file.block(start, stop, rows=rows, before=start, first_row=first)

    def read(
        self, file: table.SourceFile, block: Block, columns: Sequence[str]
    ) -> Iterator[table.RawRows]:
        """Yields the images of a block; of a compressed file piece by piece."""
        opened = self._opened(file, block.stop)
        names = self._names(os.path.dirname(file.path))
        for piece, data in _pieces(opened, block):
            yield self._rows(piece, opened, data, names).only(columns)

    def _names(self, folder: str) -> Names:
        paths = {name: os.path.join(folder, c[0]) for name, c in self.classes.items()}
        return {
            n: _read_names(path) for n, path in paths.items() if storage(path).exists()
        }

    def _shared_names(self, files: Sequence[table.InputFile]) -> Names:
        """Returns the class names that all folders share."""
        folders = dict.fromkeys(os.path.dirname(file.path) for file in files)
        first, *others = folders
        names = self._names(first)
        for folder in others:
            if self._names(folder) != names:
                raise InputError(
                    f"Class names must be the same, in the same order, beside all "
                    f"files of a source; those in {first!r} and {folder!r} differ. "
                    f"Convert the folders one by one."
                )
        return names

    def _check_named(self, origin: str, arrays: Arrays, names: Names) -> None:
        """Raises InputError if a file of names lacks that of a class."""
        for label, (path, count) in self.classes.items():
            ids, total = arrays[label], len(names.get(label, range(count)))
            if (most := ids[ids < count].max(initial=0)) >= total > 0:
                raise InputError(
                    f"{path!r} must name every class in the order of the ids; it has "
                    f"{total} names, and {origin} has records with {label!r} {most}. "
                    f"Add the missing names."
                )

    def _rows(
        self,
        block: Block,
        opened: Sequence[Items],
        data: Sequence[bytes],
        names: Names,
    ) -> table.RawRows:
        """Returns the items of a block but those of a class that there is not."""
        arrays = self._arrays(opened, data)
        refused: dict[int, table.Complaint] = {}
        for name, ids in arrays.items():
            count = len(names.get(name, ())) or self.classes.get(name, ("", 0))[1]
            wrong = np.flatnonzero((ids < 0) | (ids >= count)) if count else ids[:0]
            for at in wrong.tolist():
                message = (
                    f"field {name!r} holds {ids[at]}: "
                    f"the classes are numbered 0 to {count - 1}"
                )
                complaint = block.first_row + at, Reason.OUT_OF_RANGE, message
                refused.setdefault(at, complaint)

        def rejection(complaint: table.Complaint) -> Rejection:
            at, parts = complaint[0] - block.first_row, zip(opened, data, strict=True)
            record = b"".join(d[at * i.width : (at + 1) * i.width] for i, d in parts)
            return table.rejection_of(block.origin, complaint, record)

        good = np.delete(np.arange(block.rows), [*refused])
        columns = {
            name: self._column(values[good] if refused else values, names.get(name))
            for name, values in arrays.items()
        }
        complaints = [refused[at] for at in sorted(refused)]
        reject = table.rejecter(rejection)
        return table.RawRows(block, columns, block.first_row + good, complaints, reject)

    def _column(
        self, values: npt.NDArray[Any], names: Sequence[str] | None
    ) -> pa.Array:
        ready = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
        if names is not None:
            return pa.array(names, pa.string()).take(pa.array(ready.astype(np.int64)))
        if ready.ndim == 1:
            return pa.array(ready)
        if self.are_files:
            return encode_png(ready)
        width = math.prod(ready.shape[1:]) * ready.itemsize
        buffers = [None, pa.py_buffer(ready)]
        images = pa.Array.from_buffers(pa.binary(width), len(ready), buffers)
        return images.cast(pa.binary())

    def _features(self, arrays: Arrays, names: Names) -> Iterator[Feature]:
        for name, values in arrays.items():
            is_label, shape = name == "label", values.shape[1:]
            if name in names:
                classes = tuple(names[name])
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


class Cifar10Reader(BinaryReader):
    """Reads CIFAR-10."""

    title = "CIFAR-10"
    classes: ClassVar[Mapping[str, tuple[str, int]]] = {
        "label": ("batches.meta.txt", 10)
    }

    def split_of(self, origin: str) -> str:
        """Returns train or test by the file's name; empty for another name."""
        match = _BATCH(origin) or _WHOLE(origin)
        return match[2].replace("data", "train") if match else ""

    def _opened(self, file: table.SourceFile, size: int) -> tuple[Items, ...]:
        width = len(self.classes) + 3072
        return (Items(file, size, 0, np.dtype(np.uint8), (width,), size // width),)

    def _arrays(self, opened: Sequence[Items], data: Sequence[bytes]) -> Arrays:
        records = opened[0].values(data[0])
        labels = {name: records[:, at] for at, name in enumerate(self.classes)}
        pixels = records[:, len(labels) :].reshape(-1, 3, 32, 32)
        return {**labels, "image": pixels.transpose(0, 2, 3, 1)}


class Cifar100Reader(Cifar10Reader):
    """Reads CIFAR-100, with a coarse and a fine label; the names are those of TFDS."""

    title = "CIFAR-100"
    classes: ClassVar[Mapping[str, tuple[str, int]]] = {
        "coarse_label": ("coarse_label_names.txt", 20),
        "label": ("fine_label_names.txt", 100),
    }


def _pieces(
    opened: Sequence[Items], block: Block
) -> Iterator[tuple[Block, list[bytes]]]:
    """Yields a block with its items of each file; of a packed file in pieces."""
    first, rows = opened[0], block.rows
    step = max(1, _PIECE_BYTES // first.width if first.packed else rows)
    pieces = zip(*(items.pieces(block, step) for items in opened), strict=True)
    for at, parts in zip(itertools.count(0, step), pieces, strict=False):
        piece, (data, before) = block, parts[0]
        if first.packed:
            # Offsets of the content: those of the file do not tell pieces apart.
            count = len(data) // first.width
            piece = dataclasses.replace(
                block,
                start=at * first.width,
                stop=(at + count) * first.width,
                first_row=at,
                rows=count,
                position=block.position + before,
            )
        yield piece, [data for data, _ in parts]


def _check_alike(opened: Sequence[Sequence[Items]]) -> None:
    """Raises InputError where inputs differ in shape, or have the same labels."""
    owner: dict[str, str] = {}
    one = opened[0][0]
    for first, *_, last in ((items[0], *items) for items in opened):
        images = owner.setdefault(last.file.origin, first.file.origin)
        if images != first.file.origin:
            raise InputError(
                f"Every file of labels belongs to one of images; {last.file.origin} "
                f"does to {images} and to {first.file.origin}. Keep one of the two."
            )
        if (one.dtype, one.shape) != (first.dtype, first.shape):
            raise InputError(
                f"All images of a source have one shape and type; {one.file.origin} "
                f"has {one.shape} of {one.dtype.name}, {first.file.origin} "
                f"{first.shape} of {first.dtype.name}. Convert them one by one."
            )


def _read_names(path: str) -> tuple[str, ...]:
    """Returns the names of classes in a file, by id; blank lines may end it."""
    lines, problem = [""], ""
    try:
        text = storage(path).read_bytes().decode("utf-8-sig")
        lines = [line.strip() for line in text.rstrip().split("\n")]
    except (OSError, UnicodeDecodeError) as error:
        problem = str(error)
    twice = next((line for line in lines if lines.count(line) > 1), "")
    if "" in lines:
        problem = problem or f"line {lines.index('') + 1} is blank"
    elif twice:
        problem = f"{twice!r} is in it twice"
    if problem:
        raise InputError(
            f"A file of class names must be UTF-8 text with one name a line, the first "
            f"for id 0, each once; {path!r} is not: {problem}."
        )
    return tuple(lines)


def recognise(listed: Listed, head: Callable[[str], bytes]) -> list[str] | None:
    """Returns which files are CIFAR's; None if none are.

    The names of CIFAR-10 say enough: a file of theirs with another size is not left
    out but damaged when it is read. `train.bin` and `test.bin` may be anything, so one
    at least must have the size of whole records, and start with labels of CIFAR-100.

    Raises:
      InputError: there are both; or the pickled version.
    """
    batches = [path for path, _ in listed if _BATCH(path)]
    whole = [path for path, _ in listed if _WHOLE(path)]
    width = 3074
    starts = [head(p)[:2] for p, n in listed if _WHOLE(p) and n and n % width == 0]
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
    return batches or (whole if is_100 else None)
