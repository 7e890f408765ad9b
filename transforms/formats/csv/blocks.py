"""Cut a CSV file into blocks that end at record boundaries."""

import dataclasses
import io
from collections.abc import Iterator

from transforms.core.model import Block
from transforms.errors import InputError
from transforms.formats.csv.dialect import (
    MAX_WHOLE_BYTES,
    CsvDialect,
    bom_length,
    file_encoding,
    is_scannable,
    whole_to_utf8,
)
from transforms.formats.csv.scan import Scan, Stream, pieces_of

# Longer than any sound record: an unclosed quote would otherwise make one record of the
# rest of the file.
MAX_RECORD_BYTES = 64 << 20
_NO_QUOTES = "Where quotes are part of the text, say --quote ''"


def iter_blocks(
    stream: Stream,
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
    stream.seek(0)
    head = stream.read(4)
    encoding = file_encoding(head, dialect, origin)
    if is_scannable(encoding, dialect):
        base = bom_length(head, encoding)
        stream.seek(base)
        yield from _scanned(stream, base, origin, dialect, block_bytes, limit_rows)
        return
    stream.seek(0)
    data = next(pieces_of(stream, MAX_WHOLE_BYTES), b"")
    if stream.read(1):
        raise InputError(
            f"{origin} is {encoding} and larger than {MAX_WHOLE_BYTES >> 30} GiB, "
            f"which cannot be read in parts; convert it to UTF-8 first"
        )
    text = whole_to_utf8(data, encoding, origin)
    whole = _scanned(io.BytesIO(text), 0, origin, dialect, len(text) + 1, limit_rows)
    for block in whole:
        yield dataclasses.replace(block, start=0, stop=len(data))


def _scanned(
    stream: Stream,
    base: int,
    origin: str,
    dialect: CsvDialect,
    block_bytes: int,
    limit_rows: int | None,
) -> Iterator[Block]:
    """Yields the blocks of what is left of a stream that is at offset `base`."""
    scan = Scan(dialect)
    # Number the header's record -1, so that the first row is 0.
    row = -dialect.leading
    line = 1
    # Where the last record started, and on which line.
    record, record_line = base, 1
    block: Block | None = None
    for piece in pieces_of(stream):
        starts, lines = scan.advance(piece)
        end = base + len(piece)
        first, last, count = starts.first_from(0), starts.last(), starts.count()
        if (end if first is None else base + first) - record > MAX_RECORD_BYTES:
            raise too_long(origin, record_line, dialect)
        stop = None
        if limit_rows is not None and row + count > limit_rows:
            stop = base + starts.nth(limit_rows - row)
        at: int | None
        if block is None and row + count > 0:
            at = starts.nth(-row)
            block = Block(origin, base + at, -1, 0, line + lines.before(at))
        while block is not None and block.start + block_bytes < (stop or end):
            at = starts.first_from(max(block.start + block_bytes - base, 0))
            if at is None or (stop is not None and base + at >= stop):
                break
            next_row = row + starts.before(at)
            yield _closed(block, base + at, next_row)
            block = Block(origin, base + at, -1, next_row, line + lines.before(at))
        if stop is not None:
            if block is not None and limit_rows:
                yield _closed(block, stop, limit_rows)
            return
        if last is not None:
            record, record_line = base + last, line + lines.before(last)
        row += count
        line += lines.count()
        base = end
    if scan.inside or scan.escaped:
        raise unclosed(origin, record_line, scan)
    if block is not None:
        yield _closed(block, base, row)


def _closed(block: Block, stop: int, next_row: int) -> Block:
    return dataclasses.replace(block, stop=stop, rows=next_row - block.first_row)


def too_long(origin: str, line: int, dialect: CsvDialect) -> InputError:
    """Returns the error for a record that starts on `line` and does not end."""
    return InputError(
        f"{origin}, line {line}: the record that starts here is longer than "
        f"{MAX_RECORD_BYTES >> 20} MiB; a quote ({dialect.quote}) is perhaps not "
        f"closed. {_NO_QUOTES}"
    )


def unclosed(origin: str, line: int, scan: Scan) -> InputError:
    """Returns the error for a file that ends inside quotes or after an escape."""
    if scan.inside:
        found, end = f"a quote ({scan.dialect.quote})", "is not closed before"
        remedy = _NO_QUOTES
    else:
        found, end = f"an escape ({scan.dialect.escape})", "has nothing to escape at"
        remedy = "Correct it, or leave out --escape"
    return InputError(
        f"{origin}, line {line}: {found} in the record that starts here {end} the end "
        f"of the file. {remedy}"
    )
