"""Samples of CSV files with the bytes given, and oracles of how they are read."""

import pathlib
import tempfile
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyarrow import csv as arrow_csv

from tests.support.table_reading import listed
from transforms.formats.csv.sample import SAMPLE_BYTES, CsvReader, sample_of
from transforms.formats.csv.scan import CsvDialect
from transforms.formats.table import TableSample

NAMES = ("a", "b", "c")


def sample(
    *files: bytes, sample_bytes: int = SAMPLE_BYTES, **settings: Any
) -> TableSample:
    """Returns the sample of files `1.csv`, `2.csv`, ... with these bytes."""
    named = {f"{number}.csv": data for number, data in enumerate(files, start=1)}
    return named_sample(named, sample_bytes=sample_bytes, **settings)


def named_sample(
    files: Mapping[str, bytes], *, sample_bytes: int = SAMPLE_BYTES, **settings: Any
) -> TableSample:
    """Returns the sample of files of these names."""
    reader = CsvReader(**{"header": True} | settings)
    with tempfile.TemporaryDirectory() as folder:
        for name, data in files.items():
            pathlib.Path(folder, name).write_bytes(data)
        return sample_of(reader, listed(folder, [*files]), sample_bytes=sample_bytes)


def scan_by_hand(
    data: bytes, dialect: CsvDialect, loose: set[int] | None = None
) -> tuple[list[int], list[int], bool]:
    """A byte at a time: starts of records, lines before each, whether it ends open.

    Adds to `loose` the records with text behind a closing quote.
    """
    text = data.decode("latin-1")
    delimiter, quote, escape = dialect.delimiter, dialect.quote, dialect.escape
    starts, lines = [], []
    line = 0
    inside = literal = closed = False
    fresh = opens = True
    for at, char in enumerate(text):
        if not inside and fresh and (literal or char not in "\r\n"):
            starts.append(at)
            lines.append(line)
            fresh = False
        ends = not literal and char in (quote, delimiter, *"\r\n")
        if closed and not ends and loose is not None:
            loose.add(len(starts) - 1)
        if literal:
            literal = opens = closed = False
        elif escape and char == escape:
            literal, opens, closed = True, False, False
        elif inside:
            inside = char != quote
            closed = not inside
        elif quote and char == quote and (opens or closed):
            inside, opens, closed = True, False, False
        elif char in "\r\n":
            fresh, opens, closed = True, True, False
        else:
            opens, closed = char == delimiter, False
        line += char == "\n" or (char == "\r" and text[at + 1 : at + 2] != "\n")
    return starts, lines, inside or literal


def parse_whole(data: bytes, dialect: CsvDialect) -> list[Any]:
    """Returns what Arrow parses from a file: rows by number; None for a bad one.

    A row with text behind a closing quote is bad: Arrow drops the quote.
    """
    bad = []
    if not data:
        return []
    if not data.endswith((b"\n", b"\r")):
        # Without a line end Arrow takes a blank last cell for quoted.
        data += b"\n"

    def note(row: Any) -> Any:
        bad.append(row.number - 1)
        return "skip"

    table = arrow_csv.read_csv(
        pa.BufferReader(data),
        arrow_csv.ReadOptions(
            column_names=NAMES, use_threads=False, block_size=len(data) + 1
        ),
        arrow_csv.ParseOptions(
            delimiter=dialect.delimiter,
            quote_char=dialect.quote or False,
            escape_char=dialect.escape or False,
            newlines_in_values=True,
            invalid_row_handler=note,
        ),
        arrow_csv.ConvertOptions(
            column_types=dict.fromkeys(NAMES, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    rows = table.to_pylist()
    for index in bad:
        rows.insert(index, None)
    loose: set[int] = set()
    scan_by_hand(data, dialect, loose)
    return [None if index in loose else row for index, row in enumerate(rows)]
