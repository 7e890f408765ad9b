"""The stages on Beam's own runner: a user's steps, types, retries and sums."""

import dataclasses
import os
import pathlib
from collections.abc import Callable
from typing import Any, cast

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from beam_pipeline.api import convert
from beam_pipeline.graph import build, make_job
from beam_pipeline.planning.plan import Plan, make_plan
from beam_pipeline.running.convert import convert_plan, open_work_folder
from beam_pipeline.settings.spec import make_spec
from tests.support.format_sources import BOXES, write_coco
from tests.support.outputs import contents, first_values
from tests.support.placing import batch_of
from tests.support.segments import IN_FILES, IN_MEMORY, waiting
from tests.support.sources import write_csv
from transforms.core.manifest import Manifest
from transforms.core.model import Batch, Block
from transforms.core.placing.hashes import hash_rows
from transforms.core.placing.sharding import Sharding
from transforms.core.placing.splitting import (
    SplitRule,
    SplitSource,
    SplitTables,
    split_rows,
)
from transforms.errors import (
    BeamTFRecordError,
    ConservationError,
    EncodingError,
    RejectLimitError,
    SpecError,
    TargetError,
)
from transforms.publishing import target
from transforms.stages import place
from transforms.work.store import Store

Folder = pathlib.Path
ROWS = 500


@pytest.fixture
def source(tmp_path: Folder) -> Folder:
    """Two CSV files of 500 rows in all, two of which do not fit."""
    lines = [
        f"{'x' if i in (7, 300) else i},{i / 4},{'cat' if i % 3 else 'dog'}"
        for i in range(ROWS)
    ]
    for name, some in (("a", lines[:250]), ("b", lines[250:])):
        write_csv(tmp_path / "in" / f"{name}.csv", "id,weight,animal", some)
    return tmp_path / "in"


def plan_of(source: Folder, where: str = "", **settings: Any) -> Plan:
    """Plans a job; `where` says where its rows wait, as in `tests.support.segments`."""
    given = {
        "source": str(source),
        "output": str(source.parent / "out"),
        "label_column": "animal",
        "shards": 3,
        "splits": "train=0.8,test=0.2",
    }
    with waiting(where):
        return make_plan(make_spec({**given, **settings}))


def run(
    plan: Plan, *flags: str, between: beam.PTransform[Any, Any] | None = None
) -> tuple[Manifest, Any]:
    """Runs a plan as a Beam user would; returns the manifest and Beam's result."""
    with open_work_folder(plan) as (store, _):
        pipeline = beam.Pipeline(
            runner="FnApiRunner", options=PipelineOptions(list(flags))
        )
        build(pipeline, make_job(plan, store), between=between)
        result = pipeline.run()
        result.wait_until_finish()
    return target.read_manifest(plan.spec.output), result


def stored(plan: Plan) -> dict[str, bytes]:
    """Returns the files of the dataset that input and job alone decide."""
    return contents(pathlib.Path(plan.spec.output))


def records(plan: Plan) -> list[dict[str, Any]]:
    return first_values(pathlib.Path(plan.spec.output))


def change_rows(
    batch: Batch, change: Callable[[pa.RecordBatch], pa.RecordBatch]
) -> Batch:
    return dataclasses.replace(batch, rows=change(batch.rows))


def doubled(batch: Batch) -> Batch:
    """A user's own step: one column is replaced, everything else is unchanged."""

    def change(rows: pa.RecordBatch) -> pa.RecordBatch:
        weights = pc.multiply(rows["weight"], pa.scalar(2.0, pa.float32()))
        return rows.set_column(1, "weight", weights)

    return change_rows(batch, change)


def without_first(batch: Batch) -> Batch:
    return batch.filter(np.arange(batch.rows.num_rows) > 0)


def nothing_of(batch: Batch) -> list[Batch]:
    return []


def twice(batch: Batch) -> list[Batch]:
    return [batch, batch]


def halves(batch: Batch) -> list[Batch]:
    first = np.arange(batch.rows.num_rows) < batch.rows.num_rows // 2
    return [batch.filter(first), batch.filter(~first)]


def relabelled(batch: Batch) -> Batch:
    def change(rows: pa.RecordBatch) -> pa.RecordBatch:
        return rows.set_column(2, "animal", pa.array(["owl"] * rows.num_rows))

    return change_rows(batch, change)


def test_steps_of_a_beam_user(source: Folder) -> None:
    """A `beam.Map` over batches between reading and writing decides the values."""
    plan = plan_of(source)
    manifest, _ = run(plan, between=beam.Map(doubled).with_output_types(Batch))
    found = records(plan)
    assert manifest.records == len(found) == ROWS - 2
    assert all(row["weight"] == row["id"] / 2 for row in found)
    assert sorted(row["id"] for row in found) == [
        i for i in range(ROWS) if i not in (7, 300)
    ]


