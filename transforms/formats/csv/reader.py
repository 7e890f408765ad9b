"""CSV as a table format: headers; plain files in blocks, compressed ones in pieces."""

import collections
import csv
import dataclasses
import functools
import io
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Self

from transforms.core.model import Block
from transforms.errors import InputError
from transforms.formats.csv.blocks import (
    HEAD_BYTES,
    MAX_RECORD_BYTES,
    cut,
    iter_blocks,
    malformed,
    sep_line,
    text_of,
    undecodable,
)
from transforms.formats.csv.dialect import (
    UNNAMED,
    WHITESPACE,
    CsvDialect,
    CsvStream,
    pieces_of,
    with_tabs,
)
from transforms.formats.csv.joined import (
    JoinedFiles,
    join_files,
    may_join,
    read_joined,
)
from transforms.formats.csv.read import read_raw
from transforms.formats.file_names import plain_name
from transforms.formats.input_files import Unpacked, open_content
from transforms.formats.raw_rows import RawRows
from transforms.formats.table import (
    InputFile,
    SourceFile,
    TableReader,
    listed,
    only_in_one,
    reading,
)
from transforms.storage.files import read_ahead, storage
from transforms.storage.paths import is_remote

# Pieces of the content of a compressed file.
_PIECE_BYTES = 16 << 20
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
        _check_marks(names, dialect, origin)
        if not names[0] and count > 1:
            names = (UNNAMED, *names[1:])
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
    facts = only_in_one(first_origin, first, origin, names)
    if not facts:
        # Names may occur twice, in a file that changes while it is looked at.
        moved = [b for a, b in zip(first, names, strict=False) if a != b]
        facts = [f"the order differs at {listed(moved)}"]
    raise InputError(
        f"all files of a source must have the same columns; {first_origin} and "
        f"{origin} differ: {'; '.join(facts)}. Correct one, or leave it out with "
        f"--exclude and convert it by itself, as with --part"
    )


def _first_record(stream: CsvStream, dialect: CsvDialect, origin: str) -> bytes:
    """Returns the first record as UTF-8, with any line end; b"" for no record."""
    text, dialect, begin = text_of(stream, dialect, origin)
    before = int(dialect.sep_line)
    text.seek(begin)
    records = cut(text, begin, origin, dialect, 1, before + 1, leading=0)
    record = next(itertools.islice(records, before, None), None)
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
    """Raises InputError for a column's name that is empty, repeated or too long."""
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


