"""Archives: their members in turn, of zip here, of tar in `tar`; members in memory.

Archives may be compressed, and their kind is told by their content. Memory is bounded
by one member's content; where members are read in turn, also by their names, which have
to differ.
Nothing here writes content to disk. What concerns one member is a value, its fault;
what casts doubt on the rest of the archive is an error that names the member before it.

    local header   50 4b 03 04  version(2) flags(2) method(2) time(4) crc32(4)
                   packed(4) size(4) len(2) extra len(2)  name  extra  data

The central directory of a zip says which members there are, the local headers must
agree with it, and no two entries may share a byte: else readers disagree on what an
archive holds (or a small one unpacks to petabytes). The data of a member must end where
both say, and size and CRC-32 must be right. Source: PKWARE's APPNOTE.TXT 6.3.10.
"""

import contextlib
import dataclasses
import functools
import io
import itertools
import operator
import os
import stat
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import IO, BinaryIO, Literal, NamedTuple

from transforms.core.image.resize import MAX_BYTES
from transforms.core.reasons import Fault, Reason
from transforms.errors import DamageError, InputError, SpecError
from transforms.formats.archive.members import (
    ARCHIVE_SUFFIXES,
    Item,
    Limits,
    Member,
    MemberError,
    MemberList,
    checked,
    name_and_fault,
    refusal,
    shown_name,
)
from transforms.formats.archive.tar import BLOCK_BYTES, Tar, is_header, is_packed
from transforms.formats.table import InputFile, SourceFile
from transforms.storage.paths import stamp_of

_ZIP_MAGICS = (b"PK\x03\x04", b"PK\x05\x06", b"PK\x06\x06")
_DEFAULT_LIMITS = Limits()
_LOCAL = struct.Struct("<4s5H3I2H")
_LOCAL_MAGIC, _END_MAGIC, _END_BYTES = b"PK\x03\x04", b"PK\x05\x06", 22
_MAX32 = 0xFFFFFFFF
_STEP_BYTES, _INPUT_BYTES = 1 << 20, 1 << 16
# Bits of an entry's flags.
_ENCRYPTED = 1 | 1 << 6 | 1 << 13
_UTF8 = 1 << 11
# The bit of a header whose sizes and checksum are behind the data.
_SIZES_FOLLOW = 1 << 3
_STORED, _DEFLATED, _AES = 0, 8, 99
_METHODS = {9: "deflate64", 12: "bzip2", 14: "lzma", 93: "zstd", 95: "xz", 98: "ppmd"}


