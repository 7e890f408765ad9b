"""Chunks of a shard take columns that few rows have as sparse ones."""

import dataclasses
import pathlib
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.support.stress import sizes
from transforms.core import packing
from transforms.core.packing import pack
from transforms.core.placing.placement import Sharding, SplitRule
from transforms.core.placing.shard_rows import ShardCounts, ShardRows
from transforms.core.schema import Feature, Kind, Schema
from transforms.core.segment import ROW_COLUMN
from transforms.core.sparse import cells_of, with_sparse
from transforms.shards import chunk_records, write_shard
from transforms.shards.chunk_records import ChunkRecords, prepared
from transforms.shards.shard_job import Loaded, ShardJob, ShardLayout, ShardTask
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


def as_they_are(rows: pa.Table, *_: object) -> pa.Table:
    """Returns rows without any sparse column."""
    return rows


@pytest.mark.parametrize("chunk", sizes(7, 1, 64, 1000))
@pytest.mark.parametrize("form", ["single", "packed", "sparse"])
def test_shards_do_not_depend_on_the_form_of_their_columns(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, chunk: int, form: str
) -> None:
    """The file, its facts and the statistics of all columns are equal."""
    rows, schema, _ = sparse_rows(chunk)
    monkeypatch.setattr(write_shard, "most_rows", lambda columns: chunk)
    table = rows.table
    if form == "packed":
        monkeypatch.setattr(packing, "LEAST_PACKED", len(KINDS))
        (batch,) = table.drop_columns([ROW_COLUMN]).combine_chunks().to_batches()
        packed = pa.Table.from_batches([pack(batch)])
        assert packed.num_columns < batch.num_columns
        table = packed.append_column(ROW_COLUMN, table[ROW_COLUMN])
    elif form == "sparse":
        table = with_sparse(table, lambda name, _: name != ROW_COLUMN)
    given = dataclasses.replace(rows, table=table)
    found = written(tmp_path / "sparse", given, schema)
    monkeypatch.setattr(write_shard, "prepared", as_they_are)
    assert found == written(tmp_path / "single", rows, schema)


def test_no_more_is_encoded_than_values_are_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    """What batches hold goes by the values of rows, not by rows times columns."""
    rows, schema, values = sparse_rows(1)
    batches: list[pa.RecordBatch] = []
    batch = ChunkRecords.batch

    def noted(self: ChunkRecords, *given: Any) -> pa.RecordBatch:
        batches.append(batch(self, *given))
        return batches[-1]

    monkeypatch.setattr(chunk_records.ChunkRecords, "batch", noted)
    written(tmp_path, rows, schema)
    held = [cells for each in batches for cells in cells_of(each)]
    assert sum(len(cells.places) for cells in held) == values
    assert all(each.num_columns <= len(KINDS) for each in batches)


def test_a_value_of_any_column_is_found(tmp_path: pathlib.Path) -> None:
    """The catalogue asks for columns by their names."""
    rows, schema, _ = sparse_rows(2)
    layout = ShardLayout("set", schema, Sharding(SplitRule(), {}))
    table = prepared(rows.table.drop_columns([ROW_COLUMN]), layout)
    making = ChunkRecords(table, layout)
    for feature in schema.features:
        found = making.value_of(table, making.columns(table), feature.name)
        assert found.equals(rows.table[feature.name].combine_chunks())


def test_columns_with_values_in_most_rows_are_left_alone() -> None:
    """Nothing is gained by moving their values among others."""
    rows = pa.table({f"c{i:03}": [1, 2, None] for i in range(COLUMNS)})
    features = tuple(Feature(name, Kind.INT64) for name in rows.column_names)
    layout = ShardLayout("set", Schema(features), Sharding(SplitRule(), {}))
    assert prepared(rows, layout) is not None
    assert prepared(rows, layout).column_names == rows.column_names
