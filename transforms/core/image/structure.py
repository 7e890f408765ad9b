"""JPEG and PNG: dimensions, and walks over the structure to the end of the image.

A walk finds a file that is cut short. All numbers are big-endian.

The layout of JPEG is ITU-T T.81, annex B:

    FF D8                                   SOI, start of image
    FF marker | length, 2 bytes | payload   segments, length = payload + 2
    FF C0     | length, 2 bytes | precision, 1 | height, 2 | width, 2 | components, 1
    FF DA     | length, 2 bytes | payload   SOS, start of scan, and behind it
    entropy-coded bytes                     FF 00 is a data byte FF, FF D0-D7 a restart
    ...                                     more segments and scans
    FF D9                                   EOI; bytes after it are ignored

The walk reads neither tables nor entropy-coded bytes: only a decoder finds a wrong bit
there.

The layout of PNG is the W3C's PNG specification (third edition), section 5. Errors are
those of libpng, TensorFlow's decoder:

    89 50 4E 47 0D 0A 1A 0A                         signature
    length, 4 bytes | type, 4 | payload | CRC, 4    IHDR, then others, then IEND
    IHDR: width, 4 | height, 4 | bit depth, 1 | color type, 1 | compression, 1
          | filter, 1 | interlace, 1

The CRC is zlib's CRC-32 over type and payload. A type that begins with a lower-case
letter marks a chunk that a reader may ignore. Bytes after IEND are ignored.
"""

import io
import re
import struct
import zlib
from collections.abc import Iterator

from PIL import Image, JpegImagePlugin, PngImagePlugin

from transforms.core.image.formats import (
    ImageInfo,
    check_pixels,
    damaged,
    unsupported,
)
from transforms.core.image.pixels import decoding
from transforms.core.image.resize import Buffer, Check, read_orientation

MAX_SIDES = {"jpeg": 65_500, "png": 1_000_000}
"""Pixels of a side: libjpeg's JPEG_MAX_DIMENSION, below the 65,535 that the two bytes
could hold; libpng's PNG_USER_WIDTH_MAX and PNG_USER_HEIGHT_MAX."""

_EOI, _SOS, _APP1, _APP2 = 0xD9, 0xDA, 0xE1, 0xE2
_EXIF_NAME, _XMP_NAME = b"Exif\0\0", b"http://ns.adobe.com/xap/1.0/\0"
_MPF_NAME = b"MPF\0"

_FRAMES = {
    **dict.fromkeys((0xC0, 0xC1, 0xC2, 0xC9, 0xCA), ""),
    **dict.fromkeys((0xC3, 0xCB), "lossless JPEG"),
    **dict.fromkeys((0xC5, 0xC6, 0xC7, 0xCD, 0xCE, 0xCF), "differential JPEG"),
}
"""Start-of-frame markers -> the name of a kind that libjpeg does not decode, or "".

libjpeg-turbo decodes arithmetic coding (C9, CA), but lossless JPEG only from version 3
on; TensorFlow 2.21 contains an older one.
"""

_PROGRESSIVE = (0xC2, 0xCA)

_MAX_SCANS = 500
"""Each scan of a progressive file is a pass over all its pixels, for some ten bytes:
more scans than this is a decompression bomb. libjpeg-turbo's fuzzers use this limit."""

# The next marker in entropy-coded bytes. FF FF is a fill byte, so what follows decides.
_find_marker = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]").search

_mark_and_length = struct.Struct(">HH").unpack_from
_frame = struct.Struct(">BHHB").unpack_from
# SOI, EOI, restarts and TEM have no length; other codes are undefined.
_WITH_LENGTH = frozenset([*range(0xFFC0, 0xFFD0), *range(0xFFDA, 0xFFFF)])
# Segments of the sizes that nearly all files have, and of no interest to the walk to
# the end: APP0 of JFIF; DQT of one and two tables; DHT of one and of all four of T.81,
# annex K.
_skip_usual = re.compile(
    rb"(?:\xff(?:\xe0\x00\x10.{14}|\xdb\x00(?:\x43.{65}|\x84.{130})"
    rb"|\xc4(?:\x00\x1f.{29}|\x00\xb5.{179}|\x01\xa2.{416})))*+",
    re.DOTALL,
).match
# Payloads of metadata that are kept: of JFIF and Adobe from these sizes on, as in
# `jdmarker.c` (APP0_DATA_LEN, APP14_DATA_LEN); of comments and others none.
_LEAST_BYTES = dict.fromkeys((*range(0xE1, 0xF0), 0xDC, 0xFE), 1 << 16)
_LEAST_BYTES |= {0xE0: 14, 0xEE: 12}
# Scaled decoding averages blocks. It must leave the filter twice the pixels of the
# result, as Pillow's `reducing_gap=2` does; with fewer, edges are off by 70 grays.
_DRAFT_GAP = 2


