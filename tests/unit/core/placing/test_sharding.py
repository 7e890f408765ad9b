"""Shards: which one a row is in; the order, origins and class ids of its rows."""

import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.placing import MASK
from transforms.core.placing import sharding
from transforms.core.placing.hashes import hash_rows
from transforms.core.placing.sharding import (
    ShardCounts,
    ShardRows,
    shard_of_keys,
    shard_of_positions,
)
from transforms.core.rows import record_columns
from transforms.core.schema import Feature, Kind, Schema
from transforms.core.segment import KEY_COLUMN, ORIGIN_COLUMN, ROW_COLUMN

LAYOUTS = st.lists(
    st.tuples(st.sampled_from(["a.csv", "b/c.csv", "고양이.csv"]), st.integers(1, 30)),
    min_size=1,
    max_size=5,
)

# Outlives all that is allocated in it.
COUNTED = pa.proxy_memory_pool(pa.default_memory_pool())


def numbered(first: int, count: int) -> pa.RecordBatch:
    numbers = pa.array(range(first, first + count), pa.int64())
    return pa.record_batch({"x": pc.multiply(numbers, 2), ROW_COLUMN: numbers})


def with_origins(origins: list[str]) -> pa.RecordBatch:
    zeros = pa.array([0] * len(origins), pa.int64())
    return pa.record_batch({ROW_COLUMN: zeros, ORIGIN_COLUMN: pa.array(origins)})


def segments_of(layout: list[tuple[str, int]]) -> list[tuple[str, pa.RecordBatch]]:
    """Segments in source order; rows of an origin are numbered on."""
    seen: dict[str, int] = {}
    out = []
    for origin, count in sorted(layout):
        first = seen.get(origin, 0)
        out.append((origin, numbered(first, count)))
        seen[origin] = first + count
    return out


def key(origin: str, row: int, seed: int) -> int:
    found = hash_rows(origin, np.array([row]), purpose="order", seed=seed)
    return int(found[0])


def test_shards_follow_the_order_of_keys() -> None:
    """Shards are ranges of keys, so reading them in order is reading by key."""
    keys = np.sort(hash_rows("a.csv", np.arange(10_000), purpose="order", seed=0))
    for shards in (1, 3, 65_536):
        assert (np.diff(shard_of_keys(keys, shards)) >= 0).all()
    ends = np.array([0, 2**63 - 1, 2**63, MASK], np.uint64)
    assert shard_of_keys(ends, 2).tolist() == [0, 0, 1, 1]


@given(
    st.lists(st.integers(0, 2**50), max_size=50),
    st.integers(0, 2**50),
    st.integers(1, 1000),
)
def test_positions_cut_shards_in_order(
    positions: list[int], total: int, shards: int
) -> None:
    """Without shuffling the shard number never falls and never leaves its range."""
    found = shard_of_positions(np.array(sorted(positions), np.int64), total, shards)
    assert (np.diff(found) >= 0).all()
    assert all(0 <= shard < shards for shard in found.tolist())


def test_positions_cut_by_bytes() -> None:
    """Each shard gets its share of the bytes; the last one gets the places past it."""
    positions = np.array([0, 24, 25, 50, 74, 75, 99, 100, 1000])
    found = shard_of_positions(positions, 100, 4)
    assert found.tolist() == [0, 0, 1, 2, 2, 3, 3, 3, 3]
    assert shard_of_positions(np.array([0]), 0, 4).tolist() == [0]


@given(LAYOUTS, st.integers(0, 3))
def test_order_is_by_key(layout: list[tuple[str, int]], seed: int) -> None:
    """Rows have the order of a plain sort by (order key, origin, row)."""
    segments = segments_of(layout)
    rows = ShardRows.of(segments, seed=seed, shuffle=True)
    everything = [
        (o, row) for o, batch in segments for row in column(batch, ROW_COLUMN)
    ]
    wanted = sorted(everything, key=lambda item: (key(item[0], item[1], seed), item))
    assert [rows.origin(position) for position in rows.order.tolist()] == wanted


WORDS = st.integers(0, 2**64 - 1)
# Hashes, equal ones among them, and such as differ in their last bits alone.
KEYS = st.one_of(
    st.lists(WORDS, min_size=1),
    st.lists(st.sampled_from([0, 1, 2**63, 2**64 - 1]), min_size=1),
    st.tuples(WORDS, st.lists(st.integers(0, 7), min_size=1), WORDS).map(
        lambda each: [each[0] ^ low for low in each[1]] + [each[2]]
    ),
)


@given(KEYS)
def test_rows_of_equal_keys_stay_in_source_order(keys: list[int]) -> None:
    """The order is the stable one of the whole keys, whichever bits differ."""
    numbers = pa.array(range(len(keys)), pa.int64())
    batch = pa.record_batch({ROW_COLUMN: numbers, KEY_COLUMN: pa.array(keys, "uint64")})
    rows = ShardRows.of([("x", batch)], seed=0, shuffle=True)
    assert rows.order.tolist() == sorted(range(len(keys)), key=keys.__getitem__)


