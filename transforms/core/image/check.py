"""Encoded images: detect format and size, and check that TensorFlow decodes them.

    bytes -> format by signature -> dimensions -> pixel limit -> walk -> ImageInfo
                                                                 (-> Pillow)

The oracle is `tf.io.decode_image` of TensorFlow 2.21. The walks read structure, not
pixels: segments, lengths and checksums to the end of the file. That takes some ten
microseconds and finds every file that is cut short. What they accept and Pillow
decodes, TensorFlow decodes. Progressive JPEGs are always decoded, because their sums of
coefficients can overflow.
"""

import io
import re
import struct
from typing import Literal, NamedTuple, cast

from PIL import BmpImagePlugin, ImageFile, JpegImagePlugin, PngImagePlugin

from transforms.core.image import jpeg, png
from transforms.core.image.exif import read_orientation
from transforms.core.image.resize import MAX_PIXELS, Check
from transforms.core.reasons import Fault, Reason
from transforms.errors import DamageError

TENSORFLOW_MAX_PIXELS = 2**27 - 1
"""TensorFlow refuses 2**29 samples and more: with four channels, 2**27 pixels."""


class ImageInfo(NamedTuple):
    """An image that can be read.

    Attributes:
      format: detected from its bytes, not from its name.
      height: rows as stored. EXIF orientation is not applied: TensorFlow ignores it.
      width: columns as stored.
      depth: channels, as `tf.io.decode_image` gives them by default.
    """

    format: Literal["jpeg", "png", "bmp"]
    height: int
    width: int
    depth: int


class ImageFacts(NamedTuple):
    """The facts about a readable image that a policy decides by.

    Attributes:
      info: as TensorFlow decodes it.
      orientation: of EXIF or XMP, 1 (upright) to 8.
      bits: of a sample, 1 to 16. TensorFlow decodes every image to 8.
      components: samples a pixel in the file: 4 for CMYK, 1 for palettes.
      frames: above 1 for an animated PNG, of which TensorFlow returns the first image.
      end: where the image ends in the file; decoders ignore the bytes after it.
      has_palette: an 8-bit BMP whose colors TensorFlow would not look up.
    """

    info: ImageInfo
    orientation: int
    bits: int
    components: int
    frames: int
    end: int
    has_palette: bool = False


def check_image(
    data: bytes, check: Check = "structure", max_pixels: int = MAX_PIXELS
) -> ImageFacts | Fault:
    """Determines whether TensorFlow reads these bytes, and in which shape.

    Args:
      data: the whole encoded file.
      check: "structure" walks over the file to its end, and decodes progressive
        JPEGs; "decode" decodes every file; "none" reads only the dimensions.
      max_pixels: limit of height times width, checked before anything is decoded.

    Returns:
      The image's facts, or the fault. Bad input is a value, never an exception.
    """
    try:
        if data.startswith(b"\xff\xd8\xff"):
            return _check_jpeg(data, check, max_pixels)
        if data.startswith(png.SIGNATURE):
            return _check_png(data, check, max_pixels)
        if data.startswith(b"BM"):
            return _check_bmp(data, check, max_pixels)
    except DamageError as error:
        return Fault(Reason.DAMAGED_IMAGE, str(error))
    return _name_foreign(data)


def _check_jpeg(data: bytes, check: Check, max_pixels: int) -> ImageFacts | Fault:
    header = jpeg.read_header(data)
    fault = _refuse(header, max_pixels)
    if fault is not None:
        return fault
    end = len(data)
    if check != "none":
        end = jpeg.walk(data, header)
        # In progressive scans a sum of differences may overflow (JERR_BAD_DCT_COEF).
        if check == "decode" or header.progressive:
            _decode(JpegImagePlugin.JpegImageFile, jpeg.pixels_only(data))
    return ImageFacts(
        ImageInfo("jpeg", header.height, header.width, header.depth),
        _orientation(data, header),
        8,
        header.components,
        1,
        end,
    )


def _orientation(data: bytes, header: jpeg.JpegHeader) -> int:
    if not (header.exif.stop or header.xmp.stop):
        return 1
    view = memoryview(data)
    return read_orientation(view[header.exif], view[header.xmp])


