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

import enum
import functools
from collections.abc import Callable, Hashable, Iterator
from typing import Any, BinaryIO, TypeVar

from transforms.core.model import Reason, Skipped
from transforms.errors import DamageError, InputError, SpecError, bounded
from transforms.formats.archive.member_list import MemberList, identity_of, repeated
from transforms.formats.archive.model import (
    Content,
    Found,
    Limits,
    Member,
    MemberFault,
    SkippedMember,
    shown_name,
)
from transforms.formats.archive.tar import (
    BLOCK_BYTES,
    TarBytes,
    is_header,
    is_packed,
    tar_members,
)
from transforms.formats.archive.zip import MemberError, list_zip, zip_chunks
from transforms.storage.files import storage

Skip = Callable[[Member], Skipped | None]
Check = Callable[[Member], Member]
_Derived = TypeVar("_Derived")

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
    found = f"begins with {head[:8].hex(' ')}" if head else "is empty"
    raise InputError(
        f"{path}: an archive must be a zip, or a tar that is plain or packed with "
        f"gzip, zstd, bzip2 or xz; this one {found}. Fetch or write it again."
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
    _check_encoding(name_encoding)
    if kind_of(file, path) is ArchiveKind.ZIP:
        return MemberList.of(list_zip(file, path, limits, encoding=name_encoding))
    source = TarBytes(file, path, limits)
    return MemberList.of(tar_members(source, encoding=name_encoding))


def iter_members(
    file: BinaryIO,
    path: str,
    *,
    limits: Limits = _DEFAULT_LIMITS,
    name_encoding: str = "",
    skip: Skip = lambda _member: None,
    check: Check = lambda member: member,
) -> Iterator[Found]:
    """Yields what became of each member, in their order.

    Args:
      file, path, limits, name_encoding: see `list_members`.
      skip: why to leave a member out, or None to read it. It is asked before a fault
        counts, so that a member with one can be left out on purpose; hidden ones and
        the litter of operating systems are left out without being asked for.
      check: returns a member, with a fault where the reader does not want it.

    Raises:
      See `list_members`.
    """
    _check_encoding(name_encoding)
    if kind_of(file, path) is ArchiveKind.ZIP:
        listed = list_members(file, path, limits=limits, name_encoding=name_encoding)
        for member in map(check, listed):
            yield _judged(member, skip) or read_member(file, path, member)
        return
    source = TarBytes(file, path, limits)
    members = tar_members(source, encoding=name_encoding)
    for member in map(check, _with_distinct_names(members)):
        yield _judged(member, skip) or Content(member, source.content(member.size))


def read_member(file: BinaryIO, path: str, member: Member) -> Content | MemberFault:
    """Returns one member of a zip or plain tar, by its listing.

    Raises:
      DamageError: the archive is shorter than it was when it was listed.
    """
    if member.fault is not None:
        return MemberFault(member, member.fault, member.message)
    try:
        return Content(member, b"".join(stream_member(file, path, member)))
    except MemberError as damage:
        return _damaged(member, damage)


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


def _check_encoding(encoding: str) -> None:
    try:
        b"a".decode(encoding or "utf-8")
    except (LookupError, UnicodeError, AttributeError) as error:
        raise SpecError(
            f"The encoding of names must be one that Python knows, like cp949; found "
            f"{encoding!r}."
        ) from error


def _judged(member: Member, skip: Skip) -> SkippedMember | MemberFault | None:
    """Returns why a member is not to be read, or None."""
    if member.is_hidden:
        return SkippedMember(member, Skipped.HIDDEN)
    reason = skip(member)
    if reason is not None:
        return SkippedMember(member, reason)
    if member.fault is not None:
        return MemberFault(member, member.fault, member.message)
    return None


def _with_distinct_names(members: Iterator[Member]) -> Iterator[Member]:
    """Yields members, those with a fault whose name an earlier one has.

    As `MemberList` does for those that can be listed before one of them is read.
    """
    first: dict[str, int] = {}
    for member in members:
        identity = identity_of(member)
        earlier = member.number
        if identity is not None:
            earlier = first.setdefault(identity, member.number)
        is_first = earlier == member.number or member.fault is not None
        yield member if is_first else repeated(member, earlier)


def _damaged(member: Member, damage: MemberError) -> MemberFault:
    return MemberFault(
        member,
        Reason.DAMAGED_MEMBER,
        bounded(
            f"member {member.number + 1}, {shown_name(member.name)}, must hold what "
            f"the archive's directory states; {damage}. Fetch or write it again."
        ),
    )


class ArchiveListing:
    """What an archive holds.

    Attributes:
      is_sequential: whether a member can only be reached through those before it.
      members: see `MemberList`.
    """

    def __init__(self, members: MemberList, *, is_sequential: bool) -> None:
        self.members = members
        self.is_sequential = is_sequential
        self._derived: dict[Hashable, Any] = {}

    def derived(self, key: Hashable, make: Callable[[], _Derived]) -> _Derived:
        """Returns what a reader makes of the listing; of one key made once."""
        if key not in self._derived:
            self._derived[key] = make()
        found: _Derived = self._derived[key]
        return found


# A worker mostly reads blocks of one archive, one after the other. A listing of
# millions of members is too large to keep many.
@functools.lru_cache(maxsize=2)
def list_archive(path: str, origin: str, stamp: int, encoding: str) -> ArchiveListing:
    """Returns the listing of an archive; of a packed tar by unpacking all of it.

    Args:
      path: where it is.
      origin: what messages call it.
      stamp: of the archive as it was listed.
      encoding: of names; see `list_members`.

    Raises:
      OSError: it cannot be read, or has another stamp.
      DamageError, InputError: see `list_members`.
    """
    with storage(path).open_input(stamp=stamp) as file:
        kind = kind_of(file, origin)
        members = list_members(file, origin, name_encoding=encoding)
        return ArchiveListing(members, is_sequential=kind.is_sequential)


def is_sequential(path: str) -> bool:
    """Whether members of an archive can only be reached through those before them."""
    with storage(path).open_input() as file:
        return kind_of(file, path).is_sequential
