"""Chunks of a shard do without columns in which they have no value."""

import pathlib
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from transforms.core.placing.placement import Sharding, SplitRule
from transforms.core.placing.shard_rows import ShardCounts, ShardRows
from transforms.core.schema import Feature, Kind, Schema
from transforms.core.segment import ROW_COLUMN
from transforms.shards import sparse_columns, write_shard
from transforms.shards.shard_job import Loaded, ShardJob, ShardLayout, ShardTask
from transforms.shards.sparse_columns import SparseColumns
from transforms.work.store import Store

KINDS: Mapping[Kind, tuple[pa.DataType, Callable[[], Any]]] = {
    Kind.INT64: (pa.int64(), lambda: random.randrange(-9, 9)),
    Kind.FLOAT: (pa.float32(), lambda: random.choice([0.0, -0.0, 1.5, -2.25])),
    Kind.TEXT: (pa.string(), lambda: random.choice(["", "a", "long text"])),
    Kind.BOOL: (pa.bool_(), lambda: random.random() < 0.5),
}
ROWS, COLUMNS, EACH = 200, 400, 5


def sparse_rows(seed: int) -> tuple[ShardRows, Schema, int]:
    """Returns rows with a few of many columns, their schema, and how many values."""
    random.seed(seed)
    features = [
        Feature(f"{kind}{number:03}", kind)
        for number in range(COLUMNS // len(KINDS))
        for kind in KINDS
    ]
    cells: dict[str, list[Any]] = {feature.name: [None] * ROWS for feature in features}
    for row in range(ROWS):
        # The first columns are of no row.
        for feature in random.sample(features[9:], EACH):
            cells[feature.name][row] = KINDS[feature.kind][1]()
    columns = {f.name: pa.array(cells[f.name], KINDS[f.kind][0]) for f in features}
    table = pa.table({**columns, ROW_COLUMN: list(range(ROWS))})
    # Equal rows are in the order more than once.
    order = np.array([*random.sample(range(ROWS), ROWS), 3, 3, 7])
    rows = ShardRows(table, order, ("a",), np.zeros(1, np.int64))
    return rows, Schema(tuple(features)), len(order) * EACH


def written(folder: pathlib.Path, rows: ShardRows, schema: Schema) -> tuple[Any, bytes]:
    """Returns the facts of a shard, and its bytes."""
    store = Store(str(folder), token="run")
    for each in (store.attempts, store.dataset):
        pathlib.Path(each).mkdir(parents=True)

    def load(_: Sequence[int]) -> Loaded:
        return Loaded(rows, [len(rows)], [()])

    layout = ShardLayout("set", schema, Sharding(SplitRule(), {}))
    counts = ShardCounts({("train", 0): len(rows)}, {})
    job = ShardJob(load, counts, {}, layout, store)
    facts = write_shard.write_shard(ShardTask(("train", 0), 0, len(rows), 1 << 30), job)
    (path,) = pathlib.Path(store.dataset).glob("*.tfrecord*")
    return facts, path.read_bytes()


@pytest.mark.parametrize("chunk", [1, 7, 64, 1000])
def test_shards_do_not_depend_on_whether_chunks_do_without_columns(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    """The file, its facts and the statistics of all columns are equal."""
    rows, schema, _ = sparse_rows(chunk)
    monkeypatch.setattr(write_shard, "most_rows", lambda columns: chunk)
    found = written(tmp_path / "sparse", rows, schema)
    monkeypatch.setattr(sparse_columns, "_LEAST_COLUMNS", COLUMNS + 2)
    assert SparseColumns.of(rows, schema.features, chunk) is None
    assert found == written(tmp_path / "dense", rows, schema)


@pytest.mark.parametrize("size", [1, 7, 64])
def test_no_chunk_has_more_columns_than_values(size: int) -> None:
    """The columns of all chunks are at most the values that rows have."""
    rows, schema, values = sparse_rows(size)
    found = SparseColumns.of(rows, schema.features, size)
    assert found is not None
    assert found.dense == [ROW_COLUMN]
    assert 0 < found.held.sum() <= values


def test_every_chunk_has_a_column_at_least() -> None:
    """A batch without any would have no rows."""
    nothing = pa.table({f"c{i:03}": pa.nulls(9, pa.int64()) for i in range(COLUMNS)})
    features = tuple(Feature(name, Kind.INT64) for name in nothing.column_names)
    rows = ShardRows(nothing, np.arange(9), ("a",), np.zeros(1, np.int64))
    found = SparseColumns.of(rows, features, 4)
    assert found is not None
    assert [found.of_chunk(number) for number in range(3)] == [["c000"]] * 3


def test_columns_with_values_in_most_rows_are_left_alone() -> None:
    """Nothing is gained by a look at each of their chunks."""
    rows = pa.table({f"c{i:03}": [1, 2, None] for i in range(COLUMNS)})
    features = tuple(Feature(name, Kind.INT64) for name in rows.column_names)
    shard = ShardRows(rows, np.arange(3), ("a",), np.zeros(1, np.int64))
    assert SparseColumns.of(shard, features, 2) is None
