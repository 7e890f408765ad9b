"""How a CSV file is written, and where its records begin: a scan with bit masks.

The rules are those of Arrow's CSV parser, so that a block parsed alone gives the rows
that it gives as a part of the file:

- a quote opens only at the start of a field; inside, `""` is one quote; after the
  closing quote the rest of the field is literal;
- LF, CRLF and a lone CR end a record; blank lines are no records, nor lines of blanks
  where blanks are the delimiter;
- the byte after an escape is literal wherever it is, a line end too.

A piece of 512 KiB becomes masks of one bit a byte. Bytes inside quotes are where the
number of quotes so far is odd, which a prefix XOR gives for 64 bytes at once. That is
wrong only for a quote in the middle of a field (`5" pipe`). Where an opening quote
follows none of delimiter, line end and closing quote, the quotes of that piece are
walked one by one, and those without meaning are removed from the mask.
"""

import codecs
import dataclasses
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.errors import SpecError
from transforms.formats.input_files import Content

# The delimiter of cells with any number of spaces and tabs between them.
WHITESPACE = "whitespace"
# pandas and R write an index as the first column, without a name.
UNNAMED = "column_0"
# Small enough for the masks and the piece itself to stay in the processor's cache.
_PIECE_BYTES = 512 << 10
_LF, _CR, _SPACE, _TAB = 10, 13, 32, 9
_ONE = np.uint64(1)
_TOP = np.uint64(63)
Words = npt.NDArray[np.uint64]
Longs = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True, slots=True)
class CsvDialect:
    r"""The dialect that a scan goes by: how the files of one source are written.

    `CsvDialect()` is RFC 4180 with a header; `CsvDialect(delimiter="\t")` is TSV;
    `CsvDialect(header=False, columns=("id", "label"))` names the columns of a file
    that does not. Lines that start with `#` are records like any other: no dialect
    has comments.

    Attributes:
      delimiter: one ASCII character between fields; or `WHITESPACE` for runs of spaces
        and tabs, which mean nothing at the ends of a line.
      quote: one ASCII character around fields; empty if quotes mean nothing.
      escape: one ASCII character that takes the meaning from the one after it, inside
        quotes and outside; empty for none.
      header: the first record holds the columns' names.
      sep_line: there is one more record before, which Excel takes the delimiter from.
      columns: the columns' names, in the file's order; they replace the header's.
      encoding: a text encoding that Python knows. A byte order mark overrules it.
      trim: names and cells lose the white space at their ends; a cell of nothing else
        is blank.

    Raises:
      SpecError: a setting is malformed or two contradict each other.
    """

    delimiter: str = ","
    quote: str = '"'
    escape: str = ""
    header: bool = True
    columns: tuple[str, ...] | None = None
    encoding: str = "utf-8"
    trim: bool = False
    sep_line: bool = False

    @property
    def delimiters(self) -> str:
        """The characters that are between fields."""
        return " \t" if self.delimiter == WHITESPACE else self.delimiter

    @property
    def leading(self) -> int:
        """The number of records before the first row."""
        return int(self.header) + int(self.sep_line)

    def __post_init__(self) -> None:
        for name in ("delimiter", "quote", "escape"):
            mark = getattr(self, name)
            may_be = WHITESPACE if name == "delimiter" else ""
            if mark != may_be and not is_mark(mark):
                raise SpecError(
                    f"{name} must be one ASCII character, no letter, digit or line "
                    f"end, or {may_be or 'empty for none'}; found {mark!r}"
                )
        marks = self.delimiters + self.quote + self.escape
        if len(set(marks)) < len(marks):
            raise SpecError(
                f"delimiter, quote and escape must differ; found {self.delimiter!r}, "
                f"{self.quote!r} and {self.escape!r}. A doubled quote needs no escape"
            )
        if self.columns is not None and (
            not self.columns
            or "" in self.columns
            or len(set(self.columns)) < len(self.columns)
        ):
            raise SpecError(
                f"columns must be distinct names, none of them empty; found "
                f"{list(self.columns)}"
            )
        # Use the codec's own name: latin1 and iso-8859-1 must compare equal.
        object.__setattr__(self, "encoding", _codec_name(self.encoding))


