"""JPEG: dimensions, and a walk over every marker to the end of the image.

The layout is ITU-T T.81, annex B. Errors are what libjpeg-turbo, TensorFlow's decoder,
refuses and does not only warn about (`jdmarker.c`, `jdinput.c`, `jdhuff.c`,
`jdphuff.c`, `jdsample.c`):

    FF D8                                   SOI, start of image
    FF marker | length, 2 bytes | payload   segments, length = payload + 2
    FF DA     | length, 2 bytes | payload   SOS, start of scan, and behind it
    entropy-coded bytes                     FF 00 is a data byte FF, FF D0-D7 a restart
    ...                                     more segments and scans
    FF D9                                   EOI; bytes after it are ignored

All numbers are big-endian. The entropy-coded bytes are searched for the next marker
and not decoded: libjpeg decodes any bits there to some picture.
"""

import functools
import re
from typing import NamedTuple

from transforms.errors import DamageError

__all__ = [
    "MAX_SIDE",
    "JpegHeader",
    "find_marker",
    "pixels_only",
    "read_header",
    "walk",
]

_EOI, _SOS, _DQT, _DHT, _DRI, _DAC = 0xD9, 0xDA, 0xDB, 0xC4, 0xDD, 0xCC
_APP0, _APP1, _APP14 = 0xE0, 0xE1, 0xEE
_EXIF_NAME, _XMP_NAME = b"Exif\0\0", b"http://ns.adobe.com/xap/1.0/\0"
_JFIF_NAME, _ADOBE_NAME = b"JFIF\0", b"Adobe"

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
_ARITHMETIC = (0xC9, 0xCA)

MAX_SIDE = 65_500
"""libjpeg's JPEG_MAX_DIMENSION, below the 65,535 that the two bytes could hold."""

_MAX_BLOCKS_IN_MCU = 10
"""T.81 B.2.3: the sum of h x v over the components of an interleaved scan."""

_MAX_SCANS = 500
"""Each scan of a progressive file is a pass over all its pixels, for some ten bytes:
more scans than this is a decompression bomb. libjpeg-turbo's fuzzers use this limit."""

# The next marker in entropy-coded bytes. FF FF is a fill byte, so what follows decides.
find_marker = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]").search

# Markers to skip: APP0 to APP15, COM, DNL.
_SKIPPED = frozenset([*range(0xE0, 0xF0), 0xFE, 0xDC])
_NOWHERE = slice(0, 0)


# Id, horizontal and vertical sampling factor, quantization table.
_Component = tuple[int, int, int, int]


class JpegHeader(NamedTuple):
    """The fields of the frame header, and where metadata is.

    Attributes:
      height: rows, 1 to 65,500.
      width: columns, 1 to 65,500.
      depth: channels as TensorFlow decodes them: 1 for gray, 3 for YCbCr, RGB, CMYK.
      components: components in the file: 4 for CMYK.
      needs_decoding: whether only a decoder can find out if the file is readable: in
        progressive scans a sum of DC differences may overflow (`jdphuff.c`,
        JERR_BAD_DCT_COEF), which no walk over the markers notices.
      unsupported: name of the kind of JPEG, if TensorFlow cannot read it.
      exif, xmp: start and stop of that segment's payload, without its name; of several,
        the first EXIF and the last XMP. Those behind the frame header are ignored:
        both standards require them before it.
    """

    height: int
    width: int
    depth: int
    components: int
    needs_decoding: bool
    unsupported: str
    exif: slice = _NOWHERE
    xmp: slice = _NOWHERE


