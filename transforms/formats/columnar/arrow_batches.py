"""The columnar reader: what Parquet, Arrow IPC, Avro and NumPy files have in common.

A format says how one file is opened: a `ColumnarFile` with types, parts and rows. How
files are sampled together, cut into blocks and checked for lost rows is the same.

Blocks of these formats count rows: `start` is the number of the first row, which
identifies the piece in its file. `stop - start` is the number of bytes of the file that
the piece takes, which decides how rows are spread over shards.
"""

import abc
import contextlib
import dataclasses
import errno
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import is_list, lists_like, numpy_mask, rows_with
from transforms.core.model import Block
from transforms.core.reasons import Reason
from transforms.core.rows.text_cells import not_utf8
from transforms.errors import InputError, bounded
from transforms.formats.columnar.arrow_types import (
    Columns,
    CommonColumns,
    Features,
)
from transforms.formats.raw_rows import RawRows, grouped
from transforms.formats.table import (
    InputFile,
    Planned,
    SourceFile,
    TableReader,
    TableSample,
    only,
    read_in_turn,
)

# Pieces of a block, of decoded content.
PIECE_BYTES = 16 << 20
# Decoded content that a sample holds.
SAMPLE_BYTES = 64 << 20
# From this many places of a larger source.
PLACES = 64
_FAULTS = (pa.ArrowException, UnicodeDecodeError, MemoryError, OSError)


class SampledRows(NamedTuple):
    """Rows of a file for a sample.

    Attributes:
      batches: the flat columns of each place.
      total_rows: of the file; None where that is not known.
      stored_bytes: of the file that the rows take; 0 where `total_rows` is known.
    """

    batches: Sequence[Mapping[str, pa.Array]]
    total_rows: int | None
    stored_bytes: int = 0


class ColumnarFile(abc.ABC):
    """An open file.

    Attributes:
      types: its flat columns.
      features: what it says of them itself.
      begin: bytes of the file before its first part.
    """

    types: Columns
    features: Features
    begin: int = 0

    @abc.abstractmethod
    def look(self, budget: int, places: int) -> SampledRows:
        """Returns about `budget` bytes of rows, spread over so many places."""

    @abc.abstractmethod
    def parts(
        self, file: InputFile, block_bytes: int, limit_rows: int | None
    ) -> Iterable[tuple[int, int]] | None:
        """Returns the rows of each part of the file, and the bytes up to its end.

        None for a file whose parts only reading it to its end would tell.
        """

    @abc.abstractmethod
    def read(self, block: Block, columns: Sequence[str]) -> Iterator[RawRows]:
        """Yields the rows of a block, piece by piece."""


