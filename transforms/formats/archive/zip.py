"""zip archives: the central directory, and members that are checked against it.

    local header   50 4b 03 04  version(2) flags(2) method(2) time(4) crc32(4)
                   packed(4) size(4) len(2) extra len(2)  name  extra  data
    entry          50 4b 01 02  made by(2) version(2) flags(2) method(2) time(4)
                   crc32(4) packed(4) size(4) len(2) extra len(2) comment len(2)
                   disk(2) attributes(2) external(4) offset(4)  name  extra  comment
    end            50 4b 05 06  disk(2) disk(2) entries(2) entries(2) size(4)
                   offset(4) comment len(2)  comment
    zip64          a record 50 4b 06 06 and its locator 50 4b 06 07 before the end;
                   an extra field 01 00 with what does not fit into 4 bytes

The central directory says which members there are, the local headers must agree with
it, and no two entries may share a byte: else readers disagree on what an archive
holds (or a small one unpacks to petabytes). The data of a member must end where both
say, and size and CRC-32 must be right. Source: PKWARE's APPNOTE.TXT 6.3.10.
"""

import array
import dataclasses
import stat
import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from transforms.core.model import Reason
from transforms.errors import DamageError, InputError
from transforms.formats.archive.member_list import MemberList
from transforms.formats.archive.model import (
    Limits,
    Member,
    decode_name,
    name_fault,
    path_of,
    shown_name,
)
from transforms.formats.archive.streams import ByteReader, Deflated, Plain, unpacker

_LOCAL = struct.Struct("<4s5H3I2H")
_ENTRY = struct.Struct("<4s6H3I5H2I")
_END = struct.Struct("<4s4H2IH")
_END64 = struct.Struct("<4sQ2H2I4Q")
_LOCATOR = struct.Struct("<4sIQI")
_LOCAL_MAGIC = b"PK\x03\x04"
_ENTRY_MAGIC = b"PK\x01\x02"
_END_MAGIC, _END64_MAGIC, _LOCATOR_MAGIC = b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"
_MAX_COMMENT = 0xFFFF
_MAX32 = 0xFFFFFFFF

# Bits of an entry's flags.
_ENCRYPTED = 1 | 1 << 6 | 1 << 13
_UTF8 = 1 << 11
# The bit of a header whose sizes and checksum are behind the data.
_SIZES_FOLLOW = 1 << 3

_STORED, _DEFLATED, _AES = 0, 8, 99
_PACKINGS = {12: "bzip2", 93: "zstd"}
_METHODS = {9: "deflate64", 14: "lzma", 95: "xz", 97: "wavpack", 98: "ppmd"}

_ZIP64_EXTRA, _UNICODE_PATH_EXTRA = 0x0001, 0x7075


