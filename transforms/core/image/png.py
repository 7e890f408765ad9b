"""PNG: the header, and a walk over every chunk and its checksum.

The layout is the W3C's PNG specification (third edition), section 5. Errors are those
of libpng, TensorFlow's decoder:

    89 50 4E 47 0D 0A 1A 0A                         signature
    length, 4 bytes | type, 4 | payload | CRC, 4    IHDR, then others, then IEND

Numbers are big-endian; the CRC is zlib's CRC-32 over type and payload. A type that
begins with a lower-case letter marks a chunk that a reader may ignore. Bytes after
IEND are ignored.
"""

import re
import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from transforms.core.image import exif
from transforms.errors import DamageError

SIGNATURE = b"\x89PNG\r\n\x1a\n"

_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
_BIT_DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
_PALETTE = 3

_MAX_SIDE = 1_000_000
"""libpng's PNG_USER_WIDTH_MAX and PNG_USER_HEIGHT_MAX."""

_METADATA = frozenset((b"eXIf", b"tEXt", b"zTXt", b"iTXt"))
_EXIF_KEYWORD, _XMP_KEYWORD = b"Raw profile type exif", b"XML:com.adobe.xmp"
_MAX_KEYWORD_BYTES = 80  # with the zero after it
_MAX_TEXT_BYTES = 1 << 20

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


class PngHeader(NamedTuple):
    """The fields of IHDR.

    Attributes:
      height: rows, 1 to 1,000,000.
      width: columns, 1 to 1,000,000.
      depth: channels as TensorFlow decodes them: 1 for gray, 2 with alpha, 3 for RGB
        and palettes, 4 for RGBA and palettes with transparent entries.
      bits: bits a pixel in the file, 1 to 64.
      bit_depth: bits a sample, or a palette's index: 1, 2, 4, 8 or 16.
      color_type: 0 gray, 2 RGB, 3 palette, 4 gray and alpha, 6 RGBA.
      interlaced: whether the rows come in the seven passes of Adam7.
      unsupported: always empty; TensorFlow reads every kind of PNG.
    """

    height: int
    width: int
    depth: int
    bits: int
    bit_depth: int
    color_type: int
    interlaced: bool
    unsupported: str = ""


class PngExtras(NamedTuple):
    """What a file holds beside the pixels.

    Attributes:
      end: where the image ends: behind IEND.
      metadata: (type, start, stop) of the payloads of chunks that may hold EXIF or XMP,
        in their order.
      frames: number of frames of an APNG, by acTL; 1 for a still image.
    """

    end: int
    metadata: tuple[tuple[bytes, int, int], ...] = ()
    frames: int = 1


def read_header(data: bytes) -> PngHeader:
    """Reads IHDR, and for a palette whether tRNS makes some of its entries transparent.

        00 00 00 0D | IHDR | width, 4 | height, 4 | bit depth, 1 | color type, 1
        | compression, 1 | filter, 1 | interlace, 1 | CRC, 4

    Raises:
      DamageError: IHDR is missing or invalid.
    """
    if len(data) < 33 or data[8:16] != b"\x00\x00\x00\rIHDR":
        raise DamageError("PNG: truncated or without an IHDR chunk at byte 8")
    width, height, bit_depth, color_type, compression, filtering, interlace = (
        _IHDR.unpack_from(data, 16)
    )
    if not (0 < width <= _MAX_SIDE and 0 < height <= _MAX_SIDE):
        raise DamageError(f"PNG: {width} x {height} pixels at byte 16")
    if bit_depth not in _BIT_DEPTHS.get(color_type, ()):
        raise DamageError(
            f"PNG: color type {color_type} of {bit_depth} bits at byte 24"
        )
    if compression or filtering or interlace > 1:
        raise DamageError("PNG: unknown compression, filter or interlace at byte 26")
    depth = channels = _CHANNELS[color_type]
    if color_type == _PALETTE:
        depth = 4 if _has_transparency(data) else 3
    return PngHeader(
        height=height,
        width=width,
        depth=depth,
        bits=bit_depth * channels,
        bit_depth=bit_depth,
        color_type=color_type,
        interlaced=interlace == 1,
    )


