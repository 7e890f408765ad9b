"""Sample the rows of CSV files as text, evenly through all files."""

import collections
import contextlib
import dataclasses
import io
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.errors import InputError
from transforms.formats.csv.blocks import text_of
from transforms.formats.csv.dialect import CsvDialect
from transforms.formats.csv.header import (
    Header,
    check_same_columns,
    read_header,
    repeats_header,
)
from transforms.formats.csv.header_check import (
    HeaderCheck,
    cell_notes,
    line_end_notes,
    naming_others,
)
from transforms.formats.csv.joined import Joined, join_files, may_join
from transforms.formats.csv.records import parse, trimmed
from transforms.formats.csv.scan import Scan, pieces_of
from transforms.formats.table import SMALL_BYTES, TableSample
from transforms.storage.read_ahead import read_ahead

_File = TypeVar("_File")
_FIRST = operator.itemgetter(0)
SAMPLE_BYTES = 64 << 20
# Places at which a larger source is sampled: pieces of 1 MiB, which many rows fit in.
# Fewer and larger ones are tried where no row fits in any.
_PLACES = 64
_FEWER_PLACES = (16, 4, 1)
# Bytes of text that are parsed together, about: several such texts are held at a time,
# and a table of thousands of columns costs by their number.
_PARSED_BYTES = 8 << 20
# Percent of rows with a wrong field count above which the header or the delimiter is
# wrong, not the rows.
_MISCOUNTED_IN_100 = 90


@dataclasses.dataclass(frozen=True, slots=True)
class SampleInput:
    """A file to take rows from.

    Attributes:
      origin: its name in messages.
      size: bytes.
      opener: opens it.
      dialect: how it is written.
      ended: whether the content that is opened ends where the file ends.
    """

    origin: str
    size: int
    opener: Callable[[], Any]
    dialect: CsvDialect
    ended: bool = True


def sample_blocks(
    files: Sequence[_File],
    input_of: Callable[[_File], SampleInput],
    *,
    sizes: npt.NDArray[np.int64],
    sample_bytes: int = SAMPLE_BYTES,
    check: HeaderCheck | None = None,
    far: bool = False,
    decimal: str = ".",
) -> TableSample:
    """Returns rows from places spread evenly over the files; all rows if they are few.

    The same files give the same sample. A place inside a file may start inside quotes
    or outside: both readings are tried, and the one with fewer stray quotes says where
    the next record starts. Records that a place cuts off are left out, and so are those
    that repeat the header.

    Args:
      files: of the source.
      input_of: returns what to take rows from, of a file.
      sizes: their bytes: int64 array.
      sample_bytes: about how much to read.
      check: judges the first rows of files; None if it is known what they are.
      far: whether opening a file waits for a network.
      decimal: the decimal character of numbers.

    Raises:
      InputError: the first row of a file is no header, but data; a file looked into has
        no header, other columns than the first or text that is not valid in the
        encoding, and all such files are named; or nearly all rows have another number
        of fields than the header.
    """
    is_small = int(sizes.sum()) <= sample_bytes

    def looks(places: int = _PLACES) -> Iterator[_Look]:
        ranges: Iterable[tuple[int, list[tuple[int, int]]]]
        if is_small:
            ranges = ((i, [(0, size)]) for i, size in enumerate(sizes.tolist()) if size)
        else:
            found = itertools.groupby(_places(sizes, sample_bytes, places), _FIRST)
            ranges = ((i, [part for _, part in parts]) for i, parts in found)
        if len(files) <= _PLACES:
            chosen = dict(ranges)
            ranges = ((i, chosen.get(i, [])) for i in range(len(files)))
        for index, parts in ranges:
            yield _Look(input_of(files[index]), parts)
        if len(files) > _PLACES:
            # They are refused: better now than while blocks are read.
            for index in np.flatnonzero(sizes == 0).tolist():
                yield _Look(input_of(files[index]), [])

    try:
        seen = _looked_into(looks(), check, far)
    except InputError as error:
        each = ((look.file.origin, partial(_names_in, look)) for look in looks())
        raise naming_others(error, each) from error
    for places in () if is_small else _FEWER_PLACES:
        if seen.sampled_bytes:
            break
        seen = _looked_into(looks(places), check, far)
    if seen.first is None:
        raise InputError("a sample needs at least one CSV file; found none")
    rows, lengths = seen.rows, seen.lengths
    _check_lengths(lengths, rows, seen.first, seen.names)
    columns = dict(zip(seen.names, seen.columns(), strict=True))
    notes = [*seen.check_heads(), *cell_notes(columns, seen.first.dialect, decimal)]
    if seen.quoted:
        notes += line_end_notes(columns, seen.first.dialect)
    # A source that holds nothing but headers is complete, too.
    complete = (is_small and seen.all_ended) or not seen.sampled_bytes
    return TableSample(
        columns=columns,
        rows=rows,
        unread=lengths.total(),
        sampled_bytes=seen.sampled_bytes,
        total_rows=rows + lengths.total() if complete else None,
        complete=complete,
        notes=tuple(notes),
    )


