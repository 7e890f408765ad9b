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
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.core.model import Block
from transforms.core.reasons import Rejection
from transforms.core.rows.text_cells import is_text
from transforms.errors import InputError
from transforms.formats.csv.blocks import (
    HEAD_BYTES,
    Header,
    check_same_columns,
    iter_blocks,
    read_header,
    sep_line,
)
from transforms.formats.csv.read import read_raw
from transforms.formats.csv.scan import (
    WHITESPACE,
    CsvDialect,
    scanned,
)
from transforms.formats.file_names import plain_name
from transforms.formats.input_files import Unpacked, open_content
from transforms.formats.raw_rows import Complaint, RawRows
from transforms.formats.table import (
    SMALL_BYTES,
    InputFile,
    SourceFile,
    TableReader,
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


@dataclasses.dataclass(frozen=True, slots=True)
class JoinedFiles:
    """The records of several files, end to end.

    Attributes:
      dialect: how they are written.
      files: k files.
      text: their records, without headers; each file's last one has a line end.
      starts: for each file, where its records start in it.
      first_line: the 1-based line on which they start, in each.
      first_rows: int64 array of k + 1: the number of records before each file's.
      first_lines: int64 array of k: how many lines of `text` end before each file's.
    """

    dialect: CsvDialect
    files: tuple[InputFile, ...]
    text: bytes
    starts: npt.NDArray[np.int64]
    first_line: int
    first_rows: npt.NDArray[np.int64]
    first_lines: npt.NDArray[np.int64]


def read_joined(
    joined: JoinedFiles,
    names: Sequence[str],
    wanted: Sequence[str],
    beside: Sequence[str],
) -> RawRows:
    """Returns the rows of all files; see `read_raw`."""
    inputs, first_rows = joined.files, joined.first_rows
    rows = int(first_rows[-1])
    # Any start but 0, where the text would begin with the header.
    block = Block(inputs[0].origin, 1, 1 + len(joined.text), rows=rows)
    raw = read_raw(joined.text, block, joined.dialect, names, wanted, beside)
    places = raw.numbers
    owners = np.searchsorted(first_rows, places, side="right") - 1
    numbers = places - first_rows[owners]
    origins = pa.array([file.origin for file in inputs], pa.string())
    sizes = np.array([file.size for file in inputs], np.int64)
    shares = numbers * (sizes - joined.starts)[owners]
    shares //= np.diff(first_rows)[owners]
    begins = np.array(
        [
            file.position_at(start)
            for file, start in zip(inputs, joined.starts.tolist(), strict=True)
        ]
    )

    def reject(complaints: Sequence[Complaint]) -> list[Rejection]:
        assert raw.reject is not None
        out = []
        for complaint, rejection in zip(
            complaints, raw.reject(complaints), strict=True
        ):
            number = complaint[0]
            owner = int(np.searchsorted(first_rows, number, side="right")) - 1
            assert rejection.line is not None
            before = int(joined.first_lines[owner]) - joined.first_line + 1
            out.append(
                dataclasses.replace(
                    rejection,
                    source=inputs[owner].origin,
                    row=number - int(first_rows[owner]) + 1,
                    line=rejection.line - before,
                )
            )
        return out

    return dataclasses.replace(
        raw,
        block=dataclasses.replace(
            block,
            start=int(joined.starts[0]),
            stop=int(joined.starts[0] + (sizes - joined.starts).sum()),
            position=int(begins[0]),
        ),
        numbers=numbers,
        reject=reject,
        origins=origins.take(pa.array(owners)),
        places=places,
        positions=begins[owners] + shares,
    )


def may_join(size: int, dialect: CsvDialect) -> bool:
    """Tells whether a file of this size, written so, can be joined to others."""
    return (
        size <= SMALL_BYTES
        and dialect.header
        and not dialect.sep_line
        and dialect.delimiter != WHITESPACE
        and not dialect.escape
        and dialect.encoding == "utf-8"
    )


def join_files(
    contents: Iterable[tuple[InputFile, CsvDialect, bytes | None]],
    header_of: Callable[[bytes, InputFile], bytes],
    *,
    most_bytes: int,
) -> Iterator[InputFile | JoinedFiles]:
    """Yields files joined where they can be, and the others; in their order.

    A compressed file is never joined: its bytes are no text.

    Args:
      contents: files, how they are written, and all of their bytes; None for one that
        is not to be joined.
      header_of: returns the header record of a file with these bytes, see `Header`;
        raises InputError where it is not that of the source.
      most_bytes: of text that are joined; the last file may go beyond.
    """
    joining: _Joining | None = None
    for file, dialect, data in contents:
        if data is not None and (joining is None or joining.dialect != dialect):
            if joining is not None:
                yield from joining.flush()
            header = b""
            # The reader of single files says a fault again, where it should.
            with contextlib.suppress(InputError):
                header = header_of(data, file)
            joining = _Joining(dialect, header) if header else None
        if joining is None:
            yield file
            continue
        body = None if data is None else joining.body_of(data)
        if (
            body is None
            or joining.size >= most_bytes
            or len(joining.files) == _MOST_FILES
        ):
            yield from joining.flush()
        if body is None:
            yield file
        else:
            joining.add(file, *body)
    if joining is not None:
        yield from joining.flush()


class _Joining:
    """Files that wait until no other can join them."""

    def __init__(self, dialect: CsvDialect, header: bytes) -> None:
        self.dialect = dialect
        self.header = header
        lines = header.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        self.first_line = 2 + lines.count(b"\n")
        self._clear()

    def _clear(self) -> None:
        self.files: list[InputFile] = []
        self.bodies: list[bytes] = []
        self.starts: list[int] = []
        self.size = 0

    def body_of(self, data: bytes) -> tuple[bytes, int] | None:
        """Returns the records of a file, and where they start; None if it cannot join.

        No records are a body, too.
        """
        start = len(_BOM) if data.startswith(_BOM) else 0
        if not data.startswith(self.header, start):
            return None
        end = _LINE_END(data, start + len(self.header))
        if end is None:
            return None
        start = end.end()
        body = data[start:]
        if body[:1] in _ENDS or not (body.isascii() or is_text(body)):
            return None
        return (body if not body or body[-1:] in _ENDS else body + b"\n"), start

    def add(self, file: InputFile, body: bytes, start: int) -> None:
        """Adds a file; one without records has nothing to add."""
        if body:
            self.files.append(file)
            self.bodies.append(body)
            self.starts.append(start)
            self.size += len(body)

    def flush(self) -> Iterator[InputFile | JoinedFiles]:
        """Yields the files that wait, as one; each by itself where quotes forbid it."""
        files, bodies, starts = self.files, self.bodies, self.starts
        self._clear()
        if len(files) < 2:
            yield from files
            return
        text = b"".join(bodies)
        begins = np.cumsum([0, *map(len, bodies)])
        records, lines, _, scan = scanned(text, self.dialect)
        # Where files begin, records must begin; the last ones end with the text.
        records = np.append(records, len(text))
        first_rows = np.searchsorted(records, begins)
        if scan.inside or (records[first_rows] != begins).any():
            yield from files
            return
        yield JoinedFiles(
            self.dialect,
            tuple(files),
            text,
            np.array(starts, np.int64),
            self.first_line,
            first_rows,
            np.searchsorted(lines, begins[:-1]),
        )
