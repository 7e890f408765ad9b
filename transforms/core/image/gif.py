"""GIF: screen size, number of frames, and a check for truncation.

The layout is CompuServe's GIF89a specification, little-endian:

     0  "GIF87a" or "GIF89a"
     6  screen width, 2 | screen height, 2 | flags, 1 | background, 1 | aspect, 1
    13  global palette, 3 x 2^(1 + flags & 7) bytes if flags & 80
        21 | label, 1 | sub-blocks                                   extension
        2C | left, 2 | top, 2 | width, 2 | height, 2 | flags, 1      image, then
           | local palette | LZW code size, 1 | sub-blocks
        3B                                                           trailer

Sub-blocks: (length, 1 | as many bytes) until a length of 0.
"""

import dataclasses
import struct

from transforms.errors import DamageError

__all__ = ["GifHeader", "read_header"]

_EXTENSION, _IMAGE, _TRAILER = 0x21, 0x2C, 0x3B
_IMAGE_FIELDS = struct.Struct("<HHHHB")


@dataclasses.dataclass(frozen=True, slots=True)
class GifHeader:
    """The size and the number of images.

    Attributes:
      height, width: pixels of the screen; more if the first image reaches beyond it.
      frames: images in the file.
    """

    height: int
    width: int
    frames: int


def read_header(data: bytes) -> GifHeader:
    """Walks over all blocks to the trailer without decompressing them.

    Raises:
      DamageError: names the fault and its byte.
    """
    if len(data) < 13:
        raise DamageError(f"GIF: truncated: {len(data)} bytes hold no header")
    width, height, flags = struct.unpack_from("<HHB", data, 6)
    at = 13 + _palette_bytes(flags)
    frames = 0
    try:
        while data[at] != _TRAILER:
            if data[at] == _EXTENSION:
                at = _skip_sub_blocks(data, at + 2)
            elif data[at] == _IMAGE:
                if at + 10 > len(data):
                    break
                left, top, columns, rows, flags = _IMAGE_FIELDS.unpack_from(
                    data, at + 1
                )
                if not frames:
                    if not rows or not columns:
                        raise DamageError(f"GIF: an image of no pixels at byte {at}")
                    width, height = max(width, left + columns), max(height, top + rows)
                frames += 1
                at = _skip_sub_blocks(data, at + 11 + _palette_bytes(flags))
            else:
                raise DamageError(f"GIF: unknown block {data[at]:02X} at byte {at}")
    except IndexError:
        raise DamageError(f"GIF: truncated: no trailer in {len(data)} bytes") from None
    if not frames:
        raise DamageError("GIF: there is no image in it")
    return GifHeader(height, width, frames)


def _palette_bytes(flags: int) -> int:
    return 3 << (1 + (flags & 7)) if flags & 0x80 else 0


def _skip_sub_blocks(data: bytes, at: int) -> int:
    while length := data[at]:
        at += 1 + length
    return at + 1