def walk(data: bytes, header: PngHeader) -> None:
    """Checks the checksum of every chunk up to IEND, and the chunks that pixels need.

    It is stricter than libpng, which drops ancillary chunks with a wrong checksum.

    Args:
      data: the file.
      header: of the same file.

    Raises:
      DamageError: names the fault and its byte.
    """
    view = memoryview(data)
    size = len(data)
    kinds = []
    at, kind = 8, b""
    while kind != b"IEND":
        if at + 12 > size:
            raise DamageError(f"PNG: truncated: no IEND chunk in {size} bytes")
        length, kind = _CHUNK_HEADER.unpack_from(data, at)
        stop = at + 8 + length
        if stop + 4 > size:
            raise DamageError(
                f"PNG: chunk {_shown(kind)} of {length} bytes at byte {at} of {size} "
                "is cut short or has a wrong length"
            )
        if zlib.crc32(view[at + 4 : stop]) != _UINT32.unpack_from(data, stop)[0]:
            raise DamageError(f"PNG: wrong CRC of chunk {_shown(kind)} at byte {at}")
        if kind == b"PLTE" and (length % 3 or not 3 <= length <= 768):
            raise DamageError(f"PNG: palette of {length} bytes at byte {at}")
        kinds.append(kind if kind[0] < _LOWER_CASE or not kind.isalpha() else _OTHER)
        at = stop + 4
    order = _in_order(b"".join(kinds))
    if order is None or (header.color_type == _PALETTE and not order[1]):
        raise DamageError(
            "PNG: a chunk that its pixels need is missing, unknown or out of place"
        )


