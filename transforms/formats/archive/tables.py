"""Tables in archives: members that are CSV, JSON lines, Parquet or Arrow files.

The reader of its own format reads each member from a file in memory. A member is one
block, or a run of small ones in the order of their names is. A packed tar is one block
as a whole, because its members cannot be reached one by one; the rows of small ones are
joined where they come in the order of their names, or are few enough to be sorted.

A table that cannot be read is an error, not a reject: it may hold any number of rows.
"""

import collections
import contextlib
import dataclasses
import itertools
import os
import posixpath
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, ClassVar, Self

import numpy as np
import pyarrow as pa

from transforms.core.model import Block, Reason, Skipped
from transforms.errors import DamageError, InputError
from transforms.formats.archive.base import ArchiveReaderBase
from transforms.formats.archive.members import (
    ArchiveListing,
    is_sequential,
    iter_members,
    stream_member,
)
from transforms.formats.archive.model import (
    Content,
    Member,
    shown_name,
)
from transforms.formats.input_files import file_notes
from transforms.formats.raw_rows import gathered
from transforms.formats.registry import table_format
from transforms.formats.table import (
    SMALL_BYTES,
    InputFile,
    Planned,
    RawRows,
    SourceFile,
    TableReader,
    TableSample,
)
from transforms.storage.entries import stamp_of

_BLOCK_BYTES = 16 << 20
# Members of a block, and those of them that are held in memory together.
_RUN_MEMBERS = 1024
_HELD_MEMBERS = 256
# Fewer members than these are no worse off each by itself.
_FEWEST_MEMBERS = 16
# A sample reads this many members, spread evenly: each is unpacked as a whole.
_SAMPLE_MEMBERS = 8
# The small members of a packed tar are sorted in memory up to this many bytes in all.
_MOST_SORTED_BYTES = 64 << 20

# A member, to be held as a file in memory.
_Memory = contextlib.AbstractContextManager[InputFile]