def _check_png(data: bytes, check: Check, max_pixels: int) -> ImageFacts | Fault:
    header = png.read_header(data)
    fault = _refuse(header, max_pixels)
    if fault is not None:
        return fault
    if check != "none":
        png.walk(data, header)
        if check == "decode":
            png.check_rows(data, header)
            _decode(PngImagePlugin.PngImageFile, png.pixels_only(data))
    extras = png.read_extras(data)
    return ImageFacts(
        ImageInfo("png", header.height, header.width, header.depth),
        png.read_orientation(data, extras),
        header.bit_depth,
        header.bits // header.bit_depth,
        extras.frames,
        extras.end,
    )


def _check_bmp(data: bytes, check: Check, max_pixels: int) -> ImageFacts | Fault:
    """Opens a BMP with Pillow, and loads it unless `check` is "none".

    TensorFlow reads uncompressed pixels of 8, 24 and 32 bits, and requires the file to
    end with the last of them (`decode_image_op.cc`). Eight bits are one channel: it
    ignores the palette.
    """
    if len(data) < _BMP_FIELDS.size:
        raise DamageError(f"BMP: truncated: {len(data)} bytes hold no header")
    try:
        image = BmpImagePlugin.BmpImageFile(io.BytesIO(data))
        offset, header_bytes, bits = _BMP_FIELDS.unpack_from(data)
    except PILLOW_ERRORS as error:
        if str(error).startswith(_RARE_BMP):
            return _unsupported(str(error).removeprefix("Unsupported "))
        raise DamageError(f"BMP: Pillow cannot open it: {error}") from error
    codec, _, start, arguments = image.tile[0]
    layout: str = ""
    row_bytes: int = 0
    if codec == "raw":
        layout, row_bytes, _ = cast(tuple[str, int, int], arguments)
    depth = _BMP_DEPTHS.get((bits, layout), 0)
    has_masks = image.info["compression"] != 0
    if (
        not depth
        or header_bytes < _WINDOWS_HEADER_BYTES
        or (has_masks and data[54:66] != _BGRA_MASKS)
    ):
        return _unsupported(f"BMP of {bits} bits a pixel of this kind")
    info = ImageInfo("bmp", image.height, image.width, depth)
    fault = _refuse_pixels(info.height, info.width, max_pixels)
    if fault is not None:
        return fault
    if check != "none":
        expected = start + info.height * row_bytes
        if not info.height * info.width or start != offset or expected != len(data):
            raise DamageError(
                f"BMP: {info.width} x {info.height} pixels from byte {offset} on need "
                f"{expected} bytes, the file has {len(data)}"
            )
        _load(image)
    return ImageFacts(info, 1, 8, depth, 1, len(data), has_palette=layout == "P")


_BMP_FIELDS = struct.Struct("<10xII10xH")
"""Offset of the pixels, size of the second header, bits a pixel."""

_BMP_DEPTHS = {
    (8, "L"): 1,
    (8, "P"): 1,
    (24, "BGR"): 3,
    (32, "BGRX"): 4,
    (32, "BGRA"): 4,
}
"""Bits a pixel and their layout in Pillow -> channels as TensorFlow decodes them."""

_BGRA_MASKS = struct.pack("<III", 0xFF0000, 0xFF00, 0xFF)
_WINDOWS_HEADER_BYTES = 40
"""A shorter header is one of OS/2."""

_RARE_BMP = (
    "Unsupported BMP pixel depth",
    "Unsupported BMP bitfields layout",
    "Unsupported BMP compression",
)


def _refuse(header: jpeg.JpegHeader | png.PngHeader, max_pixels: int) -> Fault | None:
    """Returns a fault for too many pixels and for kinds that TensorFlow cannot read."""
    if header.unsupported:
        return _unsupported(header.unsupported)
    return _refuse_pixels(header.height, header.width, max_pixels)


def _refuse_pixels(height: int, width: int, max_pixels: int) -> Fault | None:
    limit = min(max_pixels, TENSORFLOW_MAX_PIXELS)
    if height * width <= limit:
        return None
    return Fault(
        Reason.TOO_MANY_PIXELS,
        f"{width} x {height} pixels are more than {limit:,}",
    )


