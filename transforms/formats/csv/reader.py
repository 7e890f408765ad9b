"""CSV as a table format: plain files in blocks, packed in pieces, small ones joined.

A small file joins where its bytes begin with the header record of the first one, as
that has it, and its text is UTF-8. What follows the header must begin with a record:
then no record of the joined text spans two files, and the parser finds in it what it
finds in each file by itself. All others are read one by one.
"""

import contextlib
import dataclasses
import functools
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import pyarrow as pa

from transforms.core.model import Block
from transforms.core.reasons import Rejection
from transforms.core.rows.text_cells import is_text
from transforms.errors import InputError
from transforms.formats.csv.blocks import (
    HEAD_BYTES,
    Header,
    iter_blocks,
    read_header,
    sep_line,
)
from transforms.formats.csv.read import read_raw
from transforms.formats.csv.scan import WHITESPACE, CsvDialect, scanned
from transforms.formats.file_names import plain_name
from transforms.formats.input_files import Unpacked, open_content
from transforms.formats.raw_rows import Complaint, RawRows
from transforms.formats.table import (
    SMALL_BYTES,
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
_BOM = b"\xef\xbb\xbf"
# Files that are joined: each takes some hundred bytes until then.
_MOST_FILES = 4096
_ENDS = (b"\n", b"\r")
_LINE_END = re.compile(rb"\r?\n|\Z").match


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
                blocks = iter_blocks(
                    stream,
                    file.origin,
                    dialect,
                    block_bytes=block_bytes,
                    limit_rows=limit_rows,
                )
                yield from map(file.placed, blocks)
                return
            pieces: Iterable[tuple[bytes, Block]] = ()
            if limit_rows is not None:
                pieces = _pieces(stream, file.origin, dialect, limit_rows)
            yield file.whole(rows=sum(block.rows for _, block in pieces))

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
        alone: list[InputFile] = []
        for run in self.runs_to_join(contents, block_bytes):
            raw = self._joined(run, columns) if len(run.parts) > 1 else None
            if raw is None:
                alone += (file for file, _, _ in run.parts)
                continue
            yield from super(CsvFiles, self).read_whole(
                alone, columns, block_bytes=block_bytes
            )
            alone = []
            yield raw
        yield from super(CsvFiles, self).read_whole(
            alone, columns, block_bytes=block_bytes
        )

    def _content(self, file: InputFile) -> tuple[InputFile, CsvDialect, bytes | None]:
        """Returns what `runs_to_join` is to join."""
        dialect = self.dialect_of(file.origin)
        if not may_join(file.size, dialect):
            return file, dialect, None
        with reading(file.path):
            data = storage(file.path).read_bytes(stamp=file.stamp)
        dialect = self.dialect_in(io.BytesIO(data), file.origin)
        return file, dialect, None if dialect.sep_line else data

    def runs_to_join(
        self,
        contents: Iterable[tuple[InputFile, CsvDialect, bytes | None]],
        most_bytes: int,
    ) -> Iterator["FileRun"]:
        """Yields files in runs that can be joined, and the others; in their order.

        A compressed file is never joined: its bytes are no text. Nor is one without
        records: it has nothing to read.

        Args:
          contents: files, how they are written, and all of their bytes; None for one
            that is not to be joined.
          most_bytes: of text that are joined; the last file may go beyond.
        """
        run, header, size = FileRun(CsvDialect(), 0, []), b"", 0
        for file, dialect, data in contents:
            is_new, body, begins = False, b"", None
            if data is not None:
                is_new = not (header and dialect == run.dialect)
                if is_new:
                    header = b""
                    # The reader of single files says a fault again, where it should.
                    with contextlib.suppress(InputError):
                        _, first = self.begun(io.BytesIO(data), file.origin)
                        header = first.record
                begins = _records_begin(data, header) if header else None
                body = data[begins:]
            is_full = size >= most_bytes or len(run.parts) == _MOST_FILES
            if is_new or begins is None or is_full:
                if run.parts:
                    yield run
                lines = len(header.splitlines())
                run = FileRun(dialect if is_new else run.dialect, lines, [])
                size = 0
            if begins is None:
                yield FileRun(dialect, 0, [(file, 0, b"")])
            elif body:
                body = body if body[-1:] in _ENDS else body + b"\n"
                run.parts.append((file, begins, body))
                size += len(body)
        if run.parts:
            yield run

    def begun(self, stream: Any, origin: str) -> tuple[CsvDialect, Header]:
        """Returns how an open file is written, and its header, which is checked.

        It is not compared with that of the source before that is known.
        """
        dialect = self.dialect_in(stream, origin)
        header = read_header(stream, dialect, origin)
        if self.names:
            _check_same_columns(self.named_in, self.names, origin, header.names)
        return dialect, header

    def _joined(self, run: "FileRun", columns: Sequence[str]) -> RawRows | None:
        """Returns the rows of files as of one text; None where quotes forbid it."""
        inputs, file_starts, bodies = zip(*run.parts, strict=True)
        text = b"".join(bodies)
        begins = np.cumsum([0, *map(len, bodies)])
        records, lines, _, scan = scanned(text, run.dialect)
        # Where files begin, records must begin; the last ones end with the text.
        records = np.append(records, len(text))
        first_rows = np.searchsorted(records, begins)
        if scan.inside or (records[first_rows] != begins).any():
            return None
        first_lines = np.searchsorted(lines, begins)
        # Any start but 0, where the text would begin with the header.
        block = Block(inputs[0].origin, 1, 1 + len(text), rows=int(first_rows[-1]))
        raw = read_raw(text, block, run.dialect, self.names, columns, self.beside)
        places = raw.numbers
        owners = np.searchsorted(first_rows, places, side="right") - 1
        numbers = places - first_rows[owners]
        origins = pa.array([file.origin for file in inputs], pa.string())
        starts = np.array(file_starts, np.int64)
        sizes = np.array([file.size for file in inputs], np.int64) - starts
        shares = numbers * sizes[owners] // np.diff(first_rows)[owners]
        positions = np.array([file.position_at(start) for file, start, _ in run.parts])

        def reject(complaints: Sequence[Complaint]) -> list[Rejection]:
            out = []
            rejections = raw.rejections(complaints)
            for (number, *_), rejection in zip(complaints, rejections, strict=True):
                owner = int(np.searchsorted(first_rows, number, side="right")) - 1
                assert rejection.line is not None
                before = int(first_lines[owner]) - run.header_lines
                out.append(
                    dataclasses.replace(
                        rejection,
                        source=inputs[owner].origin,
                        row=number - int(first_rows[owner]) + 1,
                        line=rejection.line - before,
                    )
                )
            return out

        start, position = int(starts[0]), int(positions[0])
        return dataclasses.replace(
            raw,
            block=dataclasses.replace(
                block, start=start, stop=start + int(sizes.sum()), position=position
            ),
            numbers=numbers,
            reject=reject,
            origins=origins.take(pa.array(owners)),
            places=places,
            positions=positions[owners] + shares,
        )


def _check_same_columns(
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


def _pieces(
    stream: Unpacked, origin: str, dialect: CsvDialect, limit_rows: int | None
) -> Iterator[tuple[bytes, Block]]:
    """Reads the content of a compressed file in pieces."""
    for piece in iter_blocks(
        stream, origin, dialect, block_bytes=_PIECE_BYTES, limit_rows=limit_rows
    ):
        data = stream.take(piece.start, piece.stop)
        stream.forget(piece.stop)
        yield data, piece


# Of thousands of files, that is cheaper than to check its fields for each.
_dialect = functools.lru_cache(maxsize=8)(CsvDialect)


class FileRun(NamedTuple):
    """Files of one dialect whose records can be read as one text; or one file.

    Attributes:
      dialect: how they are written.
      header_lines: that end before the records of each.
      parts: each file, where its records start, and they, whose last one has a line
        end.
    """

    dialect: CsvDialect
    header_lines: int
    parts: list[tuple[InputFile, int, bytes]]


def may_join(size: int, dialect: CsvDialect) -> bool:
    """Tells whether a file of this size, written so, can be joined to others."""
    return (
        size <= SMALL_BYTES
        and dialect.header
        and dialect.delimiter != WHITESPACE
        and not dialect.escape
        and dialect.encoding == "utf-8"
    )


def _records_begin(data: bytes, header: bytes) -> int | None:
    """Returns where records start in a file's bytes; None where it cannot join."""
    start = len(_BOM) if data.startswith(_BOM) else 0
    if not data.startswith(header, start):
        return None
    end = _LINE_END(data, start + len(header))
    if end is None or data[end.end() : end.end() + 1] in _ENDS:
        return None
    return end.end() if data.isascii() or is_text(data) else None
