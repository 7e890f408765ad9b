"""Images that were read, and what their features are derived from."""

import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, Union

import google_crc32c
import numpy as np
import numpy.typing as npt

from transforms.core.image.check import ImageInfo
from transforms.core.image.geometry import AS_STORED, Geometry
from transforms.core.image.notes import ImageNote, SourceImage, contradicts_suffix
from transforms.core.image.policy import PreparedImage
from transforms.core.model import Reason, Rejection
from transforms.core.placing.leakage import fingerprint_image, fingerprint_of
from transforms.core.reasons import Fault
from transforms.core.statistics import Statistics
from transforms.storage.paths import without_access

Payload = bytes | memoryview
# The value of an image feature in a row: an image, a list of them, or None.
Loaded = Union["LoadedImage", list["LoadedImage | None"], None]
# The images of each row, by feature.
Images = list[Union[list[Loaded], "ImageColumn"]]


@dataclasses.dataclass(frozen=True, slots=True)
class LoadedImage:
    """An image that was read.

    Attributes:
      data: the file, as it was found.
      result: the image after the policy, or the reason for its refusal.
      name: of the file, empty where the row itself holds the image.
    """

    data: bytes
    result: PreparedImage | Fault
    name: str = ""

    @property
    def is_sound(self) -> bool:
        """Whether it has no fault."""
        return isinstance(self.result, PreparedImage)

    @property
    def prepared(self) -> PreparedImage:
        """The image, which has no fault."""
        assert isinstance(self.result, PreparedImage)
        return self.result

    @property
    def facts(self) -> ImageInfo:
        """The facts of an image that has no fault."""
        return self.prepared.info

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


def loaded_items(loaded: Loaded) -> "list[LoadedImage]":
    """Returns the images of a feature in a row: none, one or several."""
    each = loaded if isinstance(loaded, list) else [loaded]
    return [item for item in each if item is not None]


class PlainJpeg(NamedTuple):
    """The size of a JPEG that is stored as it is, of which nothing else is to be said.

    Its depth is 1 or 3 channels.
    """

    height: int
    width: int
    depth: int


def plain_jpeg(
    data: bytes, result: PreparedImage | Fault, name: str
) -> PlainJpeg | None:
    """Returns the size of an image that is a plain JPEG; else None.

    Args:
      data, result, name: see `LoadedImage`.
    """
    if (
        isinstance(result, Fault)
        or result.data is not data
        or result.notes
        or result.info.format != "jpeg"
        or contradicts_suffix(name, "jpeg")
    ):
        return None
    return PlainJpeg(*result.info[1:])


_COLORSPACES = {1: "Grayscale", 2: "GrayscaleAlpha", 3: "RGB", 4: "RGBA"}
# What features may be derived from the facts of an image, by the name in
# `Feature.derived`.
_OF_FACTS: Mapping[str, Callable[[ImageInfo], int | str]] = {
    "height": lambda facts: facts.height,
    "width": lambda facts: facts.width,
    "depth": lambda facts: facts.depth,
    "format": lambda facts: facts.format,
    # As ImageNet's scripts write it.
    "codec": lambda facts: facts.format.upper(),
    "colorspace": lambda facts: _COLORSPACES[facts.depth],
}


def derived_value(name: str, image: LoadedImage) -> int | str:
    """Returns the value of a feature that is derived from an image without a fault.

    Args:
      name: in `Feature.derived`: "sha256", or a fact such as "height" or "colorspace".
      image: that it is derived from.
    """
    if name == "sha256":
        return hashlib.sha256(image.prepared.data).hexdigest()
    return _OF_FACTS[name](image.facts)


