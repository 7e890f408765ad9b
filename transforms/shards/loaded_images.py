"""Images that were read, and what their features are derived from."""

import functools
import hashlib
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Union

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.core.image.check import ImageInfo
from transforms.core.image.notes import ImageNote, contradicts_suffix
from transforms.core.image.policy import PreparedImage
from transforms.core.model import Reason, Rejection
from transforms.core.placing.leakage import fingerprint_image, fingerprint_of
from transforms.core.reasons import Fault
from transforms.core.schema import Feature, record_type
from transforms.core.statistics import Statistics
from transforms.storage.paths import without_access

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
        notes = self.prepared.notes
        if self.name and contradicts_suffix(self.name, self.prepared.source.format):
            notes = (*notes, ImageNote.SUFFIX)
        return notes

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
        self.images = [each for each in values if isinstance(each, LoadedImage)]
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
            each = iter(values)
            values = [
                [None if image is None else next(each) for image in value]
                if isinstance(value, list)
                else (None if value is None else next(each))
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

    def fingerprints(self, *, readable_again: bool) -> list[int]:
        """Returns the fingerprint of every image's file; see `fingerprint_image`."""
        return [
            fingerprint_of(image.crc32c, len(image.data))
            if readable_again and payload is image.data
            else fingerprint_image(image.data, readable_again=readable_again)
            for image, payload in zip(self.images, self.payloads, strict=True)
        ]