def read_header(data: bytes) -> JpegHeader:
    """Walks over the segments to the frame header and reads the dimensions.

        FF C0 | length | precision, 1 | height, 2 | width, 2 | components, 1 | ...

    Raises:
      DamageError: the frame header is missing or invalid.
    """
    at = 2
    exif = xmp = _NOWHERE
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
        if marker in (_SOS, _EOI):
            raise DamageError(
                f"JPEG: no frame header before marker {marker:02X} at byte {at - 4}"
            )
        at = stop
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
    if not (0 < height <= MAX_SIDE and 0 < width <= MAX_SIDE):
        raise DamageError(f"JPEG: {width} x {height} pixels at byte {at + 1}")
    if not kind and components not in (1, 3, 4):
        kind = f"JPEG of {components} components"
    return JpegHeader(
        height=height,
        width=width,
        depth=1 if components == 1 else 3,
        components=components,
        needs_decoding=marker in _PROGRESSIVE,
        unsupported=kind,
        exif=exif,
        xmp=xmp,
    )


def walk(data: bytes) -> int:
    """Checks every segment up to the end of the image, in a decoder's order.

    It is stricter than libjpeg in two points, where libjpeg would decode something
    other than the image: stray bytes between segments (libjpeg searches on and may
    find the EXIF thumbnail), and components without a scan (it paints them gray).

    Args:
      data: a file that `read_header` has accepted.

    Returns:
      where the image ends: behind its end marker.

    Raises:
      DamageError: names the fault and its byte.
    """
    components: tuple[_Component, ...] = ()
    quantized: set[int] = set()
    huffman: dict[int, bytes] = {}
    scanned: set[int] = set()
    progressive = arithmetic = False
    single_scan = False
    scans = 0
    at = 2
    while True:
        marker, at, stop = _segment(data, at)
        if marker in _SKIPPED:
            at = stop
        elif marker == _DHT:
            _read_huffman_tables(data, at, stop, huffman)
            at = stop
        elif marker == _DQT:
            _read_quantization_tables(data, at, stop, quantized)
            at = stop
        elif marker == _SOS:
            if not components:
                raise DamageError(f"JPEG: scan before the frame header, byte {at - 4}")
            if single_scan:
                raise DamageError(f"JPEG: one scan too many at byte {at - 4}")
            chosen = _read_scan_header(data, at, stop, components)
            if progressive:
                _check_progression(data, at, len(chosen))
            if not arithmetic:
                _check_huffman_tables(data, at, chosen, huffman, progressive)
            for index in chosen:
                # A component keeps the table that its slot held at its first scan.
                if index not in scanned and components[index][3] not in quantized:
                    raise DamageError(
                        f"JPEG: scan at byte {at - 4} needs the quantization table "
                        f"{components[index][3]}, which is not there"
                    )
            scanned.update(chosen)
            scans += 1
            if scans > _MAX_SCANS:
                raise DamageError(f"JPEG: more than {_MAX_SCANS} scans")
            single_scan = not progressive and len(chosen) == len(components)
            found = find_marker(data, stop)
            if found is None:
                raise DamageError(
                    f"JPEG: truncated: no end-of-image marker in {len(data)} bytes"
                )
            at = found.start()
        elif marker == _EOI:
            if len(scanned) != len(components) or not scans:
                raise DamageError(f"JPEG: ends without all its scans at byte {at - 2}")
            return at
        elif marker == _DRI:
            if stop - at != 2:
                raise DamageError(f"JPEG: bad restart interval at byte {at - 4}")
            at = stop
        elif marker == _DAC:
            _check_conditioning(data, at, stop)
            at = stop
        elif marker in _FRAMES:
            if components:
                raise DamageError(f"JPEG: second frame header at byte {at - 4}")
            # Cached, because most files of a source have the same frame header.
            known = _known_components(data[at:stop])
            components = known or _read_components(data, at)
            progressive = marker in _PROGRESSIVE
            arithmetic = marker in _ARITHMETIC
            at = stop
        else:
            raise DamageError(f"JPEG: unexpected marker {marker:02X} at byte {at - 4}")


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
            marker not in _SKIPPED
            # The minimum sizes of `jdmarker.c` (APP0_DATA_LEN, APP14_DATA_LEN).
            or (marker == _APP0 and size >= 14 and data.startswith(_JFIF_NAME, start))
            or (marker == _APP14 and size >= 12 and data.startswith(_ADOBE_NAME, start))
        ):
            pieces.append(data[at:stop])
        at = stop


