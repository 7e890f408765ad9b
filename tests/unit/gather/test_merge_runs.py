"""Many runs are merged in one more level; the rows stay what they are."""

import dataclasses
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from transforms.gather.cuts import Bounds, even_bounds
from transforms.gather.merge_runs import Merging, merge_ranges, plan_merging
from transforms.gather.row_runs import (
    COUNT_COLUMN,
    HASH_COLUMN,
    KEY_COLUMN,
    RowRun,
    cut_run,
    keep_pieces,
    pack_rows,
)
from transforms.gather.shard_of_runs import read_rows


def _none(*_given: Any) -> Any:
    return pytest.fail("all of it is inline")


def _run(values: list[int], keys: bool) -> RowRun:
    rows = pa.record_batch({"v": pa.array(values, pa.int64())})
    hashes = np.array([value * 0x9E3779B97F4A7C15 % 2**64 for value in values], "u8")
    names = pa.array([f"key {value}" for value in values]) if keys else None
    run, pieces, _ = pack_rows(
        rows, hashes, np.zeros(len(values), np.int64), ("train",), names
    )
    return keep_pieces(run, pieces, _none)


def _values(runs: list[RowRun], bounds: Bounds) -> list[list[int]]:
    """Returns the values of each shard; equal ones as often as they are there."""
    shards: list[list[int]] = [[] for _ in bounds.lows]
    for run in runs:
        for (_, shard), each in cut_run(run, {"train": bounds}):
            rows = read_rows(each, _none)
            counts = [1] * len(rows)
            if COUNT_COLUMN in rows.column_names:
                counts = rows[COUNT_COLUMN].to_pylist()
            for value, count in zip(rows["v"].to_pylist(), counts, strict=True):
                shards[shard] += [value] * count
    return [sorted(values) for values in shards]


@pytest.mark.parametrize("keys", [False, True])
def test_merged_runs_have_the_same_rows(keys: bool) -> None:
    """Whatever is merged with what; of equal rows a merged run holds one."""
    given = [[*range(i, 400, 7), *([5] * i if not keys else [])] for i in range(7)]
    runs = [_run(values, keys) for values in given]
    merging = Merging(parts=3, groups=2)
    groups: dict[tuple[int, int], list[Any]] = {}
    for run in runs:
        for (_, part), each in cut_run(run, {"train": even_bounds(merging.parts)}):
            groups.setdefault((part, merging.group_of(run)), []).append(each)
    merged = [
        run
        for ranges in groups.values()
        for run in merge_ranges(ranges, "train", _none, _none)
    ]
    bounds = even_bounds(10)
    assert _values(merged, bounds) == _values(runs, bounds)
    stored = sum(int(run.pieces["rows"].sum()) for run in merged)
    # One in each group with counts, and one in each without.
    assert 400 <= stored <= (400 if keys else 403)
    for run in merged:
        schema = pa.ipc.read_schema(pa.py_buffer(run.schema))
        assert HASH_COLUMN in schema.names
        assert (KEY_COLUMN in schema.names) == keys
        pieces = run.pieces
        assert (np.diff(pieces["first"].astype("u8")) >= 0).all()


def test_runs_of_other_types_stay_apart() -> None:
    """A merged run has one Arrow schema."""
    one = _run([1, 2, 3], True)
    rows = pa.record_batch({"v": ["a", "b"]})
    packed, pieces, _ = pack_rows(
        rows, np.array([4, 5], "u8"), np.zeros(2, np.int64), ("train",), None
    )
    other = keep_pieces(packed, pieces, _none)
    bounds = {"train": even_bounds(1)}
    ranges = [each for run in (one, other) for _, each in cut_run(run, bounds)]
    assert len(merge_ranges(ranges, "train", _none, _none)) == 2


@pytest.mark.parametrize(
    ("runs", "shards", "size"),
    [(3_000, 700, 3_000 << 25), (100_000, 8, 1 << 30), (20_000, 2_000, 20_000 << 25)],
)
def test_two_levels_have_fewer_ranges(runs: int, shards: int, size: int) -> None:
    """Before and after the merge there are fewer than a fifth of the ranges."""
    merging = plan_merging(runs, shards, size)
    assert merging is not None
    merged = merging.parts * merging.groups
    before = runs * merging.parts
    after = merged * (shards // merging.parts + 2)
    assert before + after < runs * shards / 5
    assert size / merged < 2 * (64 << 20)


def test_few_runs_are_not_merged() -> None:
    """Nothing is read twice where one level is enough."""
    assert plan_merging(1_000, 500, 1 << 40) is None
    assert plan_merging(0, 0, 0) is None


def test_a_group_is_known_by_the_run() -> None:
    """Not by the place where it is stored."""
    run = _run([1, 2, 3], False)
    merging = Merging(1, 7)
    assert merging.group_of(run) == merging.group_of(
        dataclasses.replace(run, path="/elsewhere/run.rows")
    )
