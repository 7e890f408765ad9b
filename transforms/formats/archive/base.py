"""What the readers of archives share: their listing, and rows read piece by piece."""

import abc
import collections
import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO, ClassVar, Generic, Protocol, TypeVar

from transforms.core.image.resize import MAX_BYTES
from transforms.core.model import Block, Skipped
from transforms.formats.archive.members import (
    ArchiveListing,
    is_sequential,
    iter_members,
    list_archive,
)
from transforms.formats.archive.model import (
    Content,
    Member,
    MemberFault,
    SkippedMember,
    bounded_image,
)
from transforms.formats.file_names import is_image_name
from transforms.formats.table import InputFile, RawRows, SourceFile, TableReader
from transforms.storage.files import storage

# A block of an archive that can be read at any place, and a piece of any block.
_MAX_BLOCK_ROWS = 4096
_PIECE_BYTES = 16 << 20


class _Listed(Protocol):
    """A row as the listing of its archive has it: bytes, and where it begins."""

    @property
    def size(self) -> int: ...

    @property
    def offset(self) -> int: ...


_Row = TypeVar("_Row")


@dataclasses.dataclass(frozen=True, slots=True)
class ArchiveReaderBase(TableReader):
    """Reads archives.

    Attributes:
      zip_encoding: of names that are not marked as UTF-8; None for UTF-8.
    """

    zip_encoding: str | None = None

    def listing(self, file: SourceFile) -> ArchiveListing:
        """Returns what the archive holds; see `list_archive`."""
        return list_archive(file.path, file.origin, file.stamp, self.zip_encoding or "")


@dataclasses.dataclass(frozen=True, slots=True)
class RowArchive(ArchiveReaderBase, Generic[_Row]):
    """Reads archives in which a member, or a run of members, is a row.

    Archives that can be read at any place fall into blocks. The others are one block
    each: to find its middle, all before it would have to be unpacked again.

    Attributes:
      max_image_bytes: a row with a larger image is rejected, the image unread.
      is_numbered: whether rows are known by their number, not by a name of their own.
    """

    is_numbered: ClassVar[bool] = False

    max_image_bytes: int = MAX_BYTES

    @abc.abstractmethod
    def listed_rows(self, file: SourceFile) -> Sequence[_Listed]:
        """Returns the rows of an archive, those that cannot be read among them."""

    @abc.abstractmethod
    def skip_reason(self, member: Member) -> Skipped | None:
        """Returns why a member is in no row; None if it is in one."""

    @abc.abstractmethod
    def read_row(self, stream: BinaryIO, file: SourceFile, row: Any) -> _Row:
        """Returns a row of `listed_rows` with its content."""

    @abc.abstractmethod
    def rows_in(self, items: Iterator[Content | MemberFault]) -> Iterator[_Row]:
        """Yields the rows of all members of an archive that were read in turn."""

    @abc.abstractmethod
    def contents_in(self, row: _Row) -> Sequence[Content]:
        """Returns the members of a row that were read."""

    @abc.abstractmethod
    def raw(
        self,
        rows: Sequence[_Row],
        block: Block,
        columns: Sequence[str],
        skipped: dict[str, int],
    ) -> RawRows:
        """Returns a piece of rows as raw columns."""

    def blocks(
        self, file: InputFile, *, block_bytes: int, limit_rows: int | None
    ) -> Iterator[Block]:
        """Yields runs of rows; `start` and `stop` count those of the archive."""
        rows = self.listed_rows(file)
        count = len(rows) if limit_rows is None else min(len(rows), limit_rows)
        first = size = 0
        if not self.listing(file).is_sequential:
            for stop, row in enumerate(itertools.islice(rows, max(count - 1, 0)), 1):
                size += row.size
                if size >= block_bytes or stop - first == _MAX_BLOCK_ROWS:
                    yield self._block(file, rows, first, stop)
                    first, size = stop, 0
        yield self._block(file, rows, first, count)

    def read(
        self, file: SourceFile, block: Block, columns: Sequence[str]
    ) -> Iterator[RawRows]:
        """Yields the rows of a block, piece by piece."""
        skipped: collections.Counter[str] = collections.Counter()
        piece: list[_Row] = []
        start, size = block.start, 0
        whole = storage(file.path).size_of() if is_sequential(file.path) else 0

        def part() -> Block:
            position = block.position
            if whole:
                position += whole * (start - block.start) // max(block.rows, 1)
            return dataclasses.replace(
                block,
                start=start,
                stop=start + len(piece),
                first_row=start if self.is_numbered else 0,
                rows=len(piece),
                position=position,
            )

        for row in self.rows_of(file, block, skipped):
            # A full piece waits for another row. What is skipped comes with the last
            # piece, and one without rows would begin where the next block does.
            if size >= _PIECE_BYTES or len(piece) == _MAX_BLOCK_ROWS:
                yield self.raw(piece, part(), columns, {})
                start += len(piece)
                piece, size = [], 0
            piece.append(row)
            for content in self.contents_in(row):
                size += len(content.data)
        yield self.raw(piece, part(), columns, dict(skipped))

    def rows_of(
        self, file: SourceFile, block: Block, skipped: collections.Counter[str]
    ) -> Iterator[_Row]:
        """Yields the rows of a block.

        The members that the first block leaves out are counted in `skipped`.
        """

        def items() -> Iterator[Content | MemberFault]:
            walk = iter_members(
                stream,
                file.origin,
                name_encoding=self.zip_encoding or "",
                skip=self.skip_reason,
                check=self.bounded,
            )
            for item in walk:
                if isinstance(item, SkippedMember):
                    skipped[str(item.reason)] += 1
                else:
                    yield item

        with file.open() as stream:
            # Listing a packed archive would unpack it a second time.
            if is_sequential(file.path):
                for number, row in enumerate(self.rows_in(items())):
                    # The walk goes on past a limit, to find out whether the archive is
                    # whole.
                    if number < block.stop:
                        yield row
                return
            if not block.start:
                reasons = map(self.skip_reason, self.listing(file).members)
                skipped.update(str(reason) for reason in reasons if reason is not None)
            for listed in self.listed_rows(file)[block.start : block.stop]:
                yield self.read_row(stream, file, listed)

    def bounded(self, member: Member) -> Member:
        """Returns a member, an image that is too large with a fault."""
        if not is_image_name(member.name):
            return member
        return bounded_image(member, self.max_image_bytes)

    def _block(
        self, file: InputFile, rows: Sequence[_Listed], start: int, stop: int
    ) -> Block:
        before = min(rows[start].offset, file.size) if start < stop else 0
        first_row = start if self.is_numbered else 0
        return file.block(
            start, stop, rows=stop - start, before=before, first_row=first_row
        )
