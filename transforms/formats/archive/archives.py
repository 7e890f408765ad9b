"""The members of an archive: zip, and tar with or without compression, by content.

Memory is bounded by one member's content; where members are read in turn, also by their
names, which have to differ. Nothing here writes content to disk. What concerns one
member is a value, its fault; what casts doubt on the rest of the archive is an
error that names the member before it.

`Archives` is what all readers share; in a `RowArchive` a member, or a run of members
with one key, is a row.
"""

import abc
import array
import collections
import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO, ClassVar, Literal, NamedTuple

from transforms.core.image.resize import MAX_BYTES
from transforms.core.model import Block
from transforms.core.reasons import Reason, Skipped
from transforms.errors import DamageError, InputError, SpecError
from transforms.formats.archive.members import (
    Item,
    Limits,
    Member,
    MemberError,
    MemberList,
    checked,
    refusal,
    shown_name,
)
from transforms.formats.archive.tar import BLOCK_BYTES, Tar, is_header, is_packed
from transforms.formats.archive.zip import zip_chunks, zip_members
from transforms.formats.raw_rows import RawRows
from transforms.formats.table import InputFile, SourceFile, TableReader

_ZIP_MAGICS = (b"PK\x03\x04", b"PK\x05\x06", b"PK\x06\x06")
_DEFAULT_LIMITS = Limits()
# A block of an archive that can be read at any place, and a piece of any block.
_MAX_BLOCK_ROWS = 4096
_PIECE_BYTES = 16 << 20


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
        left = member.size
        while left:
            # Callers may use the file between two pieces.
            self._file.seek(member.data_offset + member.size - left)
            data = self._file.read(min(left, 1 << 20))
            if not data:
                raise DamageError(
                    f"{self._path}: the archive is cut off in member "
                    f"{member.number + 1}, {shown_name(member.name)}. Fetch or write "
                    f"it again."
                )
            left -= len(data)
            yield data


