"""What the readers of archives share: their listing, and rows read piece by piece."""

import abc
import collections
import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO, ClassVar, Generic, Protocol, TypeVar

from transforms.core.image.resize import MAX_BYTES
from transforms.core.model import Block, Skipped
from transforms.formats.archive.members import (
    ArchiveListing,
    is_sequential,
    iter_members,
    list_archive,
)
from transforms.formats.archive.model import Found, Member, bounded_image
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
    def rows_of(
        self, file: SourceFile, block: Block, skipped: collections.Counter[str]
    ) -> Iterator[tuple[_Row, int]]:
        """Yields the rows of a block and their bytes.

        The members that the first block leaves out are counted in `skipped`.
        """

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
            count = len(piece)
            return _piece_of(block, start, count, whole, numbered=self.is_numbered)

        for row, row_bytes in self.rows_of(file, block, skipped):
            # A full piece waits for another row. What is skipped comes with the last
            # piece, and one without rows would begin where the next block does.
            if size >= _PIECE_BYTES or len(piece) == _MAX_BLOCK_ROWS:
                yield self.raw(piece, part(), columns, {})
                start += len(piece)
                piece, size = [], 0
            piece.append(row)
            size += row_bytes
        yield self.raw(piece, part(), columns, dict(skipped))

    def members(
        self,
        stream: BinaryIO,
        file: SourceFile,
        skip_reason: Callable[[Member], Skipped | None],
    ) -> Iterator[Found]:
        """Yields the members in their order; those skipped and faulty ones as such."""
        return iter_members(
            stream,
            file.origin,
            name_encoding=self.zip_encoding or "",
            skip=skip_reason,
            check=self.bounded,
        )

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


def _piece_of(
    block: Block, start: int, rows: int, archive_bytes: int, *, numbered: bool = False
) -> Block:
    """Returns a piece of a block whose `start` and `stop` count rows.

    Args:
      block: of an archive.
      start: its first row.
      rows: how many it has.
      archive_bytes: size of an archive that is one block; else 0.
      numbered: whether rows have the numbers that `start` counts.
    """
    position = block.position
    if archive_bytes:
        position += archive_bytes * (start - block.start) // max(block.rows, 1)
    return dataclasses.replace(
        block,
        start=start,
        stop=start + rows,
        first_row=start if numbered else 0,
        rows=rows,
        position=position,
    )
