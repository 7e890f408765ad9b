"""The text of a CSV file: its encoding, its header, and blocks of whole records.

Bytes of an encoding are scanned as they are when the characters that give a CSV file
its structure cannot be part of another character in it: UTF-8, the ISO and Windows
pages, CP949, EUC-KR, Shift JIS, GBK. In UTF-16 and UTF-32 they can, and such a file is
transcoded whole.
"""

import codecs
import csv
import dataclasses
import functools
import io
import re
from collections.abc import Iterator
from typing import NamedTuple

from transforms.core.model import Block
from transforms.errors import InputError
from transforms.formats.csv.header_check import check_header_names, check_marks
from transforms.formats.csv.scan import (
    UNNAMED,
    WHITESPACE,
    CsvDialect,
    Scan,
    before,
    first_from,
    is_mark,
    last_of,
    malformed,
    offsets,
    pieces_of,
    with_tabs,
)
from transforms.formats.input_files import Content

# Bytes of a file that tell its encoding, and whether it begins with a line like sep=;
HEAD_BYTES = 64
# Longer than any sound record: an unclosed quote would otherwise make one record of the
# rest of the file.
MAX_RECORD_BYTES = 64 << 20
# A file that must be transcoded whole is in memory about three times.
MAX_WHOLE_BYTES = 1 << 30
_NO_QUOTES = "Where quotes are part of the text, say --quote ''"
_SEP_LINE = re.compile(r'\ufeff?"?sep=(.)"?(?:[\r\n]|$)', re.IGNORECASE)
# UTF-32 first: its little-endian mark begins with that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
    (codecs.BOM_UTF8, "utf-8"),
)
# What people have under names of CSV files, and how it begins.
_NO_CSV = {
    b"PK\x03\x04": "a zip archive, which .xlsx of Excel is",
    b"\xd0\xcf\x11\xe0": "an .xls of Excel",
    # The byte behind it, too: a column may be called so.
    b"PAR1\x15": "Parquet",
    b"<!DOCTYPE": "a web page",
    b"<html": "a web page",
    b"version https://git-lfs": "a pointer of Git LFS, which 'git lfs pull' replaces",
}


def file_encoding(head: bytes, dialect: CsvDialect) -> str:
    """Returns the encoding of a file that starts with `head` (4 bytes suffice)."""
    marked = next((name for mark, name in _MARKS if head.startswith(mark)), "")
    # Without a mark, UTF-16 is little-endian, as Windows writes it.
    unmarked = {"utf-16": "utf-16-le", "utf-32": "utf-32-le"}
    return marked or unmarked.get(dialect.encoding, dialect.encoding)


def sep_line(head: bytes, dialect: CsvDialect) -> str:
    """Returns the delimiter that the first line says, as in sep=; and "" for none.

    Args:
      head: the file's first `HEAD_BYTES`.
      dialect: its encoding is used.
    """
    if b"sep=" not in head.replace(b"\0", b"")[:8].lower():
        return ""
    text = head.decode(file_encoding(head, dialect), "ignore")
    match = _SEP_LINE.match(text)
    return match[1] if match and is_mark(match[1]) else ""


def bom_length(head: bytes, encoding: str) -> int:
    """Returns how many bytes the byte order mark at the start of `head` takes."""
    mark = next((mark for mark, name in _MARKS if name == encoding), None)
    return len(mark) if mark and head.startswith(mark) else 0


@functools.lru_cache(maxsize=64)
def is_scannable(encoding: str, dialect: CsvDialect) -> bool:
    """Tells whether blocks are cut from encoded bytes as they are, not transcoded."""
    ascii_bytes = bytes(range(128))
    marks = {"\n", "\r", *dialect.delimiters, *dialect.quote, *dialect.escape}
    try:
        text = ascii_bytes.decode(encoding)
    except UnicodeDecodeError:
        return False
    if len(text) != 128 or any(text[ord(mark)] != mark for mark in marks):
        return False
    # A delimiter, quote or line end must never be the second byte of a character: in
    # Shift JIS, a backslash or a pipe is.
    return all(
        bytes([lead, ord(mark)]).decode(encoding, "surrogateescape").endswith(mark)
        for lead in range(128, 256)
        for mark in marks
    )


