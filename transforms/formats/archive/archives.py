"""The members of an archive: zip, and tar with or without compression, by content.

    list_members   what the headers say, for planning; only a packed tar is unpacked
    iter_members   every member in order with its content, or why it has none
    read_member    one member of a zip or plain tar, by what its listing says
    stream_member  the same piece by piece

Memory is bounded by one member's content; where members are read in turn, also by their
names, which have to differ. Nothing here writes content to disk. What concerns one
member is a value, a `MemberFault`; what casts doubt on the rest of the archive is an
error that names the member before it.
"""

import dataclasses
import enum
import functools
from collections.abc import Callable, Iterator
from typing import BinaryIO, NamedTuple

from transforms.core.image.resize import MAX_BYTES
from transforms.core.model import Reason, Skipped
from transforms.errors import DamageError, InputError, SpecError
from transforms.formats.archive.members import (
    Content,
    Found,
    Item,
    Limits,
    Member,
    MemberError,
    MemberFault,
    MemberList,
    SkippedMember,
    checked,
    refusal,
    shown_name,
)
from transforms.formats.archive.tar import BLOCK_BYTES, Tar, is_header, is_packed
from transforms.formats.archive.zip import zip_chunks, zip_members
from transforms.formats.table import SourceFile
from transforms.storage.files import storage

_ZIP_MAGICS = (b"PK\x03\x04", b"PK\x05\x06", b"PK\x06\x06")
_DEFAULT_LIMITS = Limits()


class ArchiveKind(enum.StrEnum):
    """What an archive is, by its content."""

    ZIP = "zip"
    TAR = "tar"
    PACKED_TAR = "packed tar"

    @property
    def is_sequential(self) -> bool:
        """Whether a member can only be reached through all those before it."""
        return self is ArchiveKind.PACKED_TAR


def kind_of(file: BinaryIO, path: str) -> ArchiveKind:
    """Returns what the archive is; its name is not looked at.

    Raises:
      InputError: it is not an archive that can be read.
    """
    file.seek(0)
    head = file.read(BLOCK_BYTES)
    if is_packed(head):
        return ArchiveKind.PACKED_TAR
    if is_header(head) or head == bytes(BLOCK_BYTES):
        return ArchiveKind.TAR
    if head.startswith(_ZIP_MAGICS):
        return ArchiveKind.ZIP
    if head[257:262] == b"ustar":
        raise DamageError(
            f"{path}: the archive is damaged before its first member: the checksum of "
            f"its header is wrong. Fetch or write it again."
        )
    description = f"begins with {head[:8].hex(' ')}" if head else "is empty"
    raise InputError(
        f"{path}: an archive must be a zip, or a tar that is plain or packed with "
        f"gzip, zstd, bzip2 or xz; this one {description}. Fetch or write it again."
    )


def list_members(
    file: BinaryIO,
    path: str,
    *,
    limits: Limits = _DEFAULT_LIMITS,
    name_encoding: str = "",
) -> MemberList:
    """Returns the members in their order, as the headers have them.

    Those that cannot be items have a `fault`; directories are left out.

    Args:
      file: can be sought; nothing else may use it meanwhile.
      path: for messages.
      limits: see `Limits`.
      name_encoding: of names that are not marked as UTF-8; "" for UTF-8.

    Raises:
      DamageError: the archive is damaged, or (but for a zip) has no end.
      InputError: it is no archive, or goes beyond the limits.
      SpecError: no such encoding.
    """
    return MemberList.of(_members(file, path, limits, name_encoding)[0])


def iter_members(
    file: BinaryIO,
    path: str,
    *,
    limits: Limits = _DEFAULT_LIMITS,
    name_encoding: str = "",
    skip: Callable[[Member], Skipped | None] = lambda _member: None,
) -> Iterator[Found]:
    """Yields what became of each member, in their order.

    Args:
      file, path, limits, name_encoding: see `list_members`.
      skip: why to leave a member out, or None to read it. It is asked before a fault
        counts, so that a member with one can be left out on purpose; hidden ones and
        the litter of operating systems are left out without being asked for.

    Raises:
      See `list_members`.
    """
    members, tar = _members(file, path, limits, name_encoding)
    for member in members:
        reason = Skipped.HIDDEN if member.is_hidden else skip(member)
        if reason is not None:
            yield SkippedMember(member, reason)
        elif tar is None or member.fault is not None:
            yield read_member(file, path, member)
        else:
            yield Content(member, tar.content(member.size))