@dataclasses.dataclass(frozen=True, slots=True)
class ImageColumn:
    """One image in each of n rows, as columns.

    Plain JPEGs have no object of their own: nothing is to be said of them but their
    size. `others` has all that is to be said of other images.

    Attributes:
      payloads: the bytes of the records; empty for an image that is refused.
      crcs: CRC32C of each payload.
      plain: the sizes of plain JPEGs; None for others.
      others: the other images, by their rows.
    """

    payloads: list[Payload]
    crcs: npt.NDArray[np.uint32]
    plain: list[PlainJpeg | None]
    others: Mapping[int, LoadedImage]

    @classmethod
    def of(cls, images: Sequence[LoadedImage]) -> "ImageColumn":
        """Returns the column of images that were loaded one by one."""
        payloads: list[Payload] = [
            image.prepared.data if image.is_sound else b"" for image in images
        ]
        crcs = [google_crc32c.value(payload) for payload in payloads]
        plain: list[PlainJpeg | None] = [None] * len(payloads)
        others = dict(enumerate(images))
        return cls(payloads, np.array(crcs, np.uint32), plain, others)

    def __len__(self) -> int:
        return len(self.payloads)

    def __iter__(self) -> Iterator[LoadedImage]:
        return (self[row] for row in range(len(self)))

    def __getitem__(self, row: int) -> LoadedImage:
        """Returns the image of a row as an object; copies a plain one."""
        plain = self.plain[row]
        if plain is None:
            return self.others[row]
        data = bytes(self.payloads[row])
        info = _facts_of(plain)
        source = SourceImage("jpeg", plain.height, plain.width, 1, 8)
        return LoadedImage(data, PreparedImage(data, info, source))

    def take(self, rows: Sequence[int]) -> "ImageColumn":
        """Returns the images of some rows, in ascending order."""
        others = {
            new: self.others[old]
            for new, old in enumerate(rows)
            if self.plain[old] is None
        }
        payloads = [self.payloads[row] for row in rows]
        plain = [self.plain[row] for row in rows]
        return ImageColumn(payloads, self.crcs[rows], plain, others)

    @property
    def total_bytes(self) -> int:
        """Bytes of all payloads."""
        return sum(map(len, self.payloads))

    def unlike(
        self, stated: Mapping[str, Sequence[int | None]]
    ) -> list[tuple[int, LoadedImage]]:
        """Returns row and image of all but plain JPEGs of the stated sizes.

        Args:
          stated: "height" or "width" -> what is stated of each row.
        """
        rows = set(self.others)
        for side, values in stated.items():
            place = PlainJpeg._fields.index(side)
            rows |= {
                row
                for row, (plain, value) in enumerate(
                    zip(self.plain, values, strict=True)
                )
                if plain is not None and value not in (None, plain[place])
            }
        return [(row, self[row]) for row in sorted(rows)]

    @property
    def facts(self) -> Statistics:
        """What is true of the payloads; the range is that of their sizes."""
        sizes = [len(payload) for payload in self.payloads]
        return Statistics(
            len(sizes), min(sizes, default=None), max(sizes, default=None)
        )

    @property
    def geometries(self) -> list[Geometry]:
        """How boxes move with each image."""
        shapes = [AS_STORED] * len(self)
        for row, image in self.others.items():
            shapes[row] = image.prepared.geometry
        return shapes

    def derived(self, name: str) -> list[int | str]:
        """Returns the values of a feature that is derived from the images."""
        if name == "sha256":
            return [hashlib.sha256(payload).hexdigest() for payload in self.payloads]
        if name in PlainJpeg._fields:
            place = PlainJpeg._fields.index(name)
            return [
                derived_value(name, self.others[row]) if plain is None else plain[place]
                for row, plain in enumerate(self.plain)
            ]
        derive = _OF_FACTS[name]
        return [
            derive(self.others[row].facts if plain is None else _facts_of(plain))
            for row, plain in enumerate(self.plain)
        ]

    def fingerprints(self, *, readable_again: bool) -> list[int]:
        """Returns the fingerprints of the images' files; see `fingerprint_image`."""
        if not readable_again:
            return [
                fingerprint_image(image.data, readable_again=False) for image in self
            ]
        crcs = self.crcs.tolist()
        return [
            fingerprint_image(self.others[row].data, readable_again=True)
            if plain is None
            else fingerprint_of(crcs[row], len(self.payloads[row]))
            for row, plain in enumerate(self.plain)
        ]


def _facts_of(plain: PlainJpeg) -> ImageInfo:
    return ImageInfo("jpeg", plain.height, plain.width, plain.depth)
