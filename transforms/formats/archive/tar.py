r"""tar archives: parsed header by header, with no byte between them unchecked.

    header   a block of 512 bytes:
             name(100) mode(8) uid(8) gid(8) size(12) mtime(12) checksum(8) type(1)
             link(100) magic(8) user(32) group(32) device(16) prefix(155) pad(12)
    data     in blocks of 512 bytes, the last one padded
    end      two blocks of zeros; only zeros after them

A name that is too long for a header is in a member of type L before (GNU) or in a
record `path` of one of type x (pax). A damaged header, an end that is missing or bytes
after it are errors: a reader that stops there in silence has lost the rest. The data
have no checksum.

Numbers of a header are octal text, or big-endian behind a first byte of 80 (GNU). Its
checksum is the sum of all bytes, its own field taken for spaces. Records of a pax
header are `length key=value\n`. Sources: POSIX.1-2017 pax, GNU tar's manual.
"""

import dataclasses
import struct
from collections.abc import Callable, Iterator
from typing import BinaryIO, Protocol

from transforms.core.model import Reason
from transforms.errors import DamageError, InputError
from transforms.formats.archive.model import (
    Limits,
    Member,
    decode_name,
    name_fault,
    path_of,
    shown_name,
)
from transforms.formats.archive.streams import ByteReader

BLOCK_BYTES = 512

_ZEROS = bytes(BLOCK_BYTES)
_STEP_BYTES = 1 << 20
# Of a long name or of pax records; real ones have some hundred bytes.
_MAX_EXTENSION_BYTES = 1 << 20

# Of a member: more than any disk holds.
_MOST_BYTES = 1 << 62

_REGULAR = frozenset((b"0", b"\0", b"7"))
_WITHOUT_DATA = {
    b"1": "a hard link",
    b"2": "a symbolic link",
    b"3": "a device",
    b"4": "a device",
    b"6": "a pipe",
}
_DIRECTORY, _DUMP_DIRECTORY, _VOLUME, _SPARSE = b"5", b"D", b"V", b"S"
_LONG_NAME, _LONG_LINK, _PAX, _PAX_GLOBAL, _PAX_OLD = b"L", b"K", b"x", b"g", b"X"


@dataclasses.dataclass(frozen=True, slots=True)
class _Header:
    """What a header says: the name as stored, the bytes of data, and the type."""

    name: bytes
    size: int
    type: bytes


class TarBytes(Protocol):
    """The bytes of a tar, front to back."""

    def read(self, size: int, /) -> bytes:
        """Returns `size` bytes, or fewer at the end."""

    def skip(self, size: int, /) -> bool:
        """Passes over `size` bytes; False where there are fewer."""


