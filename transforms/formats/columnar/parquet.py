"""Parquet as a table format: blocks of row groups, read column by column.

Parquet can be cut at row groups: several small ones are a block, and a large one is a
block that is read in pieces. Reading footers costs no data, so the columns of all files
are compared, and their rows are counted exactly.
"""

import contextlib
import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from transforms.core.model import Block
from transforms.errors import InputError
from transforms.formats.columnar.arrow_batches import (
    PIECE_BYTES,
    SAMPLE_BYTES,
    flat_columns,
    grouped,
    joined_sample,
    piece_of,
    raw_rows,
    readable,
    runs_of,
)
from transforms.formats.columnar.arrow_types import (
    CommonColumns,
    flat_types,
    wanted_paths,
)
from transforms.formats.columnar.int96 import (
    EXACT_UNITS,
    Mask,
    beyond_nanoseconds,
    int96_paths,
    out_of_range,
    out_of_unit,
)
from transforms.formats.table import (
    InputFile,
    Planned,
    RawRows,
    SourceFile,
    TableReader,
    only,
    read_in_turn,
)

# Row groups that are sampled in a larger source.
_PLACES = 64
# Decode up to this multiple of the sample budget per row group.
_SPREAD = 4
# Most rows that are decoded at once, and about how many bytes.
_MANY_ROWS = 1 << 16
_STEP_BYTES = 4 << 20
# Column chunks larger than this are read in pieces of this size, others whole.
_READ_BYTES = 8 << 20
# Most unpacked bytes of a row, on average over a group. One row is the least that can
# be decoded, and takes several times as much memory. The ratio of compression is no
# measure: a group of one number a hundred million times is sound.
_MAX_ROW_BYTES = 256 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class ParquetReader(TableReader):
    """Parquet files under one schema.

    Attributes:
      null_values: see `TableReader`.
      int96: the unit of timestamps of 96 bits, once it is known.
      full: whether all rows of all files decide that unit, not a sample.
    """

    title: ClassVar[str] = "Parquet"
    content: ClassVar[Literal["none", "read", "all"]] = "read"

    null_values: tuple[str, ...] = ()
    int96: Literal["ns", "us"] = "ns"
    full: bool = False

    def plan(self, files: Sequence[InputFile]) -> Planned:
        """Samples row groups spread evenly; decides the unit of 96-bit timestamps."""
        common = CommonColumns()
        # Each row group: its file, its number there, its unpacked bytes.
        groups: list[tuple[InputFile, int, int]] = []
        rows = 0
        wide = False
        for file in read_in_turn(files):
            with _opened(file, self.int96) as parquet:
                common.add(file.origin, flat_types(parquet.schema_arrow, file.origin))
                wide = wide or bool(int96_paths(parquet))
                meta = parquet.metadata
                rows += meta.num_rows
                for index in range(meta.num_row_groups):
                    group = meta.row_group(index)
                    _check_row_bytes(group, index, file.origin)
                    groups.append((file, index, group.total_byte_size))
        if not files:
            raise InputError("a sample needs at least one Parquet file; found none")
        whole = sum(size for _, _, size in groups) <= SAMPLE_BYTES
        all_groups = groups
        if not whole and len(groups) > _PLACES:
            groups = [groups[i * len(groups) // _PLACES] for i in range(_PLACES)]
        looked_at = all_groups if self.full else groups
        if wide and self.int96 == "ns" and _beyond(looked_at):
            return dataclasses.replace(self, int96="us").plan(files)
        budget = SAMPLE_BYTES // max(len(groups), 1)
        parts: list[dict[str, pa.Array]] = []
        by_file = [
            (file, [*chosen])
            for file, chosen in itertools.groupby(groups, key=lambda group: group[0])
        ]
        read = read_in_turn([file for file, _ in by_file])
        for file, (_, chosen) in zip(read, by_file, strict=True):
            with self._opened(file) as views:
                if whole:
                    # Together: small row groups one by one cost more than their rows.
                    indexes = [index for _, index, _ in chosen]
                    parts += self._sample_of(views, indexes, 1, None)
                    continue
                for _, index, size in chosen:
                    step = max(1, min(_SPREAD, -(-size // budget)))
                    parts += self._sample_of(views, [index], step, budget)
        return Planned(self, joined_sample(common.columns, parts, total_rows=rows))

    def blocks(
        self, file: InputFile, *, block_bytes: int, limit_rows: int | None
    ) -> Iterator[Block]:
        """Yields blocks of whole row groups; only the footer is read."""
        with _opened(file) as parquet:
            meta = parquet.metadata
            groups = [meta.row_group(index) for index in range(meta.num_row_groups)]
            plain = sum(_plain_bytes(group) for group in groups)
            counts = [group.num_rows for group in groups]
            sizes = [file.size * _plain_bytes(group) // plain for group in groups]
        parts = zip(counts, itertools.accumulate(sizes), strict=True)
        for run in runs_of(parts, 0, block_bytes, limit_rows):
            yield run.block_of(file)

    def read(
        self, file: SourceFile, block: Block, columns: Sequence[str]
    ) -> Iterator[RawRows]:
        """Yields the rows of a block in pieces of about 16 MiB, once decoded."""
        with self._opened(file) as views:
            first = block.first_row
            for table, *exact in _pieces(views, block, columns):
                piece = piece_of(block, first, table.num_rows)
                found = flat_columns(table, columns)
                wrong, cut = self._out_of_unit(found, exact)
                yield raw_rows(piece, found, columns, wrong, cut)
                first += table.num_rows
            if first == views[0].metadata.num_rows:
                _LAST_FOOTER.clear()
        if first != block.first_row + block.rows:
            raise InputError(
                f"{block.origin}: the footer says {block.rows} rows from row "
                f"{block.first_row} on, but {first - block.first_row} were found. "
                f"Fetch or write it again."
            )

    @contextlib.contextmanager
    def _opened(self, file: SourceFile) -> Iterator[list[pq.ParquetFile]]:
        """Opens a file, and again for each exact unit of timestamps of 96 bits."""
        with contextlib.ExitStack() as stack:
            views = [stack.enter_context(_opened(file, self.int96))]
            units = EXACT_UNITS[self.int96] if int96_paths(views[0]) else ()
            views += [stack.enter_context(_opened(file, unit)) for unit in units]
            yield views

    def _out_of_unit(
        self, columns: Mapping[str, pa.Array], exact: Sequence[pa.Table]
    ) -> tuple[dict[int, str], dict[str, Mask]]:
        """Returns what is wrong with rows, and by column which have too many digits."""
        wrong: dict[int, str] = {}
        cut: dict[str, Mask] = {}
        others = [flat_columns(table) for table in exact]
        for name in others[0] if others else ():
            if name in columns:
                arrays = [each[name] for each in others]
                out, cut[name] = out_of_unit(columns[name], self.int96, arrays)
                for row in np.flatnonzero(out).tolist():
                    seconds = arrays[0].slice(row)
                    wrong.setdefault(row, out_of_range(name, self.int96, seconds))
        return wrong, cut

    def _sample_of(
        self,
        views: Sequence[pq.ParquetFile],
        groups: Sequence[int],
        step: int,
        limit: int | None,
    ) -> list[dict[str, pa.Array]]:
        """Returns columns of every `step`-th row of row groups, up to `limit` bytes.

        Rows with timestamps that the unit cannot hold are left out.
        """
        thinned = self._thinned(views, groups, step, limit)
        return [flat_columns(table) for (table,) in _gathered(thinned)]

    def _thinned(
        self,
        views: Sequence[pq.ParquetFile],
        groups: Sequence[int],
        step: int,
        limit: int | None,
    ) -> Iterator[tuple[pa.RecordBatch]]:
        kept = 0
        for batch, *exact in _batches(views, groups):
            if exact:
                wrong, _ = self._out_of_unit(flat_columns(batch), exact)
                fits = np.ones(batch.num_rows, np.bool_)
                fits[[*wrong]] = False
                batch = batch.filter(pa.array(fits))
            part = batch
            if step > 1:
                # A copy: a slice would keep the whole.
                part = batch.take(pa.array(np.arange(0, batch.num_rows, step)))
            kept += part.nbytes
            yield (part,)
            if limit is not None and kept >= limit:
                return


# The footer of the file that was opened last, by path and stamp. It grows with the row
# groups, and so does the number of blocks: parsed again for each block, footers would
# take time quadratic in the row groups.
_LAST_FOOTER: dict[tuple[str, int], pq.FileMetaData] = {}


@contextlib.contextmanager
def _opened(file: SourceFile, int96: str = "ns") -> Iterator[pq.ParquetFile]:
    with readable(file.origin, "Parquet"), file.open() as stream:
        key = file.path, file.stamp
        footer = _LAST_FOOTER.get(key) or pq.read_metadata(stream)
        read_bytes = _read_bytes(footer)
        parquet = pq.ParquetFile(
            stream,
            metadata=footer,
            buffer_size=read_bytes,
            pre_buffer=not read_bytes,
            # Page checksums are verified where the writer stored them.
            page_checksum_verification=True,
            coerce_int96_timestamp_unit=int96,
        )
        # Only its stamp tells a file from a changed one.
        if file.stamp and key not in _LAST_FOOTER:
            _LAST_FOOTER.clear()
            _LAST_FOOTER[key] = footer
        with parquet:
            yield parquet


def _read_bytes(footer: pq.FileMetaData) -> int:
    """Returns how much of a column chunk to read at once; 0 for all of it.

    Every column has a buffer of this size: together they take no more than the chunks.
    """
    groups = map(footer.row_group, range(footer.num_row_groups))
    largest = max((group.total_byte_size for group in groups), default=0)
    return _READ_BYTES if largest >= _READ_BYTES * footer.num_columns else 0


def _beyond(groups: Sequence[tuple[InputFile, int, int]]) -> bool:
    """Tells whether row groups hold instants of 96 bits beyond nanoseconds."""
    for file, chosen in itertools.groupby(groups, key=lambda group: group[0]):
        with _opened(file, "s") as parquet:
            paths, indexes = int96_paths(parquet), [index for _, index, _ in chosen]
            for batch in _read(parquet, indexes, paths) if paths else ():
                if any(map(beyond_nanoseconds, flat_columns(batch).values())):
                    return True
    return False


def _plain_bytes(group: pq.RowGroupMetaData) -> int:
    """Returns the bytes of a row group before compression, at least 1.

    The metadata of single columns is not used: pyarrow ends the process when that of a
    damaged file contradicts itself.
    """
    return max(1, group.total_byte_size)


def _check_row_bytes(group: pq.RowGroupMetaData, index: int, origin: str) -> None:
    """Refuses a file of a few kilobytes whose rows unpack to gigabytes."""
    size = _plain_bytes(group)
    if size <= _MAX_ROW_BYTES * max(group.num_rows, 1):
        return
    raise InputError(
        f"{origin}: rows of a row group must unpack to {_MAX_ROW_BYTES:,} bytes at "
        f"most, in the mean; by the footer those of group {index + 1} have "
        f"{size // max(group.num_rows, 1):,}. That is taken for a bomb. Store such "
        f"values in files of their own, or write them in smaller parts."
    )


def _pieces(
    views: Sequence[pq.ParquetFile], block: Block, columns: Sequence[str]
) -> Iterator[list[pa.Table]]:
    """Yields the rows of a block; each table holds as much as a piece may."""
    schema = views[0].schema_arrow
    paths = wanted_paths(schema, columns)
    only(flat_types(schema, block.origin), columns, block.origin)
    batches = _batches(views, _groups_of(views[0], block), paths)
    yield from _gathered(_first_rows(batches, block.rows))


def _batches(
    views: Sequence[pq.ParquetFile],
    groups: Sequence[int],
    paths: Sequence[str] | None = None,
) -> Iterator[list[pa.RecordBatch]]:
    """Yields the rows of row groups, with their timestamps of 96 bits by the others."""
    own, *exact = views
    streams = [_read(own, groups, paths)]
    if instants := int96_paths(own, paths or ("",)) if exact else []:
        streams += [_read(other, groups, instants) for other in exact]
    left: list[pa.RecordBatch | None] = [None] * len(streams)
    while True:
        left = [
            next(stream, None) if batch is None else batch
            for batch, stream in zip(left, streams, strict=True)
        ]
        heads = [batch for batch in left if batch is not None]
        if len(heads) < len(streams):
            return
        rows = min(batch.num_rows for batch in heads)
        yield [batch.slice(0, rows) for batch in heads]
        left = [b.slice(rows) if b.num_rows > rows else None for b in heads]


def _read(
    parquet: pq.ParquetFile, groups: Sequence[int], paths: Sequence[str] | None
) -> Iterator[pa.RecordBatch]:
    rows = _rows_at_once(parquet, groups)
    return parquet.iter_batches(rows, groups, paths, use_threads=False)


def _first_rows(
    batches: Iterator[list[pa.RecordBatch]], rows: int
) -> Iterator[list[pa.RecordBatch]]:
    for views in batches:
        views = [batch.slice(0, rows) for batch in views]
        rows -= views[0].num_rows
        yield views
        if not rows:
            return


def _gathered(
    batches: Iterator[Sequence[pa.RecordBatch]],
) -> Iterator[list[pa.Table]]:
    """Yields the batches as tables; each holds as much as a piece may.

    Batches end with their row group where a column has dictionaries.
    """
    for group in grouped(batches, lambda views: views[0].nbytes, PIECE_BYTES):
        yield [pa.Table.from_batches(each) for each in zip(*group, strict=True)]


def _groups_of(parquet: pq.ParquetFile, block: Block) -> list[int]:
    """Returns the row groups of a block."""
    meta = parquet.metadata
    groups = []
    begin = 0
    for index in range(meta.num_row_groups):
        count = meta.row_group(index).num_rows
        if count and block.first_row <= begin < block.first_row + block.rows:
            groups.append(index)
        begin += count
    return groups


def _rows_at_once(parquet: pq.ParquetFile, groups: Sequence[int]) -> int:
    """Returns how many rows to decode at once, by their size before compression."""
    meta = parquet.metadata
    rows = size = 0
    for index in groups:
        group = meta.row_group(index)
        rows += group.num_rows
        size += _plain_bytes(group)
    each = max(size // max(rows, 1), 1)
    return max(1, min(_MANY_ROWS, _STEP_BYTES // each))
