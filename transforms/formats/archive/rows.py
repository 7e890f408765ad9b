"""Archives in which a member, or a run of members with one key, is a row."""

import abc
import array
import collections
import dataclasses
import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import BinaryIO, ClassVar, NamedTuple

from transforms.core.model import Block, Skipped
from transforms.formats.archive.archives import Archives, kind_of, read_member
from transforms.formats.archive.members import Content, Item, Member, MemberList
from transforms.formats.table import InputFile, RawRows, SourceFile, TableReader

# A block of an archive that can be read at any place, and a piece of any block.
_MAX_BLOCK_ROWS = 4096
_PIECE_BYTES = 16 << 20


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
    def raw(
        self,
        rows: Sequence[Row],
        block: Block,
        columns: Sequence[str],
        skipped: dict[str, int],
    ) -> RawRows:
        """Returns a piece of rows as raw columns."""

    def listed_rows(self, file: SourceFile) -> RowList:
        """Returns the rows of an archive, those that cannot be read among them."""
        return _rows_in(self.listing(file).members, type(self))

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
        with file.open() as stream:
            is_packed = kind_of(stream, file.origin) == "packed tar"
            whole = stream.seek(0, 2) if is_packed else 0

        def part() -> Block:
            done = whole * (start - block.start) // max(block.rows, 1)
            return dataclasses.replace(
                block,
                start=start,
                stop=start + len(piece),
                first_row=start if self.is_numbered else 0,
                rows=len(piece),
                position=block.position + done,
            )

        for row in self.rows_of(file, block, skipped):
            # A full piece waits for another row. What is skipped comes with the last
            # piece, and one without rows would begin where the next block does.
            if size >= _PIECE_BYTES or len(piece) == _MAX_BLOCK_ROWS:
                yield self.raw(piece, part(), columns, {})
                start += len(piece)
                piece, size = [], 0
            piece.append(row)
            size += sum(len(i.data) for i in row.items if isinstance(i, Content))
        yield self.raw(piece, part(), columns, dict(skipped))

    def rows_of(
        self, file: SourceFile, block: Block, skipped: collections.Counter[str]
    ) -> Iterator[Row]:
        """Yields the rows of a block as they are read.

        The members that the first block leaves out are counted in `skipped`.
        """
        with file.open() as stream:
            # Listing a packed archive would unpack it a second time.
            if kind_of(stream, file.origin) == "packed tar":
                for row in self._walked(stream, file, skipped):
                    # The walk goes on past a limit, to find out whether the archive is
                    # whole.
                    if row.number < block.stop:
                        yield row
                return
            if not block.start:
                reasons = map(self.skip_reason, self.listing(file).members)
                skipped.update(str(reason) for reason in reasons if reason is not None)
            for row in self.listed_rows(file).between(block.start, block.stop):
                read = [read_member(stream, file.origin, m) for m in row.members]
                yield row._replace(items=read)

    def _walked(
        self, stream: BinaryIO, file: SourceFile, skipped: collections.Counter[str]
    ) -> Iterator[Row]:
        """Yields the rows of all members of an archive that are read in turn."""

        def items() -> Iterator[Item]:
            for member, read in self.members(stream, file):
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