@dataclasses.dataclass(frozen=True, slots=True)
class ColumnarReader(TableReader):
    """Files of one typed format under one schema.

    Attributes:
      null_values: see `TableReader`.
      classes: the class names of columns of numbers, once they are known.
      sample_bytes: of a sample.
      least_sample_bytes: of each of its files.
      by_bytes: whether `start` and `stop` of a block are bytes of the file.
    """

    content: ClassVar[Literal["none", "read", "all"]] = "read"
    sample_bytes: ClassVar[int] = SAMPLE_BYTES
    least_sample_bytes: ClassVar[int] = 1 << 16
    by_bytes: ClassVar[bool] = False

    null_values: tuple[str, ...] = ()
    classes: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @abc.abstractmethod
    def open(
        self, file: SourceFile, columns: Sequence[str] | None = None
    ) -> contextlib.AbstractContextManager[ColumnarFile]:
        """Opens a file to read these of its flat columns, or all.

        Raises:
          InputError: it is damaged, or lacks one of the columns.
        """

    def plan(self, files: Sequence[InputFile]) -> Planned:
        """Samples rows spread evenly over the files; of streams the first."""
        common = CommonColumns()
        looks: list[SampledRows] = []
        budget = max(self.sample_bytes // len(files), self.least_sample_bytes)
        for file in read_in_turn(files):
            with self.open(file) as content:
                common.add(file.origin, content.types, content.features)
                looks.append(content.look(budget, max(PLACES // len(files), 1)))
        totals = [look.total_rows for look in looks if look.total_rows is not None]
        sample = joined_sample(
            common.columns,
            [batch for look in looks for batch in look.batches],
            total_rows=sum(totals) if len(totals) == len(looks) else None,
            sampled_bytes=sum(look.stored_bytes for look in looks),
        )
        return self.planned(sample, common.features)

    def planned(self, sample: TableSample, features: Features) -> Planned:
        """Returns the plan; the numbers of labels become names of classes."""
        classes = {f.name: f.vocabulary for f in features.values() if f.vocabulary}
        columns = dict(sample.columns)
        for name, names in classes.items():
            columns[name], _ = _named(columns[name].combine_chunks(), names)
        reader = dataclasses.replace(self, classes=tuple(classes.items()))
        sample = dataclasses.replace(sample, columns=columns)
        return Planned(reader, sample, tuple(features.values()))

    def blocks(
        self, file: InputFile, *, block_bytes: int, limit_rows: int | None
    ) -> Iterator[Block]:
        """Yields blocks of whole parts; a file without any is one block."""
        with self.open(file) as content:
            parts = content.parts(file, block_bytes, limit_rows)
            if parts is None:
                yield file.whole()
                return
            # The rows and the bytes before each block, and at last before the end.
            edges = [(0, content.begin)]
            rows, end = edges[0]
            for count, end in parts:
                rows += count
                if limit_rows is not None and rows >= limit_rows:
                    rows = limit_rows
                    break
                if end - edges[-1][1] >= block_bytes:
                    edges.append((rows, end))
            edges.append((rows, end))
        for (first, begin), (stop, close) in itertools.pairwise(edges):
            if stop > first:
                start = begin if self.by_bytes else first
                size, rows = close - begin, stop - first
                yield file.block(
                    start, start + size, rows=rows, before=begin, first_row=first
                )

    def read(
        self, file: SourceFile, block: Block, columns: Sequence[str]
    ) -> Iterator[RawRows]:
        """Yields the rows of a block in pieces of about 16 MiB, once decoded."""
        rows = 0
        with self.open(file, columns) as content:
            for raw in content.read(block, columns):
                rows += raw.block.rows
                yield _with_names(raw, self.classes)
        if block.rows and rows != block.rows:
            raise InputError(
                f"{block.origin}: {block.rows} rows must follow row {block.first_row}, "
                f"but {rows} were read. Fetch or write it again."
            )


@contextlib.contextmanager
def readable(
    origin: str, title: str, others: tuple[type[Exception], ...] = ()
) -> Iterator[None]:
    """Turns what a library says about a damaged file into an InputError that names it.

    Args:
      origin, title: of the file and its format.
      others: what else the library raises.
    """
    try:
        yield
    # A damaged length may ask for more memory than there is.
    except (*_FAULTS, *others) as error:
        # Errors of the system have a number; without one the error is the library's,
        # and this one is of a place before the file.
        if getattr(error, "errno", None) not in (None, errno.EINVAL):
            raise
        # Some of Arrow's sentences end with a full stop.
        said = str(error).split("\n")[0].rstrip(". ")
        reason = bounded(said, 300) or type(error).__name__
        raise InputError(
            f"{origin} cannot be read as {title}: {reason}. Fetch or write it again."
        ) from error


def piece_of(block: Block, first_row: int, rows: int) -> Block:
    """Returns the piece of a block that holds some of its rows."""
    size = block.stop - block.start
    block_rows = max(block.rows, 1)
    low = size * (first_row - block.first_row) // block_rows
    high = size * (first_row - block.first_row + rows) // block_rows
    return dataclasses.replace(
        block,
        start=first_row,
        stop=first_row + high - low,
        first_row=first_row,
        rows=rows,
        position=block.position + low,
    )


def joined_sample(
    columns: Columns,
    parts: Sequence[Mapping[str, pa.Array]],
    *,
    total_rows: int | None,
    sampled_bytes: int = 0,
    unread: int = 0,
) -> TableSample:
    """Returns a sample from the flat columns of several places.

    A column that a part lacks is null there. Rows with texts that are not UTF-8 are
    among the unread ones.

    Args:
      columns: the columns of the source.
      parts: the flat columns of each place.
      total_rows: see `TableSample`.
      sampled_bytes: likewise.
      unread: rows that cannot be read, beside those with such texts.
    """
    rows = 0
    chunks: dict[str, list[pa.Array]] = {name: [] for name in columns}
    for part in parts:
        count = len(next(iter(part.values()), ()))
        raw = raw_rows(Block("", 0, 0, rows=count), part, [*part])
        count = len(raw.numbers)
        rows, unread = rows + count, unread + len(raw.refused)
        for name, kind in columns.items():
            own = raw.columns.get(name)
            array = pa.nulls(count, kind) if own is None else own
            chunks[name].append(array if array.type == kind else array.cast(kind))
    joined = {n: pa.chunked_array(chunks[n], kind) for n, kind in columns.items()}
    return TableSample(
        joined,
        rows,
        unread=unread,
        sampled_bytes=sampled_bytes,
        total_rows=total_rows,
        complete=rows + unread == total_rows,
    )


def raw_rows(
    block: Block,
    columns: Mapping[str, pa.Array],
    wanted: Sequence[str],
    out_of_range: Mapping[int, str] | None = None,
    cut: Mapping[str, npt.NDArray[np.bool_]] | None = None,
) -> RawRows:
    """Returns the rows of a piece; refuses those with texts that are not UTF-8.

    Args:
      block: the piece.
      columns: its columns.
      wanted: those to return.
      out_of_range: row -> message, for rows to refuse with a value that its column's
        type cannot hold.
      cut: see `RawRows`, for all rows of the piece.

    Raises:
      InputError: a column that is wanted is not there.
    """
    numbers = np.arange(block.first_row, block.first_row + block.rows)
    raw = RawRows(block, only(columns, wanted, block.origin), numbers, cut=cut or {})
    for name in wanted:
        text = f"column {name!r} holds text that is not valid UTF-8"
        undecodable = _undecodable(raw.columns[name])
        raw = _refusing(raw, undecodable, Reason.INVALID_ENCODING, text)
    if out_of_range:
        texts = {block.first_row + row: text for row, text in out_of_range.items()}
        wrong = np.isin(raw.numbers, [*texts])
        raw = _refusing(raw, wrong, Reason.OUT_OF_RANGE, texts)
    return raw


def _refusing(
    raw: RawRows,
    bad: npt.NDArray[np.bool_] | None,
    reason: Reason,
    text: str | Mapping[int, str],
) -> RawRows:
    """Returns the rows with some of them refused; None for none.

    Args:
      raw: n rows.
      bad: which of them to refuse.
      reason: for it.
      text: the same in words; or by the number of the row.
    """
    if bad is None or not bad.any():
        return raw
    refused = [
        (number, reason, bounded(text if isinstance(text, str) else text[number]))
        for number in raw.numbers[bad].tolist()
    ]
    fits = pa.array(~bad)
    return dataclasses.replace(
        raw,
        columns={name: column.filter(fits) for name, column in raw.columns.items()},
        numbers=raw.numbers[~bad],
        refused=[*raw.refused, *refused],
        cut={name: mask[~bad] for name, mask in raw.cut.items()},
    )


def _with_names(
    raw: RawRows, classes: Sequence[tuple[str, tuple[str, ...]]]
) -> RawRows:
    """Returns the rows of a batch with names of classes for their numbers."""
    for name, names in classes:
        if name not in raw.columns:
            continue
        column, unnamed = _named(raw.columns[name], names)
        raw = dataclasses.replace(raw, columns={**raw.columns, name: column})
        text = (
            f"column {name!r} holds a number that is none of its {len(names)} classes"
        )
        raw = _refusing(raw, unnamed, Reason.UNKNOWN_LABEL, text)
    return raw


def _named(
    column: pa.Array, names: Sequence[str]
) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    """Returns names for numbers of a batch, null for -1; and the rows with others."""
    if is_list(column.type):
        items, bad = _named(column.flatten(), names)
        return lists_like(column, items), rows_with(column, bad)
    numbers = column.cast(pa.int64())
    inside = pc.and_(pc.greater_equal(numbers, 0), pc.less(numbers, len(names)))
    inside = pc.fill_null(inside, False)
    ids = pc.if_else(inside, numbers, pa.scalar(None, pa.int64()))
    missing = pc.fill_null(pc.equal(numbers, -1), True)
    return pa.array(names, pa.string()).take(ids), numpy_mask(
        pc.invert(pc.or_(inside, missing))
    )


def _undecodable(column: pa.Array) -> npt.NDArray[np.bool_] | None:
    """Returns which rows hold text that is not UTF-8; None for none."""
    kind = column.type
    if is_list(kind):
        inner = _undecodable(column.flatten())
        if inner is None:
            return None
        return rows_with(column, inner)
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return None
    return not_utf8(column)


def size_of(batch: pa.RecordBatch) -> int:
    """Returns how many bytes a batch takes; 0 without rows."""
    # Arrow 25 crashes on the size of a union without rows.
    return batch.nbytes if batch.num_rows else 0


def in_pieces(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yields batches as tables of about 16 MiB; a larger batch is several.

    Those of Parquet end early where a column has dictionaries.
    """

    def parts() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            count = max(1, size_of(batch) // PIECE_BYTES)
            rows = max(1, -(-batch.num_rows // count))
            for start in range(0, batch.num_rows, rows):
                yield batch.slice(start, rows)

    return map(pa.Table.from_batches, grouped(parts(), size_of, PIECE_BYTES))
