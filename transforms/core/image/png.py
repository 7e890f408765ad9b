"""PNG: dimensions, a walk to the end of the image, decoding, and encoding.

The walk finds a file that is cut short. The layout is the W3C's PNG specification
(third edition), sections 5, 9 and 11; all numbers are big-endian. Errors are those of
libpng, TensorFlow's decoder:

    89 50 4E 47 0D 0A 1A 0A                         signature
    length, 4 bytes | type, 4 | payload | CRC, 4    IHDR, then others, then IEND
    IHDR: width, 4 | height, 4 | bit depth, 1 | color type, 1 | compression, 1
          | filter, 1 | interlace, 1

The CRC is zlib's CRC-32 over type and payload. A type that begins with a lower-case
letter marks a chunk that a reader may ignore. Bytes after IEND are ignored.

Raw pixels are encoded with one deflate setting and one filter a function:

    IDAT: zlib stream of, for each row, 04 | pixels less Paeth's prediction
          of class numbers, 00 | pixels

The filter is computed for many images at once. Each image is a zlib stream of its own,
which takes 30 of the 40 microseconds for 32 x 32 RGB pixels. Pillow, which chooses a
filter for every row, takes some 300 for files of the same size.

NumPy and Arrow are imported where pixels are encoded, because NumPy doubles the start
of a decoder process.
"""

import io
import re
import struct
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from PIL import Image, PngImagePlugin

from transforms.core.image.formats import (
    MAX_SIDES,
    ImageInfo,
    check_pixels,
    damaged,
)
from transforms.core.image.jpeg import read_orientation
from transforms.core.image.pixels import decoding
from transforms.core.image.resize import Check
from transforms.errors import EncodingError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    Bytes = npt.NDArray[np.uint8]

SIGNATURE = b"\x89PNG\r\n\x1a\n"

_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
_BIT_DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
_PALETTE = 3

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

MAX_PNG_BYTES = 1 << 30
"""Limit of the raw pixels; an IDAT chunk can hold twice as much."""

_COLOR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}
_PAETH = 4
# Bytes filtered at once: the six int16 arrays of this size stay in the cache.
_STRIP_BYTES = 1 << 16

_IEND = struct.pack(">I4sI", 0, b"IEND", zlib.crc32(b"IEND"))


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
    if not 0 < min(height, width) <= max(height, width) <= MAX_SIDES["png"]:
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
    info = ImageInfo("png", height, width, depth, orientation, bits)
    return info.noting(several=several, trailing=end < len(data))


def _chunks(data: bytes, *, strict: bool = False) -> Iterator[_Chunk]:
    """Yields the chunks of a PNG up to IEND.

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
    """Inflates the pixels of a PNG and checks that no scan line is missing.

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


def png_channels(dtype: str, shape: tuple[int, ...]) -> int | None:
    """Returns the channels of an array as a PNG; None if it cannot be one.

    Args:
      dtype: uint8 or uint16.
      shape: (height, width) or (height, width, 1 to 4).
    """
    if dtype not in ("uint8", "uint16") or len(shape) not in (2, 3):
        return None
    channels = shape[2] if len(shape) == 3 else 1
    sides_fit = min(shape[:2]) > 0 and max(shape[:2]) <= MAX_SIDES["png"]
    return channels if channels in _COLOR_TYPES and sides_fit else None


