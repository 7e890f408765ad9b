"""Pairs of IDX files, images and labels, as in MNIST; plain or gzip.

    train-images-idx3-ubyte.gz    n x height x width: the input
    train-labels-idx1-ubyte.gz    n: found beside it by its name

A plain file of images is cut into blocks; a compressed one is a single block that is
read piece by piece. See `idx_file.py` for the files themselves.
"""

import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import ClassVar, Literal

from transforms import files
from transforms.core.image.png_encode import png_channels
from transforms.core.model import Block
from transforms.errors import InputError, SourceError
from transforms.formats.binary.class_names import Names, read_names, same_names
from transforms.formats.binary.columns import features_of
from transforms.formats.binary.fixed_length import Recognised
from transforms.formats.binary.idx_file import IdxFile, open_idx
from transforms.formats.binary.idx_names import (
    check_one,
    is_images,
    is_labels,
    label_names,
    split_of,
)
from transforms.formats.binary.layout import BinaryField, Layout
from transforms.formats.binary.record_rows import (
    blocks_of,
    raw_rows,
    sample_of,
    sample_places,
)
from transforms.formats.table import (
    InputFile,
    Planned,
    RawRows,
    SourceFile,
    TableReader,
    unreadable,
)

__all__ = ["IdxReader", "recognise"]

_LABEL = "label"


@dataclasses.dataclass(frozen=True, slots=True)
class _Pair:
    """A file of images and that of their labels."""

    images: IdxFile
    labels: IdxFile

    @property
    def packed(self) -> bool:
        """Whether either can only be read from its start."""
        return self.images.packed or self.labels.packed


@dataclasses.dataclass(frozen=True, slots=True)
class IdxReader(TableReader):
    """Reads files of images, each with the labels that its name leads to.

    Attributes:
      encode: "raw" for `image` as the values themselves, (28, 28, 1) for MNIST, or
        "png".
      order: "F" for images that are stored column by column, as EMNIST's are.
      classes: the file beside the images that names the classes; see `read_names`.
      vocabulary: or their names, by id.
    """

    title = "IDX"
    suffixes: ClassVar[frozenset[str]] = frozenset({".idx3-ubyte"})

    encode: Literal["raw", "png"] = "raw"
    order: Literal["C", "F"] = "C"
    classes: str = ""
    vocabulary: tuple[str, ...] = ()

    def plan(self, files: Sequence[InputFile]) -> Planned:
        """Samples up to 1,024 images, evenly; of compressed files the first.

        Raises:
          InputError: a file is no IDX file, its size is not what it says, it has no
            labels, or not as many; or the files differ in shape.
        """
        pairs = [self._opened(file) for file in files]
        owner: dict[str, str] = {}
        for pair in pairs:
            _check_owner(owner, pair.images.origin, pair.labels.origin)
        for pair in pairs[1:]:
            _check_same(pairs[0].images, pair.images)
        folders = dict.fromkeys(os.path.dirname(file.path) for file in files)
        names = same_names([(folder, self._names(folder)) for folder in folders])
        counts = [pair.images.header.count for pair in pairs]
        largest = max((pair.images.header.item_bytes for pair in pairs), default=1)
        sampled = [
            self._chosen(pair, places.tolist(), names)
            for pair, places in zip(pairs, sample_places(counts, largest), strict=True)
            if len(places)
        ]
        fields = self._fields(pairs[0]) if pairs else ()
        columns = [field.name for field in fields]
        sample = sample_of(sampled, columns, total_rows=sum(counts))
        return Planned(self, sample, features_of(fields, names))

    def blocks(
        self, file: InputFile, *, block_bytes: int, limit_rows: int | None
    ) -> Iterator[Block]:
        """Yields blocks of whole images; of a compressed file one block.

        `start` and `stop` are byte offsets in the file as it is stored.

        Raises:
          InputError: as `sample` does, except for what files have in common.
        """
        images = self._opened(file).images
        header = images.header
        count = header.count
        if limit_rows is not None:
            count = min(count, limit_rows)
        if images.packed:
            # Also for no items: only the end shows whether the file is whole.
            yield file.whole(rows=count)
            return
        yield from blocks_of(
            file,
            count,
            header_bytes=header.size,
            record_bytes=header.item_bytes,
            block_bytes=block_bytes,
        )

    def read(
        self, file: SourceFile, block: Block, columns: Sequence[str]
    ) -> Iterator[RawRows]:
        """Yields the images of a block; of a compressed file piece by piece.

        Raises:
          OSError: a file cannot be read.
          InputError: a compressed file is damaged, too short or too long.
        """
        pair = self._opened(file)
        names = self._names(os.path.dirname(file.path))
        labels = pair.labels.items(block.first_row, block.rows)
        if not pair.images.packed:
            images = pair.images.items(block.first_row, block.rows, stamp=block.stamp)
            yield self._rows(pair, block, (images, labels), columns, names)
            return
        width = pair.labels.header.item_bytes
        size = pair.images.header.item_bytes
        pieces = pair.images.pieces(block.rows, stamp=block.stamp)
        for first, images, before in pieces:
            rows = len(images) // size
            # Offsets of the content: those of the file do not tell pieces apart.
            piece = dataclasses.replace(
                block,
                start=first * size,
                stop=(first + rows) * size,
                first_row=first,
                rows=rows,
                position=block.position + before,
            )
            part = labels[first * width : (first + rows) * width]
            yield self._rows(pair, piece, (images, part), columns, names)

    def split_of(self, origin: str) -> str:
        """Returns the split by the file's name, else by its folders'."""
        return split_of(origin)

    def _opened(self, file: SourceFile) -> _Pair:
        """Returns the files of an input; raises InputError where they do not agree."""
        folder, name = os.path.split(file.path)
        labels = [
            label
            for label in label_names(name)
            if files.is_file(os.path.join(folder, label))
        ]
        check_one(file.origin, name, labels)
        beside = file.origin.rpartition("/")[0]
        origin = f"{beside}/{labels[0]}" if beside else labels[0]
        pair = _Pair(
            _open(file.path, file.origin),
            _open(os.path.join(folder, labels[0]), origin),
        )
        images, found = pair.images.header, pair.labels.header
        if found.shape or found.dtype.startswith("float") or len(images.shape) < 1:
            raise InputError(
                f"Labels are one integer each, and images have sides; {origin} holds "
                f"{found.dtype} of {found.shape}, {file.origin} {images.dtype} of "
                f"{images.shape}."
            )
        if images.count != found.count:
            raise InputError(
                f"Every image has a label; {file.origin} holds {images.count} images, "
                f"{origin} {found.count} labels. Fetch or write them again."
            )
        return pair

    def _fields(self, pair: _Pair) -> tuple[BinaryField, BinaryField]:
        header = pair.images.header
        # Gray images get a channel axis, as TensorFlow's decoders give them.
        shape = (*header.shape, 1) if len(header.shape) == 2 else header.shape
        order = "C"
        if self.order == "F":
            order = "WHC" if len(shape) == 3 else "F"
        store = "png" if self.encode == "png" else "tensor"
        if store == "png" and png_channels(header.dtype, shape) is None:
            raise SourceError(
                f"Images of (height, width) in uint8 can become PNG; "
                f"{pair.images.origin} holds {header.dtype} of {header.shape}. Leave "
                f"them raw."
            )
        big = "big"
        image = BinaryField("image", header.dtype, shape, order, big, store=store)
        label = BinaryField(
            _LABEL,
            pair.labels.header.dtype,
            endianness=big,
            label=True,
            classes=self.classes,
            class_count=len(self.vocabulary),
        )
        return image, label

    def _rows(
        self,
        pair: _Pair,
        block: Block,
        data: tuple[bytes, bytes],
        columns: Sequence[str],
        names: Names,
    ) -> RawRows:
        fields = self._fields(pair)
        views = {
            field.name: Layout((field,)).views(part)[field.name]
            for field, part in zip(fields, data, strict=True)
        }

        def record(number: int) -> bytes:
            at = number - block.first_row
            return b"".join(
                part[at * field.size : (at + 1) * field.size]
                for field, part in zip(fields, data, strict=True)
            )

        return raw_rows(block, fields, views, columns, names, record)

    def _names(self, folder: str) -> Names:
        if self.vocabulary:
            return {_LABEL: self.vocabulary}
        if not self.classes:
            return {}
        return {_LABEL: read_names(os.path.join(folder, self.classes))}

    def _chosen(self, pair: _Pair, places: Sequence[int], names: Names) -> RawRows:
        """Returns chosen images; if either file is compressed, as many first ones."""
        if pair.packed:
            places = range(len(places))
            data = [f.items(0, len(places)) for f in (pair.images, pair.labels)]
        else:
            data = [
                b"".join(f.items(place, 1) for place in places)
                for f in (pair.images, pair.labels)
            ]
        block = Block(pair.images.origin, 0, 0, rows=len(places))
        columns = [field.name for field in self._fields(pair)]
        return self._rows(pair, block, (data[0], data[1]), columns, names)