class FileBytes:
    """A plain tar: what is not wanted is sought over."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._size = file.seek(0, 2)
        self._place = 0

    def read(self, size: int, /) -> bytes:
        """See `TarBytes`."""
        self._file.seek(self._place)
        data = self._file.read(min(size, self._size - self._place))
        self._place += len(data)
        return data

    def skip(self, size: int, /) -> bool:
        """See `TarBytes`."""
        enough = size <= self._size - self._place
        self._place = self._place + size if enough else self._size
        return enough


class UnpackedBytes:
    """A packed tar, unpacked as it is read; raises what its reader raises.

    Args:
      reader: of the content.
      consumed: says how many packed bytes it has been given.
      path: for messages.
      limits: of the ratio and of the bytes altogether.
    """

    def __init__(
        self,
        reader: ByteReader,
        consumed: Callable[[], int],
        *,
        path: str,
        limits: Limits,
    ) -> None:
        self._reader = reader
        self._consumed = consumed
        self._path = path
        self._limits = limits
        self._unpacked = 0

    def read(self, size: int, /) -> bytes:
        """See `TarBytes`."""
        parts: list[bytes] = []
        while size and (data := self._some(size)):
            parts.append(data)
            size -= len(data)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def skip(self, size: int, /) -> bool:
        """See `TarBytes`."""
        while size and (data := self._some(size)):
            size -= len(data)
        return not size

    def _some(self, size: int) -> bytes:
        data = self._reader.read(size)
        self._unpacked += len(data)
        limits, packed = self._limits, self._consumed()
        if self._unpacked > limits.max_total_bytes:
            raise InputError(
                f"{self._path}: an archive may unpack to {limits.max_total_bytes} "
                f"bytes; this one holds more. Split it, or check where it comes from."
            )
        if limits.is_bomb(self._unpacked, packed):
            raise InputError(
                f"{self._path}: an archive may unpack to {limits.max_ratio} times its "
                f"size; {packed} bytes of this one gave {self._unpacked} or more: it "
                f"is taken for a bomb. Unpack it yourself if it is none."
            )
        return data


@dataclasses.dataclass(slots=True)
class _Extension:
    """What extension headers say of the member after them."""

    name: bytes | None = None
    size: int | None = None
    sparse: bool = False


class TarWalk:
    """Walks over the members of a tar; their content is read between two of them.

    Args:
      source: of the bytes, at the first header.
      path: for messages.
      limits: of the number of members.
      encoding: of names; "" for UTF-8. Names from pax records are UTF-8 always.
    """

    def __init__(
        self, source: TarBytes, path: str, limits: Limits, *, encoding: str = ""
    ) -> None:
        self._source = source
        self._path = path
        self._limits = limits
        self._encoding = encoding or "utf-8"
        self._offset = 0
        # Of the current member: bytes of its data, and then of padding, not yet read.
        self._left = 0
        self._padding = 0
        self._last: Member | None = None

    def __iter__(self) -> Iterator[Member]:
        """Yields the members in order; directories are left out.

        Raises:
          DamageError: the archive is damaged after some member, which is named.
          InputError: it holds more members than the limits allow.
        """
        index = 0
        extension = _Extension()
        while (header := self._header()) is not None:
            if header.type in (_PAX, _PAX_OLD, _LONG_NAME, _LONG_LINK, _PAX_GLOBAL):
                self._extend(extension, header)
                continue
            member = self._begin(header, extension, index)
            extension = _Extension()
            if member is not None:
                yield member
                self._last = member
            self._finish()
            index += 1
            if index > self._limits.max_members:
                raise InputError(
                    f"{self._path}: an archive may hold {self._limits.max_members} "
                    f"members; this one holds more. Split it."
                )
        if extension != _Extension():
            raise self._damage("the member that an extended header announces is gone")

    def chunks(self) -> Iterator[bytes]:
        """Yields what is left of the content of the current member."""
        while self._left:
            data = self._read(min(self._left, _STEP_BYTES))
            if not data:
                raise self._damage("the data of the next member are cut off")
            self._left -= len(data)
            yield data

    def _begin(
        self, header: _Header, extension: _Extension, index: int
    ) -> Member | None:
        """Returns the member of a header, positioned at its data; None for no item."""
        raw = header.name if extension.name is None else extension.name
        size = header.size if extension.size is None else extension.size
        encoding = "utf-8" if extension.name is not None else self._encoding
        name, is_text = decode_name(raw, encoding)
        kind = header.type
        if kind in _WITHOUT_DATA:
            size = 0
        if size > _MOST_BYTES:
            raise self._damage(f"the next header states {size} bytes")
        self._left, self._padding = size, -size % BLOCK_BYTES
        directory = kind in (_DIRECTORY, _DUMP_DIRECTORY) or (
            kind in _REGULAR and name.endswith("/") and not size
        )
        if directory or kind == _VOLUME:
            return None
        path = path_of(name)
        fault, message = name_fault(path, is_text=is_text)
        if not fault:
            fault, message = self._kind_fault(path, kind, size, extension.sparse)
        return Member(
            number=index,
            raw_name=raw,
            name=path,
            size=size,
            offset=self._offset - BLOCK_BYTES,
            data_offset=self._offset,
            packed=size,
            end=self._offset + size,
            fault=fault,
            message=message,
        )

    def _kind_fault(
        self, path: str, kind: bytes, size: int, sparse: bool
    ) -> tuple[Reason | None, str]:
        if sparse or kind == _SPARSE:
            return Reason.UNSUPPORTED_METHOD, (
                f"members must be stored whole; {shown_name(path)} is stored as a "
                f"sparse file. Pack it without --sparse."
            )
        if kind not in _REGULAR:
            found = _WITHOUT_DATA.get(kind, f"of type {kind!r}")
            return Reason.NOT_A_FILE, (
                f"members must be regular files; {shown_name(path)} is {found}. Pack "
                f"what it stands for (--dereference --hard-dereference), or exclude it."
            )
        if path.endswith("/"):
            message = f"a folder holds no bytes; {shown_name(path)} does."
            return Reason.DAMAGED_MEMBER, message
        if size > self._limits.max_member_bytes:
            return Reason.TOO_LARGE, (
                f"{shown_name(path)} has {size} bytes, more than "
                f"{self._limits.max_member_bytes}: that is taken for a bomb. Unpack it "
                f"yourself if it is none."
            )
        return None, ""

    def _header(self) -> _Header | None:
        """Returns the next header; None at the end of the archive, all of it read."""
        block = self._read(BLOCK_BYTES)
        if block == _ZEROS:
            self._check_end()
            return None
        if len(block) < BLOCK_BYTES:
            found = (
                "the next header is cut off"
                if block
                else ("the two blocks of zeros that end an archive are missing")
            )
            raise self._damage(found)
        if not is_header(block):
            raise self._damage("the checksum of the next header is wrong")
        try:
            return _parsed(block)
        except ValueError:
            raise self._damage("the next header states no size") from None

    def _check_end(self) -> None:
        if self._read(BLOCK_BYTES) != _ZEROS:
            raise self._damage(
                "one block of zeros follows where an archive ends with two"
            )
        while data := self._read(_STEP_BYTES):
            if data.strip(b"\0"):
                raise self._damage(
                    "other bytes follow the end (another archive joined to it, say)"
                )

    def _extend(self, extension: _Extension, header: _Header) -> None:
        """Takes up what an extended header says of the next member."""
        if header.size > _MAX_EXTENSION_BYTES:
            raise self._damage(f"an extended header has {header.size} bytes")
        self._left, self._padding = header.size, -header.size % BLOCK_BYTES
        data = b"".join(self.chunks())
        self._finish()
        if header.type == _LONG_NAME:
            extension.name = data.partition(b"\0")[0]
        if header.type in (_LONG_NAME, _LONG_LINK):
            return
        try:
            records = dict(_pax_records(data))
            size = records.get(b"size")
            if size is not None and not size.isdigit():
                raise ValueError
        except ValueError:
            raise self._damage("the records of an extended header are wrong") from None
        sparse = any(key.startswith(b"GNU.sparse.") for key in records)
        if header.type == _PAX_GLOBAL:
            if sparse or not records.keys().isdisjoint((b"path", b"size")):
                raise self._damage("a global header gives all members one name or size")
            return
        extension.name = records.get(b"path", extension.name)
        extension.size = extension.size if size is None else int(size)
        extension.sparse = extension.sparse or sparse

    def _finish(self) -> None:
        """Passes over what is left of the current member."""
        size, self._left, self._padding = self._left + self._padding, 0, 0
        self._offset += size
        try:
            enough = self._source.skip(size)
        except DamageError as error:
            raise self._damage(_plain(error)) from error
        if not enough:
            raise self._damage("the data of the last member are cut off")

    def _read(self, size: int) -> bytes:
        try:
            data = self._source.read(size)
        except DamageError as error:
            raise self._damage(_plain(error)) from error
        self._offset += len(data)
        return data

    def _damage(self, found: str) -> DamageError:
        last = self._last
        where = "before its first member"
        if last is not None:
            where = f"after member {last.number + 1}, {shown_name(last.name)}"
        return DamageError(
            f"{self._path}: the archive is damaged {where}: {found}. Fetch or write it "
            f"again."
        )


def _plain(error: DamageError) -> str:
    """Returns what a stream complains of, without its advice."""
    return str(error).removeprefix(": ").partition(". ")[0]


def _parsed(block: bytes) -> _Header:
    """Returns what a header of 512 bytes says; ValueError where it has no size."""
    size = _number(block[124:136])
    if size < 0:
        raise ValueError
    name = block[:100].partition(b"\0")[0]
    prefix = block[345:500].partition(b"\0")[0]
    # GNU has other things in the place of the prefix.
    if block[257:263] == b"ustar\0" and prefix:
        name = prefix + b"/" + name
    return _Header(name, size, block[156:157])


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


def _pax_records(data: bytes) -> Iterator[tuple[bytes, bytes]]:
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