def test_steps_may_change_labels(source: Folder) -> None:
    """The vocabulary is of the rows that are written, not of those that were read."""
    plan = plan_of(source)
    manifest, _ = run(plan, between=beam.Map(relabelled).with_output_types(Batch))
    (label,) = (f for f in manifest.features if f.feature.is_label)
    assert label.classes == ("owl",)
    assert {row["animal"] for row in records(plan)} == {0}


@pytest.mark.parametrize("where", [IN_MEMORY, IN_FILES])
def test_repeated_bundles_change_no_byte(source: Folder, where: str) -> None:
    """Every bundle done twice, as after a retry: the same files, nothing doubled."""
    once = plan_of(source)
    manifest, _ = run(once)
    again = plan_of(source, where, output=str(source.parent / "again"))
    repeated, _ = run(again, "--direct_runner_bundle_repeat=1")
    assert repeated.digest == manifest.digest
    assert stored(again) == stored(once)
    assert sorted(path.name for path in source.parent.iterdir()) == [
        "again",
        "in",
        "out",
    ]


def test_counters(source: Folder) -> None:
    """Each stage counts its rows under its own name."""
    _, result = run(plan_of(source))
    found = {
        (counter.key.metric.namespace, counter.key.metric.name): counter.committed
        for counter in result.metrics().query()["counters"]
    }
    assert found == {
        ("read", "rows_read"): ROWS,
        ("read", "rows_rejected"): 2,
        ("place", "rows_placed"): ROWS - 2,
        ("write", "rows_written"): ROWS - 2,
    }


def test_batches_are_measured_unpickled() -> None:
    """The coder of batches keeps them, and guesses their size without a pickle."""
    rows = pa.record_batch({"x": pa.array([1, 2], pa.int64())})
    batch = Batch(Block("a.csv", 0, 9), rows, np.arange(2))
    coder = beam.coders.registry.get_coder(Batch)
    found = coder.decode(coder.encode(batch))
    assert (found.block, found.rows) == (batch.block, rows)
    assert coder.estimate_size(batch) == 2 * 8


@pytest.mark.parametrize(
    ("step", "error"),
    [
        (beam.FlatMap(nothing_of).with_output_types(Batch), RejectLimitError),
        (beam.FlatMap(twice).with_output_types(Batch), ConservationError),
        (beam.FlatMap(halves).with_output_types(Batch), ConservationError),
    ],
    ids=["drops batches", "doubles batches", "splits batches"],
)
def test_steps_that_leave_nothing_or_double(
    source: Folder,
    step: beam.PTransform[Any, Any],
    error: type[BeamTFRecordError],
) -> None:
    """No record is left, or a batch is there twice: nothing is committed."""
    plan = plan_of(source)
    with pytest.raises(error):
        convert_plan(plan, between=step)
    assert not pathlib.Path(plan.spec.output).exists()


def test_steps_may_drop_rows(source: Folder) -> None:
    """What they drop is in the account, and the rest are the bytes that they were."""
    plan = plan_of(source)
    manifest, _ = run(plan, between=beam.Map(without_first).with_output_types(Batch))
    account = manifest.account
    assert account.dropped_by_steps > 0
    assert account.read == ROWS
    assert account.written == ROWS - 2 - account.dropped_by_steps == len(records(plan))
    assert account.balance == 0
    assert f"{account.dropped_by_steps:,} row" in str(manifest.run["notes"])


def test_steps_may_drop_images_with_boxes(tmp_path: Folder) -> None:
    """Boxes that go with them are no loss; the account has none where they changed."""
    root = write_coco(tmp_path / "in", BOXES)
    plan = plan_of(root, label_column=None, splits=None)
    manifest, _ = run(plan, between=beam.Map(without_first).with_output_types(Batch))
    assert (manifest.account.written, manifest.account.dropped_by_steps) == (2, 1)
    assert manifest.account.parts == {}


def doubled_rows(batch: Batch) -> Batch:
    count = batch.rows.num_rows
    more = batch.take(np.repeat(np.arange(count), 2))
    if batch.keys is None:
        return more
    keys = [f"{key}-{i % 2}" for i, key in enumerate(more.keys.to_pylist())]
    return dataclasses.replace(more, keys=pa.array(keys))


