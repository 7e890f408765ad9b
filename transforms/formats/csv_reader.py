"""CSV as a table format: plain files in blocks, compressed ones piece by piece."""

import dataclasses
import errno
import io
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

from transforms import files
from transforms.core.model import Block
from transforms.formats.csv_blocks import iter_blocks
from transforms.formats.csv_dialect import CsvDialect
from transforms.formats.csv_header import check_same_columns, read_header
from transforms.formats.csv_read import read_raw
from transforms.formats.csv_sample import sample_blocks
from transforms.formats.table import (
    InputFile,
    RawRows,
    TableReader,
    TableSample,
)
from transforms.formats.unpacked import is_packed, open_unpacked, plain_name

__all__ = ["CsvReader"]

# Pieces of a compressed file, of its content.
_PIECE_BYTES = 16 << 20
# Content of compressed files that a sample reads.
_SAMPLE_BYTES = 8 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class CsvReader(TableReader):
    """CSV files under one header.

    Attributes:
      delimiter: between fields; None for a tab where all files are .tsv, else a comma.
      quote, escape, header, columns, encoding: see `CsvDialect`.
      names: the names of all columns, once they are known.
    """

    title: ClassVar[str] = "CSV"
    texts_checked: ClassVar[bool] = True

    delimiter: str | None = None
    quote: str = '"'
    escape: str = ""
    header: bool = True
    columns: tuple[str, ...] | None = None
    encoding: str = "utf-8"
    names: tuple[str, ...] = ()

    @property
    def dialect(self) -> CsvDialect:
        """How the files are written."""
        return CsvDialect(
            delimiter="," if self.delimiter is None else self.delimiter,
            quote=self.quote,
            header=self.header,
            columns=self.columns,
            encoding=self.encoding,
        )

    def _of(self, files_: Sequence[InputFile]) -> "CsvReader":
        tabs = all(plain_name(f.origin).lower().endswith(".tsv") for f in files_)
        if self.delimiter is not None or not tabs:
            return self
        return dataclasses.replace(self, delimiter="\t")

    def sample(self, files_: Sequence[InputFile]) -> TableSample:
        """Returns rows as text, from places spread evenly over the files."""
        reader = self._of(files_)
        if any(is_packed(file.path) for file in files_):
            return reader._packed_sample(files_)
        sample = sample_blocks(
            [(file.origin, file.size, _opener(file.path)) for file in files_],
            reader.dialect,
        )
        total = sample.rows + sample.miscounted
        complete = sample.sampled_bytes == 0 or sample.complete
        return TableSample(
            sample.columns,
            sample.rows,
            unread=sample.miscounted,
            sampled_bytes=sample.sampled_bytes,
            total_rows=total if complete else None,
            complete=complete,
        )

    def _packed_sample(self, files_: Sequence[InputFile]) -> TableSample:
        """Returns the first rows of each file; compressed content has no middle."""
        each = max(_SAMPLE_BYTES // len(files_), 1 << 18)
        inputs = []
        used = whole = 0
        for file in files_:
            if is_packed(file.path):
                with open_unpacked(file.path, file.origin) as stream:
                    text, ended = _start_of(stream, each)
                    used += min(stream.consumed, file.size)
            else:
                with files.open_input(file.path) as plain:
                    text, ended = _start_of(plain, each)
                    used += len(text)
            whole += ended
            inputs.append((file.origin, text, ended))
        sample = sample_blocks(
            [(origin, len(text), _memory(text)) for origin, text, _ in inputs],
            self.dialect,
            ended=[ended for _, _, ended in inputs],
        )
        complete = whole == len(inputs)
        total = sample.rows + sample.miscounted
        return TableSample(
            sample.columns,
            sample.rows,
            unread=sample.miscounted,
            sampled_bytes=used,
            total_rows=total if complete else None,
            complete=complete,
        )

    def planned(self, sample: TableSample, files_: Sequence[InputFile]) -> "CsvReader":
        """Returns the reader that knows the names of all columns."""
        return dataclasses.replace(self._of(files_), names=tuple(sample.columns))

    def blocks(
        self, file: InputFile, *, block_bytes: int, limit_rows: int | None
    ) -> Iterator[Block]:
        """Yields the blocks of a file; a compressed file is one."""
        with files.open_input(file.path) as stream:
            if files.stamp_of(stream) != file.stamp:
                raise OSError(errno.ESTALE, "it has changed since it was listed")
        if is_packed(file.path):
            yield from self._packed_block(file, limit_rows)
            return
        with files.open_input(file.path) as stream:
            self._check_header(stream, file.origin)
            for block in iter_blocks(
                stream,
                file.origin,
                self.dialect,
                block_bytes=block_bytes,
                limit_rows=limit_rows,
            ):
                yield dataclasses.replace(
                    block, position=file.position + block.start, stamp=file.stamp
                )

    def _packed_block(self, file: InputFile, limit: int | None) -> Iterator[Block]:
        rows = 0
        with open_unpacked(file.path, file.origin) as stream:
            self._check_header(stream, file.origin)
            if limit is not None:
                for block in iter_blocks(
                    stream,
                    file.origin,
                    self.dialect,
                    block_bytes=_PIECE_BYTES,
                    limit_rows=limit,
                ):
                    rows += block.rows
                    stream.forget(block.stop)
        yield Block(
            file.origin,
            0,
            file.size,
            rows=rows,
            position=file.position,
            stamp=file.stamp,
        )

    def read(
        self, file: InputFile, block: Block, columns: Sequence[str]
    ) -> Iterator[RawRows]:
        """Yields the rows of a block; those of a compressed file in pieces."""
        if not is_packed(file.path):
            data = files.read_range(
                file.path, block.start, block.stop, stamp=block.stamp
            )
            yield read_raw(data, block, self.dialect, self.names, columns)
            return
        with open_unpacked(file.path, file.origin) as stream:
            for piece in iter_blocks(
                stream,
                file.origin,
                self.dialect,
                block_bytes=_PIECE_BYTES,
                limit_rows=block.rows or None,
            ):
                data = stream.take(piece.start, piece.stop)
                stream.forget(piece.stop)
                at = block.position + min(stream.consumed, block.stop)
                placed = dataclasses.replace(piece, position=at, stamp=block.stamp)
                yield read_raw(data, placed, self.dialect, self.names, columns)

    def _check_header(self, stream: Any, origin: str) -> None:
        names = read_header(stream, self.dialect, origin)
        check_same_columns("the first file", self.names, origin, names)


def _start_of(stream: Any, size: int) -> tuple[bytes, bool]:
    """Returns up to `size` bytes, and whether they are all there is."""
    parts = []
    left = size
    while left and (part := stream.read(left)):
        parts.append(part)
        left -= len(part)
    return b"".join(parts), not stream.read(1)


def _opener(path: str) -> Callable[[], Any]:
    return lambda: files.open_input(path)


def _memory(data: bytes) -> Callable[[], Any]:
    return lambda: io.BytesIO(data)
