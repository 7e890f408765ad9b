"""The files of one table or listing, in blocks and runs; notes on such files.

A block, its segments and its receipts have a fixed cost that pays for thousands of
rows. Where each file is a row, a block is a run of the listing, which a `RunReader`
reads at once. Small files of tables are gathered as well: a block has rows of many.

Runs are cut by content: after a file whose path's hash says so, with a least and a most
number of files, and a most of bytes. So a file that is added or removed changes the run
that it is in, and seldom the next one: those further on begin and end where they did.

Notes say which files are one table, and whether their folders hold values.
"""

import abc
import collections
import dataclasses
import itertools
import math
import os
import posixpath
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.model import Block, Reading
from transforms.core.placing.hashes import origin_bases
from transforms.core.reasons import Rejection
from transforms.core.schema import Kind
from transforms.errors import bounded
from transforms.formats.file_names import split_at_start
from transforms.formats.input_files import InputFiles, opened
from transforms.formats.raw_rows import Complaint, RawRows, origins_of
from transforms.formats.source import Source
from transforms.formats.table import (
    SMALL_BYTES,
    InputFile,
    RowReader,
    SourceFile,
    TableReader,
    reading,
)

# Fewer files than these are no worse off each by itself.
_FEWEST_FILES = 16
# About how many runs there are: then a change touches less than 1 in 100 files.
_RUNS = 256
# Files of a run on average, where a run of 1 / `_RUNS` would be shorter.
_LEAST_MEAN = 8
# A run has at most this many times its mean: cut sooner, it would move the next ones.
LONGEST = 4
# The cost of a block is small beside that of a few thousand rows.
_BLOCK_ROWS = 2048
# Files whose names are compared, and those whose rows are counted, up to a number.
_NAMED_FILES, _COUNTED_FILES, _COUNTED_ROWS = 64, 8, 10_000


class RunReader(abc.ABC, RowReader):
    """How a run of a listing is read."""

    many_origins: ClassVar[bool] = True
    origins_name_rows: ClassVar[bool] = True

    @abc.abstractmethod
    def read_run(
        self, run: pa.Table, root: str, block: Block, columns: Sequence[str]
    ) -> Iterator[RawRows]:
        """Yields the rows of a run.

        `RawRows.origins` says each row's file. What complaints call a row is its place
        in the run: see `RawRows.places`.

        Args:
          run: the rows of the listing.
          root: folder that its paths are relative to.
          block: the run as a block.
          columns: the names of the columns that are wanted.
        """


@dataclasses.dataclass(frozen=True, slots=True)
class RunSource(Source):
    """The rows of a format of one row a file, under a listing.

    Attributes:
      block_rows: rows of a block.
    """

    reader: RunReader
    block_rows: int = _BLOCK_ROWS

    def inputs(self) -> Iterator[int]:
        """Yields the one listing."""
        yield 0

    def blocks(self, number: int) -> Iterator[Block]:
        """Yields runs of the listing; `start` and `stop` count its rows."""
        with opened(self.listing) as listing:
            count = listing.num_rows
            if self.limit is not None:
                count = min(count, self.limit)
            for start in range(0, count, self.block_rows):
                stop = min(start + self.block_rows, count)
                position = listing.slice(start, 1)["position"][0].as_py() or 0
                yield Block("", start, stop, start, 1, stop - start, position)

    def read(self, block: Block) -> Iterator[Reading]:
        """Yields the rows of a run that fit the schema, and the rest."""
        run = self._run(block)
        with reading(self.root, is_root=True):
            for raw in self.reader.read_run(run, self.root, block, self.wanted):
                yield self.reading(raw)


