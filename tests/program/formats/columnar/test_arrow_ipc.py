"""Tests of `unit/formats/columnar/test_arrow_ipc.py` that start processes."""

import pathlib

import pyarrow as pa
import pyarrow.feather
import pytest

from tests.support.arrow_ipc import DAMAGE, empty, write
from tests.support.runs import python


@pytest.mark.parametrize("stream", [False, True])
def test_damage_anywhere_is_an_error_and_no_crash(
    tmp_path: pathlib.Path, stream: bool
) -> None:
    """Eight bytes overwritten, at every place of the file: never a read outside."""
    table = pa.table({"t": ["one", "two", None], "l": [[1], [], [2, 3]]})
    write(tmp_path / "whole", table, stream=stream)
    done = python("-c", DAMAGE, tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    read, refused = map(int, done.stdout.strip("[]\n").split(","))
    # Values themselves and padding may be overwritten without a sign.
    assert refused > 20
    assert read > 0


def test_unions_without_rows_are_no_crash(tmp_path: pathlib.Path) -> None:
    """A batch may be empty; Arrow's own count of its bytes reads beyond a buffer."""
    union = pa.UnionArray.from_sparse(
        pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["a", "b"])]
    )
    table = pa.table({"u": union, "n": [1, 2]})
    with pa.ipc.new_file(tmp_path / "a.arrow", table.schema) as writer:
        writer.write_batch(empty(table))
        writer.write_table(table)
    source, output = tmp_path / "a.arrow", tmp_path / "out"
    run = python("-m", "beam_pipeline", "plan", source, output)
    assert run.returncode == 4, run
    assert "column 'u' must be of single values" in run.stderr
