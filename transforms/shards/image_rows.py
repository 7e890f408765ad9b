"""The images of a chunk of rows: what was read, and what features come of them.

Also checks of stated sizes, boxes that move with their images, and fingerprints.
"""

import dataclasses
import functools
import hashlib
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, Union

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.core.image.formats import ImageInfo, ImageNote, contradicts_suffix
from transforms.core.image.policy import PreparedImage
from transforms.core.image.resize import AS_STORED, Geometry, turns
from transforms.core.model import ShardKey
from transforms.core.placing.leakage import (
    Fingerprints,
    Subject,
    fingerprint_image,
    pack_fingerprints,
)
from transforms.core.placing.sharding import ShardRows
from transforms.core.reasons import Fault, Reason, Rejection
from transforms.core.schema import Feature, Kind, Schema, record_type, row_type
from transforms.core.statistics import Statistics
from transforms.storage.paths import without_access
from transforms.work.store import Store

# The value of an image feature in a row: an image, a list of them, or None.
Loaded = Union["LoadedImage", list["LoadedImage | None"], None]


class LoadedImage(NamedTuple):
    """An image that was read.

    Attributes:
      data: the file, as it was found.
      result: the image after the policy, or the reason for its refusal.
      name: of the file, empty where the row itself holds the image.
      crc32c: of the image after the policy; 0 where there is none.
      size: bytes of the file, or of the image after the policy if those are more.
    """

    data: bytes
    result: PreparedImage | Fault
    name: str = ""
    crc32c: int = 0
    size: int = 0

    @property
    def prepared(self) -> PreparedImage:
        """The image, which has no fault."""
        assert isinstance(self.result, PreparedImage)
        return self.result

    @property
    def notes(self) -> tuple[ImageNote, ...]:
        """What is worth counting about an image that has no fault."""
        prepared = self.prepared
        if self.name and contradicts_suffix(self.name, prepared.source.format):
            return (*prepared.notes, ImageNote.SUFFIX)
        return prepared.notes

    def rejection(
        self, origin: str, row: int | None, fault: Fault, path: str = ""
    ) -> Rejection:
        """Returns the rejection of an item for this fault.

        Args:
          origin: the item's file.
          row: its 0-based row there; None where the item is the image file itself.
          fault: what is wrong.
          path: of the image, where the item is a row that names it.
        """
        unread = not self.data and fault.reason is not Reason.EMPTY_FILE
        return Rejection(
            source=origin,
            row=None if row is None else row + 1,
            line=None,
            stage="write",
            reason=fault.reason,
            message=(
                f"image {without_access(path)!r}: {fault.message}"
                if path
                else fault.message
            ),
            sha256=None if unread else hashlib.sha256(self.data).hexdigest(),
            raw=None if unread else self.data,
        )


_COLORSPACES = {1: "Grayscale", 2: "GrayscaleAlpha", 3: "RGB", 4: "RGBA"}
# What features may be derived from the facts of an image, by the name in
# `Feature.derived`.
_OF_FACTS: Mapping[str, Callable[[ImageInfo], int | str]] = {
    "height": operator.attrgetter("height"),
    "width": operator.attrgetter("width"),
    "depth": operator.attrgetter("depth"),
    "format": operator.attrgetter("format"),
    # As ImageNet's scripts write it.
    "codec": lambda facts: facts.format.upper(),
    "colorspace": lambda facts: _COLORSPACES[facts.depth],
}