@dataclasses.dataclass(frozen=True, slots=True)
class CsvFiles(TableReader):
    """CSV files under one header.

    Attributes:
      delimiter: between fields; None for that of a first line such as sep=; of Excel,
        or else a tab in files named .tsv and a comma in others.
      header: whether the first row is a header; None for yes, if it does not look like
        data.
      quote, escape, columns, encoding, trim: see `CsvDialect`.
      null_values, decimal: see `TableReader`.
      names: the names of all columns, once they are known.
      named_in: the file that they were read from.
      beside: see `TableReader`.
    """

    title: ClassVar[str] = "CSV"
    content: ClassVar[Literal["none", "read", "all"]] = "all"

    delimiter: str | None = None
    quote: str = '"'
    escape: str = ""
    header: bool | None = None
    columns: tuple[str, ...] | None = None
    encoding: str = "utf-8"
    trim: bool = False
    decimal: str = "."
    null_values: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    named_in: str = ""
    beside: tuple[str, ...] = ()

    def dialect_of(self, origin: str) -> CsvDialect:
        """Returns how a file is written."""
        delimiter = self.delimiter
        if delimiter is None:
            is_tsv = plain_name(origin).lower().endswith(".tsv")
            delimiter = "\t" if is_tsv else ","
        return _dialect(
            delimiter,
            self.quote,
            self.escape,
            self.header is not False,
            self.columns,
            self.encoding,
            self.trim,
        )

    def dialect_in(self, stream: Any, origin: str) -> CsvDialect:
        """Returns how an open file is written; leaves it at its start."""
        dialect = self.dialect_of(origin)
        stream.seek(0)
        said = sep_line(stream.read(HEAD_BYTES), dialect)
        stream.seek(0)
        if not said:
            return dialect
        delimiter = self.delimiter or said
        return dataclasses.replace(dialect, delimiter=delimiter, sep_line=True)

    def giving(self, beside: Sequence[str]) -> Self:
        """Returns the reader that gives columns `beside`."""
        return dataclasses.replace(self, beside=tuple(beside))

    def without_diagnostics(self) -> Self:
        """Returns a copy without fields that only appear in messages and checks."""
        header = self.header is not False
        return dataclasses.replace(self, named_in="", header=header)

    def blocks(
        self, file: InputFile, *, block_bytes: int, limit_rows: int | None
    ) -> Iterator[Block]:
        """Yields the blocks of a file; a compressed file is one."""
        with open_content(file) as stream:
            dialect, _ = self.begun(stream, file.origin)
            if not isinstance(stream, Unpacked):
                for block in iter_blocks(
                    stream,
                    file.origin,
                    dialect,
                    block_bytes=block_bytes,
                    limit_rows=limit_rows,
                ):
                    yield file.placed(block)
                return
            rows = 0
            if limit_rows is not None:
                pieces = _pieces(stream, file.origin, dialect, limit_rows)
                rows = sum(piece.rows for _, piece in pieces)
            yield file.whole(rows=rows)

    def read(
        self, file: SourceFile, block: Block, columns: Sequence[str]
    ) -> Iterator[RawRows]:
        """Yields the rows of a block; those of a compressed file in pieces."""
        with open_content(file) as stream:
            dialect = self.dialect_in(stream, file.origin)
            if isinstance(stream, Unpacked):
                pieces = _pieces(stream, file.origin, dialect, block.rows or None)
                for data, piece in pieces:
                    at = block.position + min(stream.consumed, block.stop)
                    placed = dataclasses.replace(piece, position=at, stamp=block.stamp)
                    yield read_raw(
                        data, placed, dialect, self.names, columns, self.beside
                    )
                return
        # Pass the buffer directly: a local variable would keep it alive.
        yield read_raw(
            storage(file.path).read_range(block.start, block.stop, stamp=block.stamp),
            block,
            dialect,
            self.names,
            columns,
            self.beside,
        )

    def read_whole(
        self, files: Sequence[InputFile], columns: Sequence[str], *, block_bytes: int
    ) -> Iterator[RawRows]:
        """Yields the rows of files, of small ones that can be joined together."""
        far = is_remote(files[0].path)
        contents = read_ahead(self._content, files, far=far)
        joined = join_files(contents, self._header_of, most_bytes=block_bytes)
        for _, group in itertools.groupby(
            joined, lambda it: isinstance(it, JoinedFiles)
        ):
            alone = []
            for file in group:
                if isinstance(file, JoinedFiles):
                    yield read_joined(file, self.names, columns, self.beside)
                else:
                    alone.append(file)
            yield from super(CsvFiles, self).read_whole(
                alone, columns, block_bytes=block_bytes
            )

    def _content(self, file: InputFile) -> tuple[InputFile, CsvDialect, bytes | None]:
        """Returns what `join_files` is to join."""
        dialect = self.dialect_of(file.origin)
        if not may_join(file.size, dialect):
            return file, dialect, None
        with reading(file.path):
            data = storage(file.path).read_bytes(stamp=file.stamp)
        dialect = self.dialect_in(io.BytesIO(data), file.origin)
        return file, dialect, data if may_join(file.size, dialect) else None

    def _header_of(self, data: bytes, file: InputFile) -> bytes:
        _, header = self.begun(io.BytesIO(data), file.origin)
        return header.record

    def begun(self, stream: Any, origin: str) -> tuple[CsvDialect, Header]:
        """Returns how an open file is written, and its header, which is checked."""
        dialect = self.dialect_in(stream, origin)
        header = read_header(stream, dialect, origin)
        check_same_columns(self.named_in, self.names, origin, header.names)
        return dialect, header


def _pieces(
    stream: Unpacked, origin: str, dialect: CsvDialect, limit_rows: int | None
) -> Iterator[tuple[bytes, Block]]:
    """Yields pieces of the content of a compressed file."""
    for piece in iter_blocks(
        stream, origin, dialect, block_bytes=_PIECE_BYTES, limit_rows=limit_rows
    ):
        data = stream.take(piece.start, piece.stop)
        stream.forget(piece.stop)
        yield data, piece


# Of thousands of files, that is cheaper than to check its fields for each.
_dialect = functools.lru_cache(maxsize=8)(CsvDialect)
