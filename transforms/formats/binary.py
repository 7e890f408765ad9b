"""CIFAR-10, CIFAR-100 and pairs of IDX files, as MNIST's: images and class numbers.

    CIFAR-10    data_batch_1.bin ... test_batch.bin     label, 1 | pixels, 3 x 32 x 32
    CIFAR-100   train.bin, test.bin     coarse label, 1 | label, 1 | pixels, 3 x 32 x 32
    IDX         train-images-idx3-ubyte, train-labels-idx1-ubyte, .gz or not:
                00 00 | type, 1 | dimensions, 1 | each size, 4 | values, big-endian

The layouts are those of https://www.cs.toronto.edu/~kriz/cifar.html, which has files of
class names, one a line by id, and of http://yann.lecun.com/exdb/mnist. Plain files are
cut into blocks; a compressed one is a single block that is read piece by piece.
"""

import abc
import dataclasses
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.core.image.png_encode import encode_png, png_channels
from transforms.core.model import Block, Reason, Rejection
from transforms.core.schema import Feature, Kind
from transforms.errors import InputError, SourceError
from transforms.formats import table
from transforms.formats.binary_files import (
    BATCH,
    IS_TEST,
    MAX_BYTES,
    WHOLE,
    Items,
    Names,
    check_owner,
    idx_items,
    labels_of,
    read_names,
    shared_names,
)
from transforms.formats.file_names import split_in_path
from transforms.storage.files import storage

_Arrays = Mapping[str, npt.NDArray[Any]]