class Archive:
    """An open archive. Nothing else may use its file while members are read in turn.

    Attributes:
      kind: what it is; a member of a packed tar can only be reached through all those
        before it.
      packed_bytes: of a packed tar; 0 for others.
    """

    def __init__(
        self, file: BinaryIO, path: str, limits: Limits = _DEFAULT_LIMITS
    ) -> None:
        """Looks at how a file begins; its name is not looked at.

        Args:
          file: can be sought.
          path: for messages.
          limits: see `Limits`.

        Raises:
          InputError: it is not an archive that can be read.
          SpecError: no such encoding of names.
        """
        try:
            b"a".decode(limits.name_encoding)
        except (LookupError, UnicodeError, AttributeError) as error:
            raise SpecError(
                f"The encoding of names must be one that Python knows, like cp949; "
                f"found {limits.name_encoding!r}."
            ) from error
        self._file, self._path, self._limits = file, path, limits
        self.kind = self._kind()
        self.packed_bytes = file.seek(0, 2) if self.kind == "packed tar" else 0

    def _kind(self) -> Literal["zip", "tar", "packed tar"]:
        self._file.seek(0)
        head = self._file.read(BLOCK_BYTES)
        if is_packed(head):
            return "packed tar"
        # A damaged header is an error of the tar.
        is_tar = is_header(head) or head[257:262] == b"ustar"
        if is_tar or head == bytes(BLOCK_BYTES):
            return "tar"
        if head.startswith(_ZIP_MAGICS):
            return "zip"
        description = f"begins with {head[:8].hex(' ')}" if head else "is empty"
        raise InputError(
            f"{self._path}: an archive must be a zip, or a tar that is plain or packed "
            f"with gzip, zstd, bzip2 or xz; this one {description}. Fetch or write it "
            f"again."
        )

    def members(self) -> Iterator[tuple[Member, Callable[[], Item]]]:
        """Yields each member, in their order, and what reads it before the next one.

        Those that cannot be items have a `fault`; directories are left out.

        Raises:
          DamageError: the archive is damaged, or (but for a zip) has no end.
          InputError: it goes beyond the limits.
        """
        tar = None
        if self.kind == "zip":
            listed = zip_members(self._file, self._path, self._limits)
        else:
            tar = Tar(self._file, self._path, self._limits)
            listed = tar.members()
        for member in checked(listed, self._limits, self._path):
            yield member, functools.partial(self.read, member, tar)

    def listing(self) -> MemberList:
        """Returns the members, see `members`; only a packed tar is unpacked."""
        members = (member for member, _ in self.members())
        return MemberList.of(members, is_sequential=self.kind == "packed tar")

    def read(self, member: Member, tar: Tar | None = None) -> Item:
        """Returns one member of a zip or plain tar, or the one that `tar` is at.

        Raises:
          DamageError: the archive is shorter than it was when it was listed.
        """
        if member.fault:
            return Item(member, None)
        if tar:
            return Item(member, tar.content(member.size))
        try:
            return Item(member, b"".join(self.stream(member)))
        except MemberError as damage:
            detail = f"is damaged: {damage}"
            fault = refusal(Reason.DAMAGED_MEMBER, member.name, detail)
            return Item(member._replace(fault=fault), None)

    def stream(self, member: Member) -> Iterator[bytes]:
        """Yields the content of a member of a zip or plain tar, at most 1 MiB a piece.

        Raises:
          MemberError: the member is damaged; what was yielded must not be used.
          DamageError: the archive is shorter than it was when it was listed.
        """
        if member.data_offset < 0:
            yield from zip_chunks(self._file, member)
            return
        try:
            offset = member.data_offset
            yield from _stored(self._file, offset, member.size, _STEP_BYTES)
        except EOFError as error:
            raise DamageError(
                f"{self._path}: the archive is cut off in member {member.number + 1}, "
                f"{shown_name(member.name)}. Fetch or write it again."
            ) from error


@dataclasses.dataclass(frozen=True, slots=True)
class Archives:
    """Opens and lists archives, by the settings that all of their readers share.

    Attributes:
      zip_encoding: of names that are not marked as UTF-8; None for UTF-8.
      max_image_bytes: a larger member that is an image is rejected unread.
    """

    zip_encoding: str | None = None
    max_image_bytes: int = MAX_BYTES

    @contextlib.contextmanager
    def opened(self, file: SourceFile) -> Iterator[Archive]:
        """Opens an archive; raises OSError, and see `Archive`."""
        encoding = self.zip_encoding or "utf-8"
        limits = Limits(max_image_bytes=self.max_image_bytes, name_encoding=encoding)
        with file.open() as stream:
            yield Archive(stream, file.origin, limits)

    def listing(self, file: SourceFile) -> MemberList:
        """Returns what an archive holds; that of a packed tar by unpacking all of it.

        Raises:
          OSError: it cannot be read, or has another stamp.
          DamageError, InputError: see `Archive`.
        """
        archives = Archives(self.zip_encoding, self.max_image_bytes)
        return _listing(archives, SourceFile(file.origin, file.path, stamp=file.stamp))


# A worker mostly reads blocks of one archive, one after the other. A listing of
# millions of members is too large to keep many.
@functools.lru_cache(maxsize=2)
def _listing(archives: Archives, file: SourceFile) -> MemberList:
    """Returns the members of an archive, remembered by its settings, path and stamp."""
    with archives.opened(file) as archive:
        return archive.listing()


