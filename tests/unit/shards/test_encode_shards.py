"""`transforms.shards.write_shard`: the shards of a group are as if written alone."""

import dataclasses
import itertools
import os
import pathlib
import tempfile
from collections.abc import Sequence
from typing import Any

import google_crc32c
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms.core import segment
from transforms.core.placing.sharding import ShardCounts, Sharding, ShardRows
from transforms.core.placing.splitting import SplitRule
from transforms.core.schema import Feature, Kind, Schema
from transforms.core.segment import (
    KEY_COLUMN,
    NO_RECORD,
    ORIGIN_COLUMN,
    ROW_COLUMN,
    STAMP_COLUMN,
    Segment,
)
from transforms.errors import DamageError, EncodingError
from transforms.shards.shard_job import ShardJob, ShardLayout, ShardTask
from transforms.shards.shard_records import encode_shards
from transforms.shards.write_shard import ShardGroup, write_shard
from transforms.work.store import Store

CLASSES = ("cat", "dog", "고양이")
NAMES = {"class": pa.array(CLASSES)}
INTEGERS = st.none() | st.integers(-(2**63), 2**63 - 1)
FLOATS = st.none() | st.floats(width=32)
BOX = st.lists(st.floats(0, 1, width=32), min_size=4, max_size=4)
FEATURES: dict[Feature, st.SearchStrategy[Any]] = {
    Feature("id", Kind.INT64): INTEGERS,
    Feature("x", Kind.FLOAT): FLOATS,
    Feature("is", Kind.BOOL): st.none() | st.booleans(),
    Feature("text", Kind.TEXT): st.none() | st.text(max_size=5),
    Feature("raw", Kind.BYTES): st.none() | st.binary(max_size=20),
    Feature("class", Kind.LABEL): st.none() | st.sampled_from(CLASSES),
    Feature("digit", Kind.INT64, is_label=True): st.none() | st.integers(0, 3),
    Feature("many", Kind.INT64, shape=(None,)): st.none()
    | st.lists(st.integers(-9, 9)),
    Feature("pair", Kind.FLOAT, shape=(2,)): st.lists(
        st.floats(width=32), min_size=2, max_size=2
    ),
    Feature("ragged", Kind.FLOAT, shape=(None, None)): st.none()
    | st.lists(st.lists(st.floats(width=32), max_size=3), max_size=3),
    Feature("boxes", Kind.BOX): st.none() | st.lists(BOX, max_size=3),
}


def folder_of(root: str, name: str) -> Store:
    store = Store(os.path.join(root, name))
    store.make()
    return store


def contents(store: Store) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in pathlib.Path(store.dataset).iterdir()}


def batch(
    rows: Sequence[dict[str, Any]], layout: ShardLayout, first: int, origin: str
) -> pa.RecordBatch:
    """Returns rows as `place` stores them; each fourth order key is that of others."""
    schema = segment.segment_schema(
        layout.schema.row_schema,
        many_origins=layout.many_origins,
        ordered=layout.sharding.stores_order,
    )
    own = [
        {
            # Some are rejected, where that is known before they are written.
            ROW_COLUMN: NO_RECORD
            if layout.sharding.placeless and number % 5 == 4
            else first + number,
            ORIGIN_COLUMN: f"{origin}/{number // 2}",
            STAMP_COLUMN: 0,
            KEY_COLUMN: number // 4,
        }
        for number in range(len(rows))
    ]
    whole = [row | more for row, more in zip(rows, own, strict=True)]
    return pa.RecordBatch.from_pylist(whole, schema)


