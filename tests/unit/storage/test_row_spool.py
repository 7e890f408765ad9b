"""Rows in a temporary file, and sorted beyond memory."""

import os
from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms.storage import row_spool
from transforms.storage.row_spool import RowSorter, RowSpool

SCHEMA = pa.schema({"path": pa.binary(), "number": pa.int64()})


def rows(*paths: bytes, first: int = 0) -> pa.RecordBatch:
    numbers = range(first, first + len(paths))
    return pa.record_batch([pa.array(paths, pa.binary()), [*numbers]], schema=SCHEMA)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Lets few rows be too many for memory."""
    with monkeypatch.context() as patched:
        patched.setattr(row_spool, "_HELD_BYTES", 60)
        patched.setattr(row_spool, "_RUN_BYTES", 100)
        patched.setattr(row_spool, "_BATCH_BYTES", 40)
        patched.setattr(row_spool, "_MOST_RUNS", 3)
        yield


@pytest.mark.parametrize("count", [0, 1, 3, 50])
def test_rows_come_back_in_each_pass(count: int) -> None:
    """All rows come back in order, in passes at the same time, held or spooled."""
    spool = RowSpool(SCHEMA)
    for number in range(count):
        spool.append(rows(b"%d" % number, first=number))
    assert len(spool) == count
    passes = zip(spool.batches(), spool.batches(), strict=True)
    found = [(a["number"][0].as_py(), b["number"][0].as_py()) for a, b in passes]
    assert found == [(number, number) for number in range(count)]
    assert spool.table()["number"].to_pylist() == [*range(count)]


def test_many_runs_are_few_open_files() -> None:
    """Runs are merged before they are many open files."""
    before = len(os.listdir("/proc/self/fd"))
    sorter = RowSorter(SCHEMA, "path")
    for first in range(0, 700, 7):
        sorter.add(rows(*(b"%03d" % (first * 11 % 700 + n) for n in range(7))))
        assert len(os.listdir("/proc/self/fd")) <= before + 4
    found = sorter.sorted().table()["path"].to_pylist()
    assert found == [b"%03d" % n for n in range(700)]


def test_file_goes_with_the_rows() -> None:
    """The temporary file has no name, and is closed with its rows."""
    before = os.listdir("/proc/self/fd")
    spool = RowSpool(SCHEMA)
    spool.append(rows(*[b"x" * 50] * 9))
    assert len(os.listdir("/proc/self/fd")) == len(before) + 1
    del spool
    assert os.listdir("/proc/self/fd") == before


@given(
    st.lists(st.lists(st.binary(max_size=2), min_size=1, max_size=9), max_size=12),
    st.booleans(),
)
def test_sorter_is_like_sorted(parts: list[list[bytes]], unique: bool) -> None:
    """Rows are in the order of their keys; of equal keys only the last may be kept."""
    sorter = RowSorter(SCHEMA, "path", unique=unique)
    first = 0
    for part in parts:
        sorter.add(rows(*part, first=first))
        first += len(part)
    keys = [key for part in parts for key in part]
    wanted = sorted(keys)
    found = sorter.sorted().table()
    if unique:
        last = {key: number for number, key in enumerate(keys)}
        assert found.to_pydict() == {
            "path": sorted(last),
            "number": [last[key] for key in sorted(last)],
        }
    else:
        assert found["path"].to_pylist() == wanted
        numbers = found["number"].to_pylist()
        assert sorted(numbers) == [*range(first)]
        assert [keys[number] for number in numbers] == wanted
