"""Tables in archives: members that are CSV, JSON lines, Parquet or Arrow files.

The reader of its own format reads each member from a file in memory. Nothing is
extracted to disk, and memory is bounded by one member. A member is one block. A packed
tar is one block as a whole, because its members cannot be reached one by one.

A table that cannot be read is an error, not a reject: it may hold any number of rows.
"""

import collections
import contextlib
import dataclasses
import errno
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, ClassVar, Self

from transforms import files
from transforms.core.model import Block, Reason, Skipped
from transforms.errors import DamageError, InputError
from transforms.formats.archive.base import ArchiveReaderBase
from transforms.formats.archive.listing import (
    ArchiveListing,
)
from transforms.formats.archive.members import iter_members, stream_member
from transforms.formats.archive.model import (
    Content,
    Member,
    is_litter,
    shown_name,
)
from transforms.formats.registry import table_format
from transforms.formats.table import (
    InputFile,
    Planned,
    RawRows,
    SourceFile,
    TableReader,
    TableSample,
)

__all__ = ["ArchiveTables"]

_BLOCK_BYTES = 16 << 20
# A sample reads this many members, spread evenly: each is unpacked as a whole.
_SAMPLE_MEMBERS = 8


@dataclasses.dataclass(frozen=True, slots=True)
class ArchiveTables(ArchiveReaderBase):
    """Archives of tables of one format.

    Attributes:
      format: a key of `TABLE_FORMATS`.
      inner: reads a member of that format.
      null_values, beside: those of `inner`, once it is planned.
    """

    title: ClassVar[str] = "tables in archives"

    format: str = dataclasses.field(kw_only=True)
    inner: TableReader = dataclasses.field(kw_only=True)
    null_values: tuple[str, ...] = ()
    beside: Sequence[str] = ()

    def plan(self, files: Sequence[InputFile]) -> Planned:
        """Plans with some members of all the archives.

        Raises:
          InputError: there are none, or one cannot be read.
        """
        with self._opened(files) as (chosen, share):
            planned = self.inner.plan(chosen)
        sample = planned.sample
        if share != 1:
            sample = dataclasses.replace(sample, complete=False)
        inner = planned.reader
        reader = dataclasses.replace(self, inner=inner, null_values=inner.null_values)
        sample = self._scaled(sample, files, chosen, share)
        return dataclasses.replace(planned, reader=reader, sample=sample)

    def content_columns(
        self, names: Sequence[str], wanted: Sequence[str]
    ) -> tuple[str, ...]:
        """Returns those of the members' reader."""
        return self.inner.content_columns(names, wanted)

    def giving(self, beside: Sequence[str]) -> Self:
        """Returns the reader whose inner one gives columns `beside`."""
        inner = self.inner.giving(beside)
        return dataclasses.replace(self, inner=inner, beside=inner.beside)

    def split_of(self, origin: str) -> str:
        """Returns the split that the name of a member says; empty for none."""
        return self.inner.split_of(origin)

    def blocks(
        self, file: InputFile, *, block_bytes: int, limit_rows: int | None
    ) -> Iterator[Block]:
        """Yields each member; a packed tar as a whole."""
        listing = self.listing(file)
        members = self._tables(file, listing)
        left = limit_rows
        if listing.is_sequential:
            rows = 0
            if limit_rows is not None:
                for memory in self._unpacked(file, members):
                    with memory as inner:
                        rows += self._count(inner, limit_rows - rows)
                    if rows == limit_rows:
                        break
            yield file.whole(rows=rows)
            return
        for member in members:
            rows = 0
            if left is not None:
                with self._member_file(file, member) as inner:
                    rows = self._count(inner, left)
                left -= rows
            before = min(member.offset, file.size)
            block = file.block(0, member.size, rows=rows, before=before)
            origin = f"{file.origin}/{member.origin}"
            yield dataclasses.replace(block, origin=origin)
            if left == 0:
                return

    def read(
        self, file: SourceFile, block: Block, columns: Sequence[str]
    ) -> Iterator[RawRows]:
        """Yields the rows of a member, or of all members of a packed tar."""
        archive = _archive_of(file, block)
        listing = self.listing(archive)
        members = self._tables(archive, listing)
        first = _is_first(archive, members, block)
        skipped = self._skipped(listing) if first else {}
        if listing.is_sequential:
            left = block.rows or None
            for memory in self._unpacked(archive, members):
                if left == 0:
                    # The walk goes on, to find out whether the archive is whole.
                    continue
                with memory as inner:
                    for raw in self._rows(inner, block, columns, left):
                        yield _also_skipped(raw, skipped)
                        skipped = {}
                        if left is not None:
                            left -= raw.block.rows
            return
        (member,) = [
            m for m in members if f"{archive.origin}/{m.origin}" == block.origin
        ]
        with self._member_file(archive, member) as inner:
            for raw in self._rows(inner, block, columns, block.rows or None):
                yield _also_skipped(raw, skipped)
                skipped = {}

    def _rows(
        self,
        inner: InputFile,
        block: Block,
        columns: Sequence[str],
        limit: int | None,
    ) -> Iterator[RawRows]:
        for piece in self.inner.blocks(
            inner, block_bytes=_BLOCK_BYTES, limit_rows=limit
        ):
            for raw in self.inner.read(inner, piece, columns):
                # Positions inside a member mean nothing in the archive: its rows all
                # have that of the member.
                placed = dataclasses.replace(
                    raw.block, position=block.position, stamp=block.stamp
                )
                yield dataclasses.replace(raw, block=placed)

    def _count(self, inner: InputFile, limit: int) -> int:
        found = self.inner.blocks(inner, block_bytes=_BLOCK_BYTES, limit_rows=limit)
        return sum(block.rows for block in found)

    def _tables(self, file: SourceFile, listing: ArchiveListing) -> list[Member]:
        """Returns the members to read; raises InputError where one cannot be."""
        members = []
        for member in listing.members:
            if _skip_reason(member, self.format) is not None:
                continue
            if member.fault is not None:
                raise InputError(f"{file.origin}: {member.message}")
            members.append(member)
        return members

    def _skipped(self, listing: ArchiveListing) -> dict[str, int]:
        """Returns how many members are left out, by reason."""
        reasons = (_skip_reason(member, self.format) for member in listing.members)
        return dict(collections.Counter(str(r) for r in reasons if r is not None))

    @contextlib.contextmanager
    def _member_file(self, file: SourceFile, member: Member) -> Iterator[InputFile]:
        """Holds a member of a zip or plain tar as a file in memory."""
        with contextlib.ExitStack() as stack:
            with file.open() as stream:
                origin = f"{file.origin}/{member.origin}"
                chunks = stream_member(stream, file.origin, member)
                try:
                    inner = stack.enter_context(_in_memory(origin, chunks))
                except DamageError as error:
                    raise DamageError(
                        f"{file.origin}: member {shown_name(member.name)}: {error}. "
                        f"Fetch or write it again."
                    ) from error
            yield inner

    def _unpacked(
        self, file: SourceFile, members: Sequence[Member]
    ) -> Iterator[contextlib.AbstractContextManager[InputFile]]:
        """Yields members of a packed tar as files in memory, to be entered."""
        wanted = {member.index for member in members}

        def skip(member: Member) -> Skipped | None:
            return None if member.index in wanted else Skipped.NOT_SELECTED

        with file.open() as stream:
            for found in iter_members(
                stream, file.origin, name_encoding=self.zip_encoding or "", skip=skip
            ):
                if isinstance(found, Content):
                    origin = f"{file.origin}/{found.member.origin}"
                    yield _in_memory(origin, [found.data])

    @contextlib.contextmanager
    def _opened(
        self, archives: Sequence[InputFile]
    ) -> Iterator[tuple[list[InputFile], float]]:
        """Holds some members of all archives; gives their share of all tables."""
        listings = [self.listing(file) for file in archives]
        tables = [
            (file, member)
            for file, listing in zip(archives, listings, strict=True)
            for member in self._tables(file, listing)
        ]
        chosen = tables[:: -(-len(tables) // _SAMPLE_MEMBERS) or 1]
        with contextlib.ExitStack() as stack:
            held: list[InputFile] = []
            for file, listing in zip(archives, listings, strict=True):
                mine = [member for other, member in chosen if other is file]
                if listing.is_sequential and mine:
                    held.extend(map(stack.enter_context, self._unpacked(file, mine)))
                else:
                    for member in mine:
                        inner_file = self._member_file(file, member)
                        held.append(stack.enter_context(inner_file))
            total = sum(member.size for _, member in tables)
            some = sum(member.size for _, member in chosen)
            yield held, 1 if len(chosen) == len(tables) else some / total

    def _scaled(
        self,
        sample: TableSample,
        archives: Sequence[InputFile],
        chosen: Sequence[InputFile],
        share: float = 1,
    ) -> TableSample:
        """Returns the sample with its bytes as bytes of the archives."""
        if sample.total_rows is not None and share == 1:
            return sample
        packed = sum(file.size for file in archives)
        content = sum(file.size for file in chosen)
        read = sample.sampled_bytes or content
        if sample.total_rows is not None:
            # Only some rows of those members were sampled; their bytes are a share.
            read = round(content * (sample.rows + sample.unread) / sample.total_rows)
        return dataclasses.replace(
            sample,
            total_rows=None,
            sampled_bytes=max(round(packed * share * read / max(content, 1)), 1),
        )


def _also_skipped(raw: RawRows, skipped: dict[str, int]) -> RawRows:
    """Adds skipped members to the rows that the inner format skipped."""
    both = collections.Counter(raw.skipped) + collections.Counter(skipped)
    return dataclasses.replace(raw, skipped=dict(both))


@contextlib.contextmanager
def _in_memory(origin: str, chunks: Iterable[bytes]) -> Iterator[InputFile]:
    """Holds an anonymous file in memory that can be opened by a path."""
    with contextlib.ExitStack() as stack:
        file: IO[bytes]
        if hasattr(os, "memfd_create"):
            descriptor = os.memfd_create("member", os.MFD_CLOEXEC)
            file = stack.enter_context(open(descriptor, "wb", buffering=0))
            path = f"/proc/self/fd/{descriptor}"
        else:
            # Systems without memfd get a temporary file, removed after use.
            file = stack.enter_context(tempfile.NamedTemporaryFile(buffering=0))
            path = file.name
        size = 0
        for chunk in chunks:
            view = memoryview(chunk)
            while view:
                view = view[file.write(view) :]
            size += len(chunk)
        yield InputFile(origin, path, size, stamp=files.stamp_of(file.fileno()))


def _skip_reason(member: Member, format_name: str) -> Skipped | None:
    """Returns why a member is not a table of the source; None if it is."""
    if member.fault is not Reason.UNSAFE_PATH and is_litter(member.name):
        return Skipped.HIDDEN
    if member.fault is Reason.NESTED_ARCHIVE:
        return None
    return None if table_format(member.name) == format_name else Skipped.OTHER_SUFFIX


def _archive_of(file: SourceFile, block: Block) -> SourceFile:
    """Returns the archive that holds the member which `file` names.

    Raises:
      OSError: it is gone.
    """
    path, origin = file.path, file.origin
    while not files.is_file(path):
        path, origin = os.path.dirname(path), os.path.dirname(origin)
        if not origin:
            raise FileNotFoundError(errno.ENOENT, "No such file", file.path)
    return SourceFile(origin, path, stamp=block.stamp)


def _is_first(archive: SourceFile, members: Sequence[Member], block: Block) -> bool:
    names = [archive.origin]
    names += [f"{archive.origin}/{member.origin}" for member in members[:1]]
    return block.origin in names
