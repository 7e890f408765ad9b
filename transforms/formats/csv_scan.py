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
from collections.abc import Iterator
from typing import Protocol

import numpy as np
import numpy.typing as npt

from transforms.formats.csv_dialect import CsvDialect

__all__ = ["Marks", "Scan", "Stream", "pieces_of"]

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
      breaks: the byte before the next one ended a line, so that a record may start.
      strays: how many quotes so far mean nothing where they stand.
    """

    dialect: CsvDialect
    inside: bool = False
    breaks: bool = True
    strays: int = 0
    # Of the byte before the next one: a quote may open after it; it was a CR.
    _opens: bool = True
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
        starts = ~outer & _shifted(outer, self.breaks)
        if tail := len(piece) % 64:
            starts[-1] &= np.uint64((1 << tail) - 1)
        self._opens = last_opens
        self.breaks = bool(int(outer[-1]) >> ((len(piece) - 1) % 64) & 1)
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