def zip_members(file: BinaryIO, path: str, limits: Limits) -> Iterator[Member]:
    """Yields the members in the order of the central directory.

    Args:
      file: can be sought.
      path: for messages.
      limits: of members.

    Raises:
      DamageError: the directory is damaged, or entries overlap.
    """
    try:
        # Names are decoded here: latin-1 keeps their bytes.
        archive = zipfile.ZipFile(file, metadata_encoding="latin-1")
        file.seek(-_END_BYTES - len(archive.comment), io.SEEK_END)
        ends = file.read(len(_END_MAGIC)) == _END_MAGIC
    except (
        *(zipfile.BadZipFile, NotImplementedError, UnicodeDecodeError, OSError),
        *(ValueError, IndexError, struct.error),
    ) as error:
        if getattr(error, "errno", None) is not None:
            raise
        raise _damaged_directory(path, str(error)) from error
    if not ends:
        raise _damaged_directory(path, "other bytes follow its end")
    infos = archive.filelist
    _check_apart(infos, archive.start_dir, path)
    # As they become members, the entries are let go of: each takes half a kilobyte.
    archive.NameToInfo.clear()
    infos.reverse()
    for index in range(len(infos)):
        member = _member(infos.pop(), index, limits)
        if member is not None:
            yield member


def _check_apart(infos: list[zipfile.ZipInfo], end: int, path: str) -> None:
    """Raises DamageError where two entries share bytes, or one the directory."""
    ordered = sorted(infos, key=operator.attrgetter("header_offset"))
    starts = (info.header_offset for info in ordered[1:])
    for info, start in zip(ordered, itertools.chain(starts, [end]), strict=False):
        size = _LOCAL.size + len(_raw_name(info)) + info.compress_size
        if not 0 <= info.header_offset <= start - size:
            raise DamageError(
                f"{path}: members of a zip must not overlap, nor its central "
                f"directory; member {infos.index(info) + 1}, "
                f"{shown_name(info.filename)}, does: the archive is damaged or a bomb. "
                f"Fetch or write it again."
            )


def _damaged_directory(path: str, found: str) -> DamageError:
    """Returns the error of a zip that does not end with a list of its members."""
    return DamageError(
        f"{path}: a zip must end with its central directory, which names every "
        f"member; {found}: it is cut off or damaged. Fetch or write it again."
    )


def _raw_name(info: zipfile.ZipInfo) -> bytes:
    """Returns the bytes of a stored name, which `zipfile` has decoded."""
    is_utf8 = info.flag_bits & _UTF8
    return info.orig_filename.encode("utf-8" if is_utf8 else "latin-1")


def _member(info: zipfile.ZipInfo, index: int, limits: Limits) -> Member | None:
    """Returns the member of an entry; None for a directory."""
    raw = _raw_name(info)
    # Many writers store UTF-8 and do not mark it. Code page 437, the standard's other
    # choice, would turn any bytes into some text, and be right for hardly any today.
    encoding = "utf-8" if info.flag_bits & _UTF8 else limits.name_encoding
    kind = stat.S_IFMT(info.external_attr >> 16)
    is_folder = raw.endswith(b"/") or kind == stat.S_IFDIR
    if is_folder and not info.file_size:
        return None
    name, fault = name_and_fault(raw, encoding)
    fault = fault or _entry_fault(info, name, kind, is_folder, limits)
    return Member(
        number=index,
        raw_name=raw,
        name=name,
        size=info.file_size,
        offset=info.header_offset,
        packed=info.compress_size,
        method=info.compress_type,
        flags=info.flag_bits,
        crc32=info.CRC,
        fault=fault,
    )


def _entry_fault(
    info: zipfile.ZipInfo, name: str, kind: int, is_folder: bool, limits: Limits
) -> Fault | None:
    """Returns why the entry, by the directory, is not to be read."""
    if is_folder:
        return refusal(Reason.DAMAGED_MEMBER, name, "is a folder with bytes")
    if kind not in (0, stat.S_IFREG):
        what = "a symbolic link" if kind == stat.S_IFLNK else "a device or pipe"
        return refusal(Reason.NOT_A_FILE, name, f"is {what}")
    if info.flag_bits & _ENCRYPTED or info.compress_type == _AES:
        return refusal(Reason.ENCRYPTED, name, "is encrypted")
    if info.compress_type not in (_STORED, _DEFLATED):
        detail = _METHODS.get(info.compress_type, f"number {info.compress_type}")
        return refusal(Reason.UNSUPPORTED_METHOD, name, f"has method {detail}")
    if info.file_size > limits.max_member_bytes or limits.is_bomb(
        info.file_size, info.compress_size
    ):
        detail = f"unpacks from {info.compress_size} to {info.file_size} bytes"
        return refusal(Reason.TOO_LARGE, name, detail)
    return None


