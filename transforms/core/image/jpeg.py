"""JPEG: dimensions, and a walk over the segments to the end of the image.

The layout is ITU-T T.81, annex B:

    FF D8                                   SOI, start of image
    FF marker | length, 2 bytes | payload   segments, length = payload + 2
    FF DA     | length, 2 bytes | payload   SOS, start of scan, and behind it
    entropy-coded bytes                     FF 00 is a data byte FF, FF D0-D7 a restart
    ...                                     more segments and scans
    FF D9                                   EOI; bytes after it are ignored

All numbers are big-endian. The walk finds a file that is cut short. It reads neither
tables nor entropy-coded bytes: only a decoder finds a wrong bit there.
"""

import re
import struct
from typing import NamedTuple

from transforms.errors import DamageError

_EOI, _SOS, _DNL, _COM = 0xD9, 0xDA, 0xDC, 0xFE
_APP0, _APP1, _APP2, _APP14 = 0xE0, 0xE1, 0xE2, 0xEE
_EXIF_NAME, _XMP_NAME = b"Exif\0\0", b"http://ns.adobe.com/xap/1.0/\0"
_JFIF_NAME, _ADOBE_NAME, _MPF_NAME = b"JFIF\0", b"Adobe", b"MPF\0"

_FRAMES = {
    0xC0: "",
    0xC1: "",
    0xC2: "",
    0xC3: "lossless JPEG",
    0xC5: "differential JPEG",
    0xC6: "differential JPEG",
    0xC7: "differential JPEG",
    0xC9: "",
    0xCA: "",
    0xCB: "lossless JPEG",
    0xCD: "differential JPEG",
    0xCE: "differential JPEG",
    0xCF: "differential JPEG",
}
"""Start-of-frame markers -> the name of a kind that libjpeg does not decode, or "".

libjpeg-turbo decodes arithmetic coding (C9, CA), but lossless JPEG only from version 3
on; TensorFlow 2.21 contains an older one.
"""

_PROGRESSIVE = (0xC2, 0xCA)

_MAX_SIDE = 65_500
"""libjpeg's JPEG_MAX_DIMENSION, below the 65,535 that the two bytes could hold."""

_MAX_SCANS = 500
"""Each scan of a progressive file is a pass over all its pixels, for some ten bytes:
more scans than this is a decompression bomb. libjpeg-turbo's fuzzers use this limit."""

# The next marker in entropy-coded bytes. FF FF is a fill byte, so what follows decides.
_find_marker = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]").search

_mark_and_length = struct.Struct(">HH").unpack_from
# SOI, EOI, restarts and TEM have no length; other codes are undefined.
_WITH_LENGTH = frozenset([*range(0xFFC0, 0xFFD0), *range(0xFFDA, 0xFFFF)])
# APP0, DHT, DQT and DRI: of no interest to any walk here.
_PLAIN = frozenset([0xFFE0, 0xFFC4, 0xFFDB, 0xFFDD])
_METADATA = frozenset([*range(_APP0, 0xF0), _COM, _DNL])
_NOWHERE = slice(0, 0)


class JpegHeader(NamedTuple):
    """The fields of the frame header, and where metadata is.

    Attributes:
      height: rows, 1 to 65,500.
      width: columns, 1 to 65,500.
      depth: channels as TensorFlow decodes them: 1 for gray, 3 for YCbCr, RGB, CMYK.
      components: components in the file: 4 for CMYK.
      progressive: whether its scans refine one another.
      unsupported: name of the kind of JPEG, if TensorFlow cannot read it.
      stop: where the frame header ends.
      several: whether other images follow the first one (CIPA DC-007, MPF).
      exif, xmp: start and stop of that segment's payload, without its name; of several,
        the first EXIF and the last XMP. Those behind the frame header are ignored:
        both standards require them before it.
    """

    height: int
    width: int
    depth: int
    components: int
    progressive: bool
    unsupported: str
    stop: int
    several: bool
    exif: slice = _NOWHERE
    xmp: slice = _NOWHERE


def read_header(data: bytes) -> JpegHeader:
    """Walks over the segments to the frame header and reads the dimensions.

        FF C0 | length | precision, 1 | height, 2 | width, 2 | components, 1 | ...

    Raises:
      DamageError: the frame header is missing or invalid.
    """
    at = _behind_plain(data, 2)
    exif = xmp = _NOWHERE
    several = False
    while True:
        marker, at, stop = _segment(data, at)
        kind = _FRAMES.get(marker)
        if kind is not None:
            break
        if marker == _APP1:
            if exif is _NOWHERE and data.startswith(_EXIF_NAME, at):
                exif = slice(at + len(_EXIF_NAME), stop)
            elif data.startswith(_XMP_NAME, at):
                xmp = slice(at + len(_XMP_NAME), stop)
        elif marker == _APP2:
            several |= data.startswith(_MPF_NAME, at)
        if marker in (_SOS, _EOI):
            raise DamageError(
                f"JPEG: no frame header before marker {marker:02X} at byte {at - 4}"
            )
        at = _behind_plain(data, stop)
    size = stop - at
    if size < 6 or size != 6 + 3 * data[at + 5]:
        raise DamageError(f"JPEG: frame header of {size} bytes at byte {at - 4}")
    precision = data[at]
    height = data[at + 1] << 8 | data[at + 2]
    width = data[at + 3] << 8 | data[at + 4]
    components = data[at + 5]
    if not kind and precision != 8:
        if precision != 12 or marker == 0xC0:
            raise DamageError(f"JPEG: precision of {precision} bits at byte {at}")
        kind = "12-bit JPEG"
    if not (0 < height <= _MAX_SIDE and 0 < width <= _MAX_SIDE):
        raise DamageError(f"JPEG: {width} x {height} pixels at byte {at + 1}")
    if not kind and components not in (1, 3, 4):
        kind = f"JPEG of {components} components"
    depth = 1 if components == 1 else 3
    progressive = marker in _PROGRESSIVE
    sides = height, width, depth, components
    return JpegHeader(*sides, progressive, kind, stop, several, exif, xmp)