def test_segments_are_free_before_rows_are_sorted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Then only the joined rows take memory."""
    numbers = np.arange(1_000)
    held = weakref.ref(numbers)
    alive = []
    real = sharding._order_keys

    def keys(*args: Any) -> Any:
        alive.append(held())
        return real(*args)

    monkeypatch.setattr(sharding, "_order_keys", keys)
    parts = [
        ("x", pa.record_batch({ROW_COLUMN: pa.array(numbers[start : start + 500])}))
        for start in (0, 500)
    ]
    del numbers
    rows = ShardRows.of([parts.pop(0), parts.pop(0)], seed=0, shuffle=True)
    assert alive == [None]
    assert sorted(rows.order.tolist()) == list(range(1_000))


@pytest.mark.parametrize("each", [1_000, 10_000])
def test_long_values_are_in_memory_once(each: int) -> None:
    """Segments are joined while they are read, and what is kept holds no message."""

    def segments() -> Iterator[tuple[str, pa.RecordBatch]]:
        for first in range(0, 60_000, each):
            texts = pa.array([b"%01000d" % n for n in range(first, first + each)])
            numbers = pa.array(np.arange(first, first + each))
            short = {f"short {i}": numbers for i in range(20)}
            rows = pa.record_batch({"text": texts, **short, ROW_COLUMN: numbers})
            message = rows.serialize()
            yield "x", pa.ipc.read_record_batch(message, rows.schema)

    size = 60_000 * (1_000 + 21 * 8)
    before = pa.default_memory_pool()
    pa.set_memory_pool(COUNTED)
    try:
        rows = ShardRows.of(segments(), seed=0, shuffle=True)
    finally:
        pa.set_memory_pool(before)
    assert size < COUNTED.bytes_allocated() < size * 1.1
    assert COUNTED.max_memory() < size * 1.6
    taken, positions = rows.take(10, 20)
    assert taken["text"].to_pylist() == [b"%01000d" % at for at in positions]


def column(batch: pa.RecordBatch | pa.Table, name: str) -> list[int]:
    return batch[name].to_pylist()


@given(LAYOUTS, st.integers(1, 40), st.booleans())
def test_long_values_are_taken_from_pieces(
    layout: list[tuple[str, int]], size: int, shuffle: bool
) -> None:
    """Piece by piece, each row is taken once and is the same, from one chunk or many.

    Without shuffling, rows keep the order of the source.
    """

    def lengthened(batch: pa.RecordBatch) -> pa.RecordBatch:
        texts = [str(n) * 2_000 if n != 8 else None for n in column(batch, "x")]
        lists = [[n] * 300 for n in column(batch, "x")]
        batch = batch.append_column("long", pa.array(texts, pa.string()))
        return batch.append_column("packed", pa.array(lists, pa.list_(pa.int64(), 300)))

    segments = [(origin, lengthened(batch)) for origin, batch in segments_of(layout)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sharding, "_PIECE_BYTES", 1)
        patch.setattr(sharding, "_PIECE_PART", 1 << 30)
        rows = ShardRows.of(segments, seed=0, shuffle=shuffle)
    chunks = dict(zip(rows.table.column_names, rows.table.columns, strict=True))
    for name in ("long", "packed"):
        assert chunks.pop(name).num_chunks == len(layout)
    assert {values.num_chunks for values in chunks.values()} == {1}
    everything = pa.Table.from_batches([batch for _, batch in segments])
    assert len(rows) == len(everything)
    taken: list[int] = []
    for at in range(0, len(rows), size):
        piece, positions = rows.take(at, at + size)
        assert piece.equals(everything.take(pa.array(positions)))
        taken += positions.tolist()
    assert taken == rows.order.tolist()
    if not shuffle:
        assert [rows.origin(position) for position in taken] == [
            (o, row) for o, batch in segments for row in column(batch, ROW_COLUMN)
        ]


def test_rows_with_origins_of_their_own() -> None:
    """Rows of a tree of files are ordered by their own file's name."""
    origins = [f"cat/{i}.jpg" for i in range(50)]
    rows = ShardRows.of(
        [("", with_origins(origins[:20])), ("", with_origins(origins[20:]))],
        seed=1,
        shuffle=True,
    )
    found = [rows.origin(position) for position in rows.order.tolist()]
    assert found == sorted(
        ((origin, 0) for origin in origins), key=lambda item: key(item[0], item[1], 1)
    )


def test_numbering_leaves_empty_shards_out() -> None:
    """Files are numbered over the shards of their split that have rows."""
    counts = ShardCounts({("train", 1): 5, ("test", 0): 1, ("train", 7): 2}, {})
    assert counts.numbering("train", 1) == (0, 2)
    assert counts.numbering("train", 7) == (1, 2)
    assert counts.numbering("test", 0) == (0, 1)


def test_label_ids_are_positions_in_the_vocabulary() -> None:
    """Names become ids, missing names stay missing, over chunks."""
    names = pa.chunked_array([["dog", None], ["고양이", "dog"]])
    found = record_columns.label_ids(names, pa.array(["dog", "고양이"]))
    assert found.type == pa.int64()
    assert found.to_pylist() == [0, None, 1, 0]


def test_record_schema_has_the_records_types() -> None:
    """Labels become integers, images their bytes, what is left out is left out."""
    schema = Schema(
        (
            Feature("image", Kind.IMAGE),
            Feature("label", Kind.LABEL),
            Feature("name", Kind.TEXT),
            Feature("height", Kind.INT64, derived="height"),
        )
    )
    found = record_columns.record_schema(schema)
    assert found.names == ["image", "label", "name", "height"]
    assert found.types == [pa.large_binary(), pa.int64(), pa.string(), pa.int64()]
    assert (
        record_columns.record_schema(schema, without=["image"]).names == found.names[1:]
    )
