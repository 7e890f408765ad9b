"""Inputs that unpack to many times their size: refused, or never held at once."""

import pathlib
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.memory import LIMIT, converted
from tests.support.stress import sizes

Folder = pathlib.Path

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

ROWS = 6_000_000


@pytest.mark.stress
def test_a_row_of_gigabytes_is_refused(tmp_path: Folder) -> None:
    """The footer says what a row unpacks to; nothing of it is decoded."""
    column = pa.array([bytes(300 << 20)], pa.large_binary())
    path = tmp_path / "bomb.parquet"
    pq.write_table(pa.table({"x": column}), path, compression="brotli")
    assert path.stat().st_size < 10_000
    peak = converted(path, tmp_path)
    assert peak.code == 4
    assert "314,57" in peak.errors
    assert "bomb.parquet: rows of a row group must unpack to" in peak.errors
    assert peak.tree < LIMIT


@pytest.mark.parametrize("dictionary", sizes(True, False))
def test_a_constant_column_is_no_bomb(dictionary: bool, tmp_path: Folder) -> None:
    """Millions of rows in some kilobytes are converted, and not held at once."""
    path = tmp_path / "constant.parquet"
    table = pa.table({"x": np.full(ROWS, 7)})
    options = {"use_dictionary": dictionary, "row_group_size": ROWS}
    pq.write_table(table, path, compression="brotli", **options)
    assert path.stat().st_size < 100_000
    peak = converted(path, tmp_path, "--shards", "4")
    assert peak.code == 0, peak.errors
    assert peak.process < LIMIT