def walk(data: bytes, header: JpegHeader) -> int:
    """Walks over the segments behind the frame header to the end of the image.

    It is stricter than libjpeg about stray bytes between segments, where libjpeg
    searches on and may find the EXIF thumbnail.

    Args:
      data: the file.
      header: of the same file.

    Returns:
      where the image ends: behind its end marker.

    Raises:
      DamageError: names the fault and its byte.
    """
    at = _behind_plain(data, header.stop)
    scans = 0
    while True:
        marker, start, at = _segment(data, at)
        if marker == _SOS:
            scans += 1
            is_only_scan = not header.progressive and data[start] == header.components
            if is_only_scan and not header.several and data.endswith(b"\xff\xd9"):
                return len(data)
            found = _find_marker(data, at)
            if found is None:
                raise DamageError(
                    f"JPEG: truncated: no end-of-image marker in {len(data)} bytes"
                )
            at = found.start()
            if scans > _MAX_SCANS:
                raise DamageError(f"JPEG: more than {_MAX_SCANS} scans")
        elif marker == _EOI:
            if not scans:
                raise DamageError(f"JPEG: ends without a scan at byte {at - 2}")
            return at
        elif marker in _FRAMES:
            raise DamageError(f"JPEG: second frame header at byte {start - 4}")


def pixels_only(data: bytes) -> bytes:
    """Returns the file without the metadata before its first scan.

    This keeps EXIF, embedded profiles, comments and further images away from the
    decoder, where they could fail. The segments of JFIF and Adobe stay, because libjpeg
    derives the color space from them (`jdapimin.c`, default_decompress_parms).

    Args:
      data: a file that `walk` has accepted.
    """
    pieces = [data[:2]]
    at = 2
    while True:
        marker, start, stop = _segment(data, at)
        if marker == _SOS:
            pieces.append(data[at:])
            return b"".join(pieces)
        size = stop - start
        if (
            marker not in _METADATA
            # The minimum sizes of `jdmarker.c` (APP0_DATA_LEN, APP14_DATA_LEN).
            or (marker == _APP0 and size >= 14 and data.startswith(_JFIF_NAME, start))
            or (marker == _APP14 and size >= 12 and data.startswith(_ADOBE_NAME, start))
        ):
            pieces.append(data[at:stop])
        at = stop


def _behind_plain(data: bytes, at: int) -> int:
    """Returns where the first segment is, from `at` on, that is not of `_PLAIN`.

    Most segments are plain, and images are many: no function is called for each.
    """
    last = len(data)
    while at + 4 <= last:
        mark, length = _mark_and_length(data, at)
        stop = at + 2 + length
        if mark not in _PLAIN or length < 2 or stop > last:
            break
        at = stop
    return at


def _segment(data: bytes, at: int) -> tuple[int, int, int]:
    """Returns the code of the marker at `at`, and start and stop of its payload.

    Any number of fill bytes FF may come before a marker's code (T.81 B.1.1.2). EOI has
    neither length nor payload: both offsets are the end of the marker.
    """
    if at + 4 <= len(data):
        mark, length = _mark_and_length(data, at)
        stop = at + 2 + length
        if mark in _WITH_LENGTH and length >= 2 and stop <= len(data):
            return mark & 0xFF, at + 4, stop
    # Fill bytes, the end, or damage.
    try:
        if data[at] != 0xFF:
            raise DamageError(f"JPEG: stray bytes instead of a marker at byte {at}")
        marker = data[at + 1]
        while marker == 0xFF:
            at += 1
            marker = data[at + 1]
        if marker == _EOI:
            return marker, at + 2, at + 2
        if marker < 0xC0 or 0xD0 <= marker <= 0xD8:
            raise DamageError(f"JPEG: unexpected marker {marker:02X} at byte {at}")
        length = data[at + 2] << 8 | data[at + 3]
    except IndexError:
        raise DamageError(
            f"JPEG: truncated: a marker was expected at byte {at} of {len(data)}"
        ) from None
    stop = at + 2 + length
    if length < 2 or stop > len(data):
        raise DamageError(
            f"JPEG: segment {marker:02X} of {length} bytes at byte {at} "
            f"of {len(data)} is cut short or has a wrong length"
        )
    return marker, at + 4, stop
