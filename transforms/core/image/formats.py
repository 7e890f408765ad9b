"""The formats of images: one table, and the facts and notes about one image.

A format is recognised by the first bytes of a file, never by its name. TensorFlow reads
JPEG, PNG and BMP. Pillow decodes the others that have a decoder here, and the rest are
only named. The list is closed: no file can choose a format whose decoder starts another
program, as that of EPS does with Ghostscript.
"""

import enum
import itertools
import os
import re
from typing import NamedTuple

from transforms.core.reasons import Fault, FaultError, Reason

MAX_SIDES = {"jpeg": 65_500, "png": 1_000_000}
"""Pixels of a side: libjpeg's JPEG_MAX_DIMENSION, below the 65,535 that the two bytes
could hold; libpng's PNG_USER_WIDTH_MAX and PNG_USER_HEIGHT_MAX."""
_THIN = 1000
"""An image whose sides differ by this factor is most likely not a picture."""


class ImageNote(enum.StrEnum):
    """A property of an accepted image of any format. The list is closed.

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


class ImageInfo(NamedTuple):
    """The format, size and channels of an image that can be read.

    Attributes:
      format: detected from its bytes, as `Format.name` has it.
      height, width: pixels as stored. An orientation is not applied: TensorFlow
        ignores it.
      depth: channels, as `tf.io.decode_image` gives them by default; 0 where it does
        not read the format.
      orientation: of EXIF or XMP, 1 (upright) to 8. HEIC is turned by its decoder:
        always 1.
      bits: of a sample, 1 to 16. TensorFlow decodes every image to 8.
      notes: those of a source, in the order of `ImageNote`.
    """

    format: str
    height: int
    width: int
    depth: int
    orientation: int = 1
    bits: int = 8
    notes: tuple[ImageNote, ...] = ()

    def noting(
        self, *, cmyk: bool = False, several: bool = False, trailing: bool = False
    ) -> "ImageInfo":
        """Returns the image with the notes of a source with these properties."""
        height, width = self.height, self.width
        is_thin = height >= _THIN * width or width >= _THIN * height
        odd = is_thin or cmyk or several or trailing
        if not odd and self.orientation == 1 and self.bits <= 8:
            return self  # as nearly all images
        # In the order of `ImageNote`.
        holds = (self.orientation > 1, cmyk, self.bits > 8, several, trailing, is_thin)
        return self._replace(notes=tuple(itertools.compress(ImageNote, holds)))


class ImageFormat(NamedTuple):
    """A format of images, or of damaged ones that are only named.

    Attributes:
      title: in messages.
      signature: a pattern of the first bytes of its files.
      name: in facts and notes; empty where no image of the format is accepted.
      suffixes: of its files.
      decoder: Pillow's plugin that reads it where TensorFlow does not.
    """

    title: str
    signature: bytes
    name: str = ""
    suffixes: tuple[str, ...] = ()
    decoder: str = ""


_HEIF = rb"....ftyp(?:hei[cxms]|hev[cxms]|mif1|msf1)"
_JPEG_2000 = rb"\x00\x00\x00\x0cjP  \r\n\x87\n|\xff\x4f\xff\x51"

FORMATS = (
    ImageFormat("JPEG", rb"\xff\xd8\xff", "jpeg", (".jpg", ".jpeg", ".jpe", ".jfif")),
    ImageFormat("PNG", rb"\x89PNG\r\n\x1a\n", "png", (".png", ".apng")),
    # Its decoder is for the kinds that TensorFlow reads wrongly or not at all.
    ImageFormat("BMP", rb"BM", "bmp", (".bmp", ".dib"), "Bmp"),
    ImageFormat("GIF", rb"GIF8[79]a", "gif", (".gif",), "Gif"),
    ImageFormat("GIF", rb"GIF8"),  # its last letters are damaged, as those below
    ImageFormat("WebP", rb"RIFF....WEBP", "webp", (".webp",), "WebP"),
    ImageFormat("TIFF", rb"II[*+]\x00|MM\x00[*+]", "tiff", (".tif", ".tiff"), "Tiff"),
    ImageFormat("AVIF", rb"....ftypavi[fs]", "avif", (".avif",), "Avif"),
    ImageFormat("AVIF", rb"....ftypavi"),
    ImageFormat("HEIC", _HEIF, "heic", (".heic", ".heif"), "Heif"),
    ImageFormat("HEIC", rb"....ftyp(?:hei|hev)"),
    ImageFormat(
        "JPEG 2000", _JPEG_2000, "jpeg2000", (".jp2", ".j2k", ".jpx"), "Jpeg2K"
    ),
    ImageFormat("JPEG 2000", rb"\x00\x00\x00\x0cjP  "),
    ImageFormat("PPM", rb"P[1-6][\s#]", "pnm", (".pbm", ".pgm", ".ppm", ".pnm"), "Ppm"),
    ImageFormat("PAM", rb"P7[\s#]"),
    ImageFormat("JPEG XL", rb"\x00\x00\x00\x0cJXL |\xff\x0a"),
    ImageFormat("JPEG XR", rb"II\xbc"),
    ImageFormat("PSD", rb"8BPS"),
    ImageFormat("EPS", rb"%!PS|\xc5\xd0\xd3\xc6"),
    # The number of images must not be zero: in a TGA, these two bytes are.
    ImageFormat("ICO", rb"\x00\x00[\x01\x02]\x00[^\x00]\x00"),
    # TGA has no signature: match its kind, with or without a palette, and its depth.
    ImageFormat(
        "TGA",
        rb".(?:\x00[\x02\x03\x0a\x0b].{5}|\x01[\x01\x09].{4}[\x0f\x10\x18\x20])"
        rb".{8}[\x08\x0f\x10\x18\x20][\x00-\x3f]",
    ),
    ImageFormat("DDS", rb"DDS "),
    ImageFormat("OpenEXR", rb"\x76\x2f\x31\x01"),
    ImageFormat("Radiance HDR", rb"#\?R"),
    ImageFormat("QOI", rb"qoif"),
    ImageFormat("XCF", rb"gimp xcf"),
)
_signature = re.compile(
    b"|".join(b"(%s)" % each.signature for each in FORMATS), re.DOTALL
).match
_SUFFIXES = {each.name: each.suffixes for each in FORMATS if each.name}
_FORMAT_OF = {suffix: name for name in _SUFFIXES for suffix in _SUFFIXES[name]}


def find_format(data: bytes) -> ImageFormat | None:
    """Returns the format whose signature the bytes have; None for none."""
    match = _signature(data)
    return FORMATS[match.lastindex - 1] if match and match.lastindex else None


def find_foreign(data: bytes, refused: Fault) -> ImageFormat | None:
    """Returns the format of an image that Pillow decodes and TensorFlow does not.

    Args:
      data: the file.
      refused: why TensorFlow does not read it.
    """
    format = find_format(data)
    is_decodable = format is not None and format.decoder
    of_kind = refused.reason is Reason.UNSUPPORTED_FORMAT
    return format if of_kind and is_decodable else None


def name_format(data: bytes) -> str:
    """Returns the name of the format of an image; empty for no accepted one."""
    image_format = find_format(data)
    return image_format.name if image_format else ""


def is_image_start(head: bytes, size: int) -> bool:
    """Whether bytes are the first ones of an image file of this size.

    Many texts start with BMP's two letters, so the size after them must be right, too.
    PPM has nothing else to tell it from a text.
    """
    name = name_format(head)
    if name == "bmp":
        return int.from_bytes(head[2:6], "little") in (0, size)
    return name not in ("", "pnm")


def contradicts_suffix(name: str, format: str) -> bool:
    """Whether a file's suffix is that of another format (`ImageNote.SUFFIX`).

    Unknown or missing suffixes contradict no format.
    """
    if name.endswith(_SUFFIXES[format]):
        return False  # the fast path, for nearly all names
    return _FORMAT_OF.get(os.path.splitext(name)[1].lower(), format) != format


def damaged(message: str) -> FaultError:
    """Returns the error of an image that cannot be decoded."""
    return FaultError(Reason.DAMAGED_IMAGE, message)


def unsupported(kind: str) -> FaultError:
    """Returns the error of an intact image that TensorFlow does not read."""
    return FaultError(
        Reason.UNSUPPORTED_FORMAT,
        f"{kind}: TensorFlow does not read this kind as one image; "
        "convert it to baseline JPEG or PNG",
    )


def check_pixels(height: int, width: int, limit: int, *, how: str = "") -> None:
    """Refuses an image of more pixels than the limit; the words begin with `how`."""
    if height * width > limit:
        message = f"{how}{width} x {height} pixels are more than {limit:,}"
        raise FaultError(Reason.TOO_MANY_PIXELS, message)


def fault_of_unknown(data: bytes) -> Fault:
    """Returns the fault of a file that TensorFlow does not read, by its first bytes."""
    if not data:
        return Fault(Reason.EMPTY_FILE, "the file is empty")
    if image_format := find_format(data):
        return unsupported(image_format.title).fault
    for name, start in (("JPEG", b"\xff\xd8"), ("PNG", b"\x89PNG")):
        if data.startswith(start):
            return damaged(f"{name}: the signature at byte 0 is damaged").fault
    start = data[:1024].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if start.startswith(b"<") and b"<svg" in start:
        return unsupported("SVG").fault
    if start.startswith((b"<!doctype html", b"<html", b"<head", b"<body")):
        what = "an HTML page"
    else:
        what = f"starts with {data[:8].hex(' ')}"
    return Fault(
        Reason.NOT_AN_IMAGE, f"not an image ({what}); JPEG, PNG or BMP is expected"
    )
