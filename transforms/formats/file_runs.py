"""Formats of one row a file: a block is a run of the listing.

A block has a fixed cost that pays for thousands of rows: one for each file would be
slow. A `RunReader` reads a run of the listing at once.
"""

import abc
import dataclasses
from collections.abc import Iterator, Sequence
from typing import ClassVar

import pyarrow as pa

from transforms.core.model import Block, Reading
from transforms.errors import DamageError
from transforms.formats.source import opened
from transforms.formats.table import (
    RawRows,
    RowReader,
    unreadable,
)
from transforms.formats.table_source import RowSource

# The cost of a block is small beside that of a few thousand rows.
_BLOCK_ROWS = 2048


class RunReader(abc.ABC, RowReader):
    """How a run of a listing is read."""

    many_origins: ClassVar[bool] = True
    origins_name_rows: ClassVar[bool] = True

    @abc.abstractmethod
    def read_run(
        self, run: pa.Table, root: str, block: Block, columns: Sequence[str]
    ) -> Iterator[RawRows]:
        """Yields the rows of a run.

        `RawRows.origins` says each row's file. What complaints call a row is its place
        in the run: see `RawRows.places`.

        Args:
          run: the rows of the listing.
          root: folder that its paths are relative to.
          block: the run as a block.
          columns: the names of the columns that are wanted.
        """


@dataclasses.dataclass(frozen=True, slots=True)
class RunSource(RowSource):
    """The rows of a format of one row a file, under a listing.

    Attributes:
      block_rows: rows of a block.
    """

    reader: RunReader
    block_rows: int = _BLOCK_ROWS

    def inputs(self) -> Iterator[int]:
        """Yields the one listing."""
        yield 0

    def blocks(self, number: int) -> Iterator[Block]:
        """Yields runs of the listing; `start` and `stop` count its rows."""
        with opened(self.listing) as listing:
            count = listing.count
            if self.limit is not None:
                count = min(count, self.limit)
            before = 0
            for piece in listing.pieces():
                first = -before % self.block_rows
                for place in range(first, piece.num_rows, self.block_rows):
                    start = before + place
                    stop = min(start + self.block_rows, count)
                    if start < stop:
                        position = piece["position"][place].as_py() or 0
                        yield Block("", start, stop, start, 1, stop - start, position)
                before += piece.num_rows

    def read(self, block: Block) -> Iterator[Reading]:
        """Yields the rows of a run that fit the schema, and the rest."""
        run = self._run(block)
        try:
            for raw in self.reader.read_run(run, self.root, block, self.wanted):
                yield self.reading(raw)
        except (OSError, DamageError) as error:
            path = getattr(error, "filename", None) or self.root
            raise unreadable(str(path), error) from error
