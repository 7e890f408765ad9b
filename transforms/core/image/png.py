"""PNG: the header, and a walk over every chunk and its checksum.

The layout is the W3C's PNG specification (third edition), section 5. Errors are those
of libpng, TensorFlow's decoder:

    89 50 4E 47 0D 0A 1A 0A                         signature
    length, 4 bytes | type, 4 | payload | CRC, 4    IHDR, then others, then IEND
    IHDR: width, 4 | height, 4 | bit depth, 1 | color type, 1 | compression, 1
          | filter, 1 | interlace, 1

Numbers are big-endian; the CRC is zlib's CRC-32 over type and payload. A type that
begins with a lower-case letter marks a chunk that a reader may ignore. Bytes after
IEND are ignored.
"""

import io
import re
import struct
import zlib
from collections.abc import Iterator

from PIL import Image, PngImagePlugin

from transforms.core.image.formats import (
    ImageInfo,
    check_pixels,
    damaged,
)
from transforms.core.image.pixels import decoding
from transforms.core.image.resize import Check, read_orientation

SIGNATURE = b"\x89PNG\r\n\x1a\n"

_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
_BIT_DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
_PALETTE = 3

_MAX_SIDE = 1_000_000
"""libpng's PNG_USER_WIDTH_MAX and PNG_USER_HEIGHT_MAX."""

_ONE_PASS = ((0, 0, 1, 1),)
_ADAM7 = (
    (0, 0, 8, 8),
    (0, 4, 8, 8),
    (4, 0, 8, 4),
    (0, 2, 4, 4),
    (2, 0, 4, 2),
    (0, 1, 2, 2),
    (1, 0, 2, 1),
)
"""First row, first column, step down, step right of each pass."""

_CHUNK_HEADER = struct.Struct(">I4s")
_UINT32 = struct.Struct(">I")
_IHDR = struct.Struct(">IIBBBBB")
# The chunks of a file; `skip` for those that readers may skip.
_OTHER = b"skip"
_in_order = re.compile(
    rb"IHDR(?:skip)*+(PLTE(?:skip)*+)?(?:IDAT)++(?:skip)*+IEND"
).fullmatch
_LOWER_CASE = 0x61
"""A type that begins with a lower-case letter is of a chunk that readers may skip."""

# The type of a chunk, and where its payload starts and stops.
_Chunk = tuple[bytes, int, int]