@st.composite
def jobs(draw: st.DrawFn) -> tuple[ShardLayout, list[list[list[dict[str, Any]]]]]:
    """Draws how shards are written, and the rows of each segment of each shard."""
    features = draw(
        st.lists(st.sampled_from([*FEATURES]), min_size=1, max_size=4, unique=True)
    )
    row = st.fixed_dictionaries({each.name: FEATURES[each] for each in features})
    pieces = st.lists(st.lists(row, min_size=1, max_size=9), min_size=1, max_size=3)
    keyed, placeless = draw(st.booleans()), draw(st.booleans())
    layout = ShardLayout(
        name="set",
        schema=Schema(tuple(features)),
        sharding=Sharding(
            SplitRule(),
            {},
            seed=draw(st.integers(0, 3)),
            shuffle=placeless or draw(st.booleans()),
            keyed=keyed,
            placeless=placeless,
        ),
        compression=draw(st.sampled_from(["none", "gzip"])),
        # The origin of a row without place is its key.
        many_origins=keyed if placeless else draw(st.booleans()),
    )
    return layout, draw(st.lists(pieces, min_size=2, max_size=5))


def tasks_of(
    shards: Sequence[Sequence[Sequence[dict[str, Any]]]],
    layout: ShardLayout,
    store: Store,
) -> list[ShardTask]:
    """Stores the rows of shards as the n-th pieces of all, as `place` does."""
    found: list[list[Segment]] = [[] for _ in shards]
    for number, origin in enumerate(("a.csv", "a.csv", "b.csv")):
        having = [shard for shard, each in enumerate(shards) if len(each) > number]
        parts = []
        for shard in having:
            rows = shards[shard][number]
            message = batch(rows, layout, 100 * number, origin).serialize()
            parts.append((len(rows), message))
        if having:
            for shard, piece in zip(
                having, store.put(origin, number, parts), strict=True
            ):
                found[shard].append(piece)
    return [
        ShardTask(("train", shard), each, sum(s.rows for s in each), 100)
        for shard, each in enumerate(found)
    ]


@dataclasses.dataclass(frozen=True, slots=True)
class Job(ShardJob):
    """A job whose rows are in another folder than its shards."""

    source: Store

    def load(self, tasks: Sequence[ShardTask]) -> tuple[ShardRows, Sequence[int]]:
        job = ShardJob(self.shard_counts, self.classes, self.layout, self.source)
        return job.load(tasks)


def counts_of(tasks: Sequence[ShardTask]) -> ShardCounts:
    return ShardCounts({task.key: task.rows for task in tasks}, {})


@given(jobs())
def test_shards_are_the_same_together_and_alone(
    drawn: tuple[ShardLayout, list[list[list[dict[str, Any]]]]],
) -> None:
    """Any features and rows: equal files, facts and statistics."""
    layout, shards = drawn
    with tempfile.TemporaryDirectory() as root:
        source = folder_of(root, "source")
        tasks = tasks_of(shards, layout, source)
        one, other = (
            Job(counts_of(tasks), NAMES, layout, folder_of(root, name), source)
            for name in ("alone", "together")
        )
        alone = [(task, write_shard(task, one)) for task in tasks]
        group = ShardGroup(other)
        for task in tasks:
            group.add(task)
        together = group.finish()
        # Of floats that are equal 0.0 and -0.0 differ as text.
        assert repr(together) == repr(alone)
        assert contents(other.store) == contents(one.store)


SCHEMA = Schema((Feature("id", Kind.INT64), Feature("class", Kind.LABEL)))
LAYOUT = ShardLayout("set", SCHEMA, Sharding(SplitRule(), {}))
INTEGERS_ALONE = Schema((Feature("id", Kind.INT64), Feature("class", Kind.INT64)))
NUMBERED = ShardLayout("set", INTEGERS_ALONE, Sharding(SplitRule(), {}))


def rows_of(shards: int, each: int = 3) -> list[list[list[dict[str, Any]]]]:
    numbers = itertools.count()
    return [
        [[{"id": next(numbers), "class": "cat"} for _ in range(each)]]
        for _ in range(shards)
    ]