PILLOW_ERRORS = (
    OSError,  # the stream is broken or ends early
    SyntaxError,  # raised by plugins for a header that they do not understand
    ValueError,  # sizes and modes that contradict each other
    struct.error,  # a header ends within a number
)


def _decode(
    plugin: type[JpegImagePlugin.JpegImageFile | PngImagePlugin.PngImageFile],
    data: bytes,
) -> None:
    """Decodes all pixels with one plugin of Pillow, and discards them.

    The plugin's class is called directly: `Image.open` would try other formats, and
    warn about many pixels by its own limit.

    Raises:
      DamageError: Pillow cannot decode it.
    """
    try:
        image = plugin(io.BytesIO(data))
    except PILLOW_ERRORS as error:
        raise DamageError(f"Pillow cannot decode it: {error}") from error
    _load(image)


def _load(image: ImageFile.ImageFile) -> None:
    try:
        with image:
            image.load()
    except PILLOW_ERRORS as error:
        raise DamageError(f"Pillow cannot decode it: {error}") from error


_FOREIGN = (
    ("GIF", rb"GIF8"),
    ("WebP", rb"RIFF....WEBP"),
    ("TIFF", rb"II[*+]\x00|MM\x00[*+]"),
    ("AVIF", rb"....ftypavi"),
    ("HEIC", rb"....ftyp(?:hei|hev|mif1|msf1)"),
    ("JPEG 2000", rb"\x00\x00\x00\x0cjP  |\xff\x4f\xff\x51"),
    ("JPEG XL", rb"\x00\x00\x00\x0cJXL |\xff\x0a"),
    ("JPEG XR", rb"II\xbc"),
    ("PPM", rb"P[1-7][\s#]"),
    ("PSD", rb"8BPS"),
    ("EPS", rb"%!PS|\xc5\xd0\xd3\xc6"),
    # The number of images must not be zero: in a TGA, these two bytes are.
    ("ICO", rb"\x00\x00[\x01\x02]\x00[^\x00]\x00"),
    # TGA has no signature: match its kind, with or without a palette, and its depth.
    (
        "TGA",
        rb".(?:\x00[\x02\x03\x0a\x0b].{5}|\x01[\x01\x09].{4}[\x0f\x10\x18\x20])"
        rb".{8}[\x08\x0f\x10\x18\x20][\x00-\x3f]",
    ),
    ("DDS", rb"DDS "),
    ("OpenEXR", rb"\x76\x2f\x31\x01"),
    ("Radiance HDR", rb"#\?R"),
    ("QOI", rb"qoif"),
    ("XCF", rb"gimp xcf"),
)
_foreign_format = re.compile(
    b"|".join(b"(%s)" % pattern for _, pattern in _FOREIGN), re.DOTALL
).match


def _name_foreign(data: bytes) -> Fault:
    """Returns the fault of a file that starts like none of the three formats."""
    if not data:
        return Fault(Reason.EMPTY_FILE, "the file is empty")
    found = _foreign_format(data)
    if found is not None and found.lastindex is not None:
        return _unsupported(_FOREIGN[found.lastindex - 1][0])
    for name, start in (("JPEG", b"\xff\xd8"), ("PNG", b"\x89PNG")):
        if data.startswith(start):
            return Fault(
                Reason.DAMAGED_IMAGE, f"{name}: the signature at byte 0 is damaged"
            )
    start = data[:1024].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if start.startswith(b"<") and b"<svg" in start:
        return _unsupported("SVG")
    if start.startswith((b"<!doctype html", b"<html", b"<head", b"<body")):
        what = "an HTML page"
    else:
        what = f"starts with {data[:8].hex(' ')}"
    return Fault(
        Reason.NOT_AN_IMAGE, f"not an image ({what}); JPEG, PNG or BMP is expected"
    )


def _unsupported(kind: str) -> Fault:
    """Returns the fault of an intact image that TensorFlow does not read."""
    return Fault(
        Reason.UNSUPPORTED_FORMAT,
        f"{kind}: TensorFlow does not read this kind as one image; "
        "convert it to baseline JPEG or PNG",
    )