def _segment(data: bytes, at: int) -> tuple[int, int, int]:
    """Returns the code of the marker at `at`, and start and stop of its payload.

    Any number of fill bytes FF may come before a marker's code (T.81 B.1.1.2). EOI has
    neither length nor payload: both offsets are the end of the marker.
    """
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
            # SOI, restarts and TEM have no length; other codes are undefined.
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


@functools.lru_cache(maxsize=1024)
def _known_components(payload: bytes) -> tuple[_Component, ...] | None:
    """Returns what `_read_components` does; None where it raises."""
    try:
        return _read_components(payload, 0)
    except DamageError:
        return None


def _read_components(data: bytes, at: int) -> tuple[_Component, ...]:
    """Reads (id, h, v, quantization table) of each component of the frame header.

        ... components, 1 | (id, 1 | h, 4 bits | v, 4 bits | table, 1) of each

    T.81 allows h and v of 1 to 4; libjpeg requires the largest to be a multiple of
    each.
    """
    out = []
    for first in range(at + 6, at + 6 + 3 * data[at + 5], 3):
        factors = data[first + 1]
        out.append((data[first], factors >> 4, factors & 15, data[first + 2]))
    max_h = max(component[1] for component in out)
    max_v = max(component[2] for component in out)
    for _, h, v, _ in out:
        if not (1 <= h <= 4 and 1 <= v <= 4) or max_h % h or max_v % v:
            raise DamageError(
                f"JPEG: sampling factors {h} x {v} in the frame header at byte {at - 4}"
            )
    return tuple(out)


def _read_quantization_tables(
    data: bytes, at: int, stop: int, quantized: set[int]
) -> None:
    """Adds the slots that a DQT segment fills.

    (1 for 16-bit values, 4 bits | slot, 4 bits | 64 or 128 bytes) of each table
    """
    start = at
    while at < stop:
        slot = data[at]
        at += 129 if slot >> 4 else 65
        slot &= 15
        if slot > 3:
            raise DamageError(f"JPEG: quantization table {slot} at byte {start - 4}")
        quantized.add(slot)
    if at != stop:
        raise DamageError(f"JPEG: bad quantization tables at byte {start - 4}")


def _read_huffman_tables(
    data: bytes, at: int, stop: int, huffman: dict[int, bytes]
) -> None:
    """Adds the tables of a DHT segment: class and slot -> counts and symbols."""
    tables = _parse_huffman_tables(data[at:stop])
    if tables is None:
        raise DamageError(f"JPEG: bad Huffman tables at byte {at - 4}")
    huffman.update(tables)


@functools.lru_cache(maxsize=1024)  # most files carry the tables of annex K
def _parse_huffman_tables(payload: bytes) -> tuple[tuple[int, bytes], ...] | None:
    """Returns the tables of a DHT segment; None if it is invalid.

    (class, 4 bits | slot, 4 bits | 16 counts | symbols, the counts' sum) of each
    """
    tables = []
    at, stop = 0, len(payload)
    while at < stop:
        symbols = at + 17
        if symbols > stop:
            return None
        end = symbols + sum(payload[at + 1 : symbols])
        if end > stop or end - symbols > 256 or payload[at] & 0xEC:
            return None
        tables.append((payload[at], payload[at + 1 : end]))
        at = end
    return tuple(tables)


