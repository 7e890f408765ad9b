"""Sample the rows of CSV files, evenly through all files, as they will be read."""

import collections
import contextlib
import dataclasses
import io
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.core.model import Block
from transforms.core.reasons import Reason
from transforms.errors import InputError
from transforms.formats.csv.blocks import (
    HEAD_BYTES,
    text_of,
    whole_records,
)
from transforms.formats.csv.header_check import (
    LineEnds,
    cell_notes,
    header_note,
    naming_others,
)
from transforms.formats.csv.read import read_raw
from transforms.formats.csv.reader import CsvFiles
from transforms.formats.csv.scan import CsvDialect, pieces_of
from transforms.formats.input_files import (
    InputFiles,
    Unpacked,
    begins_packed,
    open_content,
)
from transforms.formats.raw_rows import RawRows, grouped
from transforms.formats.table import (
    InputFile,
    Planned,
    TableSample,
    listed,
    read_in_turn,
)

SAMPLE_BYTES = 64 << 20
# Content of compressed files that a sample reads, and the most files it opens.
_SAMPLE_BYTES = 8 << 20
_SAMPLE_FILES = 64
# Content that is read of each file at least: enough for any header.
_LEAST_SAMPLE_BYTES = 1 << 20
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
class SampledRanges:
    """A file, and the ranges of its bytes that the sample looks into.

    Attributes:
      file: its origin and size; of a compressed file, the size of `content`.
      ranges: of bytes, ascending.
      content: what a compressed file begins with; None for a file that is none.
      stored: bytes of a compressed file that the content takes.
      ended: whether the content ends where the file ends.
    """

    file: InputFile
    ranges: Sequence[tuple[int, int]]
    content: bytes | None = None
    stored: int = 0
    ended: bool = True

    @property
    def is_whole(self) -> bool:
        """Whether all of the file is read, as `read_whole` does."""
        return self.content is None and [*self.ranges] == [(0, self.file.size)]

    def open(self) -> Any:
        """Opens the file, or its content."""
        return self.file.open() if self.content is None else io.BytesIO(self.content)


@dataclasses.dataclass(frozen=True, slots=True)
class CsvReader(CsvFiles):
    """CSV files under one header, and how they are planned."""

    def plan(self, files: Sequence[InputFile]) -> Planned:
        """Samples rows as text; the reader then knows the names of all columns."""

        def is_packed(file: InputFile) -> bool:
            with file.open() as stream:
                return begins_packed(stream.read(HEAD_BYTES))

        packed = any(map(is_packed, read_in_turn(files)))
        sample = (packed_sample_of if packed else sample_of)(self, files)
        # Of many files, empty ones were not looked into.
        first = next((file for file in files if file.size), files[0])
        reader = dataclasses.replace(
            self, names=tuple(sample.columns), named_in=first.origin
        )
        return Planned(reader, sample)