def _chunks(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Yields (type, start and stop of the payload) of the chunks up to IEND.

    Nothing is checked on the way.
    """
    at = 8
    while at + 12 <= len(data):
        length, kind = _CHUNK_HEADER.unpack_from(data, at)
        yield kind, at + 8, at + 8 + length
        if kind == b"IEND":
            return
        at += 12 + length


def read_extras(data: bytes) -> PngExtras:
    """Returns what the file holds beside the pixels, without checking anything.

    Args:
      data: a file whose header `read_header` has accepted.
    """
    has_data = False
    metadata: list[tuple[bytes, int, int]] = []
    frames = 1
    for kind, start, stop in _chunks(data):
        if kind == b"IEND":
            return PngExtras(start + 4, tuple(metadata), frames)
        if kind == b"IDAT":
            has_data = True
        elif kind in _METADATA:
            metadata.append((kind, start, stop))
        elif kind == b"acTL" and stop - start == 8 and not has_data:
            frames = _UINT32.unpack_from(data, start)[0]
    return PngExtras(len(data), tuple(metadata), frames)


def read_orientation(data: bytes, extras: PngExtras) -> int:
    """Returns the orientation that the file's metadata states, 1 for none.

    EXIF is in eXIf or, from ImageMagick, in a text of hexadecimal digits; XMP is a
    text. Of several chunks of a kind the last counts.

    Args:
      data: the file.
      extras: of the same file.
    """
    # Only the last of a kind is unpacked: a hostile file may have very many of them.
    last: dict[bytes, tuple[bytes, bytes]] = {}
    for kind, start, stop in extras.metadata:
        if kind == b"eXIf":
            last[kind] = kind, data[start:stop]
            continue
        keyword = data[start : min(stop, start + _MAX_KEYWORD_BYTES)].split(b"\0")[0]
        if keyword in (_EXIF_KEYWORD, _XMP_KEYWORD):
            last[keyword] = kind, data[start + len(keyword) + 1 : stop]
    found = {keyword: _text(*chunk) for keyword, chunk in last.items()}
    stated = found.get(b"eXIf") or _from_digits(found.get(_EXIF_KEYWORD, b""))
    return exif.read_orientation(stated, found.get(_XMP_KEYWORD, b""))


def _text(kind: bytes, payload: bytes) -> bytes:
    """Returns the text of a chunk, at most 1 MiB of it; empty for an invalid one.

    tEXt  text          eXIf  unchanged
    zTXt  compression method, 1 | zlib stream
    iTXt  compressed, 1 | method, 1 | language | 00 | translated keyword | 00 | text
    """
    compressed = kind == b"zTXt"
    if kind == b"iTXt":
        compressed = payload[:1] != b"\0"
        payload = payload[1:2] + payload[2:].split(b"\0", 2)[-1]
    elif kind in (b"tEXt", b"eXIf"):
        return payload
    if not compressed:
        return payload[1:]
    if payload[:1] != b"\0":
        return b""
    try:
        return zlib.decompressobj().decompress(payload[1:], _MAX_TEXT_BYTES)
    except zlib.error:
        return b""


def _from_digits(text: bytes) -> bytes:
    r"""Returns what ImageMagick wrote: `\nexif\n`, a length, lines of digits."""
    try:
        return bytes.fromhex(b"".join(text.split(b"\n")[3:]).decode("ascii"))
    except ValueError:
        return b""


def pixels_only(data: bytes) -> bytes:
    """Returns the file with only the chunks that its pixels need.

    This keeps compressed texts and profiles, which may be bombs, and the chunks of
    animations away from the decoder, where they could fail.

    Args:
      data: a file that `walk` has accepted.
    """
    pieces = [
        # With length and type in front of the payload, and the CRC behind it.
        data[start - 8 : stop + 4]
        for kind, start, stop in _chunks(data)
        if kind[0] < _LOWER_CASE or kind == b"tRNS"
    ]
    return b"".join((SIGNATURE, *pieces))


def check_rows(data: bytes, header: PngHeader) -> None:
    """Inflates the image data and checks that it holds every row.

    A row is a filter byte, 0 to 4, and pixels padded to a byte; Adam7 is seven such
    images. Pillow leaves missing rows black where TensorFlow refuses the file.

    Args:
      data: a file that `walk` has accepted.
      header: of the same file.

    Raises:
      DamageError: the data is no zlib stream, or too short.
    """
    expected = sum(
        -(-(header.height - top) // step_y)
        * (1 + (-(-(header.width - left) // step_x) * header.bits + 7) // 8)
        for top, left, step_y, step_x in (_ADAM7 if header.interlaced else _ONE_PASS)
        if header.height > top and header.width > left
    )
    inflater = zlib.decompressobj()
    try:
        # The limits prevent a bomb from filling the memory.
        raw = inflater.decompress(_compressed(data), expected)
        more = b"more"
        while not inflater.eof and (more or inflater.unconsumed_tail):
            more = inflater.decompress(inflater.unconsumed_tail, 65_536)
    except zlib.error as error:
        raise DamageError(f"PNG: image data cannot be inflated: {error}") from error
    if len(raw) < expected or not inflater.eof:
        raise DamageError(
            f"PNG: the image data ends early: {len(raw)} bytes of {expected} for "
            f"{header.width} x {header.height} pixels"
        )


def _compressed(data: bytes) -> bytes:
    """Returns the payloads of all IDAT chunks together: one zlib stream."""
    return b"".join(data[i:j] for kind, i, j in _chunks(data) if kind == b"IDAT")


def _has_transparency(data: bytes) -> bool:
    """Whether a tRNS chunk that libpng would use is between PLTE and IDAT.

    libpng drops one with a wrong checksum.
    """
    entries = 0
    for kind, start, stop in _chunks(data):
        if kind == b"PLTE":
            # Entries beyond what the pixels can name are dropped.
            entries = min((stop - start) // 3, 1 << data[24])
        elif kind == b"tRNS" and 0 < stop - start <= entries:
            checksum = zlib.crc32(data[start - 4 : stop])
            return data[stop : stop + 4] == _UINT32.pack(checksum)
        elif kind == b"IDAT":
            return False
    return False


def _shown(kind: bytes) -> str:
    """Returns a chunk type as printable text; damaged ones may hold any bytes."""
    return kind.decode("ascii", "backslashreplace")
