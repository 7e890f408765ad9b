"""Helpers of the tests of table readers: plan, cut, read and join again."""

import dataclasses
import os
import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from transforms.core.model import Block
from transforms.core.reasons import Rejection
from transforms.core.schema import Schema
from transforms.formats.file_runs import TableSource
from transforms.formats.input_files import InputFiles
from transforms.formats.table import (
    InputFile,
    Planned,
    SourceFile,
    TableFormat,
    TableReader,
    TableSample,
)
from transforms.storage import paths


@dataclasses.dataclass
class Read:
    """All that a reader gave: columns as Python values, and what was refused."""

    columns: dict[str, list[Any]]
    numbers: list[tuple[str, int]]
    rejections: list[Rejection]
    blocks: list[Block]
    pieces: list[Block]
    planned: Planned
    reader: TableReader

    @property
    def sample(self) -> TableSample:
        return self.planned.sample


def listed(folder: Any, names: Sequence[str]) -> list[InputFile]:
    """Returns files of a folder as a planned source lists them."""
    out: list[InputFile] = []
    position = 0
    for name in names:
        path = os.path.join(folder, name)
        status = os.stat(path)
        stamp = paths.stamp(status.st_size, status.st_mtime_ns)
        out.append(InputFile(name, path, status.st_size, position, stamp=stamp))
        position += status.st_size
    return out


def read_all(
    format_: TableFormat,
    folder: Any,
    names: Sequence[str],
    *,
    block_bytes: int = 1 << 20,
    limit: int | None = None,
    wanted: Sequence[str] | None = None,
) -> Read:
    """Samples, plans, cuts and reads; checks what holds for every format."""
    inputs = listed(folder, names)
    planned = format_.plan(inputs)
    # As it travels to a worker.
    reader = pickle.loads(pickle.dumps(planned.reader))
    chosen = list(planned.sample.columns) if wanted is None else list(wanted)
    out = Read({name: [] for name in chosen}, [], [], [], [], planned, reader)
    for file in inputs:
        seen: set[int] = set()
        expected = 0
        before = file.position
        for block in reader.blocks(file, block_bytes=block_bytes, limit_rows=limit):
            assert block.origin == file.origin
            assert block.stamp == file.stamp
            out.blocks.append(block)
            bare = SourceFile(file.origin, file.path, stamp=file.stamp)
            for raw in reader.read(bare, block, chosen):
                piece = raw.block
                assert piece.start not in seen
                assert not seen or piece.start > max(seen)
                seen.add(piece.start)
                assert piece.first_row == expected
                expected += piece.rows
                assert before <= piece.position <= file.position + file.size
                before = piece.position
                refused = {number for number, _, _ in raw.refused}
                found = {*raw.numbers.tolist(), *refused}
                rows = range(piece.first_row, piece.first_row + piece.rows)
                assert found == set(rows)
                assert len(raw.numbers) + len(refused) == piece.rows
                assert np.all(np.diff(raw.numbers) > 0)
                out.pieces.append(piece)
                out.numbers += [(file.origin, n) for n in raw.numbers.tolist()]
                if raw.reject is not None:
                    out.rejections += raw.reject(sorted(raw.refused))
                for name in chosen:
                    assert isinstance(raw.columns[name], pa.Array)
                    assert len(raw.columns[name]) == len(raw.numbers)
                    out.columns[name] += raw.columns[name].to_pylist()
    return out


def read_later(
    reader: TableReader, folder: Any, name: str, columns: Sequence[str]
) -> tuple[list[Rejection], list[dict[str, Any]]]:
    """Returns what a planned reader refuses of another file, and the rows it gives."""
    (file,) = listed(folder, [name])
    rejections: list[Rejection] = []
    rows: list[dict[str, Any]] = []
    for block in reader.blocks(file, block_bytes=1 << 20, limit_rows=None):
        for raw in reader.read(file, block, columns):
            assert raw.reject is not None
            rejections += raw.reject(sorted(raw.refused))
            values = zip(*(raw.columns[n].to_pylist() for n in columns), strict=True)
            rows += [dict(zip(columns, row, strict=True)) for row in values]
    return rejections, rows


def rows_of(read: Read) -> list[dict[str, Any]]:
    """Returns the rows as mappings."""
    names = list(read.columns)
    return [
        dict(zip(names, values, strict=True))
        for values in zip(*read.columns.values(), strict=True)
    ]


def source_of(
    reader: TableReader,
    folder: Any,
    names: Sequence[str],
    schema: Schema,
    **settings: Any,
) -> TableSource:
    """Returns a planned source over a listing on disk."""
    inputs = listed(folder, names)
    path = os.path.join(folder, "listing.arrow.tmp")
    table = InputFiles.of(inputs, root=folder).table
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)
    planned: Any = reader.plan(inputs).reader
    return TableSource(planned, str(folder), path, schema, **settings)
