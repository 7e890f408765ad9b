"""Members of a zip: their content, checked against the central directory.

The local header before the data must agree with the directory's entry, the data must
end where both say, and size and CRC-32 must be right; see `archive_zip_directory`.
"""

import zlib
from collections.abc import Iterator
from typing import BinaryIO

from transforms.errors import DamageError
from transforms.formats.archive.model import Member, shown_name
from transforms.formats.archive.streams import ByteReader, Deflated, Plain, unpacker
from transforms.formats.archive.zip_directory import (
    DEFLATED,
    ENCRYPTED,
    LOCAL,
    PACKINGS,
    STORED,
)

_LOCAL_MAGIC = b"PK\x03\x04"
# The bit of a header whose sizes and checksum are behind the data.
_SIZES_FOLLOW = 1 << 3
_MAX32 = 0xFFFFFFFF


class MemberError(DamageError):
    """One member is damaged; those beside it may be whole. Becomes a `MemberFault`."""


def zip_chunks(file: BinaryIO, member: Member) -> Iterator[bytes]:
    """Yields the content of a member; its end is reached only if all is right.

    Raises:
      MemberError: sizes, checksum or the local header are wrong.
    """
    start = _data_start(file, member)
    if start + member.packed > member.end:
        raise MemberError("its data reach into the next member")
    # A position of its own: the file may be used between two chunks.
    place, stop = start, start + member.packed

    def read(size: int) -> bytes:
        nonlocal place
        file.seek(place)
        data = file.read(min(size, stop - place))
        place += len(data)
        return data

    reader: ByteReader
    if member.method == STORED:
        reader = Plain(read)
    elif member.method == DEFLATED:
        reader = Deflated(read)
    else:
        reader = unpacker(PACKINGS[member.method], read)
    crc32, left = 0, member.size
    while True:
        try:
            # One byte too many is enough to detect a false size.
            data = reader.read(left + 1)
        except DamageError as error:
            raise MemberError(str(error)) from error
        if not data:
            break
        left -= len(data)
        if left < 0:
            raise MemberError(f"it holds more than the stated {member.size} bytes")
        crc32 = zlib.crc32(data, crc32)
        yield data
    if left:
        raise MemberError(f"it holds {left} bytes less than the stated {member.size}")
    if crc32 != member.crc32:
        raise MemberError(f"its CRC-32 is {crc32:08x}, not {member.crc32:08x}")


def _data_start(file: BinaryIO, member: Member) -> int:
    """Returns where the data begin, once the local header agrees with the entry."""
    file.seek(member.offset)
    head = file.read(LOCAL.size)
    if len(head) < LOCAL.size or not head.startswith(_LOCAL_MAGIC):
        raise MemberError("there is no header where the directory says")
    fields = LOCAL.unpack(head)
    flags, method, crc32, packed, size, name_length, extra_length = (
        *fields[2:4],
        *fields[6:],
    )
    name = file.read(name_length)
    if name != member.raw_name:
        shown = shown_name(name.decode("utf-8", "backslashreplace"))
        raise MemberError(f"its own header names it {shown}")
    if method != member.method or (flags ^ member.flags) & ENCRYPTED:
        raise MemberError("its own header has another method than the directory")
    if not flags & _SIZES_FOLLOW:
        stated = (member.crc32, member.packed, member.size)
        for ours, theirs in zip((crc32, packed, size), stated, strict=True):
            if ours not in (theirs, _MAX32):
                raise MemberError("its own header has other sizes or another CRC-32")
    return member.offset + LOCAL.size + name_length + extra_length
