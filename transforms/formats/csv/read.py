"""Read a block of a CSV file as text columns, and find the rows that cannot be read."""

import dataclasses
import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from transforms.core.arrays import numpy_mask, one_array
from transforms.core.model import Block
from transforms.core.reasons import Reason, Rejection, Skipped
from transforms.core.rows.column import Mask
from transforms.core.rows.text_cells import is_text, not_utf8
from transforms.errors import ConservationError, bounded, shortened
from transforms.formats.csv.blocks import file_encoding, is_scannable, text_of
from transforms.formats.csv.scan import (
    UNNAMED,
    WHITESPACE,
    CsvDialect,
    Longs,
    malformed,
    scanned,
    with_tabs,
)
from transforms.formats.raw_rows import Complaint, RawRows, rejection_of
from transforms.formats.table import only

END_MARK = "\x1a"
_BOM = b"\xef\xbb\xbf"
# Arrow cannot report a row of another length that is not valid UTF-8: such rows are
# found in a copy that has "?" for each byte beyond ASCII.
_ONLY_ASCII = bytes(range(128)) + b"?" * 128


@dataclasses.dataclass(frozen=True, slots=True)
class CsvRecords:
    """The r records of a piece of a file; n of them have the right length.

    Attributes:
      columns: for each column asked for, n cells as bytes; null where one is blank and
        not quoted.
      indices: int64 array of n: the position of each among the r.
      miscounted: of others: position and number of fields; 0 for a lone Ctrl-Z, which
        DOS wrote at the end of a text, where a table has more columns than one.
    """

    columns: tuple[pa.Array, ...]
    indices: Longs
    miscounted: Mapping[int, int]

    def __len__(self) -> int:
        """The number r of records, those of another length included."""
        return len(self.indices) + len(self.miscounted)


def read_raw(
    data: bytes | pa.Buffer,
    block: Block,
    dialect: CsvDialect,
    columns: Sequence[str],
    wanted: Sequence[str],
    beside: Sequence[str] = (),
) -> RawRows:
    """Returns the records of a block as columns of text.

    A row with another number of fields, or with a cell that is not valid text, is
    refused; only the columns wanted are looked at. Those beside are of text too, or
    binary where one of their cells is not valid text. A record that says the header
    again, as in files that were joined, is skipped, and so is a lone Ctrl-Z.

    Args:
      data: the file's bytes from `block.start` to `block.stop`.
      block: as `iter_blocks` gave it.
      dialect: how the file is written.
      columns: the names of all columns of the file.
      wanted: the names of the columns to return.
      beside: and of other columns to return.

    Raises:
      InputError: the file has no column of a wanted name.
      ConservationError: the data holds another number of records than the block.
    """
    only(dict.fromkeys(columns), wanted, block.origin)
    source = _CsvSource(data, block, dialect)
    # The parser counts records only if it parses a column.
    asked = [*wanted, *beside] or columns[:1]
    records = parse(source.utf8, columns, asked, dialect)
    cells = dict(zip(asked, records.columns, strict=True))
    bad: dict[str, Mask] = {}
    if not is_text(source.utf8):
        masks = ((name, not_utf8(column)) for name, column in cells.items())
        bad = {name: mask for name, mask in masks if mask is not None}
    texts = {name: _as_text(cells[name], bad.get(name), dialect) for name in asked}
    cells = {name: cells[name] for name in bad}
    if len(records) != block.rows:
        raise ConservationError(
            f"{block.origin}, bytes {block.start} to {block.stop}: the scan counted "
            f"{block.rows} records, the parser {len(records)}; the file has perhaps "
            f"changed since it was listed"
        )
    first = block.first_row
    numbers = records.indices + first
    refused: list[Complaint] = [
        (
            first + index,
            Reason.FIELD_COUNT,
            f"row has {fields} field{'s' * (fields != 1)}, {len(columns)} expected",
        )
        for index, fields in records.miscounted.items()
        if fields
    ]
    no_rows = _no_rows(source, texts, columns)
    skipped = {Skipped.END_MARK: [*records.miscounted.values()].count(0)}
    unread = np.isin(records.indices, malformed(source.utf8, dialect))
    del records
    refused += [
        (
            number,
            Reason.MALFORMED,
            f"text follows a closing quote ({dialect.quote}) in this row; where quotes "
            f"are part of the text, say --quote ''",
        )
        for number in numbers[unread].tolist()
    ]
    for skip, these in no_rows.items():
        skipped[skip] = skipped.get(skip, 0) + int(these.sum())
        unread |= these
    for name in wanted or columns[:1]:
        if name in bad:
            for position in np.flatnonzero(bad[name] & ~unread).tolist():
                message = source.undecodable(name, cells[name][position])
                row = int(numbers[position])
                refused.append((row, Reason.INVALID_ENCODING, message))
            unread |= bad[name]
    for name in set(beside) & bad.keys():
        plain = texts[name].cast(pa.binary())
        texts[name] = pc.if_else(pa.array(bad[name]), cells[name], plain)
    arrays = {name: texts[name] for name in [*wanted, *beside]}
    if unread.any():
        fits = pa.array(~unread)
        arrays = {name: column.filter(fits) for name, column in arrays.items()}
        numbers = numbers[~unread]
    return RawRows(
        block,
        arrays,
        numbers,
        refused,
        source.rejections,
        skipped={str(reason): count for reason, count in skipped.items() if count},
    )