class ImageColumn:
    """The images of a feature in n rows.

    Attributes:
      values: of each row: an image, a list of images and None, or None.
      are_single: whether each row has one image, and no list.
      images: all of them, in their order.
      rows: of each image.
    """

    def __init__(self, values: Sequence[Loaded]) -> None:
        self.values = values
        self.images = [loaded for loaded in values if isinstance(loaded, LoadedImage)]
        self.are_single = len(self.images) == len(values)
        self.rows: Sequence[int] = range(len(values))
        if not self.are_single:
            items = [
                (row, image)
                for row, value in enumerate(values)
                for image in (value if isinstance(value, list) else (value,))
                if image is not None
            ]
            self.rows = [row for row, _ in items]
            self.images = [image for _, image in items]

    def __len__(self) -> int:
        return len(self.values)

    @functools.cached_property
    def prepared(self) -> list[PreparedImage]:
        """What the policy has made of every image; none may have a fault."""
        return [image.prepared for image in self.images]

    @property
    def payloads(self) -> list[bytes]:
        """The bytes of every image in a record."""
        return [prepared.data for prepared in self.prepared]

    @property
    def crcs(self) -> npt.NDArray[np.uint32]:
        """CRC32C of each of the payloads."""
        return np.array([image.crc32c for image in self.images], np.uint32)

    def take(self, rows: Sequence[int]) -> "ImageColumn":
        """Returns the images of some rows."""
        return ImageColumn([self.values[row] for row in rows])

    def array(self, values: Sequence[object], feature: Feature) -> pa.Array:
        """Returns a column of a feature, given its value for every image."""
        if not self.are_single:
            remaining = iter(values)
            values = [
                [None if image is None else next(remaining) for image in value]
                if isinstance(value, list)
                else (None if value is None else next(remaining))
                for value in self.values
            ]
        return pa.array(values, record_type(feature))

    def derived(self, feature: Feature) -> pa.Array:
        """Returns the column of a feature that is derived from the images.

        That is "sha256", or a fact such as "height" or "colorspace".
        """
        if feature.derived == "sha256":
            values: list[object] = [
                hashlib.sha256(payload).hexdigest() for payload in self.payloads
            ]
        else:
            derive = _OF_FACTS[feature.derived]
            values = [derive(prepared.info) for prepared in self.prepared]
        return self.array(values, feature)

    @property
    def statistics(self) -> Statistics:
        """What is true of the payloads; the range is that of their sizes."""
        sizes = list(map(len, self.payloads))
        counts = [
            sum(image is not None for image in value)
            for value in self.values
            if isinstance(value, list)
        ]
        return Statistics(
            sum(value is not None for value in self.values),
            min(sizes, default=None),
            max(sizes, default=None),
            fewest=min(counts, default=None),
            most=max(counts, default=None),
        )

    def fingerprints(self) -> list[int]:
        """Returns the fingerprint of every image's file; see `fingerprint_image`."""
        return [
            fingerprint_image(
                image.data, image.crc32c if payload is image.data else None
            )
            for image, payload in zip(self.images, self.payloads, strict=True)
        ]


def faults(
    chunk: pa.Table,
    image: Feature,
    column: ImageColumn,
    schema: Schema,
    masked: ImageColumn | None = None,
) -> Iterator[tuple[int, int, LoadedImage, Fault]]:
    """Yields (row, place in the row, image, fault) for every image that is refused.

    An image of another size than the source states is refused too: what the source
    says of places in it would be wrong. So is a mask of another size than its image,
    which is among those `masked`.
    """
    stated = _stated(chunk, image, schema)
    for index, (row, item) in enumerate(zip(column.rows, column.images, strict=True)):
        fault = item.result if isinstance(item.result, Fault) else None
        if stated and fault is None:
            fault = _contradiction(item, stated, row)
        if masked is not None and fault is None:
            fault = _not_over(item, masked.values[row])
        if fault is not None:
            yield row, index - column.rows.index(row), item, fault


def _stated(
    chunk: pa.Table, image: Feature, schema: Schema
) -> dict[str, list[int | None]]:
    """Returns the sizes that the source states of each row's image, by side."""
    return {
        feature.states: chunk[feature.name].to_pylist()
        for feature in schema.features
        if feature.states and feature.derived_from == image.name
    }


def _contradiction(
    item: LoadedImage, stated: Mapping[str, list[int | None]], index: int
) -> Fault | None:
    """Returns the fault of an image whose size is not as its row states; else None."""
    source = item.prepared.source
    said = {side: values[index] for side, values in stated.items()}
    if _is_size(said, source.height, source.width):
        return None
    of_turned = turns(source.orientation) and _is_size(
        said, source.width, source.height
    )
    # The policy has applied an EXIF orientation.
    if of_turned and item.prepared.geometry != item.prepared.upright:
        return None
    side = next(s for s in said if said[s] not in (None, getattr(source, s)))
    message = f"its {side} is {getattr(source, side)}, but {said[side]} is stated"
    if of_turned:
        message += (
            f": its EXIF orientation {source.orientation} exchanges the two, so the "
            f"annotation is of the turned image; --exif apply turns it"
        )
    return Fault(Reason.SIZE_MISMATCH, message)


