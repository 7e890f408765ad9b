r"""tar archives: parsed header by header, with no byte between them unchecked.

    header   a block of 512 bytes:
             name(100) mode(8) uid(8) gid(8) size(12) mtime(12) checksum(8) type(1)
             link(100) magic(8) user(32) group(32) device(16) prefix(155) pad(12)
    data     in blocks of 512 bytes, the last one padded
    end      two blocks of zeros; only zeros after them

A name that is too long for a header is in a member of type L before (GNU) or in a
record `path` of one of type x (pax). A damaged header, an end that is missing or bytes
after it are errors: a reader that stops there in silence, as `tarfile` does, has lost
the rest. The data have no checksum.

Numbers of a header are octal text, or big-endian behind a first byte of 80 (GNU). Its
checksum is the sum of all bytes, its own field taken for spaces. Records of a pax
header are `length key=value\n`. Sources: POSIX.1-2017 pax, GNU tar's manual.
"""

import bz2
import io
import lzma
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any, BinaryIO

from transforms.core.reasons import Fault, Reason
from transforms.errors import DamageError, InputError
from transforms.formats.archive.members import (
    Limits,
    Member,
    name_and_fault,
    refusal,
    shown_name,
)
from transforms.formats.input_files import UNPACKERS

BLOCK_BYTES = 512

_ZEROS = bytes(BLOCK_BYTES)
_STEP_BYTES = 1 << 20
_BUFFER_BYTES = 1 << 16
# Of a long name or of pax records; real ones have some hundred bytes.
_MAX_EXTENSION_BYTES = 1 << 20
# Of a member: more than any disk holds.
_MOST_BYTES = 1 << 62

_REGULAR = (b"0", b"\0", b"7")
_WITHOUT_DATA = {
    b"1": "a hard link",
    b"2": "a symbolic link",
    b"3": "a device",
    b"4": "a device",
    b"6": "a pipe",
}
# Directories, and the name of a volume.
_NO_MEMBERS, _SPARSE = (b"5", b"D", b"V"), b"S"
_LONG_NAME, _LONG_LINK, _PAX, _PAX_GLOBAL, _PAX_OLD = b"L", b"K", b"x", b"g", b"X"
_EXTENSIONS = (_LONG_NAME, _LONG_LINK, _PAX, _PAX_GLOBAL, _PAX_OLD)


# What unpacks a stream, by how it begins.
_UNPACKERS: Mapping[bytes, Callable[[IO[bytes], str], Any]] = {
    **UNPACKERS,
    b"BZh": lambda file, _: bz2.BZ2File(file),
    # It is open as long as the archive.
    b"\xfd7zXZ\x00": lambda file, _: lzma.LZMAFile(file),  # noqa: SIM115
}


def is_packed(head: bytes) -> bool:
    """Whether a file that begins with `head` (6 bytes) is a packed stream."""
    return head.startswith(tuple(_UNPACKERS))


class _Unpacked(io.RawIOBase):
    """The content of a packed tar, unless it is a bomb."""

    def __init__(self, file: BinaryIO, head: bytes, path: str, limits: Limits) -> None:
        super().__init__()
        self._file, self._path, self._limits = file, path, limits
        makers = (make for mark, make in _UNPACKERS.items() if head.startswith(mark))
        self._content = next(makers)(file, "")
        self._size = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        try:
            data = self._content.read(min(len(buffer), _STEP_BYTES))
        except (OSError, EOFError, lzma.LZMAError, ValueError, DamageError) as error:
            # Errors of the system have a number; those of a library have none.
            if getattr(error, "errno", None) is not None:
                raise
            text = str(error).removeprefix(": ").partition(". ")[0]
            raise DamageError(f"the packed stream is damaged: {text}") from error
        self._size += len(data)
        limits, packed = self._limits, self._file.tell()
        if limits.is_bomb(self._size, packed):
            raise InputError(
                f"{self._path}: an archive may unpack to {limits.max_ratio} times its "
                f"size; {packed} bytes of this one gave {self._size} or more: it is "
                f"taken for a bomb. Unpack it yourself if it is none."
            )
        buffer[: len(data)] = data
        return len(data)