class _CsvSource:
    """The bytes of a block, as in the file and as UTF-8."""

    def __init__(
        self, data: bytes | pa.Buffer, block: Block, dialect: CsvDialect
    ) -> None:
        self.block = block
        self.dialect = dialect
        head = bytes(memoryview(data)[:4]) if block.start == 0 else b""
        self.encoding = file_encoding(head, dialect)
        self.raw: bytes | pa.Buffer = data
        self.scannable = is_scannable(self.encoding, dialect)
        if self.scannable:
            self.utf8 = data
            if self.encoding != "utf-8":
                self.utf8 = to_utf8(bytes(data), self.encoding)
            return
        # The block is the whole file: leave out the header and rows beyond a limit.
        whole, _, _ = text_of(io.BytesIO(data), dialect, block.origin)
        text = whole.read(-1)
        skip = dialect.leading
        bounds, _, _ = locate(text, dialect, np.array([skip, skip + block.rows]))
        self.utf8 = self.raw = text[bounds[0] : bounds[1]]

    def undecodable(self, column: str, cell: pa.Scalar) -> str:
        """Returns the message for a cell that is not valid text."""
        value = cell.as_py()
        # Undo `to_utf8`, to show the bytes that are in the file.
        lone = "surrogateescape" if self.encoding == "utf-8" else "surrogatepass"
        raw = value.decode("utf-8", lone).encode(self.encoding, "surrogateescape")
        shown = shortened(raw.decode(self.encoding, "backslashreplace"))
        return bounded(f"column {column!r} holds '{shown}': not valid {self.encoding}")

    def rejections(self, complaints: Sequence[Complaint]) -> list[Rejection]:
        """Returns a rejection for each complaint; complaints ascend by row."""
        if not complaints:
            return []
        view = memoryview(self.raw)
        first = self.block.first_row
        indices = np.array([row - first for row, _, _ in complaints], np.int64)
        places = [array.tolist() for array in locate(self.raw, self.dialect, indices)]
        # The blanks before the next record are not its own.
        ends = b"\r\n \t" if self.dialect.delimiter == WHITESPACE else b"\r\n"
        out = []
        for complaint, start, stop, lines in zip(complaints, *places, strict=True):
            record = bytes(view[start:stop]).rstrip(ends)
            if not self.scannable:
                record = record.decode().encode(self.encoding)
            line = self.block.first_line + lines
            out.append(rejection_of(self.block.origin, complaint, record, line=line))
        return out


def _no_rows(
    source: _CsvSource,
    texts: Mapping[str, pa.Array],
    columns: Sequence[str],
) -> dict[Skipped, Mask]:
    """Returns which records of the right length are not rows, by reason."""
    if len(columns) == 1:
        # In a table of one column a row may equal the name; hardly a lone Ctrl-Z.
        (cells,) = texts.values()
        marks = pc.is_in(cells, value_set=pa.array([END_MARK], cells.type))
        if not pc.any(marks).as_py():
            return {}
        return {Skipped.END_MARK: numpy_mask(marks)}
    if not source.dialect.header or source.dialect.columns is not None:
        return {}
    repeats = _repeats_header(texts, columns[0])
    if repeats is not None and len(texts) < len(columns):
        # Other fields may be no names: look at all of them.
        parsed = parse(source.utf8, columns, columns, source.dialect).columns
        texts = {
            name: _as_text(column, not_utf8(column), source.dialect)
            for name, column in zip(columns, parsed, strict=True)
        }
        repeats = _repeats_header(texts, columns[0])
    return {} if repeats is None else {Skipped.REPEATED_HEADER: repeats}


def _as_text(cells: pa.Array, undecodable: Mask | None, dialect: CsvDialect) -> Any:
    """Returns bytes as texts, null for what is not valid text."""
    if undecodable is not None:
        cells = pc.if_else(pa.array(undecodable), pa.scalar(None, cells.type), cells)
    texts = cells.view(pa.string())
    return trimmed(texts) if dialect.trim else texts


def _repeats_header(texts: Mapping[str, pa.Array], first: str) -> Mask | None:
    """Tells which of n rows read repeat the header, as in the second of joined files.

    Args:
      texts: columns by their names, n texts each; at least one.
      first: the name of the file's first column.

    Returns:
      n bools; None if no row does.
    """
    # The first name is compared last: a joined file may bring its byte order mark
    # before it, which makes quotes there literal.
    mask: Any = None
    for name in sorted(texts, key=lambda name: name == first):
        said: list[str | None] = [name]
        if name == first:
            said += [f"\ufeff{name}", f'\ufeff"{name}"']
        if name == first == UNNAMED:
            said += ["", "\ufeff", None]
        same = pc.is_in(texts[name], value_set=pa.array(said, texts[name].type))
        mask = same if mask is None else pc.and_(mask, same)
        if not pc.any(mask).as_py():
            return None
    return numpy_mask(mask)