def zip_chunks(file: BinaryIO, member: Member) -> Iterator[bytes]:
    """Yields the content of a member; its end is reached only if all is right.

    Raises:
      MemberError: sizes, checksum or the local header are wrong.
    """
    crc32, left = 0, member.size
    try:
        start = _data_start(file, member)
        stored = _stored(file, start, member.packed, _INPUT_BYTES)
        for data in _unpacked(member.method, stored):
            left -= len(data)
            if left < 0:
                raise MemberError(f"it holds more than the stated {member.size} bytes")
            crc32 = zlib.crc32(data, crc32)
            yield data
    except (zlib.error, EOFError) as error:
        raise MemberError(f"its data are damaged ({error})") from error
    if left:
        raise MemberError(f"it holds {left} bytes less than the stated {member.size}")
    if crc32 != member.crc32:
        raise MemberError(f"its CRC-32 is {crc32:08x}, not {member.crc32:08x}")


def _stored(file: BinaryIO, offset: int, size: int, most: int) -> Iterator[bytes]:
    """Yields the bytes of a member as they are stored, at most `most` a piece.

    Callers may use the file between two pieces.
    """
    stop = offset + size
    while offset < stop:
        file.seek(offset)
        data = file.read(min(stop - offset, most))
        if not data:
            raise EOFError("they are cut off")
        offset += len(data)
        yield data


def _unpacked(method: int, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yields the content of a member; a packed stream must end where its bytes do."""
    if method == _STORED:
        yield from pieces
        return
    unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
    pending = b""
    while not unpacker.eof:
        pending = pending or next(pieces, b"")
        data = unpacker.decompress(pending, _STEP_BYTES)
        if not (data or pending or unpacker.eof):
            raise EOFError("the packed stream ends early")
        pending = unpacker.unconsumed_tail
        yield data
    if unpacker.unused_data or next(pieces, b""):
        raise EOFError("the packed stream is followed by other bytes")


def _data_start(file: BinaryIO, member: Member) -> int:
    """Returns where the data begin, once the local header agrees with the entry."""
    file.seek(member.offset)
    head = file.read(_LOCAL.size)
    if len(head) < _LOCAL.size or not head.startswith(_LOCAL_MAGIC):
        raise MemberError("there is no header where the directory says")
    _, _, flags, method, _, _, *stated, name_length, extra_length = _LOCAL.unpack(head)
    name = file.read(name_length)
    same = name == member.raw_name and method == member.method
    same &= not (flags ^ member.flags) & _ENCRYPTED
    if not flags & _SIZES_FOLLOW:
        expected = (member.crc32, member.packed, member.size)
        same &= all(a in (b, _MAX32) for a, b in zip(stated, expected, strict=True))
    if not same:
        raise MemberError(
            "its own header has another name, method, size or CRC-32 than the directory"
        )
    return member.offset + _LOCAL.size + name_length + extra_length


def stem_of(origin: str) -> str:
    """Returns the path of an archive without its suffix, `.tar.gz` included."""
    ends = [suffix for suffix in ARCHIVE_SUFFIXES if origin.lower().endswith(suffix)]
    return origin[: len(origin) - max(map(len, ends), default=0)]


class TableMember(NamedTuple):
    """A member, to be held as a file in memory.

    Attributes:
      origin: of its rows.
      size: bytes.
      chunks: its content; can be read once.
      position: bytes of input before its rows.
    """

    origin: str
    size: int
    chunks: Iterable[bytes]
    position: int


@contextlib.contextmanager
def in_memory(table: TableMember) -> Iterator[InputFile]:
    """Holds an anonymous file in memory that can be opened by a path."""
    with contextlib.ExitStack() as stack:
        file: IO[bytes]
        if hasattr(os, "memfd_create"):
            descriptor = os.memfd_create("member", os.MFD_CLOEXEC)
            file = stack.enter_context(open(descriptor, "wb"))
            path = f"/proc/self/fd/{descriptor}"
        else:
            # Systems without memfd get a temporary file, removed after use.
            file = stack.enter_context(tempfile.NamedTemporaryFile())
            path = file.name
        file.writelines(table.chunks)
        file.flush()
        size, stamp = file.tell(), stamp_of(file)
        yield InputFile(table.origin, path, size, table.position, True, stamp=stamp)