def _open(path: str, origin: str) -> IdxFile:
    try:
        found = open_idx(path, origin)
        found.check_size()
    except OSError as error:
        raise unreadable(path, error) from error
    return found


def _check_same(first: IdxFile, other: IdxFile) -> None:
    one, two = first.header, other.header
    if (one.dtype, one.shape) != (two.dtype, two.shape):
        raise InputError(
            f"All images of a source have one shape and type; {first.origin} has "
            f"{one.shape} of {one.dtype}, {other.origin} {two.shape} of {two.dtype}. "
            f"Convert them one by one."
        )


def _check_owner(owner: dict[str, str], images: str, labels: str) -> None:
    """Notes whose labels these are; raises InputError if they are another's."""
    first = owner.setdefault(labels, images)
    if first != images:
        raise InputError(
            f"Every file of labels belongs to one of images; {labels} does to {first} "
            f"and to {images}. Keep one of the two."
        )


def recognise(
    files: Iterable[tuple[str, int]],
    _head: Callable[[str], bytes],
    *,
    encode: Literal["raw", "png"] = "raw",
) -> Recognised | None:
    """Returns which files are IDX pairs by their names; None if none are.

    Args:
      files: relative paths, `/` between, and sizes in bytes.
      _head: the first bytes of a file by its relative path; unused, since the names
        say enough.
      encode: see `IdxReader`.

    Raises:
      InputError: images without labels or labels without images, or one of them twice,
        plain and compressed.
    """
    listed = {path for path, _ in files}
    inputs = [path for path, _ in files if is_images(path)]
    if not inputs:
        return None
    owner: dict[str, str] = {}
    for path in inputs:
        folder, slash, name = path.rpartition("/")
        names = [n for n in label_names(name) if folder + slash + n in listed]
        check_one(path, name, names)
        _check_owner(owner, path, folder + slash + names[0])
    for path, _ in files:
        if is_labels(path) and path not in owner:
            raise InputError(
                f"Labels in IDX files have a file of images beside them, "
                f"NAME-images-idx3-ubyte; {path} has none."
            )
    return Recognised(
        IdxReader(encode),
        tuple(inputs),
        tuple(path for path, _ in files if path in owner),
    )
