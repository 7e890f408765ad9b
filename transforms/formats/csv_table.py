"""CSV files under one header as a planned source.

The listing is one Arrow IPC file, in source order:

    path      string  relative to the root
    position  int64   bytes of the files before it
    stamp     int64   of the file as it was listed; see `transforms.files.stamp`
"""

import dataclasses
import errno
import os
from collections.abc import Iterator
from typing import ClassVar

import pyarrow as pa

from transforms import files
from transforms.core.model import Batch, Block, Rejection
from transforms.core.schema import Schema
from transforms.errors import SourceError
from transforms.formats.csv_blocks import iter_blocks
from transforms.formats.csv_dialect import CsvDialect
from transforms.formats.csv_header import check_same_columns, read_header
from transforms.formats.csv_read import read_block
from transforms.formats.source import Source

__all__ = ["CsvTable"]


@dataclasses.dataclass(frozen=True, slots=True)
class CsvTable(Source):
    """CSV files under a listing.

    Attributes:
      root: folder that the listing's paths are relative to.
      listing: path of the Arrow IPC file.
      dialect: how the files are written.
      columns: the names of the columns, the same in every file.
      schema: the features.
      split_column: the column that says each row's split; empty for none.
      block_bytes: least size of a block.
      limit: read so many rows, the first in source order; None for all.
    """

    many_origins: ClassVar[bool] = False

    root: str
    listing: str
    dialect: CsvDialect
    columns: tuple[str, ...]
    schema: Schema
    split_column: str = ""
    block_bytes: int = 16 << 20
    limit: int | None = None

    def inputs(self) -> Iterator[int]:
        """Yields each file; with a limit, all files are one input."""
        yield from range(1 if self.limit is not None else self._files().num_rows)

    def blocks(self, number: int) -> Iterator[Block]:
        """Yields the blocks of a file; raises SourceError for what is no such CSV."""
        table = self._files()
        if self.limit is None:
            yield from self._blocks_of(table, number, None)
            return
        left = self.limit
        for index in range(table.num_rows):
            for block in self._blocks_of(table, index, left):
                left -= block.rows
                yield block
            if left <= 0:
                return

    def read(self, block: Block) -> tuple[Batch, list[Rejection]]:
        """Returns the rows of a block that fit the schema, and the rest."""
        path = os.path.join(self.root, block.origin)
        try:
            data = files.read_range(path, block.start, block.stop, stamp=block.stamp)
        except OSError as error:
            raise _unreadable(path, error) from error
        return read_block(
            data,
            block,
            self.dialect,
            self.columns,
            self.schema,
            split_column=self.split_column,
        )

    def _files(self) -> pa.Table:
        with pa.memory_map(self.listing) as source:
            return pa.ipc.open_file(source).read_all()

    def _blocks_of(
        self, table: pa.Table, index: int, limit: int | None
    ) -> Iterator[Block]:
        origin = table["path"][index].as_py()
        position = table["position"][index].as_py()
        stamp = table["stamp"][index].as_py()
        path = os.path.join(self.root, origin)
        try:
            with files.open_input(path) as stream:
                if files.stamp_of(stream) != stamp:
                    raise OSError(errno.ESTALE, "it has changed since it was listed")
                names = read_header(stream, self.dialect, origin)
                check_same_columns("the first file", self.columns, origin, names)
                for block in iter_blocks(
                    stream,
                    origin,
                    self.dialect,
                    block_bytes=self.block_bytes,
                    limit_rows=limit,
                ):
                    yield dataclasses.replace(
                        block, position=position + block.start, stamp=stamp
                    )
        except OSError as error:
            raise _unreadable(path, error) from error


def _unreadable(path: str, error: OSError) -> SourceError:
    return SourceError(
        f"Every file of the source must stay as it is, and readable, during the run; "
        f"{path!r} did not: {error.strerror}. Run again."
    )
