"""BMP: parse the header, and check that the pixels end where the file ends.

The layout is Microsoft's BITMAPFILEHEADER and BITMAPINFOHEADER, little-endian:

     0  "BM"
     2  file size, 4 (often wrong; no decoder reads it)
    10  offset of the pixels, 4
    14  size of the header from here on, 4
    18  width, 4 | height, 4, negative when the first row is at the top
    26  planes, 2 | bits a pixel, 2 | compression, 4

TensorFlow reads uncompressed pixels of 8, 24 and 32 bits, in rows padded to four
bytes, and requires the file to end with the last of them (`decode_image_op.cc`). Eight
bits are one channel: it ignores the palette.
"""

import struct
from typing import NamedTuple

from transforms.errors import DamageError

__all__ = ["BmpHeader", "has_colors", "read_header", "walk"]

_HEADER = struct.Struct("<2xIIIIiiHHI")
_RGB, _BIT_FIELDS = 0, 3
_OS2_HEADER_BYTES = (12, 16)
_HEADER_BYTES = (40, 52, 56, 64, 108, 124)
_BGRA_MASKS = struct.pack("<III", 0xFF0000, 0xFF00, 0xFF)
_GRAYS = bytes(range(256))


class BmpHeader(NamedTuple):
    """The fields of both headers.

    Attributes:
      height: rows, 1 or more.
      width: columns, 1 or more.
      depth: channels as TensorFlow decodes them: 1, 3 or 4.
      pixel_offset: where the pixels start in the file.
      unsupported: name of the kind of BMP, if TensorFlow cannot read it.
    """

    height: int
    width: int
    depth: int
    pixel_offset: int
    unsupported: str


def read_header(data: bytes) -> BmpHeader:
    """Reads both headers.

    Raises:
      DamageError: they are cut short or make no sense.
    """
    if len(data) < _HEADER.size:
        raise DamageError(f"BMP: truncated: {len(data)} bytes hold no header")
    _, _, offset, header_bytes, width, height, planes, bits, compression = (
        _HEADER.unpack_from(data)
    )
    if header_bytes in _OS2_HEADER_BYTES:
        return BmpHeader(1, 1, 1, offset, "BMP of OS/2")
    if header_bytes not in _HEADER_BYTES:
        raise DamageError(f"BMP: header of {header_bytes} bytes at byte 14")
    if width <= 0 or height == 0:
        raise DamageError(f"BMP: {width} x {height} pixels at byte 18")
    if planes != 1:
        raise DamageError(f"BMP: {planes} planes at byte 26")
    unsupported = ""
    if bits not in (8, 24, 32):
        unsupported = f"BMP of {bits} bits a pixel"
    elif compression == _BIT_FIELDS and bits == 32:
        if data[54:66] != _BGRA_MASKS:
            unsupported = "BMP with an unusual order of channels"
    elif compression != _RGB:
        unsupported = f"compressed BMP (kind {compression})"
    return BmpHeader(abs(height), width, bits // 8, offset, unsupported)


def walk(data: bytes, header: BmpHeader) -> None:
    """Checks that the pixels end where the file ends.

    Args:
      data: the file.
      header: of the same file.

    Raises:
      DamageError: the file has another size.
    """
    row_bytes = (header.width * header.depth + 3) // 4 * 4
    expected = header.pixel_offset + header.height * row_bytes
    if header.pixel_offset < 54 or expected != len(data):
        raise DamageError(
            f"BMP: {header.width} x {header.height} pixels from byte "
            f"{header.pixel_offset} on need {expected} bytes, the file has {len(data)}"
        )


def has_colors(data: bytes, header: BmpHeader) -> bool:
    """Whether an 8-bit file has a palette that is not the ramp of 256 grays.

    TensorFlow would return the indices into the palette as grays.

    Args:
      data: a file that `walk` has accepted.
      header: of the same file.
    """
    if header.depth != 1:
        return False
    (header_bytes,) = struct.unpack_from("<I", data, 14)
    palette = data[14 + header_bytes : header.pixel_offset]
    return any(palette[i::4] != _GRAYS[: len(palette[i::4])] for i in range(3))
