"""Where the records of a CSV file begin: one sequential scan, by bit masks.

The rules are those of Arrow's CSV parser, so that a block parsed alone gives the rows
that it gives as a part of the file:

- a quote opens only at the start of a field; inside, `""` is one quote; after the
  closing quote the rest of the field is literal;
- LF, CRLF and a lone CR end a record; blank lines are no records.

A piece of 512 KiB becomes masks of one bit a byte. Bytes inside quotes are where the
number of quotes so far is odd, which a prefix XOR gives for 64 bytes at once. That is
right unless a quote stands in the middle of a field (`5" pipe`); where an opening
quote follows none of delimiter, line end, closing quote, the quotes of that piece are
walked one by one and those that mean nothing are taken out of the mask.
"""

import dataclasses
import io
from collections.abc import Iterator
from typing import Protocol

import numpy as np
import numpy.typing as npt

from transforms.core.model import Block
from transforms.errors import SourceError
from transforms.formats.csv_dialect import (
    MAX_WHOLE_BYTES,
    CsvDialect,
    bom_length,
    file_encoding,
    is_scannable,
    whole_to_utf8,
)

__all__ = [
    "MAX_RECORD_BYTES",
    "Marks",
    "Scan",
    "Stream",
    "iter_blocks",
    "pieces_of",
]

# Longer than any honest record; an unclosed quote would otherwise take the whole file.
MAX_RECORD_BYTES = 64 << 20
# Small enough for the masks and the piece itself to stay in the processor's cache.
_PIECE_BYTES = 512 << 10

_LF, _CR = 10, 13
_ONE = np.uint64(1)
_TOP = np.uint64(63)

Words = npt.NDArray[np.uint64]


class Stream(Protocol):
    """What is asked of an open file: Python's binary files and Arrow's have it."""

    def read(self, size: int, /) -> bytes:
        """Returns up to `size` bytes; none at the end of the file."""

    def seek(self, position: int, /) -> object:
        """Moves to an absolute byte offset."""


class Marks:
    """One bit for each byte of a piece, bit 0 of word 0 first.

    Attributes:
      words: uint64 array; bits past the piece's end are 0.
    """

    def __init__(self, words: Words) -> None:
        self.words = words

    def count(self) -> int:
        """Returns how many bits are set."""
        return int(np.bitwise_count(self.words).sum(dtype=np.int64))

    def before(self, position: int) -> int:
        """Returns how many bits are set below `position`."""
        word, bit = divmod(position, 64)
        whole = int(np.bitwise_count(self.words[:word]).sum(dtype=np.int64))
        if not bit:
            return whole
        return whole + (int(self.words[word]) & ((1 << bit) - 1)).bit_count()

    def first_from(self, position: int) -> int | None:
        """Returns the first set bit at `position` or above it."""
        word, bit = divmod(position, 64)
        if word >= len(self.words):
            return None
        rest = int(self.words[word]) >> bit << bit
        if not rest:
            later = np.flatnonzero(self.words[word + 1 :])
            if not len(later):
                return None
            word += 1 + int(later[0])
            rest = int(self.words[word])
        return word * 64 + (rest & -rest).bit_length() - 1

    def last(self) -> int | None:
        """Returns the last set bit."""
        used = np.flatnonzero(self.words)
        if not len(used):
            return None
        word = int(used[-1])
        return word * 64 + int(self.words[word]).bit_length() - 1

    def nth(self, index: int) -> int:
        """Returns the set bit that has `index` set bits below it; it must exist."""
        below = np.cumsum(np.bitwise_count(self.words), dtype=np.int64)
        word = int(np.searchsorted(below, index, side="right"))
        rest = int(self.words[word])
        for _ in range(index - (int(below[word - 1]) if word else 0)):
            rest &= rest - 1
        return word * 64 + (rest & -rest).bit_length() - 1

    def positions(self) -> npt.NDArray[np.int64]:
        """Returns all set bits, ascending."""
        bits = np.unpackbits(self.words.view(np.uint8), bitorder="little")
        return np.flatnonzero(bits.view(np.bool_))


