"""`WriteDataset` publishes once, whole, whatever attempts and other runs do."""

import dataclasses
import os
import pathlib
import random
import sys
from collections.abc import Callable, Iterable
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.pipeline_utils import group_by_key_input_visitor
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms.environments import EmbeddedPythonEnvironment

from beam_pipeline.own_pipelines import write_dataset
from beam_pipeline.own_pipelines import write_dataset as committing
from beam_pipeline.own_pipelines.write_dataset import (
    Committed,
    WriteDataset,
    commit_rows,
)
from tests.support.outputs import contents, manifest, rows
from tests.support.runs import Run, command, convert, failed
from transforms.core import segment
from transforms.core.model import Fact, RejectLog, ShardFile
from transforms.core.placing.sharding import ShardCounts
from transforms.core.segment import Segment
from transforms.errors import (
    CommitError,
    ConservationError,
    TargetError,
)
from transforms.publishing import local
from transforms.publishing.target import SharedRun
from transforms.rows.spool import Spool, SpooledBundle
from transforms.shards import write_shard
from transforms.shards.write_shard import ShardGroup
from transforms.stages.job_plan import JobPlan

Folder = pathlib.Path

LOCAL = "FnApiRunner"
# The only local runner that repeats a bundle that has failed.
RETRYING = "BundleBasedDirectRunner"
SPLITS = {"train": 0.8, "test": 0.2}
NONCE = "0123456789abcdef" * 2


def some(count: int = 300) -> list[dict[str, Any]]:
    return [{"id": i, "text": f"row {i}", "score": i / 4} for i in range(count)]


# What the last pipeline gave; the local runners are in this process.
_found: list[Committed] = []


def _keep(one: Committed) -> None:
    _found.append(one)


def write(
    output: Folder,
    made: Iterable[dict[str, Any]],
    step: Callable[[Any], Any] | None = None,
    runner: str = LOCAL,
    **settings: Any,
) -> list[Committed]:
    """Runs a pipeline that writes rows, changed by a step; returns its output."""
    _found.clear()
    given = {"splits": SPLITS, "key": "id", **settings}
    with beam.Pipeline(runner=runner) as pipeline:
        taken = pipeline | beam.Create([*made])
        if step is not None:
            taken |= "Step" >> beam.Map(step)
        _ = taken | WriteDataset(output, **given) | "Keep it" >> beam.Map(_keep)
    return [*_found]


def hidden(output: Folder) -> Folder:
    return output.parent / f".{output.name}.beam-tfrecord"


def failing_once(
    monkeypatch: pytest.MonkeyPatch,
    place: Any,
    name: str,
    *,
    after: bool,
    skip: int = 0,
) -> list[str]:
    """Lets one call of a function fail, before or after its work."""
    real, calls = getattr(place, name), []

    def call(*arguments: Any, **options: Any) -> Any:
        calls.append(name)
        fails = len(calls) == skip + 1
        if fails and not after:
            raise RuntimeError("killed")
        result = real(*arguments, **options)
        if fails:
            raise RuntimeError("killed")
        return result

    monkeypatch.setattr(place, name, call)
    return calls


def test_a_target_is_refused_before_rows_are_taken(tmp_path: Folder) -> None:
    """Without overwrite a dataset stays, and no row of the next run is computed."""
    output, seen = tmp_path / "out", tmp_path / "seen"
    write(output, some())
    before = contents(output)

    def step(row: dict[str, Any]) -> dict[str, Any]:
        with seen.open("a") as file:
            file.write("row\n")
        return row

    with pytest.raises(TargetError, match="overwrite=True"):
        write(output, some(), step)
    assert not seen.exists()
    assert contents(output) == before
    # The setup of a worker, which comes before its rows, has refused it as well.
    run = SharedRun(str(output), NONCE)
    with pytest.raises(TargetError, match="overwrite=True"):
        run.begin(overwrite=False)


def test_overwrite_replaces_a_dataset(tmp_path: Folder) -> None:
    """The whole dataset is another one afterwards, and nothing is left of the old."""
    output = tmp_path / "out"
    write(output, some())
    (found,) = write(output, some(40), overwrite=True)
    assert (found.status, sum(found.records.values())) == ("committed", 40)
    assert len(rows(output)) == 40
    assert os.listdir(tmp_path) == ["out"]
    # What programs that read it find changed is noted.
    write(output, some(39), lambda row: {**row, "id": f"{row['id']}"}, overwrite=True)
    (note,) = manifest(output)["run"]["notes"]
    assert "'id' was int64 and is text" in note