def test_steps_may_add_rows_with_keys(source: Folder) -> None:
    """Rows with keys of their own are counted as added."""
    plan = plan_of(source, key_column="id")
    manifest, _ = run(plan, between=beam.Map(doubled_rows).with_output_types(Batch))
    account = manifest.account
    assert account.written == 2 * account.added_by_steps == 2 * (ROWS - 2)
    assert account.balance == 0
    assert len(records(plan)) == account.written


def other_rows(batch: Batch) -> Batch:
    """Returns one row more, in a place that nothing was read from."""
    more = batch.take(np.append(np.arange(batch.rows.num_rows), 0))
    numbers = more.numbers.copy()
    numbers[-1] = 1 << 40
    return dataclasses.replace(more, numbers=numbers)


@pytest.mark.parametrize("step", [doubled_rows, other_rows])
def test_added_rows_need_keys(source: Folder, step: Callable[[Batch], Batch]) -> None:
    """Without a key column nothing tells added rows apart: the error says so."""
    plan = plan_of(source)
    with pytest.raises(ConservationError, match="--key-column"):
        convert_plan(plan, between=beam.Map(step).with_output_types(Batch))
    assert [path.name for path in source.parent.iterdir()] == ["in"]


def fewer_values(batch: Batch) -> Batch:
    return dataclasses.replace(batch, rows=batch.rows[:10])


def other_column(batch: Batch) -> Batch:
    names = [f"new_{name}" for name in batch.rows.schema.names]
    return dataclasses.replace(batch, rows=batch.rows.rename_columns(names))


def other_type(batch: Batch) -> Batch:
    floats = pc.cast(batch.rows["id"], pa.float64())
    return dataclasses.replace(batch, rows=batch.rows.set_column(0, "id", floats))


def no_batch(batch: Batch) -> Any:
    return batch.rows.to_pylist()


def whole_table(batch: Batch) -> Batch:
    return dataclasses.replace(batch, rows=pa.table(batch.rows))


def no_keys(batch: Batch) -> Batch:
    nulls = pa.nulls(batch.rows.num_rows, pa.string())
    return dataclasses.replace(batch, keys=nulls)


FEWER = r"parts are of the same rows.* returned 10 rows for \d+ numbers. .*batch.filter"


@pytest.mark.parametrize(
    ("step", "settings", "said"),
    [
        (fewer_values, {}, FEWER),
        (
            fewer_values,
            {"splits": {"a": 0.5, "b": 0.5}, "stratify_column": "animal"},
            FEWER,
        ),
        (other_column, {}, "keep the columns.* for .*id: int64"),
        (other_type, {}, "id: int64.* it returned .*id: double.* Cast it"),
        (no_batch, {}, "must return batches; it returned a list. Return"),
        (no_batch, {"key_column": "id"}, "must return batches; it returned a list"),
        (whole_table, {}, "rows as a pa.RecordBatch; it returned a Table. Give one"),
        (no_keys, {"key_column": "id"}, r"nulls among \d+ of type string. Give each"),
    ],
)
def test_steps_that_are_refused(
    source: Folder,
    step: Callable[[Batch], Batch],
    settings: dict[str, Any],
    said: str,
) -> None:
    """Rows or columns that a step takes away are named, as what must be kept."""
    plan = plan_of(source, **settings)
    with pytest.raises(ConservationError, match=said):
        convert_plan(plan, between=beam.Map(step))
    assert [path.name for path in source.parent.iterdir()] == ["in"]


def test_datasets_of_steps_are_never_up_to_date(source: Folder) -> None:
    """Another step, the same one and none at all: each run does its work."""
    out = source.parent / "out"

    def converted(step: Callable[[Batch], Batch] | None, **more: Any) -> str:
        between = None if step is None else beam.Map(step).with_output_types(Batch)
        report = convert(source, out, between=between, shards=1, **more)
        assert report.status == "committed"
        return report.digest

    fewer = converted(without_first)
    with pytest.raises(TargetError, match="steps of `between` may do something else"):
        converted(doubled)
    again = converted(doubled, overwrite=True)
    assert again != fewer
    assert converted(doubled, overwrite=True) == again
    with pytest.raises(TargetError, match="steps of `between` may do something else"):
        converted(None)
    plain = converted(None, overwrite=True)
    assert plain not in (fewer, again)
    assert convert(source, out, shards=1).status == "up to date"
    with pytest.raises(TargetError, match="steps of `between` may do something else"):
        converted(doubled)
    settings = {"source": str(source), "output": str(out), "shards": 1}
    plan = make_plan(make_spec(settings))
    with pytest.raises(TargetError, match="steps of `between` may do something else"):
        convert_plan(plan, between=beam.Map(doubled).with_output_types(Batch))