def _not_over(mask: LoadedImage, image: Loaded) -> Fault | None:
    """Returns why a mask does not fit its image, if the image is sound."""
    if not isinstance(image, LoadedImage) or isinstance(image.result, Fault):
        return None
    own, other = mask.prepared.source, image.prepared.source
    if (own.height, own.width) == (other.height, other.width):
        return None
    return Fault(
        Reason.SIZE_MISMATCH,
        f"the mask has {own.width} x {own.height} pixels, and the image "
        f"{other.width} x {other.height}",
    )


def _is_size(said: Mapping[str, int | None], height: int, width: int) -> bool:
    """Whether the stated sides are these pixels; a side that is None may be any."""
    actual = {"height": height, "width": width}
    return all(value in (None, actual[side]) for side, value in said.items())


def boxes_moved(
    chunk: pa.Table, loaded: Sequence[ImageColumn], schema: Schema
) -> pa.Table:
    """Returns the rows with boxes moved as their images were resized.

    Nothing says whether boxes are of the image as it is stored or as EXIF turns it.
    Where the image is turned, they are of the turned one, and stay on it, unless the
    stated size is that of the stored one alone: then they are turned, too.

    Row by row, because each image has a geometry of its own; hardly any has one.
    A box is of one image: features with several have none.
    """
    if not schema.of_kind(Kind.BOX):
        return chunk
    images = {
        feature.name: _geometries(column, _stated(chunk, feature, schema))
        for feature, column in zip(schema.loaded, loaded, strict=True)
        if not feature.is_list
    }
    for feature in schema.of_kind(Kind.BOX):
        shapes = images[feature.derived_from or next(iter(images))]
        if all(shape == AS_STORED for shape in shapes):
            continue
        boxes = [
            shape.map_boxes(cell).tolist() if cell else cell
            for shape, cell in zip(shapes, chunk[feature.name].to_pylist(), strict=True)
        ]
        index = chunk.schema.get_field_index(feature.name)
        moved = pa.array(boxes, row_type(feature))
        chunk = chunk.set_column(index, chunk.schema.field(index), moved)
    return chunk


def _geometries(
    column: ImageColumn, stated: Mapping[str, list[int | None]]
) -> list[Geometry]:
    """Returns how boxes move with the image of each row, if it has one."""
    shapes = [AS_STORED] * len(column)
    for row, item in zip(column.rows, column.images, strict=True):
        source = item.prepared.source
        said = {side: values[row] for side, values in stated.items()}
        is_of_stored = turns(source.orientation) and not _is_size(
            said, source.width, source.height
        )
        shapes[row] = item.prepared.geometry if is_of_stored else item.prepared.upright
    return shapes


def derived_columns(
    loaded: Sequence[ImageColumn], schema: Schema
) -> dict[str, pa.Array]:
    """Returns the columns that are derived from the images, by feature name."""
    by_name = dict(zip((f.name for f in schema.loaded), loaded, strict=True))
    alone = next(iter(by_name), "")
    return {
        feature.name: by_name[feature.derived_from or alone].derived(feature)
        for feature in schema.features
        if feature.derived
    }


def store_fingerprints(
    key: ShardKey,
    rows: ShardRows,
    *,
    values: Sequence[int],
    positions: npt.NDArray[np.int64],
    store: Store,
) -> Fingerprints | None:
    """Stores the fingerprints of the images of one shard; None where it has none.

    Args:
      key: the shard.
      rows: of the shard.
      values: n fingerprints; see `transforms.core.placing.leakage.fingerprint_image`.
      positions: of their rows in `rows.table`; a row may have several images.
      store: where to put them; a second attempt puts the same.
    """
    if not values:
        return None
    split, number = key
    origins, numbers = rows.places(positions)
    packed = pack_fingerprints(
        np.array(values, np.uint64), np.zeros(len(values), np.int64), numbers, origins
    )
    # The rows of another plan may be others.
    name = f"images\0{split}\0{store.plan}"
    parts = [(packed.num_rows, packed.serialize())]
    (piece,) = store.put(name, number, parts)
    return Fingerprints(
        Subject.IMAGE,
        (split,),
        segment=dataclasses.replace(piece, origin=split),
    )