@dataclasses.dataclass(frozen=True, slots=True)
class TableSource(Source):
    """The files of one table format under a listing, each cut into blocks.

    Attributes:
      block_bytes: least size of a block.
      run_files: about how many small files a block has; 0 for one at most. See
        this module.
    """

    reader: TableReader
    block_bytes: int = 16 << 20
    run_files: int = 0

    @property
    def many_origins(self) -> bool:
        """Whether batches carry each row's own origin."""
        return self.reader.many_origins or bool(self.run_files)

    def planned_digest(self) -> bytes:
        """Returns a digest of all that planning decided; not of the listing."""
        # How long runs are says their listing.
        plain = dataclasses.replace(self, run_files=min(self.run_files, 1))
        return super(TableSource, plain).planned_digest()

    def inputs(self) -> Iterator[int]:
        """Yields the first file of each run; with a limit, all files are one input."""
        if self.limit is not None:
            yield 0
            return
        table = self._files()
        at = 0
        while at < table.num_rows:
            yield at
            at += self._run_at(table, at) or 1

    def blocks(self, number: int) -> Iterator[Block]:
        """Yields the blocks of a file; raises InputError where it is no such table.

        Small files are not looked into: a run of them is one block without an origin,
        and its `start` and `stop` count rows of the listing.
        """
        table = self._files()
        if self.limit is None:
            if run := self._run_at(table, number):
                position = table["position"][number].as_py()
                yield Block("", number, number + run, position=position)
            else:
                yield from self._blocks_of(table, number, None)
            return
        left = self.limit
        for index in range(table.num_rows):
            for block in self._blocks_of(table, index, left):
                left -= block.rows
                yield block
            if left <= 0:
                return

    def _run_at(self, listing: pa.Table, start: int) -> int:
        """Returns how many files the run has that begins there; 0 for none."""
        if not self.run_files:
            return 0
        ahead = listing.slice(start, LONGEST * self.run_files)
        return run_stop(
            ahead["path"].to_pylist(),
            ahead["size"].to_pylist(),
            run_files=self.run_files,
            block_bytes=self.block_bytes,
        )

    def read(self, block: Block) -> Iterator[Reading]:
        """Yields the rows of a block that fit the schema, and the rest."""
        beside = frozenset(self.reader.beside)
        asked = [name for name in self.content if name not in beside]
        columns = list(dict.fromkeys([*self.wanted, *asked]))
        if not block.origin:
            yield from self._read_run(block, columns)
            return
        path = os.path.join(self.root, block.origin)
        file = SourceFile(block.origin, path, stamp=block.stamp)
        with reading(path):
            for raw in self.reader.read(file, block, columns):
                typed = self.reading(raw)
                # The raw rows would take their memory until the next ones are read.
                del raw
                yield typed

    def _read_run(self, block: Block, wanted: Sequence[str]) -> Iterator[Reading]:
        """Yields the rows of a run of files that share what `reading` says of one."""
        inputs = InputFiles(self._run(block), root=self.root)
        for _, alike in itertools.groupby(inputs, self._shared_by_files):
            raws = self.reader.read_whole(
                [*alike], wanted, block_bytes=self.block_bytes
            )
            for raw in gathered(raws, most_bytes=self.block_bytes):
                yield self.reading(raw)

    def _shared_by_files(self, file: InputFile) -> tuple[str, str]:
        """Returns the split that the name says, and the folder that images are in."""
        split = "" if self._splits_by else self._split_of(file.origin)
        named = any(not image.inline for image in self.schema.of_kind(Kind.IMAGE))
        return split, posixpath.dirname(file.origin) if named else ""

    def _blocks_of(
        self, table: pa.Table, index: int, limit: int | None
    ) -> Iterator[Block]:
        file, size = InputFiles(table, root=self.root)[index], self.block_bytes
        with reading(file.path):
            yield from self.reader.blocks(file, block_bytes=size, limit_rows=limit)