_SAMPLE_ROWS, _SAMPLE_BYTES = 1024, 64 << 20
_PIECE_BYTES = 4 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class _Reader(table.TableReader):
    """Reads images, and the numbers of their classes.

    Attributes:
      encode: "raw" for `image` as its values, by height, width and channel, or "png".
      classes: by label, the file of class names beside the data, which may be missing,
        and how many classes there are.
    """

    encode: Literal["raw", "png"] = "raw"
    classes: ClassVar[Mapping[str, tuple[str, int]]] = {}

    @abc.abstractmethod
    def _opened(self, file: table.SourceFile, size: int) -> tuple[Items, ...]:
        """Returns the files that an input consists of, itself first."""

    @abc.abstractmethod
    def _arrays(self, opened: Sequence[Items], data: Sequence[bytes]) -> _Arrays:
        """Returns n items of each file as n values of each feature, in their order."""

    def plan(self, files: Sequence[table.InputFile]) -> table.Planned:
        """Samples up to 1,024 images, the first of each file by its share.

        Raises:
          InputError: they differ in shape or class names, or names are missing.
        """
        opened = [self._opened(file, file.size) for file in files]
        _check_alike(opened)
        names = shared_names(
            {(f := os.path.dirname(x.path)): self._names(f) for x in files}
        )
        total, at, read = sum(items[0].count for items in opened), 0, 0
        sampled: list[table.RawRows] = []
        rows = min(total, _SAMPLE_ROWS, max(1, _SAMPLE_BYTES // opened[0][0].width))
        for file, items in zip(files, opened, strict=True):
            at += items[0].count
            share = at * rows // max(total, 1) - read
            read += share
            block = Block(file.origin, 0, 0, rows=share, stamp=file.stamp)
            try:
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
            n: read_names(path) for n, path in paths.items() if storage(path).exists()
        }

    def _check_named(self, origin: str, arrays: _Arrays, names: Names) -> None:
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
        bad = np.zeros(block.rows, np.bool_)
        refused: list[table.Complaint] = []
        for name, ids in arrays.items():
            count = len(names.get(name, ())) or self.classes.get(name, ("", 0))[1]
            wrong = (
                ((ids < 0) | (ids >= count)) & ~bad if count else np.zeros(0, np.bool_)
            )
            for at in np.flatnonzero(wrong).tolist():
                bad[at] = True
                message = (
                    f"field {name!r} holds {ids[at]}: "
                    f"the classes are numbered 0 to {count - 1}"
                )
                refused.append((block.first_row + at, Reason.OUT_OF_RANGE, message))

        def rejection(complaint: table.Complaint) -> Rejection:
            at, parts = complaint[0] - block.first_row, zip(opened, data, strict=True)
            record = b"".join(d[at * i.width : (at + 1) * i.width] for i, d in parts)
            return table.rejection_of(block.origin, complaint, record)

        columns = {
            name: self._column(values[~bad], names.get(name))
            for name, values in arrays.items()
        }
        numbers = block.first_row + np.flatnonzero(~bad)
        reject = table.rejecter(rejection)
        return table.RawRows(block, columns, numbers, sorted(refused), reject)

    def _column(
        self, values: npt.NDArray[Any], names: Sequence[str] | None
    ) -> pa.Array:
        ready = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
        if names is not None:
            return pa.array(names, pa.string()).take(pa.array(ready.astype(np.int64)))
        if ready.ndim == 1:
            return pa.array(ready)
        if self.encode == "png":
            return encode_png(ready)
        width = math.prod(ready.shape[1:]) * ready.itemsize
        buffers = [None, pa.py_buffer(ready)]
        images = pa.Array.from_buffers(pa.binary(width), len(ready), buffers)
        return images.cast(pa.binary())

    def _features(self, arrays: _Arrays, names: Names) -> Iterator[Feature]:
        for name, values in arrays.items():
            is_label, shape = name == "label", values.shape[1:]
            if name in names:
                classes = tuple(names[name])
                yield Feature(name, Kind.LABEL, is_label=is_label, vocabulary=classes)
            elif not shape:
                yield Feature(name, Kind.INT64, is_label=is_label)
            elif self.encode == "raw":
                dtype = values.dtype.name
                yield Feature(
                    name, Kind.TENSOR, shape=shape, dtype=dtype, encoding="raw"
                )
            else:
                yield Feature(name, Kind.IMAGE, inline=True)
                for side in ("height", "width", "depth"):
                    yield Feature(side, Kind.INT64, derived=side, derived_from=name)


class Cifar10Reader(_Reader):
    """Reads CIFAR-10."""

    title = "CIFAR-10"
    classes: ClassVar[Mapping[str, tuple[str, int]]] = {
        "label": ("batches.meta.txt", 10)
    }

    def split_of(self, origin: str) -> str:
        """Returns train or test by the file's name; empty for another name."""
        match = BATCH(origin) or WHOLE(origin)
        return match[2].replace("data", "train") if match else ""

    def _opened(self, file: table.SourceFile, size: int) -> tuple[Items, ...]:
        kind, width = np.dtype(np.uint8), len(self.classes) + 3072
        count = size // width
        return (Items(file.origin, file.path, size, 0, kind, (width,), count),)

    def _arrays(self, opened: Sequence[Items], data: Sequence[bytes]) -> _Arrays:
        records = np.frombuffer(data[0], np.uint8).reshape(-1, *opened[0].shape)
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


@dataclasses.dataclass(frozen=True, slots=True)
class IdxReader(_Reader):
    """Reads files of images, each with the labels that its name leads to.

    Attributes:
      vocabulary: the names of the classes, by id.
    """

    title = "IDX"
    vocabulary: tuple[str, ...] = ()

    def split_of(self, origin: str) -> str:
        """Returns the split by the words of the file's name, else of its folders."""
        return "test" if IS_TEST(os.path.basename(origin)) else split_in_path(origin)

    def _opened(self, file: table.SourceFile, size: int) -> tuple[Items, ...]:
        folder, beside = (
            os.path.dirname(file_path) for file_path in (file.path, file.origin)
        )
        name = os.path.basename(
            labels_of(file.path, lambda path: storage(path).is_file())
        )
        images = idx_items(file.path, file.origin)
        labels = idx_items(os.path.join(folder, name), os.path.join(beside, name))
        if labels.shape or labels.dtype.kind == "f" or not images.shape:
            raise InputError(
                f"Labels are one integer each, and images have sides; {labels.origin} "
                f"holds {labels.dtype.name} of {labels.shape}, {images.origin} "
                f"{images.dtype.name} of {images.shape}."
            )
        if images.count != labels.count:
            raise InputError(
                f"Every image has a label; {images.origin} holds {images.count} "
                f"images, {labels.origin} {labels.count} labels. Fetch or write them "
                f"again."
            )
        return images, labels

    def _arrays(self, opened: Sequence[Items], data: Sequence[bytes]) -> _Arrays:
        images, labels = (
            np.frombuffer(buffer, items.dtype).reshape(-1, *items.shape)
            for items, buffer in zip(opened, data, strict=True)
        )
        # Gray images get a channel axis, as TensorFlow's decoders give them.
        images = images[..., np.newaxis] if images.ndim == 3 else images
        dtype, shape = images.dtype.name, images.shape[1:]
        if self.encode == "png" and png_channels(dtype, shape) is None:
            raise SourceError(
                f"Images of (height, width) in uint8 can become PNG; "
                f"{opened[0].origin} holds {dtype} of {shape}. Leave them raw."
            )
        return {"image": images, "label": labels}

    def _names(self, folder: str) -> Names:
        return {"label": self.vocabulary} if self.vocabulary else {}


def _pieces(
    opened: Sequence[Items], block: Block
) -> Iterator[tuple[Block, list[bytes]]]:
    """Yields a block with its items of each file; of a packed file in pieces."""
    first, rows = opened[0], block.rows
    step = max(1, _PIECE_BYTES // first.width) if first.packed else max(1, rows)
    stamps = [block.stamp, *[0] * (len(opened) - 1)]
    pieces = zip(
        *(
            items.pieces(block.first_row, rows, step, stamp)
            for items, stamp in zip(opened, stamps, strict=True)
        ),
        strict=True,
    )
    for number, parts in enumerate(pieces):
        piece, (data, before) = block, parts[0]
        if first.packed:
            # Offsets of the content: those of the file do not tell pieces apart.
            at = number * step
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
    for first, *_, last in ((items[0], *items) for items in opened):
        check_owner(owner, first.origin, last.origin)
        one = opened[0][0]
        if (one.dtype, one.shape) != (first.dtype, first.shape):
            raise InputError(
                f"All images of a source have one shape and type; {one.origin} has "
                f"{one.shape} of {one.dtype.name}, {first.origin} {first.shape} of "
                f"{first.dtype.name}. Convert them one by one."
            )