def packed_sample_of(reader: CsvFiles, files: Sequence[InputFile]) -> TableSample:
    """Returns the first rows of files; compressed content has no middle."""
    chosen = files[:: -(-len(files) // _SAMPLE_FILES)]
    budget = max(_SAMPLE_BYTES // len(chosen), _LEAST_SAMPLE_BYTES)
    looks = []
    for file in chosen:
        with open_content(file) as stream:
            text = next(pieces_of(stream, budget), b"")
            ended = not stream.read(1)
            stored = len(text)
            if isinstance(stream, Unpacked):
                stored = min(stream.consumed, file.size)
        file = dataclasses.replace(file, size=len(text))
        looks.append(SampledRanges(file, [(0, len(text))], text, stored, ended))
    return _sample_in(reader, lambda _: looks, has_all=len(chosen) == len(files))


def sample_of(
    reader: CsvFiles,
    files: Sequence[InputFile],
    *,
    sample_bytes: int = SAMPLE_BYTES,
) -> TableSample:
    """Returns rows from places spread evenly over the files; all rows if they are few.

    The same files give the same sample. A place inside a file may start inside quotes
    or outside: both readings are tried, and the one with fewer stray quotes says where
    the next record starts. Records that a place cuts off are left out, and so are those
    that repeat the header.

    Args:
      reader: of the files; it does not know the columns yet.
      files: that are not compressed.
      sample_bytes: about how much to read.

    Raises:
      InputError: the first row of a file is no header, but data; a file looked into has
        no header, other columns than the first or text that is not valid in the
        encoding, and all such files are named; or nearly all rows have another number
        of fields than the header.
    """
    sizes = InputFiles.of(files, root="").sizes
    is_small = int(sizes.sum()) <= sample_bytes

    def looks(places: int) -> Iterator[SampledRanges]:
        spans: dict[int, list[tuple[int, int]]] = {}
        for index, span in () if is_small else _places(sizes, sample_bytes, places):
            spans.setdefault(index, []).append(span)
        for index, size in enumerate(sizes.tolist()):
            ranges = [(0, size)] if is_small and size else spans.get(index, [])
            if ranges or len(files) <= _PLACES:
                yield SampledRanges(files[index], ranges)
        if len(files) > _PLACES:
            # They are refused: better now than while blocks are read.
            for index in np.flatnonzero(sizes == 0).tolist():
                yield SampledRanges(files[index], [])

    return _sample_in(reader, looks, has_all=is_small)


def _sample_in(
    reader: CsvFiles,
    looks: Callable[[int], Iterable[SampledRanges]],
    *,
    has_all: bool,
) -> TableSample:
    """Returns the rows of some ranges of files; raises as `sample_of`.

    Args:
      reader: of the files.
      looks: returns the ranges, for a number of places.
      has_all: whether the ranges begin with all files and end where they end.
    """
    try:
        seen = _Seen(reader, looks(_PLACES))
    except InputError as error:
        by_origin = (
            (look.file.origin, partial(_Seen.names_in, reader, look))
            for look in looks(_PLACES)
        )
        raise naming_others(error, by_origin) from error
    for places in _FEWER_PLACES:
        if seen.sampled_bytes or has_all:
            break
        seen = _Seen(reader, looks(places))
    unread = seen.unread.total()
    _check_lengths(seen)
    columns = dict(zip(seen.reader.names, seen.columns(), strict=True))
    notes = [*seen.check_heads(), *cell_notes(columns, seen.dialect, reader.decimal)]
    ends = (ends.note(name) for name, ends in seen.line_ends.items())
    notes += [*filter(None, ends)][:1]
    # A source that holds nothing but headers is complete, too.
    complete = (has_all and seen.all_ended) or not seen.sampled_bytes
    return TableSample(
        columns=columns,
        rows=seen.rows,
        unread=unread,
        sampled_bytes=seen.sampled_bytes,
        total_rows=seen.rows + unread if complete else None,
        complete=complete,
        notes=tuple(notes),
    )


class _Seen:
    """What a sample has seen.

    Attributes:
      reader: that knows the columns of the first file, which others must have, too.
      dialect: of the first file.
      unread: messages of rows that cannot be read -> how many have it.
      rows: the number of rows.
      sampled_bytes: of input that was looked at.
      all_ended: whether the content of each file ended where the file does.
      line_ends: by column, the cells that hold line ends.
    """

    def __init__(self, reader: CsvFiles, looks: Iterable[SampledRanges]) -> None:
        self.reader = reader
        self.dialect = CsvDialect()
        self.unread: collections.Counter[str] = collections.Counter()
        self.sampled_bytes = 0
        self.all_ended = True
        self.rows = 0
        self.line_ends: dict[str, LineEnds] = {}
        self._batches: list[Mapping[str, pa.Array]] = []
        # The first rows that are judged: of every file if the columns are given, else
        # of the first file, which the others must equal.
        self._heads: dict[str, tuple[str, ...]] = {}
        try:
            for is_whole, group in itertools.groupby(looks, lambda look: look.is_whole):
                if is_whole:
                    self._read_whole(group)
                else:
                    for look in group:
                        self._read_ranges(look)
        except InputError:
            # Files without headers differ in their first rows: say that instead.
            self.check_heads()
            raise

    @classmethod
    def names_in(cls, reader: CsvFiles, look: SampledRanges) -> tuple[str, ...]:
        """Returns the names of a file's columns; InputError where it is not read."""
        return cls(reader, [look]).reader.names

    def _begin(self, origin: str, stream: Any) -> CsvDialect:
        """Notes the first row of a file; returns how it is written."""
        dialect, header = self.reader.begun(stream, origin)
        if not self.reader.names:
            self.dialect, names = dialect, header.names
            self.reader = dataclasses.replace(self.reader, names=names, named_in=origin)
        if dialect.columns is not None or not self._heads:
            self._heads[origin] = header.fields
        return dialect

    def _read_whole(self, looks: Iterator[SampledRanges]) -> None:
        files = [look.file for look in looks]
        # Other files are opened when they are read.
        for file in files if self.reader.columns else files[:1]:
            with file.open() as stream:
                self._begin(file.origin, stream)
        names = self.reader.names
        for raw in self.reader.read_whole(files, names, block_bytes=_PARSED_BYTES):
            self._add(raw, "")

    def _read_ranges(self, look: SampledRanges) -> None:
        self.all_ended &= look.ended
        sampled = self.sampled_bytes + look.stored
        with contextlib.closing(look.open()) as stream:
            dialect = self._begin(look.file.origin, stream)
            text, dialect, begin = text_of(stream, dialect, look.file.origin)
            is_whole = text is not stream
            texts = _texts(text, dialect, begin, look, is_whole)
            names = self.reader.names
            for data, block in _gathered(texts, dialect):
                where = "" if block.first_line else f"byte {block.start} or later"
                raw = read_raw(data, block, dialect, names, names)
                self._add(raw, where)
        if look.content is not None:
            # Blocks have bytes of content; the source is measured in stored bytes.
            self.sampled_bytes = sampled

    def _add(self, raw: RawRows, where: str) -> None:
        for complaint in raw.refused:
            _, reason, message = complaint
            if reason is Reason.INVALID_ENCODING:
                (row,) = raw.rejections([complaint])
                raise InputError(
                    f"{row.source}, {where or f'line {row.line}'}: {message}; name "
                    f"the file's encoding with --encoding, such as cp949 or latin-1"
                )
            self.unread[message] += 1
        self.sampled_bytes += raw.block.stop - raw.block.start
        self.rows += len(raw.numbers)
        for name, column in raw.columns.items() if self.dialect.quote else ():
            ends = self.line_ends.setdefault(name, LineEnds())
            ends.add(raw, column, len(raw.columns), self.dialect)
        # Not the raw rows: they hold the text for messages.
        self._batches.append(raw.columns)

    def columns(self) -> list[pa.ChunkedArray]:
        """Returns the cells of each column."""
        return [
            pa.chunked_array([columns[name] for columns in self._batches], pa.string())
            for name in self.reader.names
        ]

    def check_heads(self) -> tuple[str, ...]:
        """Returns the first note about first rows; InputError if one is data."""
        if self.reader.header is not None:
            return ()
        words, decimal = self.reader.null_values, self.reader.decimal
        columns = self.columns()
        # Most files repeat the same names: check each distinct row once.
        first: dict[tuple[str, ...], str] = {}
        for origin, fields in self._heads.items():
            first.setdefault(fields, origin)
        notes = (
            header_note(origin, row, columns, words, decimal)
            for row, origin in first.items()
        )
        return tuple(filter(None, notes))[:1]


def _gathered(
    texts: Iterator[tuple[bytes, Block]], dialect: CsvDialect
) -> Iterator[tuple[bytes, Block]]:
    """Joins texts to `_PARSED_BYTES`, except for those with quotes or escapes.

    A place that was wrongly taken to be outside quotes must not swallow the next one.
    """
    marks = [mark.encode() for mark in (dialect.quote, dialect.escape) if mark]
    for is_marked, run in itertools.groupby(
        texts, lambda it: any(mark in it[0] for mark in marks)
    ):
        if is_marked:
            yield from run
            continue
        for group in grouped(run, lambda it: len(it[0]), _PARSED_BYTES):
            parts, (block, *more) = zip(*group, strict=True)
            if more:
                stop = block.stop + sum(other.stop - other.start for other in more)
                rows = block.rows + sum(other.rows for other in more)
                block = dataclasses.replace(block, stop=stop, first_line=0, rows=rows)
            ended = (p if p.endswith((b"\n", b"\r")) else p + b"\n" for p in parts)
            yield b"".join(ended), block


def _places(
    sizes: npt.NDArray[np.int64], sample_bytes: int, count: int
) -> Iterator[tuple[int, tuple[int, int]]]:
    """Yields the number of a file and a range of its bytes; both ascend.

    Args:
      sizes: of all files, more than the sample together.
      sample_bytes: of all ranges, about.
      count: of pieces at equal distances in the files, laid end to end.
    """
    ends = np.cumsum(sizes)
    begins = ends - sizes
    length = max(sample_bytes // count, 1)
    for piece in range(count):
        start = piece * int(ends[-1]) // count
        low = np.searchsorted(ends, start, side="right")
        high = np.searchsorted(begins, start + length)
        near = begins[low:high]
        spans = np.clip([start, start + length], near[:, None], ends[low:high, None])
        for index, span in enumerate((spans - near[:, None]).tolist(), int(low)):
            if span[0] < span[1]:
                yield index, (span[0], span[1])


def _texts(
    text: Any, dialect: CsvDialect, begin: int, look: SampledRanges, transcoded: bool
) -> Iterator[tuple[bytes, Block]]:
    """Yields whole records of each range of a file.

    A block has no first line where that is not known.

    Args:
      text: the open file, as `text_of` returns it.
      dialect: of the text.
      begin: where it begins, behind the byte order mark.
      look: the file, and the ranges.
      transcoded: whether there is no way to start in its middle.
    """
    file, ranges, length = look.file, look.ranges, look.file.size
    if transcoded:
        # Read as much from its beginning.
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
        ended = look.ended and stop >= length
        for first, behind, rows, lines in whole_records(
            data, dialect, start > 0, ended, _PARSED_BYTES
        ):
            size = (behind - first) * file.size // length
            line = 0 if start else 1 + lines
            # The reader takes what begins at 0 for the start of the file.
            at = max(low + first, 1)
            yield data[first:behind], Block(file.origin, at, at + size, 0, line, rows)


def _check_lengths(seen: _Seen) -> None:
    """Raises InputError if almost no row has as many fields as the header."""
    wrong, rows = seen.unread.total(), seen.rows + seen.unread.total()
    if not wrong or wrong * 100 < rows * _MISCOUNTED_IN_100:
        return
    usual, _ = seen.unread.most_common(1)[0]
    raise InputError(
        f"{seen.reader.named_in}: {wrong} of {rows} sampled rows cannot be read, most "
        f"of them for this: {usual}; the names of the columns are taken to be "
        f"{listed(seen.reader.names)}: take out lines above the header; where it "
        f"lacks names, give all with --columns and --header; if the delimiter is not "
        f"{seen.dialect.delimiter!r}, say so with --delimiter"
    )