def _looked_into(
    looks: Iterable["_Look"], check: HeaderCheck | None, far: bool
) -> "_Seen":
    """Returns what some places of the files show; see `sample_blocks`."""
    seen = _Seen(check)
    contents = read_ahead(_content, looks, far=far)
    joined = join_files(contents, seen.header_of, most_bytes=_PARSED_BYTES)
    for found in joined:
        if isinstance(found, Joined):
            used = sum(look.file.size for look in found.files) - found.starts.sum()
            seen.add([(found.text, int(used))], found.dialect)
            continue
        with contextlib.closing(found.open()) as stream:
            seen.see_header(stream, found.file)
            texts = _gathered(_texts(stream, found), found.file.dialect)
            seen.add(texts, found.file.dialect)
        seen.all_ended &= found.file.ended
    return seen


@dataclasses.dataclass(frozen=True, slots=True)
class _Look:
    """A file, and the ranges of its bytes that the sample looks into.

    Attributes:
      data: all of the file, where it was read already.
    """

    file: SampleInput
    ranges: Sequence[tuple[int, int]]
    data: bytes | None = None

    def open(self) -> Any:
        return self.file.opener() if self.data is None else io.BytesIO(self.data)


def _names_in(look: _Look) -> tuple[str, ...]:
    """Returns the names of a file's columns; InputError where it cannot be read."""
    with contextlib.closing(look.open()) as stream:
        header = read_header(stream, look.file.dialect, look.file.origin)
        for _ in _texts(stream, look):
            pass
    return header.names


def _content(look: _Look) -> tuple[_Look, CsvDialect, bytes | None]:
    """Returns what `join_files` is to join: all of a small file."""
    file = look.file
    whole = file.ended and list(look.ranges) == [(0, file.size)]
    if not whole or file.size > SMALL_BYTES:
        return look, file.dialect, None
    with contextlib.closing(file.opener()) as stream:
        data = stream.read()
    look = dataclasses.replace(look, data=data)
    return look, file.dialect, data if may_join(file.size, file.dialect) else None


