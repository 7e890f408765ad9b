"""Parquet as a table format: blocks of row groups, read column by column.

Parquet can be cut at row groups: several small ones are a block, and a large one is a
block that is read in pieces. Reading footers costs no data, so the columns of all files
are compared, and their rows are counted exactly.

Timestamps of 96 bits, as Spark, Hive and Impala write them, are a day and the
nanoseconds in it: more than an int64 of any unit can hold. Arrow reads them as
nanoseconds, which end in 1677 and 2262, and gives a wrong instant for others without a
word. 9999-12-31, which many write for "never", is one of them. So a source that holds
such instants is read in microseconds. What its unit does not hold is noticed by reading
the instants in seconds too, which hold any day, and for microseconds in nanoseconds as
well, whose low 64 bits are right for any instant.
"""

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from transforms.core.arrays import values_and_rows
from transforms.core.model import Block
from transforms.errors import InputError
from transforms.formats.columnar.arrow_batches import (
    PLACES,
    ColumnarFile,
    ColumnarReader,
    SampledRows,
    in_pieces,
    joined_sample,
    piece_of,
    raw_rows,
    readable,
)
from transforms.formats.columnar.arrow_types import (
    CommonColumns,
    flat_columns,
    flat_types,
    sources,
    stated_features,
)
from transforms.formats.raw_rows import RawRows
from transforms.formats.table import (
    InputFile,
    Planned,
    SourceFile,
    only,
    read_in_turn,
    spread,
)

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


_Mask = npt.NDArray[np.bool_]
_Longs = npt.NDArray[np.int64]

# Timestamps of 96 bits, by the unit of the values: the units to compare them with.
_EXACT_UNITS = {"ns": ("s",), "us": ("s", "ns")}

_PER_SECOND = {"ns": 10**9, "us": 10**6}
_HELD = {"ns": "dates from 1677-09-21 to 2262-04-11", "us": "years up to 294247"}
_SHOWN = 4
# The seconds of the first and the last instant that nanoseconds can hold.
_FIRST_SECOND, _LAST_SECOND = -(2**63) // 10**9, (2**63 - 1) // 10**9

# A row group: its file, its number there, its unpacked bytes.
_Group = tuple[InputFile, int, int]


