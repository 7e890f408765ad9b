"""Archives of rows: the members decide which reader is used. Tables are read here.

    tar shards whose members come in samples, 0001.jpg and 0001.cls   WebDataset
    members that are images                                           ArchiveImages
    members that are CSV, JSON lines, Parquet or Arrow files          ArchiveTables

The reader of a table's own format reads each member from a file in memory. A member is
one block, or a run of small ones in the order of their names is. A packed tar is one
block as a whole, because its members cannot be reached one by one; the rows of small
ones are joined where they come in the order of their names.

A table that cannot be read is an error, not a reject: it may hold any number of rows.
"""

import collections
import contextlib
import dataclasses
import functools
import itertools
import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from transforms.core.model import Block
from transforms.core.reasons import Reason, Skipped
from transforms.errors import DamageError, InputError, SpecError
from transforms.formats.archive.archives import Archives, TableMember, in_memory
from transforms.formats.archive.members import Member, MemberList, is_litter, shown_name
from transforms.formats.archive.row_archives import ArchiveImages
from transforms.formats.archive.webdataset import WebDataset, are_samples
from transforms.formats.file_names import is_image_name
from transforms.formats.file_runs import file_notes, gathered
from transforms.formats.raw_rows import RawRows, grouped
from transforms.formats.registry import TABLE_FORMATS, table_format
from transforms.formats.table import (
    SMALL_BYTES,
    InputFile,
    Planned,
    SourceFile,
    TableFormat,
    TableReader,
    TableSample,
)

# Archives that are opened to decide what a source contains.
_LOOKED_AT = 2
_BLOCK_BYTES = 16 << 20
# Members of a block, and those of them that are held in memory together.
_RUN_MEMBERS = 1024
_HELD_MEMBERS = 256
# Fewer members than these are no worse off each by itself.
_FEWEST_MEMBERS = 16
# A sample reads this many members, spread evenly: each is unpacked as a whole.
_SAMPLE_MEMBERS = 8
_Members = MemberList | list[Member]


@dataclasses.dataclass(frozen=True, slots=True)
class ArchiveReader(Archives, TableFormat):
    """Archives, before it is known what they hold.

    Attributes:
      folders_said: see `ArchiveImages`.
      table_settings: settings of the tables in archives, for their own reader.
    """

    title: ClassVar[str] = "archives"

    folders_said: bool = False
    table_settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @classmethod
    def with_settings(cls, settings: Mapping[str, Any]) -> Self:
        """Returns the reader; it hands on the settings that are not its own."""
        own = ("zip_encoding", "max_image_bytes", "folders_said")
        return cls(
            **{name: value for name, value in settings.items() if name in own},
            table_settings={n: v for n, v in settings.items() if n not in own},
        )

    def plan(self, files: Sequence[InputFile]) -> Planned:
        """Plans with the reader that the members of the first archives ask for.

        Raises:
          InputError: they are nothing that can be read.
          SpecError: a setting that is not for what the members are.
        """
        return self._chosen(files).plan(files)

    def _chosen(self, files: Sequence[InputFile]) -> TableFormat:
        looked_at = files[:_LOOKED_AT]

        def names() -> Iterator[str]:
            return itertools.chain.from_iterable(map(self._names, looked_at))

        told = (self.zip_encoding, self.max_image_bytes)
        if all(are_samples(file, self._names(file)) for file in looked_at):
            self._check_settings("WebDataset", ())
            return WebDataset(*told)
        if any(map(is_image_name, names())):
            self._check_settings("images in archives", ())
            return ArchiveImages(*told, folders_said=self.folders_said)
        tables = collections.Counter(map(table_format, names()))
        del tables[""]
        if not tables:
            few = itertools.islice(names(), 3)
            shown = ", ".join(map(shown_name, few)) or "nothing"
            suffixes = ", ".join(fmt.suffixes[0] for fmt in TABLE_FORMATS.values())
            raise InputError(
                f"Archives must hold images, samples of WebDataset or tables "
                f"({suffixes}); {files[0].origin!r} holds {shown}. Name another one."
            )
        if len(tables) > 1:
            raise InputError(
                f"The tables in archives must be of one format; found "
                f"{', '.join(sorted(tables))}. Take one kind out."
            )
        (name,) = tables
        return ArchiveTables(*told, format=name, inner=self._inner(name))

    def _names(self, file: InputFile) -> Iterator[str]:
        """Yields the names of the members of an archive."""
        members = self.listing(file)
        return (member.name for member in members if not is_litter(member.name))

    def _inner(self, name: str) -> TableReader:
        fmt = TABLE_FORMATS[name]
        self._check_settings(f"{name} in archives", fmt.options)
        made = fmt.reader_class().with_settings(self.table_settings)
        assert isinstance(made, TableReader)
        return made

    def _check_settings(self, what: str, known: Sequence[str]) -> None:
        for name in self.table_settings:
            if name not in known:
                raise SpecError(f"{name} is not for {what}; leave it out.")


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
                chosen += (stack.enter_context(in_memory(table)) for table in tables)
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
        if not in_turn:
            members = members[block.start : block.stop]
        gathers = self.gathers and not block.rows and _are_sorted(members)
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
        self, tables: Iterable[TableMember], columns: Sequence[str]
    ) -> Iterator[RawRows]:
        """Yields the rows of small members; what their names say is alike in a run."""

        def said(table: TableMember) -> tuple[str, str]:
            return self.split_of(table.origin), posixpath.dirname(table.origin)

        least = -(-_BLOCK_BYTES // _HELD_MEMBERS)
        for _, alike in itertools.groupby(tables, said):
            for run in grouped(alike, lambda t: max(t.size, least), _BLOCK_BYTES):
                with contextlib.ExitStack() as stack:
                    files = [stack.enter_context(in_memory(table)) for table in run]
                    raws = self.inner.read_whole(
                        files, columns, block_bytes=_BLOCK_BYTES
                    )
                    yield from gathered(raws, most_bytes=_BLOCK_BYTES)

    def _inner_blocks(
        self, tables: Iterable[TableMember], left: int | None
    ) -> Iterator[tuple[InputFile, Block]]:
        """Yields members one by one, held in memory, and their blocks up to a limit."""
        for table in tables:
            if left == 0:
                # The walk goes on, to find out whether the archive is whole.
                continue
            with in_memory(table) as file:
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
    ) -> Iterator[TableMember]:
        """Yields members of an archive."""
        with self.opened(file) as archive:
            if archive.kind != "packed tar":
                for member in members:
                    origin = f"{file.origin}/{member.origin}"
                    chunks = self._chunks(file, member)
                    place = position + member.offset
                    yield TableMember(origin, member.size, chunks, place)
                return
            numbers = frozenset(member.number for member in members)
            # The walk goes on to the end, to find out whether the archive is whole.
            for member, read in archive.members():
                if member.number in numbers and (data := read().data) is not None:
                    origin = f"{file.origin}/{member.origin}"
                    yield TableMember(origin, len(data), [data], position)

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
