"""EXIF: the one number that changes how a picture is shown, its orientation.

EXIF 2.3 is a TIFF file inside another: offsets count from its first byte.

    49 49 2A 00 or 4D 4D 00 2A | offset of the directory, 4
    directory: entries, 2 | (tag, 2 | type, 2 | count, 4 | value, 4) of each

Orientation is tag 0x0112, one SHORT. How the stored picture becomes the shown one:

    1 as stored       2 mirrored        3 turned by 180     4 flipped
    5 transposed      6 turned by 90    7 transversed       8 turned by 270, clockwise
"""

import struct

__all__ = ["read_orientation", "turns"]

_ORIENTATION = 0x0112
_SHORT = 3
_ENTRY_BYTES = 12


def turns(orientation: int) -> bool:
    """Whether height and width change places when the orientation is applied."""
    return orientation >= 5


def read_orientation(data: bytes, start: int = 0) -> int:
    """Reads the orientation of EXIF data that begins at `start`.

    Returns:
      1 to 8; 1 where there is none, or what there is makes no sense. Pictures are not
      refused for their metadata.
    """
    mark = data[start : start + 4]
    if mark == b"II*\0":
        order = "<"
    elif mark == b"MM\0*":
        order = ">"
    else:
        return 1
    try:
        (offset,) = struct.unpack_from(f"{order}I", data, start + 4)
        (entries,) = struct.unpack_from(f"{order}H", data, start + offset)
        entry = struct.Struct(f"{order}HHIH")
        first = start + offset + 2
        for at in range(first, first + entries * _ENTRY_BYTES, _ENTRY_BYTES):
            tag, kind, count, value = entry.unpack_from(data, at)
            if tag == _ORIENTATION:
                fits = kind == _SHORT and count == 1 and 1 <= value <= 8
                return value if fits else 1
    except struct.error:  # an offset leads out of the file
        return 1
    return 1