@dataclasses.dataclass(slots=True)
class Scan:
    """The state of the scan between two pieces of one file.

    Attributes:
      dialect: delimiter and quote are used.
      inside: the next byte lies inside quotes.
      strays: quotes found so far that mean nothing where they stand.
    """

    dialect: CsvDialect
    inside: bool = False
    strays: int = 0
    # Facts about the byte before the next one; the file's start is a field's start.
    _opens: bool = True
    _breaks: bool = True
    _cr: bool = False

    def advance(self, piece: bytes) -> tuple[Marks, Marks]:
        """Returns where records start in the piece, and where physical lines end.

        A line's end is marked on its first character, LF or CR, a record's start on
        its first byte. All pieces but the last must hold a multiple of 64 bytes.
        """
        data = np.frombuffer(piece, np.uint8)
        breaks = lines = _bits(data == _LF)
        if self._cr or b"\r" in piece:
            crs = _bits(data == _CR)
            lines = (breaks | crs) & ~(breaks & _shifted(crs, self._cr))
            breaks = breaks | crs
        quote = self.dialect.quote.encode()
        last_opens = piece[-1] in b"\r\n" + self.dialect.delimiter.encode()
        if quote and (self.inside or quote in piece):
            quotes, inside = self._quoted(data, breaks)
            outer = breaks & ~inside
            last_opens |= bool(int(quotes[-1]) >> ((len(piece) - 1) % 64) & 1)
        else:
            outer = breaks
        starts = ~outer & _shifted(outer, self._breaks)
        if tail := len(piece) % 64:
            starts[-1] &= np.uint64((1 << tail) - 1)
        self._opens = last_opens
        self._breaks = bool(int(outer[-1]) >> ((len(piece) - 1) % 64) & 1)
        self._cr = piece[-1] == _CR
        return Marks(starts), Marks(lines)

    def _quoted(
        self, data: npt.NDArray[np.uint8], breaks: Words
    ) -> tuple[Words, Words]:
        """Returns the quotes that mean something, and the bytes inside quotes."""
        delimiter, quote = ord(self.dialect.delimiter), ord(self.dialect.quote)
        quotes = _bits(data == quote)
        inside = _odd_so_far(quotes, self.inside)
        # Where a quote that opens may follow. A quote before it can only be one that
        # closed: inside would else have ended there.
        before = _bits(data == delimiter)
        before |= breaks
        before |= quotes
        if (quotes & inside & ~_shifted(before, self._opens)).any():
            stray = self._stray_quotes(data, Marks(quotes).positions())
            self.strays += len(stray)
            mask = np.zeros(len(quotes) * 64, np.uint8)
            mask[stray] = 1
            quotes &= ~np.packbits(mask, bitorder="little").view(np.uint64)
            inside = _odd_so_far(quotes, self.inside)
        self.inside = bool(int(inside[-1]) >> 63)
        return quotes, inside

    def _stray_quotes(
        self, data: npt.NDArray[np.uint8], at: npt.NDArray[np.int64]
    ) -> list[int]:
        """Returns the positions, among those of quotes, of those without meaning."""
        previous = data[at - 1]
        opens = (previous == ord(self.dialect.delimiter)) | (previous == _LF)
        opens |= previous == _CR
        if len(at) and at[0] == 0:
            opens[0] = self._opens
        stray = []
        inside, closed = self.inside, -2
        for position, may_open in zip(at.tolist(), opens.tolist(), strict=True):
            if inside:
                inside, closed = False, position
            elif may_open or position == closed + 1:
                inside = True
            else:
                stray.append(position)
        return stray