def test_shards_without_rows_are_as_they_are_alone(tmp_path: pathlib.Path) -> None:
    """All rows of a shard may be refused when it is written."""

    class Half(ShardJob):
        def load(self, tasks: Sequence[ShardTask]) -> tuple[ShardRows, list[int]]:
            parts = [
                batch([{"id": number, "class": 1}] * (number % 2), NUMBERED, 0, "a")
                for _, number in (task.key for task in tasks)
            ]
            lengths = [part.num_rows for part in parts]
            segments = [("a", part) for part in parts]
            rows = ShardRows.of(segments, seed=0, shuffle=True, lengths=lengths)
            return rows, lengths

    tasks = [ShardTask(("train", shard), (), 2, 10) for shard in range(4)]
    one, other = (
        Half(counts_of(tasks), {}, NUMBERED, folder_of(str(tmp_path), name))
        for name in ("alone", "together")
    )
    group = ShardGroup(other)
    for task in tasks:
        group.add(task)
    assert group.finish() == [(task, write_shard(task, one)) for task in tasks]
    assert contents(other.store) == contents(one.store)
    assert {len(data) > 0 for data in contents(one.store).values()} == {False, True}


def test_neighbours_in_a_file_are_read_at_once(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Segments of twenty shards in three files take three reads."""
    store = folder_of(str(tmp_path), "work")
    tasks = tasks_of([each * 3 for each in rows_of(20)], LAYOUT, store)
    reads = []
    pread = os.pread

    def counted(*arguments: Any) -> bytes:
        reads.append(arguments)
        return pread(*arguments)

    monkeypatch.setattr(os, "pread", counted)
    job = ShardJob(counts_of(tasks), NAMES, LAYOUT, store)
    found = encode_shards(tasks, job)
    assert [each.records for each in found] == [9] * 20
    assert len(reads) == 3


@pytest.mark.parametrize("wrong", ["segment", "class"])
def test_one_bad_shard_fails_as_it_does_alone(
    tmp_path: pathlib.Path, wrong: str
) -> None:
    """The error is that of the shard; those before it are written, none behind it."""
    store = folder_of(str(tmp_path), "work")
    shards = rows_of(5)
    if wrong == "class":
        shards[2][0][0]["class"] = "horse"
    tasks = tasks_of(shards, LAYOUT, store)
    if wrong == "segment":
        (piece,) = tasks[2].segments
        with open(os.path.join(store.segments, piece.file), "r+b") as file:
            file.seek(piece.offset + piece.size // 2)
            file.write(b"\xff")
    job = ShardJob(counts_of(tasks), NAMES, LAYOUT, store)
    kind = EncodingError if wrong == "class" else DamageError
    with pytest.raises(kind) as alone:
        write_shard(tasks[2], job)
    group = ShardGroup(job)
    for task in tasks:
        group.add(task)
    with pytest.raises(kind) as together:
        group.finish()
    assert str(together.value) == str(alone.value)
    finished = group.finish()
    assert [task.key for task, _ in finished] == [("train", 0), ("train", 1)]
    assert [
        google_crc32c.value(data) for _, data in sorted(contents(store).items())
    ] == [facts.shard.crc32c for _, facts in finished]
    assert os.listdir(store.attempts) == []


def test_a_group_takes_little_more_memory_than_a_chunk(tmp_path: pathlib.Path) -> None:
    """Large shards, and many rows, are not encoded together."""
    store = folder_of(str(tmp_path), "work")
    for size, rows, together in ((10, 3, 20), (2 << 20, 3, 2), (10, 30_000, 2)):
        tasks = [
            ShardTask(each.key, each.segments, rows, size)
            for each in tasks_of(rows_of(20), LAYOUT, store)
        ]
        loaded: list[int] = []

        class Noted(ShardJob):
            def load(
                self, tasks: Sequence[ShardTask], into: list[int] = loaded
            ) -> tuple[ShardRows, Sequence[int]]:
                into.append(len(tasks))
                return ShardJob.load(self, tasks)

        group = ShardGroup(Noted(counts_of(tasks), NAMES, LAYOUT, store))
        for task in tasks:
            group.add(task)
        group.finish()
        assert loaded == [together] * (20 // together)
