"""Formats of many small files, one row each: a block is a run of the listing.

Files of one row would make a block each, and the work on a block that of a batch of
thousands. A `FileRunReader` reads a run of files at once; under a plain `TableSource`
it works too, one file a block.
"""

import abc
import dataclasses
import os
from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np

from transforms.core.model import Block, Reading
from transforms.errors import DamageError
from transforms.formats.source import run_facts
from transforms.formats.table import (
    InputFile,
    RawRows,
    TableReader,
    unreadable,
)
from transforms.formats.table_source import TableSource

__all__ = ["FileRunReader", "FileRunSource"]

# A few thousand rows are what makes a batch worth its while.
_BLOCK_FILES = 2048


class FileRunReader(TableReader):
    """How files of one row each are read."""

    many_origins: ClassVar[bool] = True

    @abc.abstractmethod
    def read_files(
        self, files: Sequence[InputFile], block: Block, columns: Sequence[str]
    ) -> Iterator[RawRows]:
        """Yields the rows of a run of files.

        `RawRows.numbers`, and those of complaints, are positions in `files`, and
        `RawRows.origins` says each row's file.
        """

    def blocks(
        self, file: InputFile, *, block_bytes: int, limit_rows: int | None
    ) -> Iterator[Block]:
        """Yields the one row of a file."""
        if limit_rows is None or limit_rows > 0:
            yield Block(
                file.origin,
                0,
                1,
                rows=1,
                position=file.position,
                stamp=file.stamp,
            )

    def read(
        self, file: InputFile, block: Block, columns: Sequence[str]
    ) -> Iterator[RawRows]:
        """Yields the one row of a file."""
        yield from self.read_files([file], block, columns)


@dataclasses.dataclass(frozen=True, slots=True)
class FileRunSource(TableSource):
    """The files of a format of one row a file; `reader` is a `FileRunReader`."""

    block_files: int = _BLOCK_FILES

    def inputs(self) -> Iterator[int]:
        """Yields the one listing."""
        yield 0

    def blocks(self, number: int) -> Iterator[Block]:
        """Yields runs of the listing; `start` and `stop` count files."""
        table = self._files()
        count = table.num_rows
        if self.limit is not None:
            count = min(count, self.limit)
        for start in range(0, count, self.block_files):
            stop = min(start + self.block_files, count)
            position = table["position"][start].as_py()
            yield Block(
                "", start, stop, first_row=start, rows=stop - start, position=position
            )

    def facts_of(self, block: Block, *, by_position: bool) -> bytes:
        """Returns the facts of the run's files as they were listed."""
        return run_facts(self._files(), block, by_position=by_position)

    def listed_as(self, number: int) -> tuple[str, int] | None:
        """Runs of the listing need no looking up."""
        return None

    def read(self, block: Block) -> Iterator[Reading]:
        """Yields the rows of a run of files that fit the schema, and the rest."""
        assert isinstance(self.reader, FileRunReader)
        table = self._files().slice(block.start, block.rows)
        files = [
            InputFile(
                row["path"],
                os.path.join(self.root, row["path"]),
                row["size"],
                row["position"],
                row["stamp"],
            )
            for row in table.to_pylist()
        ]
        try:
            for raw in self.reader.read_files(files, block, self.wanted):
                reading = self.reading(raw)
                batch = reading.batch
                # Each is the first row of its file.
                zeros = np.zeros(len(batch.numbers), np.int64)
                yield dataclasses.replace(
                    reading, batch=dataclasses.replace(batch, numbers=zeros)
                )
        except (OSError, DamageError) as error:
            path = getattr(error, "filename", None) or self.root
            raise unreadable(str(path), error) from error
