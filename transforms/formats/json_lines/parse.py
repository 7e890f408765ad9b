"""Parse a piece of JSON lines: with Arrow where that is exact, else line by line."""

import re
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.json

from transforms.core.nesting import json_nesting, openings
from transforms.formats.columnar.arrow_batches import (
    flat_columns,
)
from transforms.formats.json_lines.cut import Lines, lines_of
from transforms.formats.json_lines.exact import ROW_NESTING, objects_of, typed_rows
from transforms.formats.json_lines.types import (
    EXACT,
    JsonType,
    largest,
    merged,
    of_column,
    of_value,
)
from transforms.formats.table import Complaint

# Arrow's parser takes this word for a number; Python's parser does not.
_SHORT_INFINITY = re.compile(rb"[:\[,]\s*-?Inf(?!inity)")


def learned(data: bytes) -> JsonType:
    """Returns the type of the rows of whole lines."""
    lines = lines_of(data)
    if lines.plain and not _has_deep_line(data, lines):
        table = _parsed(data, None)
        if table is not None and table.num_rows == len(lines):
            kind = _kind_of(table)
            if kind is not None:
                return kind
    return merged(map(of_value, objects_of(_each(data, lines))))


def _kind_of(table: pa.Table) -> JsonType | None:
    members = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        kind = of_column(_joined(column))
        if kind is None:
            return None
        members.append((name, kind))
    return JsonType("object", tuple(members))


def _joined(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _parsed(data: bytes, schema: pa.Schema | None) -> pa.Table | None:
    """Returns the table that Arrow's parser reads; None if the parser fails."""
    buffer = pa.py_buffer(data)
    offsets = pa.py_buffer(np.array([0, len(data)], np.int64))
    try:
        # Arrow's parser does not check the encoding, the cast from bytes does.
        text = pa.Array.from_buffers(pa.large_binary(), 1, [None, offsets, buffer])
        text.cast(pa.large_string())
        return pyarrow.json.read_json(
            pa.BufferReader(buffer),
            read_options=pyarrow.json.ReadOptions(
                use_threads=False, block_size=len(data) + 1
            ),
            parse_options=pyarrow.json.ParseOptions(
                explicit_schema=schema,
                unexpected_field_behavior="infer" if schema is None else "ignore",
            ),
        )
    except (pa.ArrowException, UnicodeDecodeError):
        return None


def columns_of(
    data: bytes, lines: Lines, kind: JsonType
) -> tuple[dict[str, pa.Array], npt.NDArray[np.int64], Sequence[Complaint]]:
    """Returns flat columns, which lines they are from, and the lines refused."""
    found = _fast(data, lines, kind)
    if found is not None:
        return found, np.arange(len(lines)), ()
    rows, places, refused = typed_rows(_each(data, lines), kind)
    arrays = [
        pa.array([row[name] for row in rows], inner.arrow)
        for name, inner in kind.members
    ]
    names = [name for name, _ in kind.members]
    flat = flat_columns(pa.Table.from_arrays(arrays, names))
    return flat, np.array(places, np.int64), refused


def _fast(data: bytes, lines: Lines, kind: JsonType) -> dict[str, pa.Array] | None:
    """Returns the columns by Arrow's parser; None if they might not be exact."""
    # Arrow ignores line ends. If every line starts with "{" and ends with "}", and
    # there are as many objects as lines, then each line is one object: inside one,
    # "{" never follows "}" directly.
    if not (lines.plain and kind.is_plain and kind.members and len(lines)):
        return None
    if _has_deep_line(data, lines):
        return None
    if b"Inf" in data and _SHORT_INFINITY.search(data):
        return None
    table = _parsed(data, pa.schema(list(kind.arrow)))
    if table is None or table.num_rows != len(lines):
        return None
    flat = flat_columns(table)
    for column in flat.values():
        while pa.types.is_list(column.type):
            column = column.flatten()
        # Such a double may be the rounded value of another integer, or infinite.
        if pa.types.is_float64(column.type) and largest(column) >= EXACT:
            return None
    return flat


def _has_deep_line(data: bytes, lines: Lines) -> bool:
    """Tells whether a line is nested too deep, which Arrow's parser accepts."""
    opened = openings(np.frombuffer(data, np.uint8))
    # Most lines open one object and nothing else: then counting brackets suffices.
    if np.count_nonzero(opened) - len(lines) < ROW_NESTING:
        return False
    counts = np.diff(np.searchsorted(np.flatnonzero(opened), lines.starts))
    last = np.count_nonzero(opened[lines.starts[-1] :])
    return max(counts.max(initial=0), last) > ROW_NESTING and (
        json_nesting(data) > ROW_NESTING
    )


def _each(data: bytes, lines: Lines) -> Iterator[bytes]:
    for start, stop in zip(lines.starts.tolist(), lines.stops.tolist(), strict=True):
        yield data[start:stop].rstrip(b"\r")


def leaves_of(kind: JsonType) -> list[tuple[str, JsonType]]:
    """Returns the flat columns of rows: names and types."""
    return [leaf for name, inner in kind.members for leaf in inner.leaves(name)]