class _Seen:
    """What a sample has seen so far.

    Attributes:
      first: the first file; None for none.
      names: of its columns, which the other files must have, too.
      lengths: of records that are no rows: number of fields -> how many have it.
      sampled_bytes: of input that was looked at.
      all_ended: whether the content of each file ended where the file does.
      quoted: whether there was a quote.
    """

    def __init__(self, check: HeaderCheck | None) -> None:
        self._check = check
        self.first: SampleInput | None = None
        self.names: tuple[str, ...] = ()
        self.lengths: collections.Counter[int] = collections.Counter()
        self.sampled_bytes = 0
        self.all_ended = True
        self.quoted = False
        self._batches: list[tuple[pa.Array, ...]] = []
        # The first rows that `check` judges: of every file if the columns are given,
        # else of the first file, which the others must equal.
        self._heads: dict[str, tuple[str, ...]] = {}

    def header_of(self, data: bytes, look: _Look) -> bytes:
        """Returns the header record of a file, which it has seen then."""
        return self.see_header(io.BytesIO(data), look.file).record

    def see_header(self, stream: Any, file: SampleInput) -> Header:
        """Notes the first row of a file; raises InputError for another header."""
        header = read_header(stream, file.dialect, file.origin)
        names = header.names
        if self._check is not None and file.dialect.columns is not None:
            self._heads[file.origin] = header.fields
        if self.first is None:
            self.first, self.names = file, names
            self._heads = self._heads or {file.origin: names}
        try:
            check_same_columns(self.first.origin, self.names, file.origin, names)
        except InputError:
            # Files without headers differ in their first rows: say that instead.
            self.check_heads()
            raise
        return header

    def add(self, texts: Iterable[tuple[bytes, int]], dialect: CsvDialect) -> None:
        """Adds the rows of texts; each comes with its length in the files."""
        for text, used in texts:
            self.quoted |= bool(dialect.quote) and dialect.quote.encode() in text
            records = parse(text, self.names, self.names, dialect)
            self._batches.append(_rows(records.columns, self.names, dialect))
            self.lengths.update(count for _, count in records.miscounted)
            self.sampled_bytes += used

    @property
    def rows(self) -> int:
        """The number of rows."""
        return sum(len(columns[0]) for columns in self._batches)

    def columns(self) -> list[pa.ChunkedArray]:
        """Returns the cells of each column."""
        return [
            pa.chunked_array([columns[i] for columns in self._batches], pa.string())
            for i in range(len(self.names))
        ]

    def check_heads(self) -> tuple[str, ...]:
        """Returns the first note about first rows; InputError if one is data."""
        if self._check is None:
            return ()
        columns = self.columns()
        # Most files repeat the same names: check each distinct row once.
        first: dict[tuple[str, ...], str] = {}
        for origin, fields in self._heads.items():
            first.setdefault(fields, origin)
        notes = [
            self._check.note(origin, fields, columns)
            for fields, origin in first.items()
        ]
        return tuple(filter(None, notes))[:1]


def _rows(
    columns: tuple[pa.Array, ...], names: Sequence[str], dialect: CsvDialect
) -> tuple[pa.Array, ...]:
    """Returns the columns without rows that repeat the header, as in joined files."""
    if dialect.trim:
        columns = tuple(map(trimmed, columns))
    if not dialect.header or dialect.columns is not None or len(names) == 1:
        return columns
    repeats = repeats_header(columns, range(len(names)), names)
    if repeats is None:
        return columns
    kept = pa.array(~repeats)
    return tuple(column.filter(kept) for column in columns)


def _gathered(
    texts: Iterator[tuple[bytes, int]], dialect: CsvDialect
) -> Iterator[tuple[bytes, int]]:
    """Joins texts to `_PARSED_BYTES`, except for those with quotes or escapes.

    A place that was wrongly taken to be outside quotes must not swallow the next one.
    """
    marks = [mark.encode() for mark in (dialect.quote, dialect.escape) if mark]
    joined, total = bytearray(), 0
    for text, used in texts:
        is_marked = any(mark in text for mark in marks)
        if joined and (is_marked or len(joined) >= _PARSED_BYTES):
            yield bytes(joined), total
            joined, total = bytearray(), 0
        if is_marked:
            yield text, used
            continue
        joined += text if text.endswith((b"\n", b"\r")) else text + b"\n"
        total += used
    if joined:
        yield bytes(joined), total