class MemberError(DamageError):
    """One member is damaged; those beside it may be whole. Becomes a `MemberFault`."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Directory:
    """Where the central directory is, and how far it is from where it says."""

    offset: int
    size: int
    entries: int
    shift: int


def list_zip(
    file: BinaryIO, path: str, limits: Limits, *, encoding: str = ""
) -> MemberList:
    """Returns the members in the order of the central directory.

    Args:
      file: can be sought.
      path: for messages.
      limits: of the whole archive are checked here.
      encoding: of names that are not marked as UTF-8; "" for UTF-8.

    Raises:
      DamageError: the directory is damaged, or entries overlap.
      InputError: more members or bytes than the limits allow.
    """
    directory = _find_directory(file, path)
    if directory.entries > limits.max_members:
        raise InputError(
            f"{path}: an archive may hold {limits.max_members} entries; this one says "
            f"{directory.entries}. Split it."
        )
    starts, stops = array.array("q"), array.array("q")

    def members() -> Iterator[Member]:
        total = 0
        for member in _entries(file, path, directory, encoding):
            total += member.size
            if total > limits.max_total_bytes:
                raise InputError(
                    f"{path}: an archive may unpack to {limits.max_total_bytes} bytes; "
                    f"this one says {total} or more. Split it, or check where it comes "
                    f"from."
                )
            stop = member.offset + _LOCAL.size + len(member.raw_name) + member.packed
            if stop > directory.offset:
                raise _overlap(path, member, "the central directory")
            starts.append(member.offset)
            stops.append(stop)
            # A directory has no name.
            if member.name or member.fault:
                yield _with_limits(member, limits)

    listed = MemberList.of(members())
    ends, pair = _ends_of(starts, stops, directory.offset)
    if pair:
        # Directories are not listed: both are read once more.
        first, second = sorted(
            (m for m in _entries(file, path, directory, encoding) if m.number in pair),
            key=lambda member: pair.index(member.number),
        )
        raise _overlap(path, first, _shown(second))
    return listed.with_ends(ends)


def _ends_of(
    starts: Sequence[int], stops: Sequence[int], end: int
) -> tuple[npt.NDArray[np.int64], list[int]]:
    """Returns for each entry where the next one begins, and two that share bytes.

    Args:
      starts: offset of each entry's header.
      stops: the least offset behind its data; none is behind `end`.
      end: offset of the central directory.
    """
    offsets = np.asarray(starts, np.int64)
    order = np.argsort(offsets, kind="stable")
    following = np.append(offsets[order][1:], end)
    shared = np.flatnonzero(np.asarray(stops, np.int64)[order] > following)
    ends = np.empty(len(order), np.int64)
    ends[order] = following[: len(order)]
    return ends, order[shared[0] : shared[0] + 2].tolist() if len(shared) else []


def _find_directory(file: BinaryIO, path: str) -> _Directory:
    size = file.seek(0, 2)
    start = max(0, size - _END.size - _MAX_COMMENT)
    file.seek(start)
    tail = file.read(size - start)
    place = tail.rfind(_END_MAGIC)
    while place >= 0:
        if place + _END.size <= len(tail):
            end = _END.unpack_from(tail, place)
            # Otherwise the magic is in the comment, or bytes follow it.
            if place + _END.size + end[7] == len(tail):
                return _directory(file, path, start + place, end)
        place = tail.rfind(_END_MAGIC, 0, place)
    raise DamageError(
        f"{path}: a zip must end with its central directory; there is none at the end "
        f"of these {size} bytes: it is cut off or no zip. Fetch or write it again."
    )


def _directory(
    file: BinaryIO, path: str, place: int, end: tuple[int, ...]
) -> _Directory:
    """Returns where the directory is, by the end record at `place` or by zip64's."""
    _, disk, first, here, entries, size, offset, _ = end
    file.seek(max(0, place - _LOCATOR.size))
    locator = file.read(_LOCATOR.size) if place >= _LOCATOR.size else b""
    if locator.startswith(_LOCATOR_MAGIC):
        place -= _LOCATOR.size
        _, disk64, stated, _ = _LOCATOR.unpack(locator)
        record = b""
        # Bytes may have been put before the archive: then it is right here.
        for at in (stated, place - _END64.size):
            if 0 <= at <= place - _END64.size:
                file.seek(at)
                record = file.read(_END64.size)
                if record.startswith(_END64_MAGIC):
                    place = at
                    break
        else:
            raise _damaged_directory(path, "its zip64 record is missing")
        fields = _END64.unpack(record)
        disk, first, here, entries, size, offset = fields[4:10]
        disk = disk or disk64
    if disk or first or here != entries:
        raise DamageError(
            f"{path}: archives in several volumes are not read. Join them into one."
        )
    shift = place - size - offset
    if shift < 0:
        raise _damaged_directory(path, "it says that it begins behind its end")
    return _Directory(place - size, size, entries, shift)


def _entries(
    file: BinaryIO, path: str, directory: _Directory, encoding: str
) -> Iterator[Member]:
    """Yields all entries, directories with an empty name among them."""
    file.seek(directory.offset)
    left = directory.size
    for index in range(directory.entries):
        head = file.read(_ENTRY.size) if left >= _ENTRY.size else b""
        if len(head) < _ENTRY.size or not head.startswith(_ENTRY_MAGIC):
            raise _damaged_directory(path, f"entry {index + 1} is no entry")
        fields = _ENTRY.unpack(head)
        lengths = fields[10:13]
        left -= _ENTRY.size + sum(lengths)
        if left < 0:
            raise _damaged_directory(path, f"entry {index + 1} is cut off")
        name, extra, _ = (file.read(length) for length in lengths)
        try:
            yield _member(index, fields, name, extra, directory, encoding)
        except struct.error as error:
            found = f"the extra fields of entry {index + 1} are damaged"
            raise _damaged_directory(path, found) from error
    if left:
        raise _damaged_directory(path, f"{left} bytes of it are no entries")


def _damaged_directory(path: str, found: str) -> DamageError:
    return DamageError(
        f"{path}: the central directory of a zip must name every member; {found}. "
        f"Fetch or write it again."
    )


def _member(
    index: int,
    fields: tuple[int, ...],
    raw: bytes,
    extra: bytes,
    directory: _Directory,
    encoding: str,
) -> Member:
    flags, method, _, _, crc32, packed, size = fields[3:10]
    external, offset = fields[15:17]
    extras = _extras(extra)
    wide = iter(struct.iter_unpack("<Q", _whole(extras.get(_ZIP64_EXTRA, b""))))
    size, packed, offset = (
        next(wide, (value,))[0] if value == _MAX32 else value
        for value in (size, packed, offset)
    )
    name, is_text = _name(raw, flags, extras, encoding)
    path = path_of(name)
    member = Member(
        number=index,
        raw_name=raw,
        name=path,
        size=size,
        offset=offset + directory.shift,
        packed=packed,
        method=method,
        flags=flags,
        crc32=crc32,
    )
    kind = stat.S_IFMT(external >> 16)
    directory_like = name.endswith("/") or kind == stat.S_IFDIR
    if directory_like and not size:
        return member._replace(name="")
    fault, message = name_fault(path, is_text=is_text)
    if not fault:
        fault, message = _entry_fault(member, kind, directory_like)
    return member._replace(fault=fault, message=message) if fault else member