class Tar:
    """A tar, front to back; a packed one as it is unpacked."""

    def __init__(self, file: BinaryIO, path: str, limits: Limits) -> None:
        """Begins at the start of an archive; `path` is for messages."""
        file.seek(0)
        head = file.read(BLOCK_BYTES)
        self._path = path
        self._limits = limits
        self._file: Any = file
        # Of a plain file, in which what is not wanted is sought over.
        self._size = -1 if is_packed(head) else file.seek(0, 2)
        file.seek(0)
        if self._size < 0:
            unpacked = _Unpacked(file, head, path, limits)
            self._file = io.BufferedReader(unpacked, _BUFFER_BYTES)
        self._offset = 0
        self._last: Member | None = None

    def members(self) -> Iterator[Member]:
        """Yields the members in order, but for directories.

        Between two of them, `content` gives the content of the first.

        Raises:
          DamageError: the archive is damaged after some member, which is named.
        """
        index = 0
        # What extension headers say of the member after them.
        said: dict[bytes, bytes] = {}
        while (header := self._header()) is not None:
            kind, begin = header[156:157], self._offset
            size = _number(header[124:136])
            if size is None or size < 0:
                raise self._damage("the next header states no size")
            if kind in _EXTENSIONS:
                said |= self._extension(kind, size)
            else:
                size = 0 if kind in _WITHOUT_DATA else int(said.get(b"size", size))
                if size > _MOST_BYTES:
                    raise self._damage(f"the next header states {size} bytes")
                member = self._member(header, said, index, size)
                said = {}
                if member is not None:
                    yield member
                    self._last = member
                index += 1
            self._go_to(begin + size + -size % BLOCK_BYTES)
        if said:
            raise self._damage("the member that an extended header announces is gone")

    def content(self, size: int) -> bytes:
        """Returns the content of the member whose header was the last."""
        # A header may state more than there is: no memory is taken for that.
        return b"".join(self._data_to(self._offset + size, "next"))

    def _data_to(self, stop: int, which: str) -> Iterator[bytes]:
        """Yields the data of the next or last member that are before an offset."""
        while data := self._read(min(stop - self._offset, _STEP_BYTES)):
            yield data
        if self._offset < stop:
            raise self._damage(f"the data of the {which} member are cut off")

    def _header(self) -> bytes | None:
        """Returns the next header; None at the end of the archive, all of it read."""
        block = self._read(BLOCK_BYTES)
        if is_header(block):
            return block
        if len(block) < BLOCK_BYTES:
            raise self._damage("the two blocks of zeros that end it are missing")
        if block != _ZEROS:
            raise self._damage("the checksum of the next header is wrong")
        if self._read(BLOCK_BYTES) != _ZEROS:
            raise self._damage("one block of zeros is where two must end it")
        while data := self._read(_STEP_BYTES):
            if data.strip(b"\0"):
                raise self._damage("other bytes follow its end, as of another archive")
        return None

    def _member(
        self, header: bytes, said: dict[bytes, bytes], index: int, size: int
    ) -> Member | None:
        """Returns the member of a header; None for a directory or a volume's name."""
        kind = header[156:157]
        # Names from pax records are UTF-8 always.
        raw, encoding = said.get(b"path"), "utf-8"
        if raw is None:
            raw, encoding = _name(header), self._limits.name_encoding
        is_folder = kind in _REGULAR and raw.endswith(b"/") and not size
        if is_folder or kind in _NO_MEMBERS:
            return None
        name, fault = name_and_fault(raw, encoding)
        fault = fault or self._fault(name, kind, said, size)
        return Member(
            number=index,
            raw_name=raw,
            name=name,
            size=size,
            offset=self._offset - BLOCK_BYTES,
            data_offset=self._offset,
            fault=fault,
        )

    def _fault(
        self, name: str, kind: bytes, said: dict[bytes, bytes], size: int
    ) -> Fault | None:
        """Returns why a member, by its header, is not to be read."""
        if kind == _SPARSE or any(key.startswith(b"GNU.sparse.") for key in said):
            return refusal(Reason.UNSUPPORTED_METHOD, name, "is a sparse file")
        if kind not in _REGULAR:
            description = _WITHOUT_DATA.get(kind, f"of type {kind!r}")
            return refusal(Reason.NOT_A_FILE, name, f"is {description}")
        if size > self._limits.max_member_bytes:
            return refusal(Reason.TOO_LARGE, name, f"has {size} bytes")
        return None

    def _extension(self, kind: bytes, size: int) -> dict[bytes, bytes]:
        """Returns what an extended header says of the next member, as pax records."""
        if size > _MAX_EXTENSION_BYTES:
            raise self._damage(f"an extended header has {size} bytes")
        data = self.content(size)
        if kind == _LONG_NAME:
            return {b"path": data.partition(b"\0")[0]}
        if kind == _LONG_LINK:
            return {}
        try:
            records = dict(_pax_records(data))
            if not re.fullmatch(rb"\d{1,19}", records.get(b"size", b"0")):
                raise ValueError
        except ValueError:
            raise self._damage("the records of an extended header are wrong") from None
        telling = {
            key: value
            for key, value in records.items()
            if key in (b"path", b"size") or key.startswith(b"GNU.sparse.")
        }
        if kind == _PAX_GLOBAL and telling:
            raise self._damage("a global header gives all members one name or size")
        return telling

    def _go_to(self, offset: int) -> None:
        """Passes over what is before an offset."""
        if self._size >= 0:
            self._offset = min(offset, self._size)
            self._file.seek(self._offset)
        for _ in self._data_to(offset, "last"):
            pass

    def _read(self, size: int) -> bytes:
        if self._size >= 0:
            size = min(size, self._size - self._offset)
        try:
            data: bytes = self._file.read(size)
        except DamageError as error:
            raise self._damage(str(error)) from error
        self._offset += len(data)
        return data

    def _damage(self, found: str) -> DamageError:
        """Returns the error that the archive is damaged behind the last member."""
        where = "before its first member"
        if self._last is not None:
            number, name = self._last.number + 1, shown_name(self._last.name)
            where = f"after member {number}, {name}"
        return DamageError(
            f"{self._path}: the archive is damaged {where}: {found}. Fetch or write it "
            f"again."
        )


