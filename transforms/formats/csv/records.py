"""Records of a CSV file as columns of text, and the positions of given records."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from transforms.formats.csv.dialect import WHITESPACE, CsvDialect
from transforms.formats.csv.scan import Longs, scanned, with_tabs

END_MARK = "\x1a"
_BOM = b"\xef\xbb\xbf"
# Arrow cannot report a row of another length that is not valid UTF-8: such rows are
# found in a copy that has "?" for each byte beyond ASCII.
_ONLY_ASCII = bytes(range(128)) + b"?" * 128


@dataclasses.dataclass(frozen=True, slots=True)
class Records:
    """Records of a piece of a file; r of them, of which n have the right length.

    Attributes:
      columns: for each column asked for, n cells as bytes; null where one is blank and
        not quoted.
      indices: int64 array of n: the position of each among the r.
      miscounted: of others: position and number of fields.
      end_marks: positions of the rest, which are a lone Ctrl-Z: what DOS wrote at the
        end of a text, where a table has more columns than one.
    """

    columns: tuple[pa.Array, ...]
    indices: Longs
    miscounted: tuple[tuple[int, int], ...]
    end_marks: tuple[int, ...] = ()

    def __len__(self) -> int:
        """The number r of records, those of another length included."""
        return len(self.indices) + len(self.miscounted) + len(self.end_marks)


def parse(
    data: bytes | pa.Buffer,
    names: Sequence[str],
    wanted: Sequence[str],
    dialect: CsvDialect,
) -> Records:
    """Parses whole records of UTF-8 text, in which cells may be invalid.

    Args:
      data: the records; no header, no byte order mark.
      names: the names of the file's columns.
      wanted: the distinct columns to return, in this order; at least one.
      dialect: delimiter, quote and escape are used.
    """
    miscounted: list[tuple[int, int]] = []
    end_marks: list[int] = []

    def note(row: Any) -> str:
        if row.actual_columns == 1 and row.text == END_MARK:
            end_marks.append(row.number - 1)
        else:
            miscounted.append((row.number - 1, row.actual_columns))
        return "skip"

    try:
        table = _table_of(data, names, wanted, dialect)
    except pa.ArrowInvalid:
        # There are rows of another length. Arrow passes the text of each to a handler,
        # and for invalid UTF-8 it would print a traceback: they are found in a copy.
        # Replacing other bytes leaves lengths and fields as they are.
        plain = bytes(data).translate(_ONLY_ASCII)
        _table_of(plain, names, names[:1], dialect, note)
        table = None
    others = np.array(sorted([*end_marks, *(i for i, _ in miscounted)]), np.int64)
    if table is None:
        starts, stops, _ = locate(data, dialect, others)
        begins, ends = [0, *stops.tolist()], [*starts.tolist(), len(data)]
        view = memoryview(data)
        kept = b"".join(view[i:j] for i, j in zip(begins, ends, strict=True))
        table = _table_of(kept or b"\n", names, wanted, dialect)
    indices = np.arange(table.num_rows + len(others), dtype=np.int64)
    columns = tuple(
        column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        for column in table.itercolumns()
    )
    indices = np.delete(indices, others)
    return Records(columns, indices, tuple(miscounted), tuple(end_marks))


def protected(data: bytes | pa.Buffer, dialect: CsvDialect) -> bytes | pa.Buffer:
    """Returns records as Arrow reads all of them."""
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


def malformed(data: bytes | pa.Buffer, dialect: CsvDialect) -> Longs:
    """Returns the positions of the records with text behind a closing quote.

    The parser would take that text for a part of the cell, and drop the quote.
    """
    quote = dialect.quote.encode()
    if not quote or not (np.frombuffer(data, np.uint8) == ord(quote)).any():
        return np.zeros(0, np.int64)
    starts, _, loose, _ = scanned(data, dialect, wary=True)
    return np.unique(np.searchsorted(starts, loose, side="right") - 1)


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
