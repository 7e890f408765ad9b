"""Tables in archives: members that are CSV, JSON lines, Parquet or Arrow files.

The reader of its own format reads each member from a file in memory. A member is one
block, or a run of small ones in the order of their names is. A packed tar is one block
as a whole, because its members cannot be reached one by one; the rows of small ones are
joined where they come in the order of their names.

A table that cannot be read is an error, not a reject: it may hold any number of rows.
"""

import collections
import contextlib
import dataclasses
import functools
import itertools
import os
import posixpath
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, ClassVar, NamedTuple, Self

import numpy as np
import pyarrow as pa

from transforms.core.model import Block
from transforms.core.reasons import Reason, Skipped
from transforms.errors import DamageError, InputError
from transforms.formats.archive.archives import Archives
from transforms.formats.archive.members import Member, MemberList, shown_name
from transforms.formats.file_runs import file_notes
from transforms.formats.raw_rows import RawRows, gathered, grouped
from transforms.formats.registry import table_format
from transforms.formats.table import (
    SMALL_BYTES,
    InputFile,
    Planned,
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

_Members = MemberList | list[Member]


class _TableMember(NamedTuple):
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


@dataclasses.dataclass(frozen=True, slots=True)
class ArchiveTables(Archives, TableReader):
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
        lists = [self._tables(file) for file in files]
        sizes = [member.size for members in lists for member in members]
        step = -(-len(sizes) // _SAMPLE_MEMBERS) or 1
        total, start = sum(sizes), 0
        share = sum(sizes[::step]) / total if total else 1
        with contextlib.ExitStack() as stack:
            chosen: list[InputFile] = []
            for file, members in zip(files, lists, strict=True):
                tables = self._content(file, members[-start % step :: step])
                chosen += (stack.enter_context(_in_memory(table)) for table in tables)
                start += len(members)
            planned = self.inner.plan(chosen)
            inner, sample = planned.reader, planned.sample
            assert isinstance(inner, TableReader)
            notes = file_notes(inner, chosen)
            sample = dataclasses.replace(
                sample,
                notes=(*sample.notes, *notes),
                complete=sample.complete and share == 1,
            )
        is_many = len(sizes) >= _FEWEST_MEMBERS
        reader = dataclasses.replace(
            self,
            inner=inner,
            null_values=inner.null_values,
            decimal=inner.decimal,
            gathers=is_many and total <= len(sizes) * SMALL_BYTES,
        )
        if sample.total_rows is None or share != 1:
            packed = sum(file.size for file in files)
            sample = _scaled(sample, sum(file.size for file in chosen), packed * share)
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

        `start` and `stop` count the members that are read. With a limit, the archive is
        one block that says its rows.
        """
        if limit_rows is not None:
            rows = 0
            tables = self._content(file, self._tables(file))
            for _, block in self._inner_blocks(tables, limit_rows):
                rows += block.rows
                if rows == limit_rows:
                    break
            yield file.whole(rows=rows)
        elif self.listing(file).is_sequential:
            yield file.whole()
        else:
            start = 0
            least = -(-block_bytes // (_RUN_MEMBERS if self.gathers else 1))
            members = self._tables(file, by_name=self.gathers)
            runs = grouped(members, lambda m: max(m.size, least), block_bytes)
            for run in [*runs] or [[]]:
                yield file.block(start, start + len(run), rows=0)
                start += len(run)

    def read(
        self, file: SourceFile, block: Block, columns: Sequence[str]
    ) -> Iterator[RawRows]:
        """Yields the rows of a run of members, or of all of an archive."""
        listing = self.listing(file)
        in_turn = listing.is_sequential or bool(block.rows)
        members = self._tables(file, by_name=self.gathers and not in_turn)
        gathers = self.gathers and not block.rows
        if in_turn:
            gathers = gathers and _are_sorted(members)
        else:
            members = members[block.start : block.stop]
        tables = self._content(file, members, block.position)
        skipped = collections.Counter[str]()
        if not block.start:
            reasons = (_skip_reason(m, self.format) for m in listing)
            skipped.update(str(reason) for reason in reasons if reason is not None)
        raws = self._gathered(tables, columns)
        if not gathers:
            raws = (
                raw
                for table, cut in self._inner_blocks(tables, block.rows or None)
                for raw in self.inner.read(table, cut, columns)
            )
        for raw in raws:
            placed = dataclasses.replace(raw.block, stamp=block.stamp)
            both = dict(collections.Counter(raw.skipped) + skipped)
            yield dataclasses.replace(raw, block=placed, skipped=both)
            skipped.clear()
        if skipped:
            # All members are empty.
            none = {name: pa.nulls(0, pa.string()) for name in columns}
            yield RawRows(block, none, np.zeros(0, np.int64), skipped=dict(skipped))

    def _gathered(
        self, tables: Iterable[_TableMember], columns: Sequence[str]
    ) -> Iterator[RawRows]:
        """Yields the rows of small members; what their names say is alike in a run."""

        def said(table: _TableMember) -> tuple[str, str]:
            return self.split_of(table.origin), posixpath.dirname(table.origin)

        least = -(-_BLOCK_BYTES // _HELD_MEMBERS)
        for _, alike in itertools.groupby(tables, said):
            for run in grouped(alike, lambda t: max(t.size, least), _BLOCK_BYTES):
                with contextlib.ExitStack() as stack:
                    files = [stack.enter_context(_in_memory(table)) for table in run]
                    raws = self.inner.read_whole(
                        files, columns, block_bytes=_BLOCK_BYTES
                    )
                    yield from gathered(raws, most_bytes=_BLOCK_BYTES)

    def _inner_blocks(
        self, tables: Iterable[_TableMember], left: int | None
    ) -> Iterator[tuple[InputFile, Block]]:
        """Yields members one by one, held in memory, and their blocks up to a limit."""
        for table in tables:
            if left == 0:
                # The walk goes on, to find out whether the archive is whole.
                continue
            with _in_memory(table) as file:
                for block in self.inner.blocks(
                    file, block_bytes=_BLOCK_BYTES, limit_rows=left
                ):
                    yield file, block
                    if left is not None:
                        left -= block.rows

    def _tables(self, file: SourceFile, *, by_name: bool = False) -> _Members:
        """Returns the members to read; InputError where one cannot be."""
        members = self.listing(file)
        return _tables_in(members, self.format, file.origin, by_name)

    def _content(
        self, file: SourceFile, members: Iterable[Member], position: int = 0
    ) -> Iterator[_TableMember]:
        """Yields members of an archive."""
        with self.opened(file) as archive:
            if archive.kind != "packed tar":
                for member in members:
                    origin = f"{file.origin}/{member.origin}"
                    chunks = self._chunks(file, member)
                    place = position + member.offset
                    yield _TableMember(origin, member.size, chunks, place)
                return
            numbers = frozenset(member.number for member in members)
            # The walk goes on to the end, to find out whether the archive is whole.
            for member, read in archive.members():
                if member.number in numbers and (data := read().data) is not None:
                    origin = f"{file.origin}/{member.origin}"
                    yield _TableMember(origin, len(data), [data], position)

    def _chunks(self, file: SourceFile, member: Member) -> Iterator[bytes]:
        """Yields the content of a member of a zip or plain tar."""
        try:
            with self.opened(file) as archive:
                yield from archive.stream(member)
        except DamageError as error:
            raise DamageError(
                f"{file.origin}: member {shown_name(member.name)}: {error}. Fetch or "
                f"write it again."
            ) from error


# Of what is kept of the listings.
@functools.lru_cache(maxsize=4)
def _tables_in(
    members: MemberList, format_name: str, archive: str, by_name: bool
) -> _Members:
    """Returns the tables among members, by name or as stored; bad ones are errors."""

    def is_table(member: Member) -> bool:
        if _skip_reason(member, format_name) is not None:
            return False
        if member.fault:
            raise InputError(f"{archive}: {member.fault.message}")
        return True

    tables = members.select(is_table)
    if not by_name or _are_sorted(tables):
        return tables
    return sorted(tables, key=lambda member: member.origin)


def _skip_reason(member: Member, format_name: str) -> Skipped | None:
    """Returns why a member is not a table of the source; None if it is."""
    if member.is_hidden:
        return Skipped.HIDDEN
    if member.reason is Reason.NESTED_ARCHIVE:
        return None
    return None if table_format(member.name) == format_name else Skipped.OTHER_SUFFIX


def _are_sorted(members: Iterable[Member]) -> bool:
    """Whether members come in the order of their names."""
    origins = (member.origin for member in members)
    return all(one <= other for one, other in itertools.pairwise(origins))


def _scaled(sample: TableSample, content: int, packed: float) -> TableSample:
    """Returns a sample of members whose bytes are those of the archives.

    Args:
      sample: of some members.
      content: bytes of those.
      packed: bytes of the archives that they take.
    """
    read = sample.sampled_bytes or content
    if sample.total_rows:
        # Only some rows of those members were sampled; their bytes are a share.
        read = round(content * (sample.rows + sample.unread) / sample.total_rows)
    stored = max(round(packed * read / max(content, 1)), 1)
    return dataclasses.replace(sample, total_rows=None, sampled_bytes=stored)


@contextlib.contextmanager
def _in_memory(table: _TableMember) -> Iterator[InputFile]:
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
