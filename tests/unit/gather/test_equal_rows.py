"""Equal rows are one row and a count in their run, and many rows in their shard."""

import decimal
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from transforms.core.placing.placement import SplitRule, SplitSource
from transforms.core.schema import Feature, Kind, Schema
from transforms.gather.bundle import BundleRows, GatherRule
from transforms.gather.cuts import even_bounds
from transforms.gather.equal_rows import first_of_equals
from transforms.gather.row_runs import COUNT_COLUMN, cut_run, schema_of
from transforms.gather.shard_of_runs import gather_shard
from transforms.gather.tally import infer

NAN = float("nan")


def _all_tied(count: int) -> Any:
    return np.arange(count) > 0


@pytest.mark.parametrize(
    ("values", "different"),
    [
        ([1, 1, 2, None, None, 2], [True, False, True, True, False, True]),
        ([0.0, -0.0, NAN, NAN, None], [True, True, True, False, True]),
        (["a", "a", "", None, ""], [True, False, True, True, True]),
        ([b"a", b"a", b"b"], [True, False, True]),
        ([True, True, False, None], [True, False, True, True]),
        ([[1, 2], [1, 2], [1], [], None, []], [True, False, True, True, True, True]),
        ([[], [], [1, None], [1, None], [1, 1]], [True, False, True, False, True]),
        ([["a"], ["a"], ["a", "b"], ["b", "a"]], [True, False, True, True]),
        ([[[1], [2]], [[1], [2]], [[1, 2]]], [True, False, True]),
        ([{"a": 1}, {"a": 1}, {"a": 2}, None, {"a": None}], [True, False, *[True] * 3]),
        # What is not compared counts as different.
        ([decimal.Decimal(1), decimal.Decimal(1)], [True, True]),
    ],
)
def test_rows_are_compared_by_their_values(
    values: list[Any], different: list[bool]
) -> None:
    """Nulls are equal, floats by their bits, lists by their items."""
    rows = pa.record_batch({"v": pa.array(values)})
    assert first_of_equals(rows, _all_tied(len(values))).tolist() == different
    sliced = pa.record_batch({"v": pa.array([values[0], *values]).slice(1)})
    assert first_of_equals(sliced, _all_tied(len(values))).tolist() == different


def test_every_column_counts_and_only_ties_are_looked_at() -> None:
    """One column that differs is enough; a row that is not tied is taken as it is."""
    rows = pa.record_batch({"a": [1, 1, 1, 1], "b": ["x", "x", "y", "y"]})
    tied = np.array([False, True, True, False])
    assert first_of_equals(rows, tied).tolist() == [True, False, True, True]


def _gathered(rows: list[dict[str, Any]], bundles: int) -> tuple[list[Any], Any, Any]:
    rule = GatherRule(SplitRule(SplitSource.COLUMN), split_column="part")
    runs: list[Any] = []
    tallies: list[Any] = []
    for number in range(bundles):
        bundle = BundleRows(
            rule,
            lambda pieces: pytest.fail("it is small"),
            lambda paths: {},
            lambda rejected: None,
        )
        for row in rows[number::bundles]:
            bundle.add(row)
        found = bundle.finish()
        assert found is not None
        runs += found.runs
        tallies.append(found)
    bounds = {"train": even_bounds(1), "test": even_bounds(1)}
    ranges = [each for run in runs for each in cut_run(run, bounds)]
    return runs, ranges, tallies


@pytest.mark.parametrize("bundles", [1, 3])
def test_a_shard_has_all_of_the_equal_rows(bundles: int) -> None:
    """In each split, beside rows that are there once; runs hold each of them once."""
    rows = [{"v": "same", "x": NAN, "part": "train"}] * 900
    rows += [{"v": "same", "x": NAN, "part": "test"}] * 30
    rows += [{"v": f"row {i}", "x": i / 2, "part": "train"} for i in range(9)]
    runs, ranges, found = _gathered(rows, bundles)
    assert sum(int(run.pieces["rows"].sum()) for run in runs) == 9 + 2 * bundles
    assert sum(h.rows.sum() for each in found for h in each.histograms.values()) == 939
    assert any(COUNT_COLUMN in schema_of(each).names for _, each in ranges)
    inferred = infer(found[0].tally)
    schema = Schema(tuple(column.feature for column in inferred.values()))
    types = {name: column.types for name, column in inferred.items()}
    shard, refused = gather_shard(
        [each for (split, _), each in ranges if split == "train"],
        schema,
        types,
        lambda *_: pytest.fail("it is inline"),
        unique=False,
    )
    assert refused == []
    assert len(shard) == 909
    table, _ = shard.take(0, 1000)
    texts = table["v"].to_pylist()
    assert texts.count("same") == 900
    assert sorted(set(texts)) == sorted(["same", *(f"row {i}" for i in range(9))])
    assert sum(math.isnan(x) for x in table["x"].to_pylist()) == 900


def test_every_one_of_equal_rows_is_rejected() -> None:
    """What does not fit counts as often as it was given."""
    rows = [{"v": "text", "part": "train"}] * 5 + [{"v": 1, "part": "train"}] * 7
    _, ranges, _ = _gathered(rows, 2)
    schema = Schema((Feature("v", Kind.INT64),))
    shard, refused = gather_shard(
        [each for _, each in ranges],
        schema,
        {"v": (pa.int64(),)},
        lambda *_: pytest.fail("it is inline"),
        unique=False,
    )
    assert (len(shard), len(refused)) == (7, 5)
