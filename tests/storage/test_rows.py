"""`WriteDataset` into a bucket: one dataset, whole, and nothing beside it."""

import json
import sys
from typing import Any

import apache_beam as beam
import pytest

from beam_pipeline.own_pipelines import write_dataset
from beam_pipeline.own_pipelines.write_dataset import (
    Committed,
    WriteDataset,
    commit_rows,
)
from tests.storage.conftest import Server
from tests.storage.program import remove_left
from tests.support.runs import command
from transforms.errors import CommitError, TargetError

# What the last pipeline gave; the local runner is in this process.
_found: list[Committed] = []
# Whether the other of two runs has been.
_met: list[str] = []


@pytest.fixture(autouse=True)
def _reached(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)


def some(count: int) -> list[dict[str, Any]]:
    return [{"id": i, "text": f"row {i}" * 50} for i in range(count)]


def _keep(one: Committed) -> None:
    _found.append(one)


def write(output: str, made: list[dict[str, Any]], **settings: Any) -> Committed:
    """Writes rows as a dataset; `step` is one of the pipeline."""
    _found.clear()
    step = settings.pop("step", lambda row: row)
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        _ = (
            pipeline
            | beam.Create(made)
            | "Step" >> beam.Map(step)
            | WriteDataset(output, key="id", num_shards=2, **settings)
            | "Keep it" >> beam.Map(_keep)
        )
    (found,) = _found
    return found


def assert_whole(server: Server, records: int, *, left: bool = False) -> None:
    """Checks that the bucket holds a dataset of this many records and nothing else."""
    manifest = json.loads(server.read("out/manifest.json"))
    assert manifest["dataset"]["account"]["written"] == records
    run = manifest["run"]
    shards = [
        s["file"] for split in manifest["dataset"]["splits"] for s in split["shards"]
    ]
    beside = [*manifest["dataset"]["files"], *manifest["derived"]]
    files = [*shards, *(each["file"] for each in beside)]
    wanted = [f"out/{run['folder']}/{name}" for name in files]
    wanted += [f"out/{name}" for name in (*run["pointers"], "manifest.json")]
    keys = [key for key in server.keys("") if not key.endswith("/")]
    if not left:
        assert sorted(keys) == sorted(wanted)
    assert set(wanted) <= set(keys)
    assert server.uploads() == []
    done = command("verify", f"{server.url}/out")
    assert done.code == 0, done


def test_fresh_then_equal_then_replaced(server: Server) -> None:
    """A dataset appears, stays as it is where it would be equal, and is replaced."""
    output = f"{server.url}/out"
    first = write(output, some(300))
    assert (first.status, sum(first.records.values())) == ("committed", 300)
    assert_whole(server, 300)
    before = server.read("out/manifest.json")
    with pytest.raises(TargetError, match="overwrite=True"):
        write(output, some(300))
    again = write(output, some(300), overwrite=True)
    assert (again.status, again.digest) == ("up to date", first.digest)
    assert server.read("out/manifest.json") == before
    assert_whole(server, 300, left=True)
    assert write(output, some(40), overwrite=True).status == "committed"
    remove_left(server, "out")
    assert_whole(server, 40)


@pytest.mark.parametrize("exists", [False, True])
def test_the_first_of_two_runs_to_publish_wins(server: Server, exists: bool) -> None:
    """The other fails clearly; its files are known, and `clean` removes them."""
    output = f"{server.url}/out"
    if exists:
        write(output, some(10))
    _met.clear()

    def step(row: dict[str, Any]) -> dict[str, Any]:
        # The step is pickled with a copy of what it names: this is the module itself.
        this = sys.modules["tests.storage.test_rows"]

        if not this._met:
            this._met.append("once")
            write(output, some(20), overwrite=exists)
        return row

    with pytest.raises(CommitError, match="written by another run"):
        write(output, some(300), step=step, overwrite=exists)
    assert_whole(server, 20, left=True)
    # Its work stays where another run looks for what it may remove.
    assert write(output, some(30), overwrite=True).status == "committed"
    assert any("/rows-" in key for key in server.keys(".out.beam-tfrecord"))
    remove_left(server, "out")
    assert_whole(server, 30)


def test_a_repeated_commit_returns_the_same(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is put again, neither before nor after the run's work is removed."""
    output, given = f"{server.url}/out", []
    real = commit_rows

    def commit(*arguments: Any) -> Committed:
        given.append(arguments)
        # Killed after the publication, and repeated.
        real(*arguments)
        return real(*arguments)

    monkeypatch.setattr(write_dataset, "commit_rows", commit)
    first = write(output, some(300))
    assert first.status == "committed"
    assert real(*given[0]) == first
    assert_whole(server, 300)
    # An equal dataset is there, with the token of another run.
    given.clear()
    again = write(output, some(300), overwrite=True)
    assert again.status == "up to date"
    assert real(*given[0]) == again
    assert_whole(server, 300, left=True)