def test_an_equal_dataset_is_not_touched(tmp_path: Folder) -> None:
    """The same rows in another order change nothing, not even times."""
    output = tmp_path / "out"
    (first,) = write(output, some())
    before = {path: path.stat() for path in (output, *output.iterdir())}
    made = some()
    random.Random(1).shuffle(made)
    (second,) = write(output, made, overwrite=True)
    assert (second.status, second.digest) == ("up to date", first.digest)
    assert {path: path.stat() for path in (output, *output.iterdir())} == before
    assert os.listdir(tmp_path) == ["out"]


def test_attempts_of_a_random_step_do_not_mix(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bundle that failed after its rows were stored leaves nothing in the dataset."""
    output, real = tmp_path / "out", Spool.add

    def add(self: Spool, row: dict[str, Any]) -> None:
        # Each attempt at a bundle computes the rows again.
        real(self, row | {"score": random.random(), "text": "x" * 4000})

    monkeypatch.setattr(Spool, "add", add)
    calls = failing_once(monkeypatch, Spool, "finish", after=True)
    (found,) = write(output, some(), runner=RETRYING, num_shards=2)
    assert len(calls) > 1
    assert sum(found.records.values()) == 300
    assert sorted(row["id"] for row in rows(output)) == [*range(300)]
    assert command("verify", output).code == 0
    assert os.listdir(tmp_path) == ["out"]


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Committed, Folder]:
    """What an undisturbed run gives."""
    output = tmp_path_factory.mktemp("wanted") / "out"
    (found,) = write(output, some(), num_shards=3)
    return found, output


@pytest.mark.parametrize(
    ("place", "name", "after", "skip"),
    [
        # Before a shard is there, when it is written and has no name, and when a group
        # has its names and is not yet reported.
        (write_shard, "draft_shard", False, 0),
        pytest.param(ShardGroup, "add", True, 1, marks=pytest.mark.stress),
        (ShardGroup, "finish", True, 0),
        # When the dataset has its name, before that, before it is reported, and when
        # it was read for the report.
        (local, "publish", True, 0),
        pytest.param(committing, "commit_dataset", False, 0, marks=pytest.mark.stress),
        (committing, "commit_dataset", True, 0),
        pytest.param(
            committing, "_committed_dataset", True, 0, marks=pytest.mark.stress
        ),
    ],
)
def test_a_worker_is_killed(
    tmp_path: Folder,
    monkeypatch: pytest.MonkeyPatch,
    wanted: tuple[Committed, Folder],
    place: Any,
    name: str,
    after: bool,
    skip: int,
) -> None:
    """The next attempt at a shard or at the commit ends it, or finds it done."""
    output = tmp_path / "out"
    calls = failing_once(monkeypatch, place, name, after=after, skip=skip)
    (found,) = write(output, some(), runner=RETRYING, num_shards=3)
    assert len(calls) > skip
    assert (found.status, found.records) == ("committed", wanted[0].records)
    assert contents(output) == contents(wanted[1])
    assert os.listdir(tmp_path) == ["out"]


def test_a_repeated_commit_of_an_equal_dataset(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It finds the dataset after the end too, also with rejects that were on disk."""
    output, given = tmp_path / "out", []
    # So many that their lists are files.
    bad = [{"id": 10**6 + i, "text": "row", "score": f"x{i}"} for i in range(1000)]
    made = [*some(), *bad]
    options: dict[str, Any] = {"features": {"score": "float"}, "max_reject_rate": 0.9}
    (first,) = write(output, made, **options)
    assert sum(first.rejected.values()) == 1000

    def commit(*arguments: Any) -> Committed:
        given.append(arguments)
        return commit_rows(*arguments)

    monkeypatch.setattr(write_dataset, "commit_rows", commit)
    (second,) = write(output, made, overwrite=True, **options)
    assert (second.status, second.digest) == ("up to date", first.digest)
    facts, counts, plan, run = given[0]
    assert any(isinstance(fact, RejectLog) and fact.path for fact in facts)
    before = contents(output)
    # Not the end of this run, but somebody else, has removed the work on others.
    with pytest.raises(CommitError, match="is gone"):
        commit_rows(_others(facts), counts, plan, run)
    assert contents(output) == before
    assert commit_rows(facts, counts, plan, run) == second
    assert contents(output) == before
    assert os.listdir(tmp_path) == ["out"]


def _others(facts: list[Fact]) -> list[Fact]:
    """Returns the facts of shards of other rows."""
    return [
        dataclasses.replace(fact, crc32c=fact.crc32c ^ 1)
        if isinstance(fact, ShardFile)
        else fact
        for fact in facts
    ]


def _submitted(plan: JobPlan) -> str:
    return plan.publication.job.partition("-")[2]


def test_a_restarted_job_may_have_other_rows(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Once published, random steps that are done again change and fail nothing."""
    output, given = tmp_path / "out", []
    real = commit_rows

    def commit(
        facts: list[Fact], counts: ShardCounts, plan: JobPlan, run: SharedRun
    ) -> Committed:
        first = real(facts, counts, plan, run)
        # As after a loss of all machines: from the first stage on, with other rows.
        seen = run.look(_submitted(plan), overwrite=False)
        assert (seen.state, seen.job) == ("", plan.publication.job)
        others = _others(facts)
        given.append((others, counts, plan, run))
        assert real(facts, counts, plan, run) == first
        assert not caplog.messages
        repeated = real(others, counts, plan, run)
        assert repeated == dataclasses.replace(first, status="repeated")
        assert [said for said in caplog.messages if "rows of this one" in said]
        return first

    monkeypatch.setattr(write_dataset, "commit_rows", commit)
    write(output, some())
    before = contents(output)
    # After its end nobody can tell it from a graph that is submitted once more.
    ((others, counts, plan, run),) = given
    with pytest.raises(CommitError, match="A graph must be submitted once"):
        real(others, counts, plan, run)
    seen = run.look(_submitted(plan), overwrite=False)
    publication = dataclasses.replace(plan.publication, seen=seen.state)
    again = dataclasses.replace(plan, publication=publication)
    with pytest.raises(CommitError, match="A graph must be submitted once"):
        real(others, counts, again, run)
    run.end()
    assert contents(output) == before
    assert os.listdir(tmp_path) == ["out"]


def lines_to(output: Folder, source: Folder, **settings: Any) -> beam.Pipeline:
    """Returns a pipeline that writes the numbers in a file."""
    pipeline = beam.Pipeline(runner=LOCAL)
    _ = (
        pipeline
        | beam.io.ReadFromText(os.fspath(source))
        | beam.Map(lambda line: {"id": int(line)})
        | WriteDataset(output, **settings)
    )
    return pipeline


def test_a_pipeline_that_runs_twice(tmp_path: Folder) -> None:
    """Its second run is no attempt of the first: it is refused, or replaces it."""
    source, output = tmp_path / "rows.txt", tmp_path / "out"
    source.write_text("1\n2\n")
    once = lines_to(output, source)
    once.run().wait_until_finish()
    before = contents(output)
    with pytest.raises(TargetError, match="overwrite=True"):
        once.run()
    assert contents(output) == before
    twice = lines_to(output, source, overwrite=True)
    twice.run().wait_until_finish()
    assert contents(output) == before
    source.write_text("1\n2\n3\n")
    twice.run().wait_until_finish()
    assert len(rows(output)) == 3
    source.write_text("1\n")
    twice.run().wait_until_finish()
    assert len(rows(output)) == 1


@pytest.mark.parametrize("other", ["rows over a dataset", "convert"])
def test_the_first_of_two_runs_to_publish_wins(tmp_path: Folder, other: str) -> None:
    """The second fails clearly, keeps its work meanwhile, and `clean` removes that."""
    output, table, held = tmp_path / "out", tmp_path / "t.csv", tmp_path / "held"
    table.write_text("id,score\n1,0.5\n2,1.5\n")
    exists = other.endswith("dataset")
    if exists:
        write(output, some(10))

    def step(row: dict[str, Any]) -> dict[str, Any]:
        if not held.exists():
            held.write_text("\n".join(os.listdir(hidden(output))))
            if other == "convert":
                convert(table, output)
            else:
                write(output, some(2), overwrite=exists)
        return row

    with pytest.raises((CommitError, TargetError), match="written by another run"):
        write(output, some(), step, overwrite=exists)
    for names in (held.read_text().split(), os.listdir(hidden(output))):
        assert any(name.startswith("rows-") for name in names)
    cleaned = command("clean", output, "--pipelines")
    assert "rows of a pipeline, which may be running" in cleaned.out
    assert sorted(os.listdir(tmp_path)) == ["held", "out", "t.csv"]
    assert len(rows(output)) == 2


# What `clean` said; a step gets a copy of what is around it.
_cleaned: list[Run] = []


def _clean(*arguments: object) -> None:
    _cleaned.append(command("clean", *arguments))


def test_clean_leaves_a_running_pipeline_alone(tmp_path: Folder) -> None:
    """It says why, and the pipeline commits; so it does beside a `convert`."""
    output, table, other = tmp_path / "out", tmp_path / "t.csv", tmp_path / "other"
    table.write_text("id,score\n1,0.5\n2,1.5\n")
    _cleaned.clear()

    def step(row: dict[str, Any]) -> dict[str, Any]:
        if row["id"] == 0:
            _clean(output, "--dry-run")
            _clean(tmp_path)
        return row

    write(output, some(), step)
    assert [run.code for run in _cleaned] == [1, 1]
    for run in _cleaned:
        line = run.out.splitlines()[1]
        assert "rows of a pipeline, which may be running" in line
        assert line.endswith("once the pipeline has ended, --pipelines removes it")
    assert len(rows(output)) == len(some())
    # A run that is "up to date" clears up, too.
    convert(table, other)
    run_of = SharedRun(str(other), NONCE)
    run_of.begin(overwrite=True)
    assert convert(table, other).out.startswith("up to date")
    assert os.listdir(hidden(other))[0]
    run_of.open_plan("c0ffee")
    found = failed(1, "clean", other)
    assert "rows of a pipeline, which may be running" in found.out
    assert command("clean", other, "--pipelines").code == 0
    assert not hidden(other).exists()


def test_a_late_attempt_leaves_nothing(tmp_path: Folder) -> None:
    """A stage that resumes after the commit fails, and makes nothing."""
    run = SharedRun(str(tmp_path / "out"), NONCE)
    rows = run.begin(overwrite=False)
    first, second = run.open_plan("a1"), run.open_plan("b2")
    assert first.dataset != second.dataset
    assert first.rejects != second.rejects
    run.end()
    message = pa.py_buffer(b"rows")
    for late in (
        lambda: rows.put_rows("a1-0", [message]),
        lambda: first.put("a1-0", 0, [(1, message)]),
        lambda: first.get(Segment("a1-0", 0, 1, 4, file="a1-0.rows")),
    ):
        with pytest.raises(CommitError):
            late()
    assert os.listdir(tmp_path) == []


def test_only_what_was_counted_is_written(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bundle of another attempt, and one that is missing, fail the job."""
    real = SpooledBundle.without_rows

    def other(bundle: SpooledBundle) -> SpooledBundle:
        # As an engine does that computes the rows for each of two consumers.
        return dataclasses.replace(real(bundle), word="other")

    monkeypatch.setattr(SpooledBundle, "without_rows", other)
    with pytest.raises(ConservationError, match="another attempt"):
        write(tmp_path / "out", some())
    monkeypatch.undo()
    cut = segment.cut
    monkeypatch.setattr(segment, "cut", lambda *given: [*cut(*given)][:-1])
    with pytest.raises(ConservationError):
        write(tmp_path / "out", some())
    assert not (tmp_path / "out").exists()


@pytest.fixture
def template(tmp_path: Folder) -> Callable[..., beam_runner_api_pb2.Pipeline]:
    """Makes the graph that a template holds, as Dataflow's runner builds it."""

    def make(**settings: Any) -> beam_runner_api_pb2.Pipeline:
        flags = ["--runner=DataflowRunner", "--project=p", "--region=europe-west1"]
        flags.append("--temp_location=gs://bucket/temp")
        pipeline = beam.Pipeline(runner=FnApiRunner(), options=PipelineOptions(flags))
        _ = (
            pipeline
            | beam.io.ReadFromText(os.fspath(tmp_path / "rows.txt"), validate=False)
            | "Parse" >> beam.Map(_parsed)
            | WriteDataset(tmp_path / "out", num_shards=2, **settings)
        )
        # As all runners do before they take the graph.
        pipeline.visit(group_by_key_input_visitor(True))
        return pipeline.to_runner_api(
            default_environment=EmbeddedPythonEnvironment.default()
        )

    return make


# What one job does in the middle of the other.
_meanwhile: list[Callable[[], None]] = []


def _parsed(line: str) -> dict[str, int]:
    # The step is pickled with a copy of what it names: this is the module itself.
    this = sys.modules["tests.program.own_pipelines.test_publication"]
    while this._meanwhile:
        this._meanwhile.pop()()
    return {"id": int(line)}


def launch(
    graph: beam_runner_api_pb2.Pipeline, job: str, rows_file: Folder, lines: range
) -> None:
    """Runs a template, as a job whose workers know its id."""
    rows_file.write_text("".join(f"{line}\n" for line in lines))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JOB_ID", job)
        runner = FnApiRunner()
        runner.run_via_runner_api(graph, PipelineOptions()).wait_until_finish()


def test_a_template_is_run_many_times(
    tmp_path: Folder, template: Callable[..., beam_runner_api_pb2.Pipeline]
) -> None:
    """Each run publishes its own rows over those of the last one, or is refused."""
    rows_file, output = tmp_path / "rows.txt", tmp_path / "out"
    once, often = template(), template(overwrite=True)
    launch(once, "job-1", rows_file, range(50))
    before = contents(output)
    with pytest.raises(TargetError, match="overwrite=True"):
        launch(once, "job-2", rows_file, range(60))
    assert contents(output) == before
    for number, count in enumerate((70, 40)):
        launch(often, f"job-{number}", rows_file, range(count))
        assert sorted(row["id"] for row in rows(output)) == [*range(count)]
    assert command("clean", output, "--pipelines").code == 0
    assert sorted(os.listdir(tmp_path)) == ["out", "rows.txt"]
