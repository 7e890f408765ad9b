r"""Parse the headers of a tar archive.

    name(100) mode(8) uid(8) gid(8) size(12) mtime(12) checksum(8) type(1) link(100)
    magic(8) user(32) group(32) device(16) prefix(155) pad(12)

Numbers are octal text, or big-endian behind a first byte of 80 (GNU). The checksum is
the sum of all bytes, its own field taken for spaces. Records of a pax header are
`length key=value\n`. Sources: POSIX.1-2017 pax, GNU tar's manual.
"""

import dataclasses
import struct
from collections.abc import Iterator

BLOCK_BYTES = 512


@dataclasses.dataclass(frozen=True, slots=True)
class TarHeader:
    """What a header says: the name as stored, the bytes of data, and the type."""

    name: bytes
    size: int
    type: bytes


def parse_header(block: bytes) -> TarHeader:
    """Returns what a header of 512 bytes says; ValueError where it has no size."""
    size = _number(block[124:136])
    if size < 0:
        raise ValueError
    name = block[:100].partition(b"\0")[0]
    prefix = block[345:500].partition(b"\0")[0]
    # GNU has other things in the place of the prefix.
    if block[257:263] == b"ustar\0" and prefix:
        name = prefix + b"/" + name
    return TarHeader(name, size, block[156:157])


def is_header(block: bytes) -> bool:
    """Whether a block of 512 bytes is a header with the right checksum."""
    if len(block) != BLOCK_BYTES:
        return False
    try:
        stated = _number(block[148:156])
    except ValueError:
        return False
    rest = block[:148] + block[156:]
    if stated == sum(rest) + 8 * 0x20:
        return True
    # Some old writers took the bytes for signed ones.
    return stated == sum(struct.unpack("504b", rest)) + 8 * 0x20


def _number(field: bytes) -> int:
    """Returns the number of a header's field; ValueError where there is none."""
    if field[0] in (0x80, 0xFF):
        return int.from_bytes(
            (b"\xff" if field[0] == 0xFF else b"\0") + field[1:], "big", signed=True
        )
    text = field.partition(b"\0")[0].strip()
    if text.strip(b"01234567"):
        raise ValueError
    return int(text or b"0", 8)


def pax_records(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    r"""Yields the records `length key=value\n`; ValueError for anything else."""
    place = 0
    while place < len(data):
        stop = data.find(b" ", place, place + 20)
        if stop < 0 or not data[place:stop].isdigit():
            raise ValueError
        end = place + int(data[place:stop])
        record = data[stop + 1 : end]
        key, equals, value = record.partition(b"=")
        if end > len(data) or not equals or not value.endswith(b"\n"):
            raise ValueError
        yield key, value[:-1]
        place = end