def _whole(extra: bytes) -> bytes:
    return extra[: len(extra) // 8 * 8]


def _extras(data: bytes) -> dict[int, bytes]:
    """Returns the extra fields by their number; the first of a number counts."""
    fields: dict[int, bytes] = {}
    place = 0
    while place + 4 <= len(data):
        number, length = struct.unpack_from("<2H", data, place)
        fields.setdefault(number, data[place + 4 : place + 4 + length])
        place += 4 + length
    return fields


def _name(
    raw: bytes, flags: int, extras: dict[int, bytes], encoding: str
) -> tuple[str, bool]:
    field = extras.get(_UNICODE_PATH_EXTRA, b"")
    if len(field) > 5 and int.from_bytes(field[1:5], "little") == zlib.crc32(raw):
        return decode_name(field[5:], "utf-8")
    # Many writers store UTF-8 and do not mark it. Code page 437, the standard's other
    # choice, would turn any bytes into some text, and be right for hardly any today.
    return decode_name(raw, "utf-8" if flags & _UTF8 or not encoding else encoding)


def _entry_fault(
    member: Member, kind: int, directory_like: bool
) -> tuple[Reason | None, str]:
    """Returns why the entry, by its header, is not to be read."""
    shown = shown_name(member.name)
    if directory_like:
        return Reason.DAMAGED_MEMBER, f"a folder holds no bytes; {shown} does."
    if kind not in (0, stat.S_IFREG):
        what = "a symbolic link" if kind == stat.S_IFLNK else "a device or pipe"
        return Reason.NOT_A_FILE, (
            f"members must be regular files; {shown} is {what}. Pack what it "
            f"stands for, or exclude it."
        )
    if member.flags & _ENCRYPTED or member.method == _AES:
        return Reason.ENCRYPTED, (
            f"members must be readable without a password; {shown} is encrypted. "
            f"Pack it without one."
        )
    if member.method not in (_STORED, _DEFLATED, *_PACKINGS):
        found = _METHODS.get(member.method, f"number {member.method}")
        return Reason.UNSUPPORTED_METHOD, (
            f"members must be stored, deflated, or packed with bzip2 or zstd; "
            f"{shown} has method {found}. Pack it again."
        )
    return None, ""


def _with_limits(member: Member, limits: Limits) -> Member:
    if member.fault:
        return member
    found = ""
    if member.size > limits.max_member_bytes:
        found = f"more than {limits.max_member_bytes}"
    elif limits.is_bomb(member.size, member.packed):
        found = f"more than {limits.max_ratio} times its packed {member.packed}"
    if not found:
        return member
    return member._replace(
        fault=Reason.TOO_LARGE,
        message=f"{shown_name(member.name)} unpacks to {member.size} bytes, {found}: "
        f"that is taken for a bomb. Unpack it yourself if it is none.",
    )


def _overlap(path: str, member: Member, other: str) -> DamageError:
    return DamageError(
        f"{path}: members of a zip must not overlap; member {member.number + 1}, "
        f"{_shown(member)}, and {other} do: the archive is damaged or a bomb. Fetch or "
        f"write it again."
    )


def _shown(member: Member) -> str:
    """Returns the name of a member or a directory for messages."""
    return shown_name(member.name or decode_name(member.raw_name, "utf-8")[0])


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
    if member.method == _STORED:
        reader = Plain(read)
    elif member.method == _DEFLATED:
        reader = Deflated(read)
    else:
        reader = unpacker(_PACKINGS[member.method], read)
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
    head = file.read(_LOCAL.size)
    if len(head) < _LOCAL.size or not head.startswith(_LOCAL_MAGIC):
        raise MemberError("there is no header where the directory says")
    fields = _LOCAL.unpack(head)
    flags, method, crc32, packed, size, name_length, extra_length = (
        *fields[2:4],
        *fields[6:],
    )
    name = file.read(name_length)
    if name != member.raw_name:
        shown = shown_name(name.decode("utf-8", "backslashreplace"))
        raise MemberError(f"its own header names it {shown}")
    if method != member.method or (flags ^ member.flags) & _ENCRYPTED:
        raise MemberError("its own header has another method than the directory")
    if not flags & _SIZES_FOLLOW:
        stated = (member.crc32, member.packed, member.size)
        for ours, theirs in zip((crc32, packed, size), stated, strict=True):
            if ours not in (theirs, _MAX32):
                raise MemberError("its own header has other sizes or another CRC-32")
    return member.offset + _LOCAL.size + name_length + extra_length
