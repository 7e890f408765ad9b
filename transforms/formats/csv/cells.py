"""Parse wide tables as one column of cells, which takes no time for each column.

    1.5,2,a       1.5       the cells of all columns, row by row
    0.5,,b   ->   2    ->   every 3rd one from the 3rd on: texts
                  a         all others, n rows of 2: one cast to float32
                  ...

That is what the parser finds where a record is nothing but cells between delimiters:
no quotes and escapes, no lone CR, and as many cells in each record.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyarrow import csv as arrow_csv

from transforms.core.packing import LEAST_PACKED, Packed
from transforms.formats.csv.dialect import CsvDialect
from transforms.formats.csv.records import Records, protected

__all__ = ["parse_cells"]

_LF = b"\n"
_CELL = "cell"
# At most one column in eight may be another, which is picked from all cells.
_MOST_OTHERS = 8


def parse_cells(
    data: bytes | pa.Buffer,
    names: Sequence[str],
    wanted: Sequence[str],
    floats: tuple[str, ...],
    dialect: CsvDialect,
) -> Records | None:
    """Parses whole records of UTF-8 text; the floats are packed.

    None where the floats are few, or a record may hold more than plain cells.

    Args:
      data, names, wanted, floats, dialect: as for `parse_floats`.

    Raises:
      pyarrow.ArrowInvalid: a cell of the floats is no number, or a text not UTF-8.
    """
    width = len(names)
    if len(floats) < LEAST_PACKED or (width - len(floats)) * _MOST_OTHERS > width:
        return None
    delimiter = dialect.delimiter.encode()
    marks = (dialect.quote.encode(), dialect.escape.encode())
    if len(delimiter) > 1:
        return None
    text = bytes(protected(data, dialect))
    if any(mark and mark in text for mark in marks):
        return None
    if text.count(b"\r") != text.count(b"\r\n"):
        # A lone CR ends a record, but before a delimiter it would end a cell here.
        return None
    rows = _rows_of(text, delimiter, width)
    if not rows:
        return None
    kind = pa.float32() if len(floats) == width else pa.string()
    cells = _column(text.replace(delimiter, _LF), kind)
    if len(cells) != rows * width:
        return None
    place_of = {name: place for place, name in enumerate(names)}
    places = np.array([place_of[name] for name in floats])
    if not np.array_equal(places, np.arange(width)):
        each = np.arange(0, rows * width, width)
        cells_of_floats = cells.take(pa.array((each[:, None] + places).ravel()))
    else:
        cells_of_floats = cells
    numbers = pa.FixedSizeListArray.from_arrays(
        cells_of_floats.cast(pa.float32()), len(floats)
    )
    found = frozenset(floats)
    texts = [
        cells.take(pa.array(np.arange(place_of[name], len(cells), width)))
        for name in wanted
        if name not in found
    ]
    packed = Packed(floats, numbers)
    return Records((*texts,), np.arange(rows, dtype=np.int64), (), packed=packed)


def _rows_of(text: bytes, delimiter: bytes, width: int) -> int:
    """Returns how many lines there are; 0 where they differ in their delimiters."""
    ends = np.flatnonzero(np.frombuffer(text, np.uint8) == _LF[0]).tolist()
    start = 0
    for end in ends:
        if text.count(delimiter, start, end) != width - 1:
            return 0
        start = end
    return len(ends)


def _column(text: bytes, kind: pa.DataType) -> pa.Array:
    """Returns the lines of a text as cells; null for empty ones."""
    reading = arrow_csv.ReadOptions(
        column_names=[_CELL], use_threads=False, block_size=len(text) + 1
    )
    parsing = arrow_csv.ParseOptions(quote_char=False, ignore_empty_lines=False)
    converting = arrow_csv.ConvertOptions(
        column_types={_CELL: kind}, null_values=[""], strings_can_be_null=True
    )
    table = arrow_csv.read_csv(pa.BufferReader(text), reading, parsing, converting)
    return table.column(0).combine_chunks()
