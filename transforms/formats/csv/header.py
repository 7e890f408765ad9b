"""The column names of a CSV file."""

import collections
import csv
import io
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from transforms.errors import InputError
from transforms.formats.csv.blocks import (
    MAX_RECORD_BYTES,
    text_of,
    too_long,
    unclosed,
)
from transforms.formats.csv.dialect import WHITESPACE, CsvDialect
from transforms.formats.csv.read import malformed
from transforms.formats.csv.scan import (
    CsvStream,
    Scan,
    offsets,
    pieces_of,
    with_tabs,
)
from transforms.formats.table import listed

# Almost every header is shorter; a longer one is read again, four times as much.
_FIRST_BYTES = 64 << 10
_OTHER_DELIMITERS = ";\t|,"
_OTHER_QUOTES = "'`\""
_SHOWN_NAMES = 8
# A longer name is content: it has another delimiter, or another encoding.
_MOST_CHARS = 10_000


class Header(NamedTuple):
    """The first record of a file.

    Attributes:
      record: its bytes as UTF-8, without line ends around it.
      fields: its fields, whether they are names or not.
      names: of the file's columns, in the file's order.
    """

    record: bytes
    fields: tuple[str, ...]
    names: tuple[str, ...]


def read_header(stream: CsvStream, dialect: CsvDialect, origin: str) -> Header:
    """Returns the first record of a file, and the names of the columns.

    They are `dialect.columns` where given, or else what the first record holds, or
    else, in a file without a header, column_0, column_1, and so on.

    Raises:
      InputError: the file is empty ("no header"); a name is empty, too long or occurs
        twice; the first record is not valid in the encoding; the header has another
        number of fields than `dialect.columns`; the only name holds another usual
        delimiter, or all names are in other quotes.
    """
    record = _first_record(stream, dialect, origin)
    fields = _fields(record, dialect)
    count = len(fields)
    if not count:
        raise InputError(
            f"{origin}: no header; a CSV file must begin with one, and this one has no "
            f"line. Delete it, or leave it out with --exclude."
        )
    names = fields
    if dialect.columns is not None:
        # Without a header the first record is a row, and may be a bad one.
        if dialect.header and count != len(dialect.columns):
            raise InputError(
                f"{origin}: the header has {count} fields, but {len(dialect.columns)} "
                f"columns are named"
            )
        names = dialect.columns
    elif not dialect.header:
        names = tuple(f"column_{index}" for index in range(count))
    else:
        if len(malformed(record, dialect)):
            raise InputError(
                f"{origin}: text follows a closing quote ({dialect.quote}) in the "
                f"header. Correct it; where quotes are part of the names, say "
                f"--quote ''"
            )
        _check_marks(names, dialect, origin)
        _check_names(names, origin)
    return Header(record.rstrip(b"\r\n"), fields, names)


def _fields(record: bytes, dialect: CsvDialect) -> tuple[str, ...]:
    """Returns the fields of a record of UTF-8; none where it holds nothing."""
    tabbed = dialect.delimiter == WHITESPACE
    text = with_tabs(record, dialect) if tabbed else record
    limit = csv.field_size_limit(MAX_RECORD_BYTES)
    try:
        rows = csv.reader(
            io.StringIO(text.decode().lstrip("\r\n"), newline=""),
            delimiter="\t" if tabbed else dialect.delimiter,
            quotechar=dialect.quote or None,
            escapechar=dialect.escape or None,
            quoting=csv.QUOTE_MINIMAL if dialect.quote else csv.QUOTE_NONE,
        )
        fields = next(rows, [])
    finally:
        csv.field_size_limit(limit)
    return tuple(field.strip() if dialect.trim else field for field in fields)


