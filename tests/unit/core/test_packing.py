"""Columns of numbers are packed and unpacked without a change."""

import numpy as np
import pyarrow as pa
import pytest

from transforms.core import segment
from transforms.core.packing import (
    Packed,
    column_of,
    pack,
    packed_columns,
    packed_schema,
    unpack,
    unpack_batch,
    unpacked_schema,
    with_packed,
)
from transforms.core.placing.shard_rows import ShardRows
from transforms.core.rows.repeated_texts import with_dictionaries

_MANY = 300


def _wide(rows: int, *, missing: float = 0.0, seed: int = 7) -> pa.RecordBatch:
    """Returns floats, integers, and a text among them; some values are missing."""
    rng = np.random.default_rng(seed)
    columns: dict[str, pa.Array] = {}
    for index in range(_MANY):
        floats = rng.standard_normal(rows).astype(np.float32)
        floats[rng.random(rows) < 0.1] = np.nan
        gone = rng.random(rows) < missing * (index % 3)
        columns[f"f{index}"] = pa.array(floats, pa.float32(), mask=gone)
        columns[f"i{index}"] = pa.array(rng.integers(-9, 9, rows), mask=gone)
        if index == 5:
            columns["text"] = pa.array([str(n) for n in range(rows)], pa.string())
    return pa.RecordBatch.from_pydict(columns)


def _same(found: pa.Table, expected: pa.RecordBatch) -> bool:
    """Whether the columns are the same, in any order; NaN is NaN."""
    names = found.schema.names
    return sorted(names) == sorted(expected.schema.names) and all(
        found[name].type == expected[name].type
        and repr(found[name].to_pylist()) == repr(expected[name].to_pylist())
        for name in names
    )


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("rows", [0, 1, 13])
def test_unpack_is_the_inverse(rows: int, missing: float) -> None:
    """Values, NaN, missing values and types come back; texts stay as they are."""
    batch = _wide(rows, missing=missing)
    packed = pack(batch)
    assert packed.schema.equals(packed_schema(batch.schema))
    assert packed.schema.names == ["text", "\0float", "\0int64"]
    assert _same(unpack(pa.table(packed)), batch)


def test_few_columns_are_not_packed() -> None:
    """Below hundreds of columns the rows are the same object."""
    batch = _wide(3).select(["f0", "i0", "text", "f1"])
    assert pack(batch) is batch
    assert packed_schema(batch.schema) is batch.schema
    table = pa.table(batch)
    assert unpack(table) is table


def test_slices_are_packed_as_rows() -> None:
    """Of a slice only its own rows are packed, also with missing values before it."""
    batch = _wide(20, missing=0.3)
    assert _same(unpack(pa.table(pack(batch.slice(7, 9)))), batch.slice(7, 9))


@pytest.mark.parametrize("width", [1, 20])
def test_rows_of_segments_are_taken_in_order(width: int) -> None:
    """A shard takes the same rows from packed segments as from their columns.

    Rows of 24 KB stay in the chunks of their segments, smaller ones do not.
    """
    wide = _wide(40, missing=0.2)
    columns = {
        f"{name}-{copy}": column
        for copy in range(width)
        for name, column in zip(wide.schema.names, wide.columns, strict=True)
    }
    batch = pa.RecordBatch.from_pydict(columns)
    schema = segment.segment_schema(batch.schema, many_origins=False)
    parts = []
    for number, start in enumerate((0, 5, 25)):
        part = batch.slice(start, (5, 20, 15)[number])
        numbers = pa.array(np.arange(start, start + len(part)))
        rows = pa.record_batch([*pack(part).columns, numbers], schema=schema)
        message = segment.serialize(rows)
        parts.append(("a.csv", segment.deserialize(message, schema)))
    shard = ShardRows.of(parts, seed=3, shuffle=True)
    for start, stop in ((0, 17), (17, 40)):
        taken, positions = shard.take(start, stop)
        expected = batch.take(pa.array(positions))
        assert _same(unpack(taken.drop_columns([segment.ROW_COLUMN])), expected)


def test_packed_columns_stay_packed_beside_dictionaries() -> None:
    """Texts that become dictionaries leave the names of packed columns in place."""
    batch = _wide(40)
    place = batch.schema.get_field_index("text")
    rows = batch.set_column(place, "text", pa.array(["a", "b"] * 20))
    found = unpack(with_dictionaries(pa.table(pack(rows))))
    assert pa.types.is_dictionary(found["text"].type)
    assert found.num_columns == batch.num_columns


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("chosen", [300, 299, 20])
def test_columns_that_are_packed_already_join_the_others(
    chosen: int, missing: float
) -> None:
    """Some of the floats, or all, give what packing all columns gives."""
    batch = _wide(9, missing=missing)
    names = [name for name in batch.schema.names if name[0] == "f"][:chosen]
    rest = batch.drop_columns(names)
    packed = Packed.of(batch.select(names))
    found = with_packed(rest, packed, packed_schema(batch.schema))
    wanted = pack(batch)
    assert found.schema.equals(wanted.schema, check_metadata=True)
    assert _same(unpack(pa.Table.from_batches([found])), batch)
    assert packed_schema(found.schema).equals(found.schema, check_metadata=True)


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_rows_come_back_in_their_order(missing: float) -> None:
    """A batch is unpacked under its schema, or one column of it."""
    batch = _wide(9, missing=missing)
    found = unpack_batch(pack(batch), batch.schema)
    assert found.schema.equals(batch.schema)
    assert _same(pa.table(found), batch)
    for name in ("f7", "i9", "text"):
        wanted = repr(batch[name].to_pylist())
        assert repr(column_of(pack(batch), name).to_pylist()) == wanted
        assert repr(column_of(batch, name).to_pylist()) == wanted
    names = unpacked_schema(pack(batch).schema).names
    assert sorted(names) == sorted(batch.schema.names)


def test_columns_are_chosen_and_named() -> None:
    """A packed column gives some of its columns, in any order, under other names."""
    batch = _wide(9, missing=0.3).select(["f0", "f1", "f2"])
    packed = Packed.of(batch)
    assert packed.chosen(("x", "y", "z"), (0, 1, 2)).lists is packed.lists
    found = packed.chosen(("x", "y"), (2, 0)).columns()
    for name, other in (("x", "f2"), ("y", "f0")):
        assert repr(found[name].to_pylist()) == repr(batch[other].to_pylist())


def test_columns_of_one_type_may_stay_packed() -> None:
    """The others are columns of their own."""
    batch = _wide(9)
    found = unpack(pa.Table.from_batches([pack(batch)]), kept=pa.float32())
    (packed,) = packed_columns(found)
    assert packed.kind == pa.float32()
    assert found.num_columns == 1 + 1 + _MANY
    assert _same(unpack(found), batch)