@pytest.mark.parametrize("first", [None, without_first])
def test_steps_do_not_go_on_with_work_of_others(
    source: Folder, first: Callable[[Batch], Batch] | None
) -> None:
    """What a failed run has left of its step, or of none, is not for another step."""
    whole = source.parent / "whole"
    between = beam.Map(doubled).with_output_types(Batch)
    plan = plan_of(source, IN_FILES, output=str(whole), name="set")
    convert_plan(plan, between=between)
    plan = plan_of(source, IN_FILES, max_reject_rate="0", name="set")
    step = None if first is None else beam.Map(first).with_output_types(Batch)
    with pytest.raises(RejectLimitError):
        convert_plan(plan, between=step)
    assert os.path.isdir(plan.work_folder) == (first is None)
    plan = plan_of(source, IN_FILES, name="set")
    convert_plan(plan, between=between)
    assert stored(plan) == contents(whole)


def test_steps_are_ptransforms(source: Folder) -> None:
    """A bare function, and a mask that says nothing of some rows, are clear errors."""
    plan = plan_of(source)
    with pytest.raises(SpecError, match=r"between=beam\.Map\(function\); found a func"):
        convert_plan(plan, between=cast(Any, doubled))
    rows = pa.record_batch({"id": [7, 8]})
    batch = Batch(Block("a.csv", 3, 7, rows=2), rows, np.arange(2))
    for mask in (pa.array([True, None]), [True], np.array([0, 1])):
        with pytest.raises(ConservationError, match="a bool for each of its 2 rows"):
            batch.filter(cast(Any, mask))


def to_text(batch: Batch) -> str:
    return "no batch"


def test_wrong_types_are_refused_at_construction(source: Folder) -> None:
    """Beam's own check of the graph finds a step of the wrong type before any run."""
    plan = plan_of(source)
    job = make_job(plan, Store(plan.work_folder))
    with pytest.raises(beam.typehints.TypeCheckError):
        build(
            beam.Pipeline(runner="FnApiRunner"),
            job,
            between=beam.Map(to_text).with_output_types(str),
        )


def cut(batch: Batch, sharding: Sharding) -> dict[tuple[str, int], list[int]]:
    return {
        key: rows["x"].to_pylist()
        for key, rows in place.cut_batch(
            batch, sharding, split_rows(batch, sharding.rule, SplitTables())
        )
    }


def test_rows_go_where_their_hash_says() -> None:
    """`cut_batch` agrees with the formulas, row by row."""
    rule = SplitRule(SplitSource.SHARES, ("train", "test"), ("3", "1"), seed=0)
    found = cut(batch_of(range(400)), Sharding(rule, {"train": 4, "test": 2}, seed=9))
    wanted: dict[tuple[str, int], list[int]] = {}
    numbers = np.arange(400)
    splits = hash_rows("a.csv", numbers, purpose="split", seed=0).tolist()
    orders = hash_rows("a.csv", numbers, purpose="order", seed=9).tolist()
    for row, (split, order) in enumerate(zip(splits, orders, strict=True)):
        name, shards = ("train", 4) if split < 3 * 2**62 else ("test", 2)
        key = (name, ((order >> 32) * shards) >> 32)
        wanted.setdefault(key, []).append(row)
    assert found == wanted


def test_rows_with_splits_of_their_own() -> None:
    """A column says the split; one that was not seen when planning gets one shard."""
    rule = SplitRule(SplitSource.COLUMN, ("a", "b"))
    splits = ["b", "a", "new", "b", "new"]
    sharding = Sharding(rule, {"a": 1, "b": 1})
    assert cut(batch_of(range(5), splits=splits), sharding) == {
        ("a", 0): [1],
        ("b", 0): [0, 3],
        ("new", 0): [2, 4],
    }


def test_unseen_splits_without_shuffling() -> None:
    """Also without shuffling a split that the sample had not shown gets its shard."""
    rule = SplitRule(SplitSource.COLUMN, ("a",))
    sharding = Sharding(rule, {"a": 2}, shuffle=False, total_bytes={"a": 1000})
    found = cut(batch_of(range(4), splits=["a", "new", "a", "new"]), sharding)
    assert found == {("a", 0): [0], ("a", 1): [2], ("new", 0): [1, 3]}


@pytest.mark.parametrize("splits", [None, ["a", None, "a"]])
def test_rows_without_a_split(splits: list[str | None] | None) -> None:
    """A rule by column needs a split on every row."""
    rule = SplitRule(SplitSource.COLUMN, ("a",))
    with pytest.raises(EncodingError, match="must carry its split"):
        cut(batch_of(range(3), splits=splits), Sharding(rule, {"a": 1}))
