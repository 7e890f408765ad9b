"""WebP: canvas size and number of frames.

The layout is RFC 9649, little-endian:

     0  "RIFF" | size of all that follows, 4 | "WEBP"
    12  name, 4 | size, 4 | payload, padded to an even size      chunks

    VP8X  flags, 1 | 0, 3 | canvas width - 1, 3 | canvas height - 1, 3
    VP8   frame tag, 3 | 9D 01 2A | width, 14 bits of 2 | height, 14 bits of 2
    VP8L  2F | width - 1, 14 bits | height - 1, 14 bits
    ANMF  x, 3 | y, 3 | width - 1, 3 | height - 1, 3 | ...       one frame
"""

import dataclasses
import struct

from transforms.errors import DamageError

__all__ = ["WebPHeader", "read_header"]

_CHUNK = struct.Struct("<4sI")
_ANIMATED = 0x02


@dataclasses.dataclass(frozen=True, slots=True)
class WebPHeader:
    """The size and the number of images.

    Attributes:
      height, width: pixels of the canvas.
      frames: of an animation; 1 for a still image.
    """

    height: int
    width: int
    frames: int


def read_header(data: bytes) -> WebPHeader:
    """Walks over the chunks without decoding them.

    Raises:
      DamageError: names the fault and its byte.
    """
    (size,) = struct.unpack_from("<I", data, 4) if len(data) >= 20 else (0,)
    if not 12 <= size <= len(data) - 8:
        raise DamageError(f"WebP: truncated: {size + 8} bytes are {len(data)}")
    found: tuple[int, int] | None = None
    animated = False
    frames = 0
    at, end = 12, 8 + size
    while at + 8 <= end:
        name, length = _CHUNK.unpack_from(data, at)
        start = at + 8
        if start + length > end:
            raise DamageError(f"WebP: chunk at byte {at} is cut short")
        if found is None:
            found = _read_size(data, name, start, length)
            animated = name == b"VP8X" and bool(data[start] & _ANIMATED)
        frames += name == b"ANMF"
        at = start + length + (length & 1)
    if found is None:
        raise DamageError("WebP: there is no image in it")
    return WebPHeader(*found, frames if animated else 1)


def _read_size(
    data: bytes, name: bytes, start: int, length: int
) -> tuple[int, int] | None:
    """Returns height and width if the chunk states them, else None."""
    if name == b"VP8X" and length >= 10:
        width = int.from_bytes(data[start + 4 : start + 7], "little") + 1
        height = int.from_bytes(data[start + 7 : start + 10], "little") + 1
        return height, width
    if name == b"VP8 " and length >= 10 and data[start + 3 : start + 6] == b"\x9d\x01*":
        width, height = struct.unpack_from("<HH", data, start + 6)
        return height & 0x3FFF, width & 0x3FFF
    if name == b"VP8L" and length >= 5 and data[start] == 0x2F:
        (bits,) = struct.unpack_from("<I", data, start + 1)
        return (bits >> 14 & 0x3FFF) + 1, (bits & 0x3FFF) + 1
    return None
