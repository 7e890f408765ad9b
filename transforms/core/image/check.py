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
import struct
from typing import cast

from PIL import BmpImagePlugin, Image

from transforms.core.image.formats import (
    ImageInfo,
    check_pixels,
    damaged,
    decoding,
    fault_of_unknown,
    unsupported,
)
from transforms.core.image.jpeg import decode_jpeg, read_jpeg
from transforms.core.image.png import SIGNATURE, decode_png, read_png
from transforms.core.image.resize import MAX_PIXELS, Check
from transforms.core.reasons import Fault, FaultError

TENSORFLOW_MAX_PIXELS = 2**27 - 1
"""TensorFlow refuses 2**29 samples and more: with four channels, 2**27 pixels."""

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


def check_image(
    data: bytes, check: Check = "structure", max_pixels: int = MAX_PIXELS
) -> ImageInfo | Fault:
    """Determines whether TensorFlow reads these bytes, and in which shape.

    Args:
      data: the whole encoded file.
      check: "structure" walks over the file to its end, and decodes progressive
        JPEGs; "decode" decodes every file; "none" reads only the dimensions.
      max_pixels: limit of height times width, checked before anything is decoded.

    Returns:
      The image, or the fault. Bad input is a value, never an exception.
    """
    limit = min(max_pixels, TENSORFLOW_MAX_PIXELS)
    try:
        if data.startswith(b"\xff\xd8\xff"):
            return read_jpeg(data, check, limit)
        if data.startswith(SIGNATURE):
            return read_png(data, check, limit)
        if data.startswith(b"BM"):
            return _read_bmp(data, check, limit)
    except FaultError as error:
        return error.fault
    return fault_of_unknown(data)


def decode_native(
    data: bytes,
    name: str,
    *,
    gray: bool = False,
    at_least: tuple[int, int] | None = None,
) -> Image.Image:
    """Decodes a file of one of the three formats that TensorFlow reads.

    Args:
      data: a file that `check_image` has accepted.
      name: "jpeg", "png" or "bmp".
      gray, at_least: of a JPEG; see `decode_jpeg`.

    Raises:
      FaultError: Pillow cannot decode it.
    """
    if name == "jpeg":
        return decode_jpeg(data, gray=gray, at_least=at_least)
    if name == "png":
        return decode_png(data)
    with decoding("BMP"):
        image = BmpImagePlugin.BmpImageFile(io.BytesIO(data))
        image.load()
    return image


def _read_bmp(data: bytes, check: Check, limit: int) -> ImageInfo:
    """Opens a BMP with Pillow, and loads it unless `check` is "none".

    TensorFlow reads uncompressed pixels of 8, 24 and 32 bits, and requires the file to
    end with the last of them (`decode_image_op.cc`). Eight bits are one channel: it
    ignores the palette.
    """
    if len(data) < _BMP_FIELDS.size:
        raise damaged(f"BMP: truncated: {len(data)} bytes hold no header")
    with decoding("BMP"):
        image = BmpImagePlugin.BmpImageFile(io.BytesIO(data))
        offset, header_bytes, bits = _BMP_FIELDS.unpack_from(data)
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
        raise unsupported(f"BMP of {bits} bits a pixel of this kind")
    height, width = image.height, image.width
    check_pixels(height, width, limit)
    if check != "none":
        expected = start + height * row_bytes
        if not height * width or start != offset or expected != len(data):
            raise damaged(
                f"BMP: {width} x {height} pixels from byte {offset} on need "
                f"{expected} bytes, the file has {len(data)}"
            )
        with decoding("BMP"):
            image.load()
    info = ImageInfo("bmp", height, width, depth, has_palette=layout == "P")
    return info.noting()