def iter_blocks(
    stream: Content,
    origin: str,
    dialect: CsvDialect,
    *,
    block_bytes: int,
    limit_rows: int | None = None,
) -> Iterator[Block]:
    """Yields the blocks of a file, in order; none if it holds no row.

    A block starts at the first byte of a record and ends where the next block starts,
    `block_bytes` or more further on; the last ends at the end of the file. Neither the
    header nor the byte order mark is in any block, with one exception: a file that
    has to be transcoded whole (UTF-16, UTF-32) is one block from 0 to its size.

    Args:
      stream: the file, read from its start to its end.
      origin: its name in blocks and messages.
      dialect: how it is written.
      block_bytes: the least size of a block but the last.
      limit_rows: stop after this many rows.

    Raises:
      InputError: a quote is not closed, the file ends after an escape, a record is
        longer than `MAX_RECORD_BYTES`, or a file that is to be transcoded whole is
        too large or not valid.
    """
    text, dialect, base = text_of(stream, dialect, origin)
    text.seek(base)
    is_whole = text is not stream
    size = 4 * MAX_WHOLE_BYTES if is_whole else block_bytes
    leading = dialect.leading
    for block in cut(text, base, origin, dialect, size, limit_rows, leading=leading):
        if is_whole:
            block = dataclasses.replace(block, start=0, stop=stream.tell())
        yield block


def text_of(
    stream: Content, dialect: CsvDialect, origin: str
) -> tuple[Content, CsvDialect, int]:
    """Returns an open CSV file as scannable text, and the offset of its first row.

    A file whose bytes cannot be scanned is read to its end and transcoded. The dialect
    that is returned has the encoding of the text.

    Raises:
      InputError: the file is to be transcoded whole and too large, or not valid.
    """
    stream.seek(0)
    head = stream.read(4)
    encoding = file_encoding(head, dialect)
    if is_scannable(encoding, dialect):
        return (
            stream,
            dataclasses.replace(dialect, encoding=encoding),
            bom_length(head, encoding),
        )
    stream.seek(0)
    data = next(pieces_of(stream, MAX_WHOLE_BYTES), b"")
    if stream.read(1):
        raise InputError(
            f"{origin} is {encoding} and larger than {MAX_WHOLE_BYTES >> 30} GiB, "
            f"which cannot be read in parts; convert it to UTF-8 first"
        )
    skip = bom_length(data, encoding)
    try:
        whole = data[skip:].decode(encoding).encode()
    except UnicodeDecodeError as error:
        raise undecodable(error, skip, origin, encoding) from error
    return io.BytesIO(whole), dataclasses.replace(dialect, encoding="utf-8"), 0


def undecodable(
    error: UnicodeDecodeError, start: int, origin: str, encoding: str
) -> InputError:
    """Returns the error for a text of a file from byte `start` on."""
    return InputError(
        f"{origin}: byte {start + error.start} ({error.object[error.start]:#04x}) is "
        f"not valid {encoding}; name the file's encoding with --encoding"
    )


def cut(
    stream: Content,
    base: int,
    origin: str,
    dialect: CsvDialect,
    block_bytes: int,
    limit_rows: int | None,
    *,
    leading: int,
) -> Iterator[Block]:
    """Yields the blocks of what is left of a text that is at offset `base`.

    The first `leading` records are in none.
    """
    scan = Scan(dialect)
    # Number the header's record -1, so that the first row is 0.
    row = -leading
    line = 1
    # Where the last record started, and on which line.
    record, record_line = base, 1
    block: Block | None = None
    for piece in pieces_of(stream):
        starts, lines = scan.advance(piece)
        end = base + len(piece)
        at = first_from(starts, 0)
        if (end if at is None else base + at) - record > MAX_RECORD_BYTES:
            raise InputError(
                f"{origin}, line {record_line}: the record that starts here is longer "
                f"than {MAX_RECORD_BYTES >> 20} MiB; a quote ({dialect.quote}) is "
                f"perhaps not closed. {_NO_QUOTES}"
            )
        count = before(starts, len(piece))
        last = count if limit_rows is None else min(count, limit_rows - row)
        if block is not None:
            at = first_from(starts, max(block.start + block_bytes - base, 0))
        elif row < 0:
            at = int(offsets(starts)[-row]) if row + count > 0 else None
        while at is not None and (index := before(starts, at)) < last:
            at_line = line + before(lines, at)
            following = Block(origin, base + at, -1, row + index, at_line)
            if block is not None:
                yield _closed(block, following.start, following.first_row)
            block = following
            at = first_from(starts, at + block_bytes)
        if last < count:
            if block is not None:
                yield _closed(block, base + int(offsets(starts)[last]), row + last)
            return
        if count:
            at = last_of(starts)
            record, record_line = base + at, line + before(lines, at)
        row += count
        line += before(lines, len(piece))
        base = end
    if scan.inside or scan.escaped:
        raise _unclosed(origin, record_line, scan)
    if block is not None:
        yield _closed(block, base, row)