def _places(
    sizes: npt.NDArray[np.int64], sample_bytes: int, count: int
) -> Iterator[tuple[int, tuple[int, int]]]:
    """Yields the number of a file and a range of its bytes; both ascend.

    Args:
      sizes: of all files, more than the sample together.
      sample_bytes: of all ranges, about.
      count: of pieces at equal distances in the files, laid end to end.
    """
    begins = np.concatenate([[0], np.cumsum(sizes)])
    total = int(begins[-1])
    length = max(sample_bytes // count, 1)
    for place in range(count):
        start = place * total // count
        each = int(np.searchsorted(begins[1:], start, side="right"))
        while each < len(sizes) and begins[each] < start + length:
            begin, end = int(begins[each]), int(begins[each + 1])
            low, high = max(start, begin), min(start + length, end)
            if low < high:
                yield each, (low - begin, high - begin)
            each += 1


def _texts(stream: Any, look: _Look) -> Iterator[tuple[bytes, int]]:
    """Yields whole records of each range as UTF-8, and their length in the file."""
    file, ranges = look.file, look.ranges
    text: Any
    text, dialect, begin = text_of(stream, file.dialect, file.origin)
    length = file.size
    if text is not stream:
        # It was transcoded whole: read as much from its beginning.
        length = text.seek(0, io.SEEK_END)
        asked = sum(stop - start for start, stop in ranges)
        ranges = [(0, length * asked // max(file.size, 1))]
    for start, stop in ranges:
        low = start or begin
        text.seek(low)
        data = next(pieces_of(text, stop - low), b"") if low < stop else b""
        if start and dialect.escape:
            # An odd number of escapes before the place would make the first of these
            # literal: skip them, and take the next character as literal.
            kept = data.lstrip(dialect.escape.encode())
            low += len(data) - len(kept)
            data = kept
        ended = file.ended and stop >= length
        for first, behind, lines in _whole_records(data, dialect, start > 0, ended):
            records, encoding = data[first:behind], dialect.encoding
            try:
                decoded = records.decode(encoding)
            except UnicodeDecodeError as error:
                at = f"byte {low + first + error.start}"
                if not start:
                    before = records[: error.start].replace(b"\r\n", b"\n")
                    line = 1 + lines + before.replace(b"\r", b"\n").count(b"\n")
                    at = f"line {line}, {at}"
                raise InputError(
                    f"{file.origin}, {at}: {records[error.start]:#04x} is not valid "
                    f"{encoding}; name the file's encoding with --encoding, such as "
                    f"cp949 or latin-1"
                ) from error
            if encoding != "utf-8":
                records = decoded.encode()
            yield records, (behind - first) * file.size // length


def _whole_records(
    text: bytes, dialect: CsvDialect, begun: bool, ended: bool
) -> Iterator[tuple[int, int, int]]:
    """Yields where whole records start and stop, and how many lines end before.

    Args:
      text: a piece of a file, without the byte order mark.
      dialect: how it is written.
      begun: whether the piece starts inside the file.
      ended: whether the piece ends where the file ends.
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
    if len(starts) <= skip:
        return
    # Leave out a record that ends inside quotes or after an escape: the reader reports
    # it, with its line.
    whole = ended and not (scan.inside or scan.escaped)
    bounds = np.append(starts[skip:], len(text)) if whole else starts[skip:]
    low = 0
    while low < len(bounds) - 1:
        high = int(np.searchsorted(bounds, bounds[low] + _PARSED_BYTES))
        high = min(high, len(bounds) - 1)
        first, behind = int(bounds[low]), int(bounds[high])
        yield first, behind, int(np.searchsorted(lines, first))
        low = high


def _check_lengths(
    miscounted: collections.Counter[int],
    rows: int,
    file: SampleInput,
    names: Sequence[str],
) -> None:
    """Raises InputError if almost no row has as many fields as the header."""
    wrong = miscounted.total()
    if not wrong or wrong * 100 < (rows + wrong) * _MISCOUNTED_IN_100:
        return
    usual, _ = miscounted.most_common(1)[0]
    raise InputError(
        f"{file.origin}: {wrong} of {rows + wrong} sampled rows have another number of "
        f"fields than the {len(names)} columns, most of them {usual}; the delimiter is "
        f"taken to be {file.dialect.delimiter!r}: if it is not, say so with --delimiter"
    )