def _name(header: bytes) -> bytes:
    """Returns the name that a header states."""
    name = header[:100].partition(b"\0")[0]
    prefix = header[345:500].partition(b"\0")[0]
    # GNU has other things in the place of the prefix.
    if header[257:263] == b"ustar\0" and prefix:
        name = prefix + b"/" + name
    return name


def is_header(block: bytes) -> bool:
    """Whether a block of 512 bytes is a header with the right checksum."""
    if len(block) != BLOCK_BYTES or (stated := _number(block[148:156])) is None:
        return False
    rest = block[:148] + block[156:]
    total = stated - 8 * 0x20
    # Some old writers took the bytes for signed ones.
    return total == sum(rest) or total == sum(struct.unpack("504b", rest))


def _number(field: bytes) -> int | None:
    """Returns the number of a header's field; None where there is none."""
    if field[0] in (0x80, 0xFF):
        sign = b"\xff" if field[0] == 0xFF else b"\0"
        return int.from_bytes(sign + field[1:], "big", signed=True)
    text = field.partition(b"\0")[0].strip()
    return None if text.strip(b"01234567") else int(text or b"0", 8)


def _pax_records(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    r"""Yields the records `length key=value\n`; ValueError for anything else."""
    offset = 0
    while offset < len(data):
        stop = data.find(b" ", offset, offset + 20)
        if stop < 0 or not data[offset:stop].isdigit():
            raise ValueError
        end = offset + int(data[offset:stop])
        key, equals, value = data[stop + 1 : end].partition(b"=")
        if end > len(data) or not equals or not value.endswith(b"\n"):
            raise ValueError
        yield key, value[:-1]
        offset = end