def check_same_columns(
    first_origin: str, first: Sequence[str], origin: str, names: Sequence[str]
) -> None:
    """Checks that two files of one source have the same columns in the same order.

    Raises:
      InputError: they do not; names both files and the columns that differ.
    """
    if tuple(first) == tuple(names):
        return
    lost = [name for name in first if name not in names]
    new = [name for name in names if name not in first]
    if lost or new:
        facts = []
        if lost:
            facts.append(f"{listed(lost)} only in {first_origin}")
        if new:
            facts.append(f"{listed(new)} only in {origin}")
        difference = "; ".join(facts)
    else:
        moved = [b for a, b in zip(first, names, strict=True) if a != b]
        difference = f"the order differs at {listed(moved)}"
    raise InputError(
        f"all files of a source must have the same columns; {first_origin} and "
        f"{origin} differ: {difference}"
    )


def _first_record(stream: CsvStream, dialect: CsvDialect, origin: str) -> bytes:
    """Returns the first record as UTF-8, with any line end; b"" for no record."""
    text, dialect, begin = text_of(stream, dialect, origin)
    size = _FIRST_BYTES
    while True:
        text.seek(begin)
        data = next(pieces_of(text, size), b"")
        if not data:
            return b""
        scan = Scan(dialect)
        starts, lines = map(offsets, scan.advance(data))
        skip = int(dialect.sep_line)
        first = int(starts[skip]) if len(starts) > skip else len(data)
        if len(starts) > skip + 1:
            record = data[first : starts[skip + 1]]
            break
        line = 1 + int(np.searchsorted(lines, starts[0])) if len(starts) else 1
        if len(data) < size:
            if scan.inside or scan.escaped:
                raise unclosed(origin, line, scan)
            record = data[first:]
            break
        if size > MAX_RECORD_BYTES:
            raise too_long(origin, line, dialect)
        size *= 4
    try:
        return record.decode(dialect.encoding).encode()
    except UnicodeDecodeError as error:
        at = begin + first + error.start
        raise InputError(
            f"{origin}: byte {at} ({record[error.start]:#04x}) is not valid "
            f"{dialect.encoding}; name the file's encoding with --encoding"
        ) from error


def _check_marks(names: Sequence[str], dialect: CsvDialect, origin: str) -> None:
    """Raises InputError where names show another delimiter or quote."""
    for mark in _OTHER_DELIMITERS if len(names) == 1 else "":
        if mark in names[0] and mark != dialect.delimiter:
            raise InputError(
                f"{origin}: the header is one column, {names[0][:60]!r}, with "
                f"{dialect.delimiter!r} as the delimiter; is it {mark!r}? Say so with "
                f"--delimiter; if other files have another, convert this one by itself "
                f"and join the datasets with 'beam-tfrecord merge'."
            )
    for mark in _OTHER_QUOTES:
        if mark != dialect.quote and all(
            len(name) > 1 and name[0] == name[-1] == mark for name in names
        ):
            raise InputError(
                f"{origin}: all names of the header are in {mark}, with "
                f"{dialect.quote or 'none'} as the quote, {names[0][:60]} say; is it "
                f"{mark}? Say so with --quote"
            )


def _check_names(names: Sequence[str], origin: str) -> None:
    longest = max(names, key=len)
    if len(longest) > _MOST_CHARS:
        raise InputError(
            f"{origin}: a column's name must have at most {_MOST_CHARS:,} characters; "
            f"one in the header has {len(longest):,} and begins with {longest[:20]!r}. "
            f"Check --encoding, --delimiter and --quote; if the file has no header, "
            f"say --no-header"
        )
    counts = collections.Counter(names)
    odd = next((name for name in names if not name or counts[name] > 1), None)
    if odd is None:
        return
    places = [number for number, name in enumerate(names, start=1) if name == odd]
    shown = ", ".join(map(str, places[:_SHOWN_NAMES]))
    raise InputError(
        f"{origin}: every column must have a name of its own; {odd!r} is that of "
        f"column {shown}. Correct it, or give all names with --columns; if the file "
        f"has no header, say --no-header"
    )