def _read_scan_header(
    data: bytes, at: int, stop: int, components: tuple[_Component, ...]
) -> dict[int, int]:
    """Returns the components of a scan, each with its byte of Huffman slots.

        n, 1 | (component id, 1 | DC slot, 4 bits | AC slot, 4 bits) of n
        | Ss, 1 | Se, 1 | Ah, 4 bits | Al, 4 bits

    Returns:
      index of the component in the frame header -> DC slot << 4 | AC slot.
    """
    count = data[at]
    if stop - at != 4 + 2 * count or not 1 <= count <= 4:
        raise DamageError(f"JPEG: bad scan header at byte {at - 4}")
    chosen: dict[int, int] = {}
    for position in range(count):
        name, slots = data[at + 1 + 2 * position], data[at + 2 + 2 * position]
        # T.81 B.2.3 requires the frame's order; libjpeg does not look back either.
        for index in range(position, len(components)):
            if components[index][0] == name:
                break
        else:
            index = -1
        if index < 0 or index in chosen:
            raise DamageError(
                f"JPEG: scan at byte {at - 4} names the component {name}, "
                "which the frame header does not hold in that place"
            )
        chosen[index] = slots
    if count > 1:
        blocks = sum(components[index][1] * components[index][2] for index in chosen)
        if blocks > _MAX_BLOCKS_IN_MCU:
            raise DamageError(f"JPEG: {blocks} blocks a unit, scan at byte {at - 4}")
    return chosen


def _check_progression(data: bytes, at: int, count: int) -> None:
    """Raises unless band and precision of a progressive scan are legal (G.1.1.1)."""
    first, last, approximation = data[at + 1 + 2 * count : at + 4 + 2 * count]
    high, low = approximation >> 4, approximation & 15
    legal = first <= last <= 63 and count == 1 if first else last == 0
    if not legal or low > 13 or (high and low != high - 1):
        raise DamageError(
            f"JPEG: scan at byte {at - 4} of coefficients {first} to {last}, "
            f"bits {high} to {low}, is not a step of a progression"
        )


def _check_conditioning(data: bytes, at: int, stop: int) -> None:
    """Raises unless lower bounds are below upper ones in a DAC segment (B.2.4.3).

    (class, 4 bits | slot, 4 bits | upper, 4 bits | lower, 4 bits) of each
    """
    for first in range(at, stop - 1, 2):
        value = data[first + 1]
        if data[first] > 31 or (data[first] < 16 and value & 15 > value >> 4):
            raise DamageError(f"JPEG: bad arithmetic conditioning at byte {first}")
    if (stop - at) % 2:
        raise DamageError(f"JPEG: bad arithmetic conditioning at byte {at - 4}")


def _check_huffman_tables(
    data: bytes,
    at: int,
    chosen: dict[int, int],
    huffman: dict[int, bytes],
    progressive: bool,
) -> None:
    """Raises unless all tables that a scan decodes with are there.

    A sequential scan needs a DC and an AC table for each component. Motion JPEG omits
    those of T.81 annex K, and libjpeg then assumes them. Its band is ignored, because
    some encoders leave it zero. A progressive scan needs AC tables, or DC tables, or
    no table to refine DC.
    """
    band = at + 1 + 2 * len(chosen)
    needs_dc = not progressive or (data[band] == 0 and data[band + 2] < 16)
    needs_ac = not progressive or data[band] > 0
    for slots in dict.fromkeys(chosen.values()):
        if needs_dc:
            _need_table(huffman, slots >> 4, at, standard=not progressive)
        if needs_ac:
            _need_table(huffman, slots & 15 | 0x10, at, standard=not progressive)


def _need_table(
    huffman: dict[int, bytes], key: int, at: int, *, standard: bool
) -> None:
    """Raises unless the table of that class and slot is there and is a prefix code."""
    table = huffman.get(key)
    if table is None:
        usable = standard and key & 15 < 2
    else:
        usable = _is_code(table, key < 16)
    if not usable:
        raise DamageError(
            f"JPEG: scan at byte {at - 4} needs the Huffman table {key:02X}, which "
            f"{'is not there' if table is None else 'is no prefix code'}"
        )


@functools.lru_cache(maxsize=1024)  # most files carry the tables of annex K
def _is_code(table: bytes, is_dc: bool) -> bool:
    """Whether 16 counts and their symbols form a Huffman code (T.81 annex C).

    The codes of each length must fit, and none may be all ones. A DC symbol is a number
    of bits, 0 to 15.
    """
    code = 0
    for length in range(1, 17):
        code += table[length - 1]
        if code >= 1 << length:
            return False
        code <<= 1
    return not is_dc or max(table[16:], default=0) <= 15
