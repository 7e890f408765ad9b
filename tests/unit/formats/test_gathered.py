"""Runs of small files: cut by content, and bounded."""

import numpy as np
import pyarrow as pa
import pytest

from transforms.core.model import Block
from transforms.core.schema import Feature, Kind, Schema
from transforms.formats.csv.sample import CsvReader
from transforms.formats.file_runs import TableSource, gathered, run_files_of, run_stop
from transforms.formats.input_files import InlineListing, InputFiles
from transforms.formats.raw_rows import RawRows
from transforms.formats.table import SMALL_BYTES, InputFile

BLOCK = 8 << 20
SCHEMA = Schema((Feature("a", Kind.INT64),))


def source_of(names: list[str], size: int = 4_000) -> TableSource:
    """Returns a source of files of one size."""
    inputs = [
        InputFile(name, name, size, at * size, stamp=7) for at, name in enumerate(names)
    ]
    run_files = _run_files(names, size)
    listing = InlineListing.of(InputFiles.of(inputs, root="").table)
    reader = CsvReader(names=("a",))
    return TableSource(
        reader, "", listing, SCHEMA, block_bytes=BLOCK, run_files=run_files
    )


def blocks_of(source: TableSource) -> dict[str, int]:
    """Returns the digest of each block's input, and how many files it has."""
    blocks = [block for number in source.inputs() for block in source.blocks(number)]
    starts = [block.start for block in blocks]
    assert starts == [0, *(block.stop for block in blocks[:-1])]
    return {
        source.input_digest(block, by_position=False): block.stop - block.start
        for block in blocks
    }


@pytest.mark.parametrize("change", ["first", "middle", "removed"])
def test_a_file_more_or_less_touches_few_runs(change: str) -> None:
    """Of 10,000 files few are read again when one comes or goes: see the bound."""
    names = [f"f{number:06}.csv" for number in range(10_000)]
    before = blocks_of(source_of(names))
    if change == "removed":
        del names[5_000]
    else:
        at = 0 if change == "first" else 5_000
        names.insert(at, "a.csv" if change == "first" else "f004999x.csv")
    after = blocks_of(source_of(names))
    again = sum(files for digest, files in after.items() if digest not in before)
    assert sum(after.values()) == len(names)
    assert again < (100 if change == "first" else 200)


def test_runs_are_bounded() -> None:
    """No run is longer than four times the mean, or a block; a large file ends one."""
    names = [f"{number:06}" for number in range(2_000)]
    sizes = [100] * len(names)
    at = 0
    lengths = []
    while at < len(names):
        stop = run_stop(names[at:], sizes[at:], run_files=16, block_bytes=BLOCK)
        lengths.append(stop)
        at += stop
    assert min(lengths[:-1]) >= 2
    assert max(lengths) <= 64
    assert 12 <= np.mean(lengths) <= 24
    assert run_stop(names[:8], [100] * 8, run_files=16, block_bytes=250) == 2
    assert run_stop(names[:2], [100, 2 * SMALL_BYTES], run_files=16, block_bytes=1) == 1
    assert run_stop(names[:1], [2 * SMALL_BYTES], run_files=16, block_bytes=1) == 0


def _run_files(names: list[str], size: int) -> int:
    sizes = np.full(len(names), size)
    return run_files_of(pa.array(names), sizes, block_bytes=BLOCK)


def test_what_is_gathered() -> None:
    """Many small files in the order of their paths."""
    names = [f"{number:06}" for number in range(1_000)]
    assert _run_files(names, 100) == 8
    many = [f"{number:06}" for number in range(3_000)]
    assert _run_files(many, 100) == 16
    assert _run_files(names[:9], 100) == 0
    assert _run_files(names[::-1], 100) == 0
    assert _run_files(names, 2 * SMALL_BYTES) == 0
    # Full runs would all move with the first one.
    assert _run_files(names, SMALL_BYTES) == 2


def test_columns_that_differ_are_not_joined() -> None:
    """Rows of other types, or beyond the bytes allowed, are batches of their own."""
    raws = [
        RawRows(Block(f"{i}", 0, 9, rows=2), {"a": pa.array(cells)}, np.arange(2))
        for i, cells in enumerate([[1, 2], [3, 4], ["x", "y"], [5, 6]])
    ]
    found = [*gathered(raws, most_bytes=BLOCK)]
    assert [raw.columns["a"].to_pylist() for raw in found] == [
        *([1, 2, 3, 4], ["x", "y"], [5, 6]),
    ]
    assert found[0].origins is not None
    assert found[0].origins.to_pylist() == ["0", "0", "1", "1"]
    assert found[0].numbers.tolist() == [0, 1, 0, 1]
    assert len([*gathered(raws, most_bytes=20)]) == 4