def is_mark(text: str) -> bool:
    """Tells whether a scan can take a text for a delimiter, a quote or an escape."""
    return (
        len(text) == 1 and text.isascii() and not text.isalnum() and text not in "\r\n"
    )


def _codec_name(encoding: str) -> str:
    """Returns a dialect's encoding by Python's name; utf-8-sig is utf-8."""
    try:
        name = codecs.lookup(encoding).name
        bytes(4).decode(name, "surrogateescape")
    except (LookupError, UnicodeError) as error:
        raise SpecError(
            f"encoding must be a text encoding that Python knows, such as utf-8, "
            f"cp949 or latin-1; found {encoding!r}"
        ) from error
    # Byte order marks are skipped in any case.
    return "utf-8" if name == "utf-8-sig" else name


@dataclasses.dataclass(slots=True)
class Scan:
    """The state of the scan between two pieces of one file.

    Attributes:
      dialect: delimiter, quote and escape are used.
      inside: the next byte is inside quotes.
      escaped: the next byte is literal.
      breaks: the byte before the next one ended a line, so that a record may start.
      strays: the number of quotes so far that have no meaning where they are.
      wary: whether text behind a closing quote is looked for, and counts as a stray.
        It suggests a quote that belongs to the text, or that the scan started on the
        wrong side of one.
      loose: the bytes of the last piece at which such text begins.
      covered: the bytes of the last piece that are inside quotes or escaped.
    """

    dialect: CsvDialect
    inside: bool = False
    escaped: bool = False
    breaks: bool = True
    strays: int = 0
    wary: bool = False
    loose: Longs = dataclasses.field(default_factory=lambda: np.zeros(0, np.int64))
    covered: Words | None = None
    # Whether a quote may open after the byte before the next one; whether it was a CR.
    _opens: bool = True
    _cr: bool = False
    _closed: bool = False

    def advance(self, piece: bytes) -> tuple[Words, Words]:
        """Returns where records start in the piece, and where physical lines end.

        Both are masks: to count their bits takes a fortieth of the time that their
        offsets take. A line's end is that of its first character, LF or CR. All pieces
        but the last must hold a multiple of 64 bytes.
        """
        data = np.frombuffer(piece, np.uint8)
        breaks = lines = _bits(data == _LF)
        if self._cr or b"\r" in piece:
            crs = _bits(data == _CR)
            lines = (breaks | crs) & ~(breaks & _shifted(crs, self._cr))
            breaks = breaks | crs
        literal: Words | None = None
        escape = self.dialect.escape.encode()
        if escape and (self.escaped or escape in piece):
            literal = self._literal(data)
            breaks = breaks & ~literal
        quote = self.dialect.quote.encode()
        last = (len(piece) - 1) % 64
        last_opens = piece[-1] in b"\r\n" + self.dialect.delimiters.encode()
        if literal is not None and int(literal[-1]) >> last & 1:
            last_opens = False
        self.loose, self.covered = self.loose[:0], literal
        if quote and (self.inside or self._closed or quote in piece):
            quotes, inside = self._quoted(data, breaks, literal)
            outer = breaks & ~inside
            self.covered = inside if literal is None else inside | literal
            last_opens |= bool(int(quotes[-1]) >> last & 1)
        else:
            outer = breaks
        if self.dialect.delimiter == WHITESPACE:
            starts = self._first_cells(data, outer)
        else:
            starts = ~outer & _shifted(outer, self.breaks)
            if tail := len(piece) % 64:
                starts[-1] &= np.uint64((1 << tail) - 1)
            self.breaks = bool(int(outer[-1]) >> last & 1)
        self._opens = last_opens
        self._cr = piece[-1] == _CR
        return starts, lines

    def _first_cells(self, data: npt.NDArray[np.uint8], outer: Words) -> Words:
        """Returns where records start: behind the blanks at the start of a line."""
        at = np.flatnonzero(~_are_blank(data))
        ends = _bools(outer)[at]
        behind = np.concatenate([[self.breaks], ends])
        starts = np.zeros(len(data), np.bool_)
        starts[at[behind[:-1] & ~ends]] = True
        self.breaks = bool(behind[-1])
        return _bits(starts)

    def _literal(self, data: npt.NDArray[np.uint8]) -> Words:
        """Returns the bytes that an escape before them makes literal."""
        at = np.flatnonzero(data == ord(self.dialect.escape))
        # In a run of escapes every other one is itself escaped.
        fresh = np.diff(at, prepend=-2) != 1
        order = np.arange(len(at))
        order -= np.maximum.accumulate(np.where(fresh, order, 0))
        active = order % 2 == 0
        if self.escaped and len(at) and at[0] == 0:
            first_run = np.cumsum(fresh) == 1
            active ^= first_run
        mask = np.zeros(-(-len(data) // 64) * 64 + 1, np.uint8)
        mask[at[active] + 1] = 1
        mask[0] = self.escaped
        self.escaped = bool(mask[len(data)])
        mask[len(data)] = 0
        return np.packbits(mask[:-1], bitorder="little").view(np.uint64)

    def _quoted(
        self, data: npt.NDArray[np.uint8], breaks: Words, literal: Words | None
    ) -> tuple[Words, Words]:
        """Returns the quotes that open or close, and the bytes inside quotes."""
        quotes = _bits(data == ord(self.dialect.quote))
        if self.dialect.delimiter == WHITESPACE:
            ends = _bits(_are_blank(data))
        else:
            ends = _bits(data == ord(self.dialect.delimiter))
        if literal is not None:
            quotes &= ~literal
            ends &= ~literal
        ends |= breaks
        inside = _odd_so_far(quotes, self.inside)
        # An opening quote must follow a delimiter, a line end or another quote, which
        # has closed then: otherwise this one would be inside.
        if (quotes & inside & ~_shifted(ends | quotes, self._opens)).any():
            stray = self._stray_quotes(quotes, _shifted(ends, self._opens))
            self.strays += len(stray)
            mask = np.zeros(len(quotes) * 64, np.uint8)
            mask[stray] = 1
            quotes &= ~np.packbits(mask, bitorder="little").view(np.uint64)
            inside = _odd_so_far(quotes, self.inside)
        if self.wary:
            closing = quotes & ~inside
            loose = _shifted(closing, self._closed) & ~(ends | quotes)
            if tail := len(data) % 64:
                loose[-1] &= np.uint64((1 << tail) - 1)
            self._closed = bool(int(closing[-1]) >> 63)
            self.loose = offsets(loose)
            self.strays += len(self.loose)
        self.inside = bool(int(inside[-1]) >> 63)
        return quotes, inside

    def _stray_quotes(self, quotes: Words, may_open: Words) -> list[int]:
        """Returns the positions of the quotes without meaning."""
        at = offsets(quotes)
        opens = _bools(may_open)[at]
        stray = []
        inside, closed = self.inside, -2
        for position, fits in zip(at.tolist(), opens.tolist(), strict=True):
            if inside:
                inside, closed = False, position
            elif fits or position == closed + 1:
                inside = True
            else:
                stray.append(position)
        return stray


def pieces_of(stream: Content, size: int = _PIECE_BYTES) -> Iterator[bytes]:
    """Yields what is left of a stream in pieces of a scan, the last one shorter."""
    while piece := stream.read(size):
        if len(piece) < size:
            # A raw file or a compressed one may give less than it was asked for.
            parts, left = [piece], size - len(piece)
            while left and (more := stream.read(left)):
                parts.append(more)
                left -= len(more)
            piece = b"".join(parts)
        yield piece


def with_tabs(data: bytes | pa.Buffer, dialect: CsvDialect) -> bytes:
    """Returns scanned records with one tab for the `WHITESPACE` between fields.

    Blanks at the ends of lines are left out; those in quotes stay.
    """
    view = np.frombuffer(data, np.uint8)
    blank = _are_blank(view)
    scan = Scan(dialect)
    base = 0
    for piece in pieces_of(pa.BufferReader(data)):
        scan.advance(piece)
        if scan.covered is not None:
            blank[base : base + len(piece)] &= ~_bools(scan.covered)[: len(piece)]
        base += len(piece)
    # The ends of the file end lines, too.
    ends = np.ones(len(view) + 2, np.bool_)
    ends[1:-1] = (view == _LF) | (view == _CR)
    edges = np.diff(blank, prepend=False, append=False)
    first, behind = np.flatnonzero(edges).reshape(-1, 2).T
    between = first[~(ends[first] | ends[behind + 1])]
    kept = ~blank
    kept[between] = True
    out = view.copy()
    out[between] = _TAB
    return out[kept].tobytes()


def _are_blank(data: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    """Tells which bytes are spaces or tabs, which `WHITESPACE` cuts fields at."""
    return (data == _SPACE) | (data == _TAB)


def _bools(words: Words) -> npt.NDArray[np.bool_]:
    """Returns n words as 64 n bools, bit 0 of word 0 first."""
    return np.unpackbits(words.view(np.uint8), bitorder="little").view(np.bool_)


def offsets(words: Words) -> Longs:
    """Returns the offsets of the bytes whose bits are set, ascending."""
    return np.flatnonzero(_bools(words))


def before(words: Words, end: int) -> int:
    """Returns how many bits are set below bit `end`."""
    word, bit = divmod(end, 64)
    whole = int(np.bitwise_count(words[:word]).sum(dtype=np.int64))
    return whole + (int(words[word]) & ((1 << bit) - 1)).bit_count() if bit else whole


def first_from(words: Words, start: int) -> int | None:
    """Returns the first bit that is set at `start` or above it."""
    word, bit = divmod(start, 64)
    if word >= len(words):
        return None
    if rest := int(words[word]) >> bit << bit:
        return word * 64 + (rest & -rest).bit_length() - 1
    later = np.flatnonzero(words[word + 1 :])
    return first_from(words, 64 * (word + 1 + int(later[0]))) if len(later) else None


def last_of(words: Words) -> int:
    """Returns the last bit that is set; one must be."""
    word = int(np.flatnonzero(words)[-1])
    return word * 64 + int(words[word]).bit_length() - 1


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


def scanned(
    data: bytes | pa.Buffer, dialect: CsvDialect, *, wary: bool = False
) -> tuple[Longs, Longs, Longs, Scan]:
    """Returns where records start in whole records, lines end, and text is loose.

    The last item is the state at the end. The three arrays hold offsets, ascending.
    """
    scan = Scan(dialect, wary=wary)
    marks: list[tuple[Longs, Longs, Longs]] = []
    base = 0
    for piece in pieces_of(pa.BufferReader(data)):
        starts, lines = map(offsets, scan.advance(piece))
        marks.append((starts + base, lines + base, scan.loose + base))
        base += len(piece)
    nothing = np.zeros(0, np.int64)
    first, ends, loose = map(np.concatenate, zip((nothing,) * 3, *marks, strict=True))
    return first, ends, loose, scan


def malformed(data: bytes | pa.Buffer, dialect: CsvDialect) -> Longs:
    """Scans for text behind a closing quote; returns the positions of such records.

    The parser would take that text for a part of the cell, and drop the quote.
    """
    quote = dialect.quote.encode()
    if not quote or not (np.frombuffer(data, np.uint8) == ord(quote)).any():
        return np.zeros(0, np.int64)
    starts, _, loose, _ = scanned(data, dialect, wary=True)
    return np.unique(np.searchsorted(starts, loose, side="right") - 1)
