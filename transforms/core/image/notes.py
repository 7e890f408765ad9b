"""Notes: properties of accepted images that the manifest counts."""

import enum
import os
from typing import NamedTuple

from transforms.core.image.check import ImageFacts

_THIN = 1000
"""An image whose sides differ by this factor is most likely not a picture."""


class ImageNote(enum.StrEnum):
    """A property of an accepted image. The list is closed.

    Of the source: `ORIENTATION` (EXIF or XMP asks for a turn), `CMYK`, `SIXTEEN_BIT`
    (more than 8 bits a sample: TensorFlow decodes to 8), `SEVERAL_FRAMES` (only the
    first is used), `TRAILING_BYTES` (behind the end of the image), `THIN` (one side a
    thousand times the other), `SUFFIX` (the name's suffix is that of another format;
    see `contradicts_suffix`, as the functions here get no names).

    Of the changes: `REENCODED` (TensorFlow does not read the source's format),
    `FLATTENED` (transparency laid on white), `LOST_PRECISION` (the result has 8 bits
    where the source had more), `SMALLER_THAN_ASKED` (a resize that may not enlarge).
    """

    ORIENTATION = "orientation"
    CMYK = "cmyk"
    SIXTEEN_BIT = "sixteen_bit"
    SEVERAL_FRAMES = "several_frames"
    TRAILING_BYTES = "trailing_bytes"
    THIN = "thin"
    SUFFIX = "suffix"
    REENCODED = "reencoded"
    FLATTENED = "flattened"
    LOST_PRECISION = "lost_precision"
    SMALLER_THAN_ASKED = "smaller_than_asked"


class SourceImage(NamedTuple):
    """The source image, before any change.

    Attributes:
      format: detected from its bytes: jpeg, png, bmp, gif, webp, tiff, jpeg2000, pnm,
        avif, heic.
      height, width: pixels as stored.
      orientation: of EXIF or XMP, 1 (upright) to 8. HEIC is turned by its decoder:
        always 1.
      bits: of a sample.
    """

    format: str
    height: int
    width: int
    orientation: int
    bits: int


def notes_of(facts: ImageFacts, size: int) -> tuple[ImageNote, ...]:
    """Returns the notes of a JPEG, PNG or BMP.

    The test for none comes first: it is true of nearly all images.
    """
    info = facts.info
    if (
        facts.orientation == 1
        and facts.bits <= 8
        and facts.end == size
        and facts.frames == 1
        and (facts.components != 4 or info.format != "jpeg")
        and not is_thin(info.height, info.width)
    ):
        return ()
    source = SourceImage(
        info.format, info.height, info.width, facts.orientation, facts.bits
    )
    return source_notes(
        source,
        several=facts.frames > 1,
        cmyk=info.format == "jpeg" and facts.components == 4,
        trailing=facts.end < size,
    )


def is_thin(height: int, width: int) -> bool:
    """Whether one side is at least a thousand times the other."""
    return height >= _THIN * width or width >= _THIN * height


def source_notes(
    source: SourceImage, *, several: bool, cmyk: bool = False, trailing: bool = False
) -> tuple[ImageNote, ...]:
    """Returns the notes of a source image with these properties."""
    found = {
        ImageNote.ORIENTATION: source.orientation > 1,
        ImageNote.CMYK: cmyk,
        ImageNote.SIXTEEN_BIT: source.bits > 8,
        ImageNote.SEVERAL_FRAMES: several,
        ImageNote.TRAILING_BYTES: trailing,
        ImageNote.THIN: is_thin(source.height, source.width),
    }
    return tuple(note for note, holds in found.items() if holds)


_SUFFIXES = {
    ".jpg": "jpeg",
    ".jpeg": "jpeg",
    ".jpe": "jpeg",
    ".jfif": "jpeg",
    ".png": "png",
    ".apng": "png",
    ".bmp": "bmp",
    ".dib": "bmp",
    ".gif": "gif",
    ".webp": "webp",
    ".tif": "tiff",
    ".tiff": "tiff",
    ".jp2": "jpeg2000",
    ".j2k": "jpeg2000",
    ".jpx": "jpeg2000",
    ".pbm": "pnm",
    ".pgm": "pnm",
    ".ppm": "pnm",
    ".pnm": "pnm",
    ".avif": "avif",
    ".heic": "heic",
    ".heif": "heic",
}


_SUFFIXES_OF = {
    format: tuple(suffix for suffix, said in _SUFFIXES.items() if said == format)
    for format in _SUFFIXES.values()
}


def contradicts_suffix(name: str, format: str) -> bool:
    """Whether a file's suffix is that of another format (`ImageNote.SUFFIX`).

    Unknown or missing suffixes contradict no format.
    """
    if name.endswith(_SUFFIXES_OF[format]):
        return False  # the fast path, for nearly all names
    said = _SUFFIXES.get(os.path.splitext(name)[1].lower(), format)
    return said != format