def _members(
    file: BinaryIO, path: str, limits: Limits, encoding: str
) -> tuple[Iterator[Member], Tar | None]:
    """Returns the members, and of a tar what gives the content of each in turn."""
    try:
        b"a".decode(encoding or "utf-8")
    except (LookupError, UnicodeError, AttributeError) as error:
        raise SpecError(
            f"The encoding of names must be one that Python knows, like cp949; found "
            f"{encoding!r}."
        ) from error
    if kind_of(file, path) is ArchiveKind.ZIP:
        listed = zip_members(file, path, limits, encoding=encoding)
        return checked(listed, limits, path), None
    tar = Tar(file, path, limits)
    return checked(tar.members(encoding=encoding), limits, path), tar


def read_member(file: BinaryIO, path: str, member: Member) -> Item:
    """Returns one member of a zip or plain tar, by its listing.

    Raises:
      DamageError: the archive is shorter than it was when it was listed.
    """
    if member.fault is not None:
        return MemberFault(member, member.fault, member.message)
    try:
        return Content(member, b"".join(stream_member(file, path, member)))
    except MemberError as damage:
        detail = f"is damaged: {damage}"
        return MemberFault(member, *refusal(Reason.DAMAGED_MEMBER, member.name, detail))


def stream_member(file: BinaryIO, path: str, member: Member) -> Iterator[bytes]:
    """Yields the content of a member of a zip or plain tar, at most 1 MiB a piece.

    Raises:
      MemberError: the member is damaged; what was yielded must not be used.
      DamageError: the archive is shorter than it was when it was listed.
    """
    if member.data_offset < 0:
        yield from zip_chunks(file, member)
        return
    left = member.size
    while left:
        # Callers may use the file between two pieces.
        file.seek(member.data_offset + member.size - left)
        data = file.read(min(left, 1 << 20))
        if not data:
            raise DamageError(
                f"{path}: the archive is cut off in member {member.number + 1}, "
                f"{shown_name(member.name)}. Fetch or write it again."
            )
        left -= len(data)
        yield data


class ArchiveListing(NamedTuple):
    """The members of an archive, and whether one can be reached without the others."""

    members: MemberList
    is_sequential: bool


# A worker mostly reads blocks of one archive, one after the other. A listing of
# millions of members is too large to keep many.
@functools.lru_cache(maxsize=2)
def _listing(
    path: str, origin: str, stamp: int, encoding: str, max_image_bytes: int
) -> ArchiveListing:
    with storage(path).open_input(stamp=stamp) as file:
        kind = kind_of(file, origin)
        limits = Limits(max_image_bytes=max_image_bytes)
        members = list_members(file, origin, limits=limits, name_encoding=encoding)
        return ArchiveListing(members, kind.is_sequential)


@dataclasses.dataclass(frozen=True, slots=True)
class Archives:
    """What all readers of archives are told.

    Attributes:
      zip_encoding: of names that are not marked as UTF-8; None for UTF-8.
      max_image_bytes: a larger member that is an image is rejected unread.
    """

    zip_encoding: str | None = None
    max_image_bytes: int = MAX_BYTES

    def listing(self, file: SourceFile) -> ArchiveListing:
        """Returns what an archive holds; that of a packed tar by unpacking all of it.

        Raises:
          OSError: it cannot be read, or has another stamp.
          DamageError, InputError: see `list_members`.
        """
        encoding = self.zip_encoding or ""
        return _listing(
            file.path, file.origin, file.stamp, encoding, self.max_image_bytes
        )

    def walk(
        self,
        stream: BinaryIO,
        file: SourceFile,
        skip: Callable[[Member], Skipped | None],
    ) -> Iterator[Found]:
        """Yields what became of each member of an open archive."""
        limits = Limits(max_image_bytes=self.max_image_bytes)
        return iter_members(
            stream,
            file.origin,
            limits=limits,
            name_encoding=self.zip_encoding or "",
            skip=skip,
        )