@dataclasses.dataclass(frozen=True, slots=True)
class Archives:
    """What all readers of archives are told.

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


class Row(NamedTuple):
    """The members of a row, listed or read.

    Attributes:
      number: of the row in its archive.
      key: what its members share.
      is_repeated: whether an earlier row has the same key.
      members: as they are listed.
      items: the same as they were read; empty before.
    """

    number: int
    key: str
    is_repeated: bool
    members: Sequence[Member]
    items: Sequence[Item] = ()

    @property
    def size(self) -> int:
        """Bytes of all members."""
        return sum(member.size for member in self.members)


class RowList:
    """The rows of an archive, made from its members as they are looked at."""

    def __init__(self, members: MemberList, reader: "type[RowArchive]") -> None:
        """Takes the members of an archive, those of no row among them."""
        # Where the members of each row begin, and where the last one's end.
        self._starts = array.array("q")
        self._repeated: set[int] = set()
        self._key_of = reader.key_of
        count, key = 0, None
        seen: set[str] = set()

        def belongs(member: Member) -> bool:
            nonlocal count, key
            if reader.skip_reason(member) is not None:
                return False
            own = reader.key_of(member)
            if own != key or not own:
                if own and own in seen:
                    self._repeated.add(len(self._starts))
                key = own
                seen.add(key)
                self._starts.append(count)
            count += 1
            return True

        self._members = members.select(belongs)
        self._starts.append(count)

    def __len__(self) -> int:
        return len(self._starts) - 1

    def between(self, start: int, stop: int) -> Iterator[Row]:
        """Yields the rows from one number up to another."""
        begin = self._starts[start]
        members = iter(self._members[begin : self._starts[stop]])
        for number in range(start, stop):
            count = self._starts[number + 1] - self._starts[number]
            own = [*itertools.islice(members, count)]
            key = self._key_of(own[0])
            yield Row(number, key, number in self._repeated, own)

    def __iter__(self) -> Iterator[Row]:
        for start in range(0, len(self), _MAX_BLOCK_ROWS):
            yield from self.between(start, min(start + _MAX_BLOCK_ROWS, len(self)))


# Of what `_listing` keeps.
@functools.lru_cache(maxsize=2)
def _rows_in(members: MemberList, reader: "type[RowArchive]") -> RowList:
    """Returns the rows that the members of a listing form, remembered with it."""
    return RowList(members, reader)


@dataclasses.dataclass(frozen=True, slots=True)
class RowArchive(Archives, TableReader):
    """Reads archives in which a member, or a run of members with one key, is a row.

    Archives that can be read at any place fall into blocks. The others are one block
    each: to find its middle, all before it would have to be unpacked again.

    Attributes:
      is_numbered: whether rows are known by their number, not by a name of their own.
    """

    is_numbered: ClassVar[bool] = False

    @staticmethod
    @abc.abstractmethod
    def skip_reason(member: Member) -> Skipped | None:
        """Returns why a member is in no row; None if it is in one."""

    @staticmethod
    @abc.abstractmethod
    def key_of(member: Member) -> str:
        """Returns what the members of one row share; empty for a row by itself."""

    @abc.abstractmethod
    def raw(self, rows: Sequence[Row], block: Block, columns: Sequence[str]) -> RawRows:
        """Returns a piece of rows as raw columns."""

    def listed_rows(self, file: SourceFile) -> RowList:
        """Returns the rows of an archive, those that cannot be read among them."""
        return _rows_in(self.listing(file), type(self))

    def blocks(
        self, file: InputFile, *, block_bytes: int, limit_rows: int | None
    ) -> Iterator[Block]:
        """Yields runs of rows; `start` and `stop` count those of the archive."""
        rows = self.listed_rows(file)
        count = len(rows) if limit_rows is None else min(len(rows), limit_rows)
        first = size = before = 0

        def block(stop: int) -> Block:
            first_row = first if self.is_numbered else 0
            return file.block(
                first, stop, rows=stop - first, before=before, first_row=first_row
            )

        cut = not self.listing(file).is_sequential
        for stop, row in enumerate(itertools.islice(rows, count if cut else 1), 1):
            if stop - 1 == first:
                before = min(row.members[0].offset, file.size)
            size += row.size
            is_full = size >= block_bytes or stop - first == _MAX_BLOCK_ROWS
            if cut and stop < count and is_full:
                yield block(stop)
                first, size = stop, 0
        yield block(count)

    def read(
        self, file: SourceFile, block: Block, columns: Sequence[str]
    ) -> Iterator[RawRows]:
        """Yields the rows of a block, piece by piece."""
        skipped = collections.Counter[str]()
        piece: list[Row] = []
        start, size = block.start, 0
        with self.opened(file) as archive:

            def given() -> RawRows:
                done = archive.packed_bytes * (start - block.start)
                part = dataclasses.replace(
                    block,
                    start=start,
                    stop=start + len(piece),
                    first_row=start if self.is_numbered else 0,
                    rows=len(piece),
                    position=block.position + done // max(block.rows, 1),
                )
                return self.raw(piece, part, columns)

            for row in self.rows_of(archive, file, block, skipped):
                # A full piece waits for another row. What is skipped comes with the
                # last piece, and one without rows would begin where the next block
                # does.
                if size >= _PIECE_BYTES or len(piece) == _MAX_BLOCK_ROWS:
                    yield given()
                    start += len(piece)
                    piece, size = [], 0
                piece.append(row)
                size += sum(len(data or b"") for _, data in row.items)
        yield dataclasses.replace(given(), skipped=dict(skipped))

    def rows_of(
        self,
        archive: Archive,
        file: SourceFile,
        block: Block,
        skipped: collections.Counter[str],
    ) -> Iterator[Row]:
        """Yields the rows of a block as they are read.

        The members that the first block leaves out are counted in `skipped`.
        """
        # Listing a packed archive would unpack it a second time.
        if archive.kind == "packed tar":
            # The walk goes on past a limit, to find out whether the archive is whole.
            walk = self._walked(archive, skipped)
            yield from (row for row in walk if row.number < block.stop)
            return
        if not block.start:
            reasons = map(self.skip_reason, self.listing(file))
            skipped.update(str(reason) for reason in reasons if reason is not None)
        for row in self.listed_rows(file).between(block.start, block.stop):
            yield row._replace(items=[*map(archive.read, row.members)])

    def _walked(
        self, archive: Archive, skipped: collections.Counter[str]
    ) -> Iterator[Row]:
        """Yields the rows of all members of an archive that are read in turn."""

        def items() -> Iterator[Item]:
            for member, read in archive.members():
                if (reason := self.skip_reason(member)) is not None:
                    skipped[str(reason)] += 1
                else:
                    yield read()

        seen: set[str] = set()
        groups = itertools.groupby(
            items(), lambda item: self.key_of(item.member) or item.member.number
        )
        for number, (key, group) in enumerate(groups):
            own = [*group]
            name = key if isinstance(key, str) else ""
            repeated = bool(name) and name in seen
            seen.add(name)
            yield Row(number, name, repeated, [i.member for i in own], own)
