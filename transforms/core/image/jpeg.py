"""JPEG: dimensions, EXIF, a walk to the end of the image, and decoding.

The walk finds a file that is cut short. All numbers are big-endian. The layout is
ITU-T T.81, annex B:

    FF D8                                   SOI, start of image
    FF marker | length, 2 bytes | payload   segments, length = payload + 2
    FF C0     | length, 2 bytes | precision, 1 | height, 2 | width, 2 | components, 1
    FF DA     | length, 2 bytes | payload   SOS, start of scan, and behind it
    entropy-coded bytes                     FF 00 is a data byte FF, FF D0-D7 a restart
    ...                                     more segments and scans
    FF D9                                   EOI; bytes after it are ignored

The walk reads neither tables nor entropy-coded bytes: only a decoder finds a wrong bit
there.

EXIF 2.3, which PNG and WebP contain as well, is a TIFF file inside another: offsets
count from its first byte.

    49 49 2A 00 or 4D 4D 00 2A | offset of the directory, 4
    directory: entries, 2 | (tag, 2 | type, 2 | count, 4 | value, 4) of each

Orientation is tag 0x0112, one SHORT. XMP states the same in XML, as an attribute or an
element called tiff:Orientation. It counts only where EXIF has no such tag, as in
Pillow's `exif_transpose`.
"""

import io
import re
import struct

from PIL import Image, JpegImagePlugin

from transforms.core.image.formats import (
    MAX_SIDES,
    ImageInfo,
    check_pixels,
    damaged,
    unsupported,
)
from transforms.core.image.pixels import decoding
from transforms.core.image.resize import Check

Buffer = bytes | memoryview

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

_BYTE_ORDERS = {b"II*\0": "<", b"MM\0*": ">"}
_ORIENTATION = 0x0112
_SHORT = 3
_ENTRY_BYTES = 12
# Pillow's pattern, with its fixed prefix and quotes.
_in_xmp = re.compile(rb'tiff:Orientation(?:="|>)([0-9])').search


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
    """Returns height, width and components from the frame header of a JPEG."""
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
    """Returns the code of a JPEG's marker, and where its payload starts and stops.

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
    """Returns a JPEG without the metadata before its first scan.

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


def read_orientation(exif: Buffer, xmp: Buffer = b"") -> int:
    """Reads the orientation in EXIF or XMP, the metadata of JPEG.

    Args:
      exif: EXIF data, with or without its name in front; empty for none.
      xmp: an XMP packet; it counts where `exif` has no orientation.

    Returns:
      1 to 8; 1 where there is none or an invalid one, since no image is refused for
      its metadata.
    """
    orientation = _in_exif(exif)
    if orientation is None:
        match = _in_xmp(xmp)
        orientation = int(match[1]) if match else 1
    return orientation if 1 <= orientation <= 8 else 1


def _in_exif(data: Buffer) -> int | None:
    """Returns the orientation in EXIF, 0 for an invalid one; None without the tag."""
    for _ in range(2):  # some writers repeat the name
        if data[: len(_EXIF_NAME)] == _EXIF_NAME:
            data = data[len(_EXIF_NAME) :]
    order = _BYTE_ORDERS.get(bytes(data[:4]))
    if order is None:
        return None
    try:
        (offset,) = struct.unpack_from(f"{order}I", data, 4)
        (entries,) = struct.unpack_from(f"{order}H", data, offset)
        entry = struct.Struct(f"{order}HHIH")
        first = offset + 2
        for at in range(first, first + entries * _ENTRY_BYTES, _ENTRY_BYTES):
            tag, kind, count, value = entry.unpack_from(data, at)
            if tag == _ORIENTATION:
                return value if kind == _SHORT and count == 1 else 0
    except struct.error:  # an offset points outside the data
        return None
    return None