@dataclasses.dataclass(frozen=True, slots=True)
class ArchiveTables(ArchiveReaderBase):
    """Archives of tables of one format.

    Attributes:
      format: a key of `TABLE_FORMATS`.
      inner: reads a member of that format.
      gathers: whether small members are read together.
      null_values, decimal, beside: those of `inner`, once it is planned.
    """

    title: ClassVar[str] = "tables in archives"

    format: str = dataclasses.field(kw_only=True)
    inner: TableReader = dataclasses.field(kw_only=True)
    gathers: bool = False
    null_values: tuple[str, ...] = ()
    decimal: str = "."
    beside: Sequence[str] = ()

    @property
    def many_origins(self) -> bool:  # type: ignore[override]
        """Whether pieces span several members."""
        return self.gathers

    def plan(self, files: Sequence[InputFile]) -> Planned:
        """Plans with some members of all the archives.

        Raises:
          InputError: there are none, or one cannot be read.
        """
        with self._opened(files) as (chosen, tables):
            planned = self.inner.plan(chosen)
            sample = planned.sample
            notes = file_notes(planned.reader, chosen, sample.columns)
            sample = dataclasses.replace(sample, notes=(*sample.notes, *notes))
        if tables.share != 1:
            sample = dataclasses.replace(sample, complete=False)
        inner = planned.reader
        reader = dataclasses.replace(
            self,
            inner=inner,
            null_values=inner.null_values,
            decimal=inner.decimal,
            gathers=tables.are_small,
        )
        sample = self._scaled(sample, files, chosen, tables.share)
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
        """Yields runs of members, or single ones; a packed tar as a whole.

        `start` and `stop` count the members that are read.
        """
        members = self._tables(file, sort=self.gathers and limit_rows is None)
        if self.listing(file).is_sequential:
            rows = 0
            if limit_rows is not None:
                for memory in self._unpacked(file, members, file.position):
                    rows += self._count(memory, limit_rows - rows)
                    if rows == limit_rows:
                        break
            yield file.whole(rows=rows)
            return
        if limit_rows is None:
            most = _RUN_MEMBERS if self.gathers else 1
            for start, stop in _runs(members, block_bytes, most):
                yield file.block(start, stop, rows=0)
            return
        # A block without rows is a run in the order of names.
        start, left = 0, limit_rows
        for stop, member in enumerate(members, 1):
            rows = self._count(self._member_file(file, member, file.position), left)
            if rows or not (start or stop < len(members)):
                yield file.block(start, stop, rows=rows)
                start, left = stop, left - rows
            if not left:
                return

    def read(
        self, file: SourceFile, block: Block, columns: Sequence[str]
    ) -> Iterator[RawRows]:
        """Yields the rows of a run of members, or of all of a packed tar."""
        listing = self.listing(file)
        gathers = self.gathers and not block.rows
        members = self._tables(file, sort=gathers)
        memories: Iterator[_Memory]
        if listing.is_sequential:
            is_short = sum(member.size for member in members) <= _MOST_SORTED_BYTES
            is_sorted = _are_sorted(members)
            gathers = gathers and (is_short or is_sorted)
            memories = self._unpacked(
                file, members, block.position, sort=gathers and not is_sorted
            )
        else:
            memories = (
                self._member_file(file, member, block.position + member.offset)
                for member in members[block.start : block.stop]
            )
        skipped = {} if block.start else self._skipped(listing)
        for raw in self._rows(memories, columns, block.rows or None, gathers=gathers):
            placed = dataclasses.replace(raw.block, stamp=block.stamp)
            yield _also_skipped(dataclasses.replace(raw, block=placed), skipped)
            skipped = {}
        if skipped:
            # All members are empty.
            none = {name: pa.nulls(0, pa.string()) for name in columns}
            yield RawRows(block, none, np.zeros(0, np.int64), skipped=skipped)

    def _rows(
        self,
        found: Iterable[_Memory],
        columns: Sequence[str],
        limit: int | None,
        *,
        gathers: bool,
    ) -> Iterator[RawRows]:
        """Yields the rows of members, up to a limit; small ones gathered if asked."""
        if gathers:
            for held in self._together(found):
                raws = self.inner.read_whole(held, columns, block_bytes=_BLOCK_BYTES)
                yield from gathered(raws, most_bytes=_BLOCK_BYTES)
            return
        left = limit
        for memory in found:
            if left == 0:
                # The walk goes on, to find out whether the archive is whole.
                continue
            with memory as inner:
                for piece in self.inner.blocks(
                    inner, block_bytes=_BLOCK_BYTES, limit_rows=left
                ):
                    for raw in self.inner.read(inner, piece, columns):
                        yield raw
                        if left is not None:
                            left -= raw.block.rows

    def _together(self, found: Iterable[_Memory]) -> Iterator[list[InputFile]]:
        """Yields members that are read together; they are held until the next ones.

        What their names say of the rows is the same for all.
        """
        with contextlib.ExitStack() as stack:
            waiting: list[InputFile] = []
            size = 0
            for memory in found:
                own = contextlib.ExitStack()
                file = own.enter_context(memory)
                if waiting and (
                    size + file.size > _BLOCK_BYTES
                    or len(waiting) == _HELD_MEMBERS
                    or self._says(waiting[-1].origin) != self._says(file.origin)
                ):
                    yield waiting
                    stack.close()
                    waiting, size = [], 0
                stack.push(own)
                waiting.append(file)
                size += file.size
            if waiting:
                yield waiting

    def _says(self, origin: str) -> tuple[str, str]:
        """Returns what the name of a member says: its split, and its folder."""
        return self.split_of(origin), posixpath.dirname(origin)

    def _count(self, memory: _Memory, limit: int) -> int:
        with memory as file:
            blocks = self.inner.blocks(file, block_bytes=_BLOCK_BYTES, limit_rows=limit)
            return sum(block.rows for block in blocks)

    def _tables(self, file: SourceFile, *, sort: bool = False) -> Sequence[Member]:
        """Returns the members to read; InputError where one cannot be.

        They are sorted if asked, but for those of a packed tar.
        """
        listing = self.listing(file)

        def is_table(member: Member) -> bool:
            if _skip_reason(member, self.format) is not None:
                return False
            if member.fault is not None:
                raise InputError(f"{file.origin}: {member.message}")
            return True

        members = listing.derived(self.format, lambda: listing.members.select(is_table))
        if not sort or listing.is_sequential:
            return members

        def by_name() -> Sequence[Member]:
            if _are_sorted(members):
                return members
            return sorted(members, key=lambda member: member.origin)

        return listing.derived((self.format, "by name"), by_name)

    def _skipped(self, listing: ArchiveListing) -> dict[str, int]:
        """Returns how many members are left out, by reason."""
        reasons = (_skip_reason(member, self.format) for member in listing.members)
        return dict(collections.Counter(str(r) for r in reasons if r is not None))

    @contextlib.contextmanager
    def _member_file(
        self, file: SourceFile, member: Member, position: int
    ) -> Iterator[InputFile]:
        """Holds a member of a zip or plain tar as a file in memory."""
        with contextlib.ExitStack() as stack:
            with file.open() as stream:
                origin = _origin(file, member)
                chunks = stream_member(stream, file.origin, member)
                try:
                    inner = stack.enter_context(_in_memory(origin, chunks, position))
                except DamageError as error:
                    raise DamageError(
                        f"{file.origin}: member {shown_name(member.name)}: {error}. "
                        f"Fetch or write it again."
                    ) from error
            yield inner

    def _unpacked(
        self,
        file: SourceFile,
        members: Iterable[Member],
        position: int,
        *,
        sort: bool = False,
    ) -> Iterator[_Memory]:
        """Yields some members of a packed tar, in the order of their names if asked."""
        wanted = frozenset(member.number for member in members)

        def skip(member: Member) -> Skipped | None:
            return None if member.number in wanted else Skipped.NOT_SELECTED

        with file.open() as stream:
            walk = iter_members(
                stream, file.origin, name_encoding=self.zip_encoding or "", skip=skip
            )
            contents = (
                (_origin(file, item.member), item.data)
                for item in walk
                if isinstance(item, Content)
            )
            for origin, data in sorted(contents) if sort else contents:
                yield _in_memory(origin, [data], position)

    @contextlib.contextmanager
    def _opened(
        self, archives: Sequence[InputFile]
    ) -> Iterator[tuple[list[InputFile], "_Sampled"]]:
        """Holds some members of all archives; says what all of them are like."""
        lists = [*map(self._tables, archives)]
        sizes = [member.size for members in lists for member in members]
        step = -(-len(sizes) // _SAMPLE_MEMBERS) or 1
        with contextlib.ExitStack() as stack:
            held: list[InputFile] = []
            start = 0
            for file, members in zip(archives, lists, strict=True):
                chosen = [
                    members[place] for place in range(-start % step, len(members), step)
                ]
                start += len(members)
                if chosen and is_sequential(file.path):
                    memories = self._unpacked(file, chosen, file.position)
                else:
                    memories = (
                        self._member_file(file, member, file.position)
                        for member in chosen
                    )
                held.extend(map(stack.enter_context, memories))
            total = sum(sizes)
            share = sum(sizes[::step]) / total if total else 1
            yield held, _Sampled(share, len(sizes), total)

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
        if sample.total_rows:
            # Only some rows of those members were sampled; their bytes are a share.
            read = round(content * (sample.rows + sample.unread) / sample.total_rows)
        return dataclasses.replace(
            sample,
            total_rows=None,
            sampled_bytes=max(round(packed * share * read / max(content, 1)), 1),
        )


@dataclasses.dataclass(frozen=True, slots=True)
class _Sampled:
    """What a sample of members is a sample of.

    Attributes:
      share: of the bytes of all members, that are in the sample.
      count: of all members.
      bytes: of all members.
    """

    share: float
    count: int
    bytes: int

    @property
    def are_small(self) -> bool:
        """Whether there are many, and small ones in the mean."""
        is_many = self.count >= _FEWEST_MEMBERS
        return is_many and self.bytes <= self.count * SMALL_BYTES


@dataclasses.dataclass(frozen=True, slots=True)
class _MemberInMemory(InputFile):
    """A member: all its rows are where it begins in the archive."""

    def position_at(self, start: int) -> int:
        """Returns the bytes of input before the member."""
        return self.position


def _are_sorted(members: Iterable[Member]) -> bool:
    """Whether members come in the order of their names."""
    origins = (member.origin for member in members)
    return all(one <= other for one, other in itertools.pairwise(origins))


def _origin(archive: SourceFile, member: Member) -> str:
    return f"{archive.origin}/{member.origin}"


def _runs(
    members: Sequence[Member], block_bytes: int, most: int
) -> Iterator[tuple[int, int]]:
    """Yields where runs of at most so many members start and stop; one at least."""
    start = size = 0
    for stop, member in enumerate(members):
        if stop > start and (size + member.size > block_bytes or stop - start == most):
            yield start, stop
            start, size = stop, 0
        size += member.size
    yield start, len(members)


def _also_skipped(raw: RawRows, skipped: dict[str, int]) -> RawRows:
    """Adds skipped members to the rows that the inner format skipped."""
    both = collections.Counter(raw.skipped) + collections.Counter(skipped)
    return dataclasses.replace(raw, skipped=dict(both))


def _write(file: IO[bytes], data: bytes) -> None:
    """Writes all of the data to a file without a buffer."""
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]


@contextlib.contextmanager
def _in_memory(
    origin: str, chunks: Iterable[bytes], position: int
) -> Iterator[InputFile]:
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
            _write(file, chunk)
            size += len(chunk)
        stamp = stamp_of(file.fileno())
        yield _MemberInMemory(origin, path, size, position, stamp=stamp)


def _skip_reason(member: Member, format_name: str) -> Skipped | None:
    """Returns why a member is not a table of the source; None if it is."""
    if member.is_hidden:
        return Skipped.HIDDEN
    if member.fault is Reason.NESTED_ARCHIVE:
        return None
    return None if table_format(member.name) == format_name else Skipped.OTHER_SUFFIX