@dataclasses.dataclass(frozen=True, slots=True)
class ParquetReader(ColumnarReader):
    """Parquet files under one schema.

    Attributes:
      int96: the unit of timestamps of 96 bits, once it is known.
      full: whether all rows of all files decide that unit, not a sample.
    """

    title: ClassVar[str] = "Parquet"

    int96: Literal["ns", "us"] = "ns"
    full: bool = False

    @contextlib.contextmanager
    def open(
        self, file: SourceFile, columns: Sequence[str] | None = None
    ) -> Iterator["_Parquet"]:
        """Opens a file, and again for each exact unit of timestamps of 96 bits."""
        with contextlib.ExitStack() as stack:
            views = [stack.enter_context(_opened(file, self.int96))]
            units = _EXACT_UNITS[self.int96] if _int96_paths(views[0]) else ()
            views += [stack.enter_context(_opened(file, unit)) for unit in units]
            yield _Parquet(views, self.int96, file.origin, columns)

    def plan(self, files: Sequence[InputFile]) -> Planned:
        """Samples row groups spread evenly; decides the unit of 96-bit timestamps."""
        common = CommonColumns()
        groups: list[_Group] = []
        rows = 0
        wide = False
        for file in read_in_turn(files):
            with _opened(file, self.int96) as parquet:
                schema = parquet.schema_arrow
                types = flat_types(schema, file.origin)
                common.add(file.origin, types, stated_features(schema))
                wide = wide or bool(_int96_paths(parquet))
                rows += parquet.metadata.num_rows
                for index, group in enumerate(_row_groups(parquet.metadata)):
                    _check_row_bytes(group, index, file.origin)
                    groups.append((file, index, group.total_byte_size))
        whole = sum(size for _, _, size in groups) <= self.sample_bytes
        chosen = groups if whole else spread(groups, PLACES)
        if wide and self.int96 == "ns" and _beyond(groups if self.full else chosen):
            return dataclasses.replace(self, int96="us").plan(files)
        if whole:
            # Slots leave no place for the plain super().
            return super(ParquetReader, self).plan(files)
        budget = self.sample_bytes // len(chosen)
        parts: list[Mapping[str, pa.Array]] = []
        by_file = _by_file(chosen)
        for file in read_in_turn([*by_file]):
            with self.open(file) as content:
                for index, size in by_file[file].items():
                    step = max(1, min(_SPREAD, -(-size // budget)))
                    parts += content.some([index], step, budget)
        sample = joined_sample(common.columns, parts, total_rows=rows)
        return self.planned(sample, common.features)


class _Parquet(ColumnarFile):
    """An open file, by the unit of its timestamps of 96 bits and by exact ones."""

    def __init__(
        self,
        views: Sequence[pq.ParquetFile],
        unit: Literal["ns", "us"],
        origin: str,
        columns: Sequence[str] | None,
    ) -> None:
        self._views = views
        self._unit = unit
        self._schema = views[0].schema_arrow
        self.types = flat_types(self._schema, origin)
        self.features = stated_features(self._schema)
        if columns is not None:
            only(self.types, columns, origin)

    def look(self, budget: int, places: int) -> SampledRows:
        """Returns all rows: `plan` asks for those of small files only."""
        # Together: small row groups one by one cost more than their rows.
        meta = self._views[0].metadata
        return SampledRows(
            self.some(range(meta.num_row_groups), 1, None), meta.num_rows
        )

    def parts(
        self, file: InputFile, block_bytes: int, limit_rows: int | None
    ) -> Iterator[tuple[int, int]]:
        """Returns the row groups; only the footer is read."""
        groups = _row_groups(self._views[0].metadata)
        plain = sum(map(_plain_bytes, groups))
        sizes = (file.size * _plain_bytes(group) // plain for group in groups)
        counts = (group.num_rows for group in groups)
        return zip(counts, itertools.accumulate(sizes), strict=True)

    def read(self, block: Block, columns: Sequence[str]) -> Iterator[RawRows]:
        """Yields the rows of a block in pieces of about 16 MiB, once decoded."""
        paths = [*dict.fromkeys(path for _, path in sources(self._schema, columns))]
        groups, begin = [], 0
        for index, group in enumerate(_row_groups(self._views[0].metadata)):
            if group.num_rows and 0 <= begin - block.first_row < block.rows:
                groups.append(index)
            begin += group.num_rows
        first, stop = block.first_row, block.first_row + block.rows
        own, *others = self._views
        instants = _int96_paths(own, paths or ("",)) if others else []
        takers = [_taker(_read(o, groups, instants)) for o in others if instants]
        for table in in_pieces(_read(own, groups, paths)):
            tables = [table, *(take(table.num_rows) for take in takers)]
            table, *exact = (whole.slice(0, stop - first) for whole in tables)
            piece = piece_of(block, first, table.num_rows)
            values = flat_columns(table, columns)
            wrong, cut = self._out_of_unit(values, exact)
            yield raw_rows(piece, values, columns, wrong, cut)
            first += table.num_rows
            if first == stop:
                break
        if first == begin:
            _LAST_FOOTER.clear()

    def some(
        self, groups: Sequence[int], step: int, limit: int | None
    ) -> list[dict[str, pa.Array]]:
        """Returns columns of every `step`-th row of row groups, up to `limit` bytes."""

        def thinned() -> Iterator[pa.RecordBatch]:
            kept = 0
            for batch in _read(self._views[0], groups, None):
                if step > 1:
                    # A copy: a slice would keep the whole.
                    batch = batch.take(pa.array(np.arange(0, batch.num_rows, step)))
                kept += batch.nbytes
                yield batch
                if limit is not None and kept >= limit:
                    return

        return [*map(flat_columns, in_pieces(thinned()))]

    def _out_of_unit(
        self, columns: Mapping[str, pa.Array], exact: Sequence[pa.Table]
    ) -> tuple[dict[int, str], dict[str, _Mask]]:
        """Returns what is wrong with rows, and by column which have too many digits."""
        wrong: dict[int, str] = {}
        cut: dict[str, _Mask] = {}
        others = [flat_columns(table) for table in exact]
        for name in others[0] if others else ():
            if name in columns:
                arrays = [other[name] for other in others]
                out, cut[name] = _beyond_unit(columns[name], self._unit, arrays)
                for row in np.flatnonzero(out).tolist():
                    seconds = arrays[0].slice(row)
                    wrong.setdefault(row, _said_of_range(name, self._unit, seconds))
        return wrong, cut


# The footer of the file that was opened last, by path and stamp. It grows with the row
# groups, and so does the number of blocks: parsed again for each block, footers would
# take time quadratic in the row groups.
_LAST_FOOTER: dict[tuple[str, int], pq.FileMetaData] = {}


@contextlib.contextmanager
def _opened(file: SourceFile, int96: str = "ns") -> Iterator[pq.ParquetFile]:
    """Opens a file with INT96 timestamps in a unit; remembers the last footer."""
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
    sizes = (group.total_byte_size for group in _row_groups(footer))
    largest = max(sizes, default=0)
    return _READ_BYTES if largest >= _READ_BYTES * footer.num_columns else 0


def _by_file(groups: Sequence[_Group]) -> dict[InputFile, dict[int, int]]:
    """Returns the row groups of each file, and their sizes."""
    out: dict[InputFile, dict[int, int]] = {}
    for file, index, size in groups:
        out.setdefault(file, {})[index] = size
    return out


def _beyond(groups: Sequence[_Group]) -> bool:
    """Tells whether row groups hold instants of 96 bits beyond nanoseconds."""
    for file, chosen in _by_file(groups).items():
        with _opened(file, "s") as parquet:
            paths = _int96_paths(parquet)
            for batch in _read(parquet, [*chosen], paths) if paths else ():
                if any(map(_beyond_nanoseconds, flat_columns(batch).values())):
                    return True
    return False


def _row_groups(footer: pq.FileMetaData) -> list[pq.RowGroupMetaData]:
    """Returns the metadata of each row group."""
    return [*map(footer.row_group, range(footer.num_row_groups))]


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


def _read(
    parquet: pq.ParquetFile, groups: Sequence[int], paths: Sequence[str] | None
) -> Iterator[pa.RecordBatch]:
    """Yields rows of row groups; how many at once depends on their unpacked size."""
    chosen = [parquet.metadata.row_group(index) for index in groups]
    rows = max(sum(group.num_rows for group in chosen), 1)
    row_bytes = max(sum(map(_plain_bytes, chosen)) // rows, 1)
    at_once = max(1, min(_MANY_ROWS, _STEP_BYTES // row_bytes))
    return parquet.iter_batches(at_once, groups, paths, use_threads=False)


def _taker(batches: Iterator[pa.RecordBatch]) -> Callable[[int], pa.Table]:
    """Returns what takes the next rows of Parquet batches, as many as asked for."""
    left: list[pa.RecordBatch] = []

    def take(rows: int) -> pa.Table:
        while sum(batch.num_rows for batch in left) < rows:
            left.append(next(batches))
        table = pa.Table.from_batches(left)
        left[:] = table.slice(rows).to_batches()
        return table.slice(0, rows)

    return take


def _int96_paths(parquet: pq.ParquetFile, wanted: Iterable[str] = ("",)) -> list[str]:
    """Returns the paths of timestamps of 96 bits that these paths lead to, or all."""
    columns = (parquet.schema.column(index) for index in range(len(parquet.schema)))
    paths = [column.path for column in columns if column.physical_type == "INT96"]
    ends = tuple(f"{path}." if path else "" for path in wanted)
    return [path for path in paths if f"{path}.".startswith(ends)]


def _beyond_nanoseconds(seconds: pa.Array) -> bool:
    """Tells whether instants in seconds are out of the range of nanoseconds.

    Those within a second of the limits are left to `_beyond_unit`.
    """
    extent = pc.min_max(_leaves(seconds)[0]).as_py()
    low, high = extent["min"], extent["max"]
    return low is not None and not _FIRST_SECOND <= low <= high <= _LAST_SECOND


def _beyond_unit(
    values: pa.Array, unit: str, exact: Sequence[pa.Array]
) -> tuple[_Mask, _Mask]:
    """Tells what a unit does not hold of the instants in n rows, or in their lists.

    Args:
      values: the instants in the unit.
      unit: "ns" or "us".
      exact: the same in each of `_EXACT_UNITS`.

    Returns:
      For each row, whether it has an instant out of range, and whether it has one that
      is finer than the unit.
    """
    (counts, rows), *others = map(_counts_and_rows, [values, *exact])
    out, finer = np.zeros((2, len(values)), np.bool_)
    out[rows[counts // _PER_SECOND[unit] != others[0][0]]] = True
    if unit == "us":
        # Both wrap at 64 bits alike.
        finer[rows[counts * 1000 != others[1][0]]] = True
    return out, finer


def _said_of_range(name: str, unit: str, seconds: pa.Array) -> str:
    """Returns what is wrong with a row, given the column in seconds from there on."""
    instants = _leaves(seconds.slice(0, 1))[0].drop_null().slice(0, _SHOWN).to_pylist()
    shown = ", ".join(str(np.datetime64(instant, "s")) for instant in instants)
    return (
        f"column {name!r} holds {shown}: out of range, in {unit} an int64 holds "
        f"{_HELD[unit]}"
    )


def _leaves(column: pa.Array) -> tuple[pa.Array, _Longs]:
    """Returns timestamps, also in lists, as counts, and their rows; no other types."""
    values, rows = values_and_rows(column)
    if not pa.types.is_timestamp(values.type):
        return pa.nulls(0, pa.int64()), rows[:0]
    return values.cast(pa.int64()), rows


def _counts_and_rows(column: pa.Array) -> tuple[_Longs, _Longs]:
    """Returns the instants in a column, 0 for null, and the row of each."""
    counts, rows = _leaves(column)
    return np.asarray(pc.fill_null(counts, 0), np.int64), rows
