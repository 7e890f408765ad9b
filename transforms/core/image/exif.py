"""EXIF and XMP: read and reset the orientation of an image.

EXIF 2.3 is a TIFF file inside another: offsets count from its first byte.

    49 49 2A 00 or 4D 4D 00 2A | offset of the directory, 4
    directory: entries, 2 | (tag, 2 | type, 2 | count, 4 | value, 4) of each

Orientation is tag 0x0112, one SHORT. How the stored picture becomes the shown one:

    1 as stored       2 mirrored        3 turned by 180     4 flipped
    5 transposed      6 turned by 90    7 transversed       8 turned by 270, clockwise

XMP states the same in XML, as an attribute or an element called tiff:Orientation. It
counts only where EXIF has no such tag, as in Pillow's `exif_transpose`.
"""

import re
import struct

Buffer = bytes | memoryview

_ORIENTATION = 0x0112
_SHORT = 3
_ENTRY_BYTES = 12
_NAME = b"Exif\0\0"
# Pillow's pattern, with its fixed prefix and quotes.
_in_xmp = re.compile(rb'tiff:Orientation(?:="|>)([0-9])').search


def turns(orientation: int) -> bool:
    """Whether applying the orientation exchanges height and width."""
    return orientation >= 5


def make_exif(orientation: int) -> bytes:
    """Returns EXIF data that holds only the orientation.

    It begins with the TIFF header, as in a PNG's eXIf chunk. The segment of a JPEG has
    the name `Exif` before it.
    """
    head = b"MM\0*" + struct.pack(">IH", 8, 1)
    # A SHORT fills the first half of its four bytes. The last 0: no other directory.
    return head + struct.pack(">HHIHHI", _ORIENTATION, _SHORT, 1, orientation, 0, 0)


def read_orientation(exif: Buffer, xmp: Buffer = b"") -> int:
    """Reads the orientation.

    Args:
      exif: EXIF data, with or without its name in front; empty for none.
      xmp: an XMP packet; it counts where `exif` has no orientation.

    Returns:
      1 to 8; 1 where there is none or an invalid one, since no image is refused for
      its metadata.
    """
    found = _in_exif(exif)
    if found is None:
        match = _in_xmp(xmp)
        found = int(match[1]) if match else 1
    return found if 1 <= found <= 8 else 1


def _in_exif(data: Buffer) -> int | None:
    """Returns the tag's value, 0 for an invalid one; None without the tag."""
    for _ in range(2):  # some writers repeat the name
        if data[: len(_NAME)] == _NAME:
            data = data[len(_NAME) :]
    mark = data[:4]
    if mark == b"II*\0":
        order = "<"
    elif mark == b"MM\0*":
        order = ">"
    else:
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