def read_png(data: bytes, check: Check, limit: int) -> ImageInfo:
    """Reads the dimensions, and walks over the chunks to the end of the image.

    The walk is stricter than libpng, which drops ancillary chunks with a wrong
    checksum.

    Args:
      data: the file, which begins with the signature.
      check: see `check_image`.
      limit: of pixels; checked before anything behind IHDR.

    Raises:
      FaultError: names the fault and its byte.
    """
    if len(data) < 33 or data[8:16] != b"\x00\x00\x00\rIHDR":
        raise damaged("PNG: truncated or without an IHDR chunk at byte 8")
    width, height, bits, color_type, compression, filtering, interlace = (
        _IHDR.unpack_from(data, 16)
    )
    if not (0 < width <= _MAX_SIDE and 0 < height <= _MAX_SIDE):
        raise damaged(f"PNG: {width} x {height} pixels at byte 16")
    if bits not in _BIT_DEPTHS.get(color_type, ()):
        raise damaged(f"PNG: color type {color_type} of {bits} bits at byte 24")
    if compression or filtering or interlace > 1:
        raise damaged("PNG: unknown compression, filter or interlace at byte 26")
    check_pixels(height, width, limit)
    has_palette = color_type == _PALETTE
    is_strict = check != "none"
    several = has_data = False
    end, entries, exif = len(data), 0, b""
    kinds: list[bytes] = []
    transparent: bool | None = None
    for kind, start, stop in _chunks(data, strict=is_strict):
        size = stop - start
        kinds.append(kind if kind[0] < _LOWER_CASE or not kind.isalpha() else _OTHER)
        if kind == b"IDAT":
            has_data = True
        elif kind == b"PLTE":
            if is_strict and (size % 3 or not 3 <= size <= 768):
                raise damaged(f"PNG: palette of {size} bytes at byte {start - 8}")
            # Entries beyond what the pixels can name are dropped.
            entries = min(size // 3, 1 << bits)
        elif kind == b"tRNS" and transparent is None and 0 < size <= entries:
            # libpng drops one with a wrong checksum.
            crc = _UINT32.pack(zlib.crc32(data[start - 4 : stop]))
            transparent = not has_data and data[stop : stop + 4] == crc
        elif kind == b"acTL" and size == 8 and not has_data:
            several = _UINT32.unpack_from(data, start)[0] > 1
        elif kind == b"eXIf":
            exif = data[start:stop]
        elif kind == b"IEND":
            end = stop + 4
    order = _in_order(b"".join(kinds))
    if is_strict and (order is None or (has_palette and not order[1])):
        raise damaged(
            "PNG: a chunk that its pixels need is missing, unknown or out of place"
        )
    if check == "decode":
        decode_png(data)
    depth = 3 + bool(transparent) if has_palette else _CHANNELS[color_type]
    orientation = read_orientation(exif) if exif else 1
    info = ImageInfo("png", height, width, depth, orientation, bits, has_palette)
    return info.noting(several=several, trailing=end < len(data))


def _chunks(data: bytes, *, strict: bool = False) -> Iterator[_Chunk]:
    """Yields the chunks up to IEND.

    Args:
      data: the file.
      strict: whether lengths and checksums are checked; if not, a file may end early.
    """
    view, size, at, kind = memoryview(data), len(data), 8, b""
    while kind != b"IEND":
        if at + 12 > size:
            if strict:
                raise damaged(f"PNG: truncated: no IEND chunk in {size} bytes")
            return
        length, kind = _CHUNK_HEADER.unpack_from(data, at)
        stop = at + 8 + length
        if strict and (
            stop + 4 > size
            or zlib.crc32(view[at + 4 : stop]) != _UINT32.unpack_from(data, stop)[0]
        ):
            # The type of a damaged chunk may be any bytes.
            raise damaged(
                f"PNG: cut short, or wrong CRC of chunk "
                f"{kind.decode('ascii', 'backslashreplace')} at byte {at} of {size}"
            )
        yield kind, at + 8, stop
        at = stop + 4


def decode_png(data: bytes) -> Image.Image:
    """Decodes a file that `read_png` has accepted, in the way of TensorFlow.

    Pillow gets only the chunks that pixels need. This keeps compressed texts and
    profiles, which may be bombs, and the chunks of animations away from the decoder,
    where they could fail.

    Raises:
      FaultError: Pillow cannot decode it, or it lacks rows.
    """
    _check_rows(data)
    pieces = [
        # With length and type in front of the payload, and the CRC behind it.
        data[start - 8 : stop + 4]
        for kind, start, stop in _chunks(data)
        if kind[0] < _LOWER_CASE or kind == b"tRNS"
    ]
    with decoding("PNG"):
        image = PngImagePlugin.PngImageFile(io.BytesIO(SIGNATURE + b"".join(pieces)))
        image.load()
    if image.mode != "P":
        # TensorFlow uses transparent colors of palettes only.
        image.info.pop("transparency", None)
    if image.mode == "RGBA" and _CHANNELS[data[25]] == 2:
        return image.convert("LA")  # Pillow widens gray with alpha of 16 bits
    return image


def _check_rows(data: bytes) -> None:
    """Inflates the image data and checks that it holds every row.

    A row is a filter byte, 0 to 4, and pixels padded to a byte; Adam7 is seven such
    images. Pillow leaves missing rows black where TensorFlow refuses the file.

    Raises:
      FaultError: the data is no zlib stream, or too short.
    """
    width, height, bits, color_type, *_, interlace = _IHDR.unpack_from(data, 16)
    bits *= _CHANNELS[color_type]
    expected = sum(
        -(-(height - top) // step_y)
        * (1 + (-(-(width - left) // step_x) * bits + 7) // 8)
        for top, left, step_y, step_x in (_ADAM7 if interlace else _ONE_PASS)
        if height > top and width > left
    )
    packed = b"".join(data[i:j] for kind, i, j in _chunks(data) if kind == b"IDAT")
    inflater = zlib.decompressobj()
    try:
        # The limits prevent a bomb from filling the memory.
        raw = inflater.decompress(packed, expected)
        more = b"more"
        while not inflater.eof and (more or inflater.unconsumed_tail):
            more = inflater.decompress(inflater.unconsumed_tail, 65_536)
    except zlib.error as error:
        raise damaged(f"PNG: image data cannot be inflated: {error}") from error
    if len(raw) < expected or not inflater.eof:
        raise damaged(
            f"PNG: the image data ends early: {len(raw)} bytes of {expected} for "
            f"{width} x {height} pixels"
        )