def read_jpeg(data: bytes, check: Check, limit: int) -> ImageInfo:
    """Reads the dimensions, and walks over the segments to the end of the image.

    Of several segments of metadata, the first EXIF and the last XMP count. Those behind
    the frame header are ignored: both standards require them before it.

    The walk is stricter than libjpeg about stray bytes between segments, where libjpeg
    searches on and may find the EXIF thumbnail.

    Args:
      data: the file, which begins with SOI.
      check: see `check_image`. A progressive file is decoded if it is checked at all,
        because its sums of coefficients may overflow (JERR_BAD_DCT_COEF).
      limit: of pixels; checked before anything behind the frame header.

    Raises:
      FaultError: names the fault and its byte.
    """
    end = len(data)
    exif: Buffer = b""
    xmp: Buffer = b""
    progressive = several = False
    height = width = components = scans = 0
    marker, at = 0, 2
    while marker != _EOI:
        usual = _skip_usual(data, at)
        marker, start, at = _segment(data, usual.end() if usual else at)
        if marker in _FRAMES:
            if components:
                raise damaged(f"JPEG: second frame header at byte {start - 4}")
            height, width, components = _read_frame(data, marker, start, at)
            check_pixels(height, width, limit)
            progressive = marker in _PROGRESSIVE
            if check == "none":
                break
        elif marker == _SOS and components:
            scans += 1
            # A scan of all components is the last one, so that the end of the file is
            # that of the image; unless other images follow (CIPA DC-007, MPF).
            is_whole = data.endswith(b"\xff\xd9") and data[start] == components
            if is_whole and not (progressive or several):
                break
            if scans > _MAX_SCANS:
                raise damaged(f"JPEG: more than {_MAX_SCANS} scans")
            match = _find_marker(data, at)
            at = match.start() if match else len(data)
        elif marker == _EOI and scans:
            end = at
        elif marker == _APP1 and not components:
            if not exif and data.startswith(_EXIF_NAME, start):
                exif = memoryview(data)[start + len(_EXIF_NAME) : at]
            elif data.startswith(_XMP_NAME, start):
                xmp = memoryview(data)[start + len(_XMP_NAME) : at]
        elif marker == _APP2 and not components:
            several |= data.startswith(_MPF_NAME, start)
        elif marker in (_SOS, _EOI):
            raise damaged(f"JPEG: no frame or scan before byte {at}")
    if check == "decode" or (progressive and check != "none"):
        decode_jpeg(data)
    orientation = read_orientation(exif, xmp) if exif or xmp else 1
    info = ImageInfo("jpeg", height, width, 1 if components == 1 else 3, orientation)
    return info.noting(cmyk=components == 4, trailing=end < len(data))


def _read_frame(
    data: bytes, marker: int, start: int, stop: int
) -> tuple[int, int, int]:
    """Returns height, width and components from the payload of a frame header."""
    size = stop - start
    if size < 6 or size != 6 + 3 * data[start + 5]:
        raise damaged(f"JPEG: frame header of {size} bytes at byte {start - 4}")
    precision, height, width, components = _frame(data, start)
    kind = _FRAMES[marker]
    if not kind and precision != 8:
        if precision != 12 or marker == 0xC0:
            raise damaged(f"JPEG: precision of {precision} bits at byte {start}")
        kind = "12-bit JPEG"
    most = MAX_SIDES["jpeg"]
    if not (0 < height <= most and 0 < width <= most):
        raise damaged(f"JPEG: {width} x {height} pixels at byte {start + 1}")
    if not kind and components not in (1, 3, 4):
        kind = f"JPEG of {components} components"
    if kind:
        raise unsupported(kind)
    return height, width, components


def _segment(data: bytes, at: int) -> tuple[int, int, int]:
    """Returns a marker's code, and where its payload starts and stops.

    Any number of fill bytes FF may come before a code (T.81 B.1.1.2). EOI has neither
    length nor payload: both offsets are the end of the marker.

    Args:
      data: the file.
      at: where a segment begins.

    Raises:
      FaultError: no whole segment begins there, or it does not begin with a marker.
    """
    last = len(data)
    while data.startswith(b"\xff\xff", at):
        at += 1
    if at + 4 <= last:
        mark, length = _mark_and_length(data, at)
        stop = at + 2 + length
        if mark in _WITH_LENGTH and length >= 2 and stop <= last:
            return mark & 0xFF, at + 4, stop
    if data.startswith(b"\xff\xd9", at):
        return _EOI, at + 2, at + 2
    raise damaged(
        f"JPEG: truncated or damaged: a whole segment or the end-of-image "
        f"marker is expected at byte {at} of {last}"
    )


def decode_jpeg(
    data: bytes, *, gray: bool = False, at_least: tuple[int, int] | None = None
) -> Image.Image:
    """Decodes a file that `read_jpeg` has accepted, in the way of TensorFlow.

    Args:
      data: the file.
      gray: whether only luminance is needed.
      at_least: height and width that the image is scaled to. To save time, the decoder
        may then halve both sides, once to three times, as long as twice that size
        remains.

    Raises:
      FaultError: Pillow cannot decode it.
    """
    size = None
    if at_least is not None:
        size = at_least[1] * _DRAFT_GAP, at_least[0] * _DRAFT_GAP
    with decoding("JPEG"):
        image = JpegImagePlugin.JpegImageFile(io.BytesIO(_pixels_only(data)))
        is_adobe = "adobe" in image.info
        image.draft("L" if gray else None, size)
        image.load()
    if image.mode == "CMYK" and not is_adobe:
        # Pillow treats all CMYK as Adobe's, where 255 is no ink; TensorFlow does not.
        return image.point(lambda value: 255 - value)
    return image


def _pixels_only(data: bytes) -> bytes:
    """Returns the file without the metadata before its first scan.

    This keeps EXIF, embedded profiles, comments and further images away from the
    decoder, where they could fail. The segments of JFIF and Adobe stay, because libjpeg
    derives the color space from them (`jdapimin.c`, default_decompress_parms).
    """
    pieces, marker, at = [data[:2]], 0, 2
    while marker != _SOS:
        marker, start, at = _segment(data, at)
        if marker == _SOS:
            pieces.append(data[start - 4 :])
        elif at - start >= _LEAST_BYTES.get(marker, 0):
            pieces.append(data[start - 4 : at])
    return b"".join(pieces)


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
