"""CSV as a table format: plain files in blocks, compressed files as a stream."""

import dataclasses
import functools
import io
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal, Self

from transforms.core.model import Block
from transforms.formats.csv.blocks import iter_blocks
from transforms.formats.csv.dialect import HEAD_BYTES, CsvDialect, sep_line
from transforms.formats.csv.header import (
    Header,
    check_same_columns,
    read_header,
)
from transforms.formats.csv.header_check import HeaderCheck
from transforms.formats.csv.joined import (
    JoinedFiles,
    join_files,
    may_join,
    read_joined,
)
from transforms.formats.csv.read import read_raw
from transforms.formats.file_names import plain_name
from transforms.formats.table import (
    InputFile,
    RawRows,
    SourceFile,
    TableReader,
    unreadable,
)
from transforms.formats.whole_files import (
    Unpacked,
    is_packed,
    open_content,
    open_unpacked,
)
from transforms.storage.files import read_ahead, storage
from transforms.storage.paths import is_remote

# Pieces of the content of a compressed file.
_PIECE_BYTES = 16 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class CsvFiles(TableReader):
    """CSV files under one header.

    Attributes:
      delimiter: between fields; None for a tab in files named .tsv, else a comma.
      header: whether the first row is a header; None for yes, if it does not look like
        data.
      quote, escape, columns, encoding, trim: see `CsvDialect`.
      null_values, decimal: see `TableReader`.
      sep_lines: whether files may begin with a line such as sep=; of Excel, and are
        looked at for it; such a line is no row, and `delimiter` overrules it.
      names: the names of all columns, once they are known.
      named_in: the file that they were read from.
      beside: see `TableReader`.
    """

    title: ClassVar[str] = "CSV"
    texts_checked: ClassVar[bool] = True
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
    sep_lines: bool = False
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
        if not self.sep_lines:
            return dialect
        stream.seek(0)
        said = sep_line(stream.read(HEAD_BYTES), dialect, origin)
        stream.seek(0)
        if not said:
            return dialect
        delimiter = self.delimiter or said
        return dataclasses.replace(dialect, delimiter=delimiter, sep_line=True)

    def _dialect_for(self, file: SourceFile) -> CsvDialect:
        """Returns how a file is written that is not compressed."""
        if not self.sep_lines:
            return self.dialect_of(file.origin)
        with file.open() as stream:
            return self.dialect_in(stream, file.origin)

    @property
    def header_check(self) -> HeaderCheck | None:
        """What judges first rows; None if it is known whether they are headers."""
        if self.header is not None:
            return None
        return HeaderCheck(self.null_values, self.decimal)

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
            packed = isinstance(stream, Unpacked)
            if packed and limit_rows is None:
                yield file.whole()
                return
            rows = 0
            for block in iter_blocks(
                stream,
                file.origin,
                dialect,
                block_bytes=_PIECE_BYTES if packed else block_bytes,
                limit_rows=limit_rows,
            ):
                if isinstance(stream, Unpacked):
                    rows += block.rows
                    stream.forget(block.stop)
                else:
                    yield file.placed(block)
            if packed:
                yield file.whole(rows=rows)

    def read(
        self, file: SourceFile, block: Block, columns: Sequence[str]
    ) -> Iterator[RawRows]:
        """Yields the rows of a block; those of a compressed file in pieces."""
        stamp = block.stamp
        if not is_packed(file.path):
            # Pass the buffer directly: a local variable would keep it alive.
            yield read_raw(
                storage(file.path).read_range(block.start, block.stop, stamp=stamp),
                block,
                self._dialect_for(file),
                self.names,
                columns,
                self.beside,
            )
            return
        with open_unpacked(file.path, file.origin, stamp=stamp) as stream:
            dialect = self.dialect_in(stream, file.origin)
            for piece in iter_blocks(
                stream,
                file.origin,
                dialect,
                block_bytes=_PIECE_BYTES,
                limit_rows=block.rows or None,
            ):
                data = stream.take(piece.start, piece.stop)
                stream.forget(piece.stop)
                at = block.position + min(stream.consumed, block.stop)
                placed = dataclasses.replace(piece, position=at, stamp=stamp)
                yield read_raw(data, placed, dialect, self.names, columns, self.beside)

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
        dialect = self._dialect_for(file)
        if not may_join(file.size, dialect):
            return file, dialect, None
        try:
            return file, dialect, storage(file.path).read_bytes(stamp=file.stamp)
        except OSError as error:
            raise unreadable(file.path, error) from error

    def _header_of(self, data: bytes, file: InputFile) -> bytes:
        _, header = self.begun(io.BytesIO(data), file.origin)
        return header.record

    def begun(self, stream: Any, origin: str) -> tuple[CsvDialect, Header]:
        """Returns how an open file is written, and its header, which is checked."""
        dialect = self.dialect_in(stream, origin)
        header = read_header(stream, dialect, origin)
        check_same_columns(self.named_in, self.names, origin, header.names)
        return dialect, header


# Of thousands of files, that is cheaper than to check its fields for each.
_dialect = functools.lru_cache(maxsize=8)(CsvDialect)