def run_files_of(
    origins: pa.Array | pa.ChunkedArray,
    sizes: npt.NDArray[np.int64],
    *,
    block_bytes: int,
) -> int:
    """Returns about how many files a run has, a power of two; 0 for no runs.

        >>> origins = pa.array([f"{i:05}.csv" for i in range(10_000)])
        >>> run_files_of(origins, np.full(10_000, 4_000), block_bytes=8 << 20)
        32

    Args:
      origins: of the files, in source order.
      sizes: their bytes.
      block_bytes: the most that a run holds.
    """
    count = len(origins)
    mean = int(sizes.sum()) // max(count, 1)
    if count < _FEWEST_FILES or mean > SMALL_BYTES:
        return 0
    # Rows of one shard go by the origin of their block first, which must be their own
    # order.
    if pc.any(pc.less_equal(origins.slice(1), origins.slice(0, count - 1))).as_py():
        return 0
    ideal = 1 << round(math.log2(max(count / _RUNS, _LEAST_MEAN)))
    # Runs that end because they are full would all move where a file is added.
    roomy = max(block_bytes // (LONGEST * max(mean, 1)), 1)
    return min(ideal, 1 << (roomy.bit_length() - 1))


def run_stop(
    origins: Sequence[str], sizes: Sequence[int], *, run_files: int, block_bytes: int
) -> int:
    """Returns how many of a table's next files are small enough to be one block.

    A run of them ends before a file that is not small; 0 where the first one is not.

    Args:
      origins: of the files that follow, in source order; `LONGEST` times `run_files`
        of them, or all.
      sizes: their bytes.
      run_files: about how many files a run has; a power of two.
      block_bytes: the most that a run of more than one file holds.
    """
    ends = origin_bases(origins, "run", 0) & np.uint64(run_files - 1) == 0
    total = 0
    most = LONGEST * run_files
    for index, (size, is_end) in enumerate(zip(sizes, ends.tolist(), strict=True)):
        total += size
        if size > SMALL_BYTES or index == most or (index and total > block_bytes):
            return index
        if is_end and index + 1 >= run_files // 8:
            return index + 1
    return len(origins)


def folder_notes(files: Sequence[InputFile], names: Collection[str]) -> Iterator[str]:
    """Yields a note on folders like year=2024, as Spark and pandas store a column.

    Args:
      files: all of them.
      names: of columns and features.
    """
    paths = [file.origin for file in files[:_NAMED_FILES]]
    folders = {name for path in paths for name in re.findall("([^/=]+)=[^/]*/", path)}
    if lacking := sorted(folders - {*names}):
        said = ", ".join(f"{name}: {{path: '{name}=([^/]+)'}}" for name in lacking)
        yield bounded(
            f"folders are named like {lacking[0]}=..., and no feature holds that; "
            f"for one, say in a --spec: features: {{{said}}}"
        )


def file_notes(reader: TableReader, files: Sequence[InputFile]) -> Iterator[str]:
    """Yields notes on files that are read as one table, and are perhaps not one.

    They name the files and their rows, and one that is named like a split. Files whose
    names differ in digits alone are one table.
    """
    origins = [file.origin for file in files[:_NAMED_FILES]]
    kinds = {re.sub("[0-9]+", "0", posixpath.basename(origin)) for origin in origins}
    if len(kinds) < 2 or any(map(reader.split_of, origins)):
        return
    shown = []
    for file in files[:_COUNTED_FILES]:
        blocks = reader.blocks(file, block_bytes=SMALL_BYTES, limit_rows=_COUNTED_ROWS)
        rows = sum(block.rows for block in blocks)
        over = "over " if rows >= _COUNTED_ROWS else ""
        shown.append(f"{file.origin} ({over}{rows:,})")
    if more := len(files) - len(shown):
        shown.append(f"{more:,} more")
    listed = ", ".join(shown)
    yield bounded(f"{len(files):,} files are one table; with their rows: {listed}")
    if named := [origin for origin in origins if split_at_start(origin)]:
        yield (
            f"{named[0]!r} is named like a split, but not all files are named by such "
            f"a word alone; name them so, or leave others out with --exclude"
        )


def gathered(raws: Iterable[RawRows], *, most_bytes: int) -> Iterator[RawRows]:
    """Yields the raw rows of several files, joined where their columns are alike.

    Rows keep their order. Each has its own origin and position; what complaints call a
    row is its place among all of them: see `RawRows.places`.

    Args:
      raws: of small files, in source order.
      most_bytes: of columns, about, that are joined.
    """
    waiting: list[RawRows] = []
    size = 0
    for raw in raws:
        length = sum(column.nbytes for column in raw.columns.values())
        if waiting and (size + length > most_bytes or not _alike(waiting[-1], raw)):
            yield _joined_files(waiting)
            waiting, size = [], 0
        waiting.append(raw)
        size += length
    if waiting:
        yield _joined_files(waiting)


def _alike(one: RawRows, other: RawRows) -> bool:
    """Whether raw rows of two files have the same columns."""
    types = [{n: c.type for n, c in raw.columns.items()} for raw in (one, other)]
    return types[0] == types[1]


def _joined_files(raws: Sequence[RawRows]) -> RawRows:
    """Returns the raw rows of several files as one, numbered by their place in all."""
    if len(raws) == 1:
        return raws[0]
    first = raws[0]
    skipped = collections.Counter[str]()
    refused: list[Complaint] = []
    places: list[npt.NDArray[np.int64]] = []
    # Where the places of each begin, and what to add to its own ones.
    begins = [0, *itertools.accumulate(raw.block.rows for raw in raws)]
    shifts: list[int] = []
    for raw, begin in zip(raws, begins, strict=False):
        # Places are numbers of the file's rows, or else count from 0.
        shift = begin - (raw.block.first_row if raw.places is None else 0)
        places.append((raw.numbers if raw.places is None else raw.places) + shift)
        refused += _shifted(raw.refused, shift)
        shifts.append(shift)
        skipped.update(raw.skipped)
    return RawRows(
        dataclasses.replace(first.block, rows=begins[-1]),
        {
            name: pa.concat_arrays([raw.columns[name] for raw in raws])
            for name in first.columns
        },
        np.concatenate([raw.numbers for raw in raws]),
        refused,
        _rejecter(raws, begins, shifts),
        pa.concat_arrays(map(origins_of, raws)),
        dict(skipped),
        places=np.concatenate(places),
        positions=np.concatenate(
            [
                raw.block.positions_of(raw.numbers)
                if raw.positions is None
                else raw.positions
                for raw in raws
            ]
        ),
    )


def _shifted(complaints: Iterable[Complaint], shift: int) -> list[Complaint]:
    """Returns complaints about rows whose numbers are moved by `shift`."""
    return [(number + shift, reason, text) for number, reason, text in complaints]


def _rejecter(
    raws: Sequence[RawRows], begins: Sequence[int], shifts: Sequence[int]
) -> Callable[[Sequence[Complaint]], list[Rejection]]:
    """Returns what lets each file make the rejections of its own rows."""

    def owner(complaint: Complaint) -> int:
        return int(np.searchsorted(begins, complaint[0], side="right")) - 1

    def reject(complaints: Sequence[Complaint]) -> list[Rejection]:
        out: list[Rejection] = []
        for index, group in itertools.groupby(complaints, owner):
            raw, shift = raws[index], shifts[index]
            out += raw.rejections(_shifted(group, -shift))
        return out

    return reject