def _closed(block: Block, stop: int, next_row: int) -> Block:
    """Returns a block that ends at a byte, before a row."""
    return dataclasses.replace(block, stop=stop, rows=next_row - block.first_row)


def whole_records(
    text: bytes, dialect: CsvDialect, begun: bool, ended: bool, size: int
) -> Iterator[tuple[int, int, int, int]]:
    """Yields where whole records start and stop, their number, and lines before.

    Args:
      text: a piece of a file, without the byte order mark.
      dialect: how it is written.
      begun: whether the piece starts inside the file.
      ended: whether the piece ends where the file ends.
      size: about how many bytes to cut after.
    """
    if not text:
        return
    literal = begun and bool(dialect.escape)
    scan = Scan(dialect, escaped=literal, breaks=not begun, wary=begun)
    starts, lines = scan.advance(text)
    if begun and scan.strays:
        # Stray quotes suggest that the piece starts inside quotes: try that, too.
        other = Scan(dialect, inside=True, escaped=literal, breaks=False, wary=True)
        other_starts, _ = other.advance(text)
        if other.strays < scan.strays:
            scan, starts = other, other_starts
    skip = 0 if begun else dialect.leading
    if before(starts, len(text)) <= skip:
        return
    first = int(offsets(starts)[skip]) if skip else first_from(starts, 0)
    # Leave out a record that ends inside quotes or after an escape: the reader reports
    # it, with its line.
    whole = ended and not (scan.inside or scan.escaped)
    stop = len(text) if whole else last_of(starts)
    while first is not None and first < stop:
        behind = first_from(starts, first + size)
        behind = stop if behind is None else min(behind, stop)
        rows = before(starts, behind) - before(starts, first)
        yield first, behind, rows, before(lines, first)
        first = behind


def _unclosed(origin: str, line: int, scan: Scan) -> InputError:
    """Returns the error for a file that ends inside quotes or after an escape."""
    if scan.inside:
        mark, end = f"a quote ({scan.dialect.quote})", "is not closed before"
        remedy = _NO_QUOTES
    else:
        mark, end = f"an escape ({scan.dialect.escape})", "has nothing to escape at"
        remedy = "Correct it, or leave out --escape"
    return InputError(
        f"{origin}, line {line}: {mark} in the record that starts here {end} the end "
        f"of the file. {remedy}"
    )


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


def read_header(stream: Content, dialect: CsvDialect, origin: str) -> Header:
    """Returns the first record of a file, and the names of the columns.

    They are `dialect.columns` where given, or else what the first record holds, or
    else, in a file without a header, column_0, column_1, and so on. A first column
    without a name is column_0, too.

    Raises:
      InputError: the file is empty ("no header"); a name is empty, too long or occurs
        twice; the first record is not valid in the encoding; the only name holds
        another usual delimiter, or all names are in other quotes.
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
        # The header may lack names, as R writes it, and is not looked at.
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
        check_marks(names, dialect, origin)
        if not names[0] and count > 1:
            names = (UNNAMED, *names[1:])
        check_header_names(names, origin)
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


def _first_record(stream: Content, dialect: CsvDialect, origin: str) -> bytes:
    """Returns the first record as UTF-8, with any line end; b"" for no record."""
    text, dialect, begin = text_of(stream, dialect, origin)
    text.seek(begin)
    records = cut(text, begin, origin, dialect, 1, 1, leading=int(dialect.sep_line))
    record = next(records, None)
    if record is None:
        return b""
    text.seek(record.start)
    data = next(pieces_of(text, record.stop - record.start))
    other = next((what for head, what in _NO_CSV.items() if data.startswith(head)), "")
    if other:
        raise InputError(
            f"{origin}: a CSV file is text; this one begins like {other}. Fetch it "
            f"again or write it as CSV, or leave it out with --exclude"
        )
    try:
        return data.decode(dialect.encoding).encode()
    except UnicodeDecodeError as error:
        raise undecodable(error, record.start, origin, dialect.encoding) from error
