"""`WriteDataset` on Flink whose task managers are lost, with steps that are random."""

import contextlib
import json
import os
import pathlib
import secrets
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pytest
from clusters.notes import Cluster

from beam_pipeline import graph
from beam_pipeline.engines.submit import AddStages
from beam_pipeline.own_pipelines import write_dataset
from beam_pipeline.own_pipelines.write_dataset import Committed, WriteDataset
from tests.clusters.own_runs import Loss, replacing_losses, run, task_managers
from tests.support.outputs import examples
from tests.support.own_pipelines import bytes_of
from tests.support.runs import command
from transforms.core.manifest import Manifest
from transforms.publishing.local import LocalTarget
from transforms.shards import write_shard
from transforms.stages.write import WriteShards
from transforms.work.store import Store

Folder = pathlib.Path

# Beam leaves the output of the job server that it has started open.
pytestmark = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning",
    "ignore::ResourceWarning",
)
# The stages are replaced in this process, and call the real ones in the workers.
# Flink takes a restart for each lost result of each task that another one asks for.
ONE = "--parallelism=1"
PARTS = 8
PART_ROWS = 500


def random_rows(output: Folder, step: Any, found: Folder) -> AddStages:
    """A pipeline whose rows differ in each attempt; it notes what it has committed."""

    def make(part: int) -> Iterator[dict[str, Any]]:
        for number in range(part * PART_ROWS, (part + 1) * PART_ROWS):
            # Too large to travel in the elements of a stage.
            yield {"id": number, "text": secrets.token_hex(500)}

    def note(committed: Committed) -> None:
        facts = (committed.digest, dict(committed.records), committed.status)
        found.write_text(json.dumps(facts))

    def add(pipeline: beam.Pipeline) -> None:
        (
            pipeline
            | "Parts" >> beam.Create(range(PARTS))
            | "Make" >> beam.FlatMap(make)
            | "Step" >> beam.Map(step)
            | "Write"
            >> WriteDataset(
                output,
                key="id",
                splits={"train": 0.8, "test": 0.2},
                num_shards=2,
                shared_output=True,
            )
            | "Note" >> beam.Map(note)
        )

    return add


def check_whole(output: Folder, found: Folder, status: str) -> None:
    """Asserts that a dataset has every row once, and is what was reported."""
    shards = sorted(output.glob("*.tfrecord-*"))
    ids = [example["id"][0] for example in examples(*shards)]
    assert sorted(ids) == [*range(PARTS * PART_ROWS)]
    done = command("verify", output)
    assert done.code == 0, done.err
    manifest = Manifest.from_bytes((output / "manifest.json").read_bytes())
    records = {split.name: split.records for split in manifest.splits}
    assert json.loads(found.read_text()) == [manifest.digest, records, status]


def test_workers_that_resume_after_the_commit(
    flink: Cluster,
    tmp_path: Folder,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    """Random rows, three lost task managers, whose workers go on when all is done."""
    output, found = tmp_path / "out", tmp_path / "found"
    gather, write, commit = losses = [
        Loss(tmp_path, name, stays=True) for name in ("gather", "write", "commit")
    ]

    def step(row: dict[str, Any]) -> dict[str, Any]:
        # A bundle has all of its rows, and has stored none.
        gather.before(Store, "put_rows")
        return row

    def watch(shard: Any) -> Any:
        # An attempt at shards has its folder, and nothing in it.
        write.before(write_shard, "draft_shard")
        return shard

    class Watched(WriteShards):
        def expand(self, shards: Any) -> Any:
            return super().expand(shards | "Watch" >> beam.Map(watch))

    def commit_all(*arguments: Any, **options: Any) -> Any:
        # The dataset is whole, in the folder of the run.
        commit.before(LocalTarget, "publish")
        return write_dataset._commit_of_run(*arguments, **options)

    monkeypatch.setattr(graph, "WriteShards", Watched)
    monkeypatch.setattr(write_dataset, "_commit_of_run", commit_all)
    with contextlib.ExitStack() as stack:
        for loss in losses:
            stack.callback(loss.end)
        with replacing_losses():
            run("flink", random_rows(output, step, found), tmp_path, request)
        check_whole(output, found, "committed")
        before = bytes_of(output)
        stats = {path: path.stat() for path in (output, *output.iterdir())}
        for loss in losses:
            assert "Error" in loss.resume()
    assert bytes_of(output) == before
    assert {path: path.stat() for path in (output, *output.iterdir())} == stats
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".out")]


@pytest.mark.parametrize("mode", ["PIPELINED", "BATCH_FORCED"])
def test_all_is_lost_between_publication_and_report(
    mode: str,
    flink: Cluster,
    tmp_path: Folder,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    """The job begins again with other rows, and returns what it has published."""
    output, found = tmp_path / "out", tmp_path / "found"
    attempts = tmp_path / "attempts"

    with replacing_losses():
        loss = Loss(tmp_path, "published", others=task_managers())

        def commit_all(*arguments: Any, **options: Any) -> Any:
            committed = write_dataset._commit_of_run(*arguments, **options)
            with attempts.open("a") as file:
                file.write(f"{committed[1].digest}\n")
            loss.happen()
            return committed

        monkeypatch.setattr(write_dataset, "_commit_of_run", commit_all)
        add = random_rows(output, lambda row: row, found)
        flags = (f"--execution_mode_for_batch={mode}", ONE)
        run("flink", add, tmp_path, request, *flags)
    check_whole(output, found, "repeated")
    first, second = attempts.read_text().split()
    assert first == second
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".out")]