def pieces_of(stream: Stream, size: int = _PIECE_BYTES) -> Iterator[bytes]:
    """Yields what is left of the stream in pieces of `size` bytes, the last shorter."""
    while piece := stream.read(size):
        # A raw file may give less than it was asked for.
        while len(piece) < size and (more := stream.read(size - len(piece))):
            piece += more
        yield piece


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
    header nor the byte order mark lies in any block, with one exception: a file that
    has to be transcoded whole (UTF-16, UTF-32) is one block from 0 to its size.

    Args:
      stream: the file, read from its start to its end.
      origin: its name in blocks and messages.
      dialect: how it is written.
      block_bytes: the least size of a block but the last.
      limit_rows: stop after so many rows.

    Raises:
      SourceError: a quote is not closed, a record is longer than `MAX_RECORD_BYTES`,
        or a file that is to be transcoded whole is too large or not valid.
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
    data = b"".join(pieces_of(_Limited(stream, MAX_WHOLE_BYTES + 1)))
    if len(data) > MAX_WHOLE_BYTES:
        raise SourceError(
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
    """Yields the blocks of what is left of a stream that stands at offset `base`."""
    scan = Scan(dialect)
    # The header's record, if there is one, is number -1.
    row = -1 if dialect.header else 0
    line = 1
    # The last record that started: where, and on which line.
    record, record_line = base, 1
    block: Block | None = None
    for piece in pieces_of(stream):
        starts, lines = scan.advance(piece)
        end = base + len(piece)
        first, last, count = starts.first_from(0), starts.last(), starts.count()
        if (end if first is None else base + first) - record > MAX_RECORD_BYTES:
            raise _too_long(origin, record_line, dialect)
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
            block = Block(
                origin, base + at, -1, next_row, line + lines.before(at)
            )
        if stop is not None:
            if block is not None and limit_rows:
                yield _closed(block, stop, limit_rows)
            return
        if last is not None:
            record, record_line = base + last, line + lines.before(last)
        row += count
        line += lines.count()
        base = end
    if scan.inside:
        raise SourceError(
            f"{origin}, line {record_line}: a quote ({dialect.quote}) in the record "
            f"that starts here is not closed before the end of the file"
        )
    if block is not None:
        yield _closed(block, base, row)


def _closed(block: Block, stop: int, next_row: int) -> Block:
    return dataclasses.replace(block, stop=stop, rows=next_row - block.first_row)


def _too_long(origin: str, line: int, dialect: CsvDialect) -> SourceError:
    return SourceError(
        f"{origin}, line {line}: the record that starts here is longer than "
        f"{MAX_RECORD_BYTES >> 20} MiB; a quote ({dialect.quote}) is perhaps not closed"
    )


class _Limited:
    """The first bytes of a stream."""

    def __init__(self, stream: Stream, limit: int) -> None:
        self._stream = stream
        self._left = limit

    def read(self, size: int, /) -> bytes:
        data = self._stream.read(min(size, self._left))
        self._left -= len(data)
        return data

    def seek(self, position: int, /) -> object:
        raise NotImplementedError("a limited stream is read once")


def _bits(mask: npt.NDArray[np.bool_]) -> Words:
    """Returns n bools as ceil(n / 64) words, bit 0 of word 0 first."""
    packed = np.packbits(mask, bitorder="little")
    if spare := -len(packed) % 8:
        packed = np.concatenate([packed, np.zeros(spare, np.uint8)])
    return packed.view(np.uint64)


def _shifted(words: Words, carry: bool) -> Words:
    """Returns the mask of the bytes that follow the marked ones."""
    out = words << _ONE
    out[1:] |= words[:-1] >> _TOP
    out[0] |= np.uint64(carry)
    return out


def _odd_so_far(words: Words, carry: bool) -> Words:
    """Returns the bits with an odd number of set bits up to and including them."""
    out = words.copy()
    for shift in (1, 2, 4, 8, 16, 32):
        out ^= out << np.uint64(shift)
    # Each word's own parity flips all the words after it.
    parity = np.bitwise_xor.accumulate(out >> _TOP)
    flip = np.empty_like(parity)
    flip[0] = carry
    flip[1:] = parity[:-1] ^ np.uint64(carry)
    out ^= np.uint64(0) - flip
    return out
