"""Avro object container files as a table format, decoded by fastavro.

`avro_file` reads the blocks of a file, and `avro_schema` its types.

Source: https://avro.apache.org/docs/1.12.0/specification/
"""

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal

import pyarrow as pa

from transforms.core.model import Block
from transforms.errors import InputError
from transforms.formats.columnar.arrow_batches import (
    flat_columns,
    joined_sample,
    raw_rows,
    readable,
    runs_of,
)
from transforms.formats.columnar.arrow_types import CommonColumns, flat_types
from transforms.formats.columnar.avro_file import AvroFile
from transforms.formats.table import (
    InputFile,
    Planned,
    RawRows,
    SourceFile,
    TableReader,
)

_TITLE = "Avro"
_SAMPLE_BYTES = 16 << 20
_PLACES = 64


@dataclasses.dataclass(frozen=True, slots=True)
class AvroReader(TableReader):
    """Avro files with the same columns; each has a schema of its own.

    Attributes:
      null_values: see `TableReader`.
    """

    title: ClassVar[str] = _TITLE
    content: ClassVar[Literal["none", "read", "all"]] = "read"

    null_values: tuple[str, ...] = ()

    def plan(self, files: Sequence[InputFile]) -> Planned:
        """Samples blocks spread evenly over the files."""
        if not files:
            raise InputError("a sample needs at least one Avro file; found none")
        common = CommonColumns()
        parts: list[dict[str, pa.Array]] = []
        sampled = 0
        complete = True
        for file in files:
            with _opened(file) as avro:
                common.add(file.origin, flat_types(avro.schema, file.origin))
                budget = max(_SAMPLE_BYTES // len(files), 1 << 16)
                found = avro.some(budget, max(_PLACES // len(files), 1))
                parts += [flat_columns(batch) for batch in found.batches]
                sampled += found.stored_bytes
                complete &= found.complete
        sample = joined_sample(
            common.columns,
            parts,
            total_rows=None,
            sampled_bytes=sampled,
            complete=complete,
        )
        if complete:
            rows = sample.rows + sample.unread
            sample = dataclasses.replace(sample, total_rows=rows)
        return Planned(self, sample)

    def blocks(
        self, file: InputFile, *, block_bytes: int, limit_rows: int | None
    ) -> Iterator[Block]:
        """Yields runs of the file's blocks, of `block_bytes` or more."""
        with _opened(file) as avro:
            frames = avro.frames(avro.start, avro.size)
            parts = ((frame.rows, frame.stop) for frame in frames)
            for run in runs_of(parts, avro.start, block_bytes, limit_rows):
                yield file.block(
                    run.start,
                    run.stop,
                    rows=run.rows,
                    before=run.start,
                    first_row=run.first_row,
                )

    def read(
        self, file: SourceFile, block: Block, columns: Sequence[str]
    ) -> Iterator[RawRows]:
        """Yields the rows of a block in pieces of about 4 MiB, once unpacked."""
        left = block.rows
        first = block.first_row
        with _opened(file) as avro:
            for frame in avro.pieces(block.start, block.stop):
                batch = avro.decoded(frame).slice(0, left)
                left -= batch.num_rows
                piece = dataclasses.replace(
                    block,
                    start=frame.start,
                    stop=frame.stop,
                    first_row=first,
                    rows=batch.num_rows,
                    position=block.position + frame.start - block.start,
                )
                first += batch.num_rows
                yield raw_rows(piece, flat_columns(batch, columns), columns)
                if not left:
                    return
        raise InputError(
            f"{block.origin}: {block.rows} rows must follow row {block.first_row}, but "
            f"{block.rows - left} were found. Fetch or write it again."
        )


@contextlib.contextmanager
def _opened(file: SourceFile) -> Iterator[AvroFile]:
    with readable(file.origin, _TITLE), file.open() as stream:
        yield AvroFile(stream, file.origin)