def parse(
    data: bytes | pa.Buffer,
    names: Sequence[str],
    wanted: Sequence[str],
    dialect: CsvDialect,
) -> CsvRecords:
    """Parses whole records of UTF-8 text, in which cells may be invalid.

    Args:
      data: the records; no header, no byte order mark.
      names: the names of the file's columns.
      wanted: the distinct columns to return, in this order; at least one.
      dialect: delimiter, quote and escape are used.
    """
    miscounted: dict[int, int] = {}

    def note(row: Any) -> str:
        is_end_mark = row.actual_columns == 1 and row.text == END_MARK
        miscounted[row.number - 1] = 0 if is_end_mark else row.actual_columns
        return "skip"

    others = np.zeros(0, np.int64)
    try:
        table = _table_of(data, names, wanted, dialect)
    except pa.ArrowInvalid:
        # There are rows of another length. Arrow passes the text of each to a handler,
        # and for invalid UTF-8 it would print a traceback: they are found in a copy.
        # Replacing other bytes leaves lengths and fields as they are.
        plain = bytes(data).translate(_ONLY_ASCII)
        _table_of(plain, names, names[:1], dialect, note)
        others = np.array(sorted(miscounted), np.int64)
        starts, stops, _ = locate(data, dialect, others)
        begins, ends = [0, *stops.tolist()], [*starts.tolist(), len(data)]
        view = memoryview(data)
        kept = b"".join(view[i:j] for i, j in zip(begins, ends, strict=True))
        table = _table_of(kept or b"\n", names, wanted, dialect)
    indices = np.arange(table.num_rows + len(others), dtype=np.int64)
    columns = tuple(map(one_array, table.itercolumns()))
    return CsvRecords(columns, np.delete(indices, others), miscounted)


def protected(data: bytes | pa.Buffer, dialect: CsvDialect) -> bytes | pa.Buffer:
    """Guards CSV records against what Arrow drops: a leading BOM, a last blank cell."""
    if dialect.delimiter == WHITESPACE:
        data = with_tabs(data, dialect)
    view = memoryview(data)
    # Arrow drops a byte order mark at the start of its input. Here it would be data,
    # since blocks lack the file's own mark; a blank line in front protects it.
    if bytes(view[:3]) == _BOM:
        data = b"\n" + bytes(data)
    # Without a line end, Arrow takes a blank last cell for quoted if the cell before it
    # is quoted.
    if bytes(view[-1:]) not in (b"\n", b"\r"):
        data = bytes(data) + b"\n"
    return data


def _table_of(
    data: bytes | pa.Buffer,
    names: Sequence[str],
    wanted: Sequence[str],
    dialect: CsvDialect,
    handler: Any = None,
) -> pa.Table:
    """Returns columns of bytes; raises pyarrow.ArrowInvalid for a row's length."""
    data = protected(data, dialect)
    whole = {"use_threads": False, "block_size": len(data) + 1}
    reading = arrow_csv.ReadOptions(column_names=list(names), **whole)
    converting = arrow_csv.ConvertOptions(
        include_columns=list(wanted),
        column_types=dict.fromkeys(wanted, pa.binary()),
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    parsing = arrow_csv.ParseOptions(
        delimiter="\t" if dialect.delimiter == WHITESPACE else dialect.delimiter,
        quote_char=dialect.quote or False,
        escape_char=dialect.escape or False,
        newlines_in_values=True,
        invalid_row_handler=handler,
    )
    return arrow_csv.read_csv(pa.BufferReader(data), reading, parsing, converting)


def trimmed(cells: pa.StringArray) -> pa.StringArray:
    """Returns texts without white space at their ends; null for white space alone."""
    texts = pc.utf8_trim_whitespace(cells)
    if (pc.min(pc.binary_length(texts)).as_py() or 0) > 0:
        return texts
    emptied = pc.and_(pc.equal(texts, ""), pc.not_equal(cells, ""))
    return pc.if_else(emptied, pa.scalar(None, texts.type), texts)


def locate(
    data: bytes | pa.Buffer, dialect: CsvDialect, indices: Longs
) -> tuple[Longs, Longs, Longs]:
    """Returns where records start and stop, and how many lines end before each.

    A stop is behind the record's line end. The index that is the number of records
    means the end of the data.

    Args:
      data: whole records.
      dialect: how they are written.
      indices: the positions of records, ascending.
    """
    starts, lines, _, _ = scanned(data, dialect)
    bounds = np.append(starts, len(data))
    at = bounds[indices]
    stops = bounds[np.minimum(indices + 1, len(starts))]
    return at, stops, np.searchsorted(lines, at)


def to_utf8(data: bytes, encoding: str) -> bytes:
    """Returns the bytes of whole records as UTF-8.

    Bytes that are invalid in the encoding stay invalid: they become lone surrogates,
    which the CSV parser refuses, so that their rows can be found.
    """
    return data.decode(encoding, "surrogateescape").encode("utf-8", "surrogatepass")