def encode_png(
    pixels: "npt.NDArray[np.uint8] | npt.NDArray[np.uint16]",
) -> "pa.Array":
    """Returns n PNG files as an Arrow large_binary array.

    Args:
      pixels: (n, height, width) or (n, height, width, channels) of uint8 or uint16;
        1 channel for gray, 2 for gray and alpha, 3 for RGB, 4 for RGBA.

    Raises:
      EncodingError: an array of another shape or type, or an image over 1 GiB.
    """
    import numpy as np
    import pyarrow as pa

    shape = pixels.shape[1:]
    channels = png_channels(str(pixels.dtype), shape)
    if channels is None or pixels[:1].nbytes > MAX_PNG_BYTES:
        raise EncodingError(
            f"A PNG has uint8 or uint16 pixels, (height, width) or (height, "
            f"width, 1 to 4), of 1 GiB at most; found {pixels.dtype} {shape}."
        )
    height, width = shape[:2]
    pixel_bytes = channels * pixels.dtype.itemsize
    # Samples of two bytes are big-endian.
    stored = np.ascontiguousarray(pixels, pixels.dtype.newbyteorder(">"))
    rows = stored.view(np.uint8).reshape(-1, height, width * pixel_bytes)
    head = _head(height, width, pixels.dtype.itemsize, _COLOR_TYPES[channels])
    out: list[bytes] = []
    step = max(1, _STRIP_BYTES // (height * width * pixel_bytes))
    for first in range(0, len(rows), step):
        filtered = _filtered(rows[first : first + step], pixel_bytes)
        out += [head + _deflated(image.data) for image in filtered]
    return pa.array(out, pa.large_binary())


def encode_class_png(image: "npt.ArrayLike") -> bytes:
    """Returns class numbers, (height, width) of uint8 or uint16, as one PNG of gray.

    Areas of equal numbers are smallest and fastest without a filter: of 640 x 480
    pixels 0.7 kB in 0.6 ms.
    """
    import numpy as np

    pixels = np.asarray(image)
    height, width = pixels.shape
    depth = pixels.dtype.itemsize
    rows = np.zeros((height, 1 + width * depth), np.uint8)
    stored = np.ascontiguousarray(pixels, pixels.dtype.newbyteorder(">"))
    rows[:, 1:] = stored.view(np.uint8).reshape(height, -1)
    return _head(height, width, depth, _COLOR_TYPES[1]) + _deflated(rows.data)


def _head(height: int, width: int, sample_bytes: int, color_type: int) -> bytes:
    """Returns the signature and IHDR."""
    fields = (width, height, 8 * sample_bytes, color_type, 0, 0, 0)
    return SIGNATURE + _chunk(b"IHDR", struct.pack(">II5B", *fields))


def _filtered(rows: "Bytes", pixel_bytes: int) -> "Bytes":
    """Returns (n, height, 1 + width) bytes: each row's filter type and residuals."""
    import numpy as np

    count, height, width = rows.shape
    out = np.empty((count, height, 1 + width), np.uint8)
    out[:, :, 0] = _PAETH
    strip = max(1, _STRIP_BYTES // (count * width))
    # Pixels left of the image and above it count as zero (section 9.2).
    padded = np.zeros((count, strip + 1, pixel_bytes + width), np.int16)
    for top in range(0, height, strip):
        band = rows[:, top : top + strip]
        padded[:, 0] = padded[:, strip]
        padded[:, 1 : 1 + band.shape[1], pixel_bytes:] = band
        area = padded[:, : 1 + band.shape[1]]
        left = area[:, 1:, :-pixel_bytes]
        above = area[:, :-1, pixel_bytes:]
        corner = area[:, :-1, :-pixel_bytes]
        # Distances of the three neighbours from left + above - corner; ties go to the
        # left one, then to the one above (section 9.4).
        by_left, by_above = above - corner, left - corner
        by_corner = np.abs(by_left + by_above)
        by_left, by_above = np.abs(by_left), np.abs(by_above)
        guess = np.where(by_above <= by_corner, above, corner)
        is_left = (by_left <= by_above) & (by_left <= by_corner)
        guess = np.where(is_left, left, guess)
        target = out[:, top : top + strip, 1:]
        np.subtract(area[:, 1:, pixel_bytes:], guess, out=target, casting="unsafe")
    return out


def _deflated(filtered: memoryview) -> bytes:
    """Returns IDAT and IEND of one image."""
    # Recommended by zlib for PNG data: as fast as Huffman codes alone, and smaller.
    deflate = zlib.compressobj(6, zlib.DEFLATED, 15, 8, zlib.Z_RLE)
    return _chunk(b"IDAT", deflate.compress(filtered) + deflate.flush()) + _IEND


def _chunk(kind: bytes, payload: bytes) -> bytes:
    """Returns a chunk of a PNG: size, type, payload, CRC-32 of type and payload."""
    # The checksum goes on from that of the kind: nothing is joined for it.
    checksum = zlib.crc32(payload, zlib.crc32(kind)).to_bytes(4, "big")
    return b"".join((len(payload).to_bytes(4, "big"), kind, payload, checksum))
