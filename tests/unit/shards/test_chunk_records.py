"""Shards whose columns are packed, and those whose columns are not."""

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
from transforms.shards import write_shard
from transforms.shards.shard_job import Loaded, ShardJob, ShardLayout, ShardTask
from transforms.work.store import Store

KINDS: Mapping[Kind, tuple[pa.DataType, Callable[[], Any]]] = {
    Kind.INT64: (pa.int64(), lambda: random.randrange(-9, 9)),
    Kind.FLOAT: (pa.float32(), lambda: random.choice([0.0, -0.0, 1.5, -2.25])),
    Kind.TEXT: (pa.string(), lambda: random.choice(["", "a", "long text"])),
    Kind.BOOL: (pa.bool_(), lambda: random.random() < 0.5),
}
ROWS, COLUMNS, EACH = 200, 400, 5


def some_rows(seed: int) -> tuple[ShardRows, Schema]:
    """Returns rows with a few of many columns, and their schema."""
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
    return rows, Schema(tuple(features))


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


@pytest.mark.parametrize("chunk", sizes(7, 1, 64, 1000))
def test_shards_do_not_depend_on_the_form_of_their_columns(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    """The file, its facts and the statistics of all columns are equal."""
    rows, schema = some_rows(chunk)
    monkeypatch.setattr(write_shard, "most_rows", lambda columns: chunk)
    monkeypatch.setattr(packing, "LEAST_PACKED", len(KINDS))
    (batch,) = rows.table.drop_columns([ROW_COLUMN]).combine_chunks().to_batches()
    packed = pa.Table.from_batches([pack(batch)])
    assert packed.num_columns < batch.num_columns
    table = packed.append_column(ROW_COLUMN, rows.table[ROW_COLUMN])
    given = dataclasses.replace(rows, table=table)
    found = written(tmp_path / "packed", given, schema)
    assert found == written(tmp_path / "single", rows, schema)
