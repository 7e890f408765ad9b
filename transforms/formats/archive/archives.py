"""The members of an archive: zip, and tar with or without compression, by content.

    list_members   what the headers say, for planning; only a packed tar is unpacked
    members_in     every member in order, and what reads it
    read_member    one member of a zip or plain tar, by what its listing says
    stream_member  the same piece by piece

Memory is bounded by one member's content; where members are read in turn, also by their
names, which have to differ. Nothing here writes content to disk. What concerns one
member is a value, a `MemberFault`; what casts doubt on the rest of the archive is an
error that names the member before it.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import BinaryIO, Literal, NamedTuple

from transforms.core.image.resize import MAX_BYTES
from transforms.core.model import Reason
from transforms.errors import DamageError, InputError, SpecError
from transforms.formats.archive.members import (
    Content,
    Item,
    Limits,
    Member,
    MemberError,
    MemberFault,
    MemberList,
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


def kind_of(file: BinaryIO, path: str) -> Literal["zip", "tar", "packed tar"]:
    """Returns what the archive is; its name is not looked at.

    A member of a packed tar can only be reached through all those before it.

    Raises:
      InputError: it is not an archive that can be read.
    """
    file.seek(0)
    head = file.read(BLOCK_BYTES)
    if is_packed(head):
        return "packed tar"
    if is_header(head) or head == bytes(BLOCK_BYTES):
        return "tar"
    if head.startswith(_ZIP_MAGICS):
        return "zip"
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
    listed = members_in(file, path, limits=limits, name_encoding=name_encoding)
    return MemberList.of(member for member, _ in listed)


def members_in(
    file: BinaryIO,
    path: str,
    *,
    limits: Limits = _DEFAULT_LIMITS,
    name_encoding: str = "",
) -> Iterator[tuple[Member, Callable[[], Item]]]:
    """Yields each member, in their order, and what reads it before the next one.

    Args:
      file, path, limits, name_encoding: see `list_members`.

    Raises:
      See `list_members`.
    """
    try:
        b"a".decode(name_encoding or "utf-8")
    except (LookupError, UnicodeError, AttributeError) as error:
        raise SpecError(
            f"The encoding of names must be one that Python knows, like cp949; found "
            f"{name_encoding!r}."
        ) from error
    if kind_of(file, path) == "zip":
        listed = zip_members(file, path, limits, encoding=name_encoding)
        for member in checked(listed, limits, path):
            yield member, functools.partial(read_member, file, path, member)
        return
    tar = Tar(file, path, limits)
    for member in checked(tar.members(encoding=name_encoding), limits, path):
        yield member, functools.partial(_next_member, tar, member)


def _next_member(tar: Tar, member: Member) -> Item:
    """Returns the member whose header was read last."""
    if member.fault is not None:
        return MemberFault(member, member.fault, member.message)
    return Content(member, tar.content(member.size))


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
        is_sequential = kind_of(file, origin) == "packed tar"
        limits = Limits(max_image_bytes=max_image_bytes)
        members = list_members(file, origin, limits=limits, name_encoding=encoding)
        return ArchiveListing(members, is_sequential)


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

    def members(
        self, stream: BinaryIO, file: SourceFile
    ) -> Iterator[tuple[Member, Callable[[], Item]]]:
        """Yields the members of an open archive, and what reads each in turn."""
        return members_in(
            stream,
            file.origin,
            limits=Limits(max_image_bytes=self.max_image_bytes),
            name_encoding=self.zip_encoding or "",
        )
