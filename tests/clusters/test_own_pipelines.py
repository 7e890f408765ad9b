"""Pipelines of one's own on real engines: what they read, and no row that travels."""

import pathlib
import re
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from clusters.notes import Cluster

from beam_pipeline.engines.submit import AddStages
from beam_pipeline.own_pipelines.read_dataset import ReadDataset
from beam_pipeline.own_pipelines.read_rows import ReadRows
from beam_pipeline.own_pipelines.write_dataset import WriteDataset
from tests.clusters.own_runs import ROWS, asked, run, scored
from tests.support.own_pipelines import bytes_of

Folder = pathlib.Path

# Beam leaves the output of the job server that it has started open.
pytestmark = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning",
    "ignore::ResourceWarning",
)
on_engines = pytest.mark.parametrize("engine", ["flink", "prism"])


@on_engines
def test_rows_of_a_source(
    engine: str, data: Folder, tmp_path: Folder, request: pytest.FixtureRequest
) -> None:
    """Images of a folder, some dropped and all relabelled, with their account."""
    photos = data / "sample" / "photos"

    def relabel(row: dict[str, Any]) -> dict[str, Any]:
        return {**row, "label": str(row["label"]).upper()}

    def to(output: Folder) -> AddStages:
        def add(pipeline: beam.Pipeline) -> None:
            read = pipeline | ReadRows(photos, shared_output=True)
            (
                read.rows
                | "Keep" >> beam.Filter(lambda row: not row["image"].endswith("0.jpg"))
                | "Relabel" >> beam.Map(relabel)
                | WriteDataset(
                    output,
                    splits="column:split",
                    resize="shorter:64",
                    accounts=read.accounts,
                    shared_output=True,
                )
            )

        return add

    run("local", to(tmp_path / "here"), tmp_path, request)
    run(engine, to(tmp_path / "there"), tmp_path, request)
    assert bytes_of(tmp_path / "there") == bytes_of(tmp_path / "here")


@on_engines
def test_rows_of_a_dataset(
    engine: str, tmp_path: Folder, request: pytest.FixtureRequest
) -> None:
    """What was written is read by the engine's workers: all of it, in batches."""
    dataset, seen = tmp_path / "dataset", tmp_path / "seen"
    run("local", scored(dataset), tmp_path, request)

    def facts(batch: pa.RecordBatch) -> tuple[int, int, int]:
        missing = batch["share"].null_count
        return batch.num_rows, pc.sum(batch["species"]).as_py(), missing

    def note(rows: int, species: int, missing: int) -> None:
        seen.write_text(f"{rows} {species} {missing}")

    def add(pipeline: beam.Pipeline) -> None:
        (
            pipeline
            | "All" >> ReadDataset(dataset, batches=True, labels="ids")
            | "Count" >> beam.Map(facts)
            | beam.CombineGlobally(
                lambda found: tuple(map(sum, zip(*found, strict=True)))
            ).without_defaults()
            | "Note" >> beam.MapTuple(note)
        )

    run(engine, add, tmp_path, request)
    assert seen.read_text() == f"{ROWS} {ROWS * 2} {len(range(0, ROWS, 17))}"


def test_no_row_leaves_its_stage(
    flink: Cluster, tmp_path: Folder, request: pytest.FixtureRequest
) -> None:
    """Rows are scored and sorted in one stage, which gives few elements, and no row."""
    run("flink", scored(tmp_path / "out"), tmp_path, request)
    jobs = asked(flink, "/jobs/overview")["jobs"]
    last = max(jobs, key=lambda job: job["start-time"])
    tasks = asked(flink, f"/jobs/{last['jid']}")["vertices"]
    # The name of a task lists the stages of Beam in it, with the steps of each.
    (task,) = [task for task in tasks if "Score" in task["name"]]
    (steps,) = re.findall(r"MapPartition at \[\d+\]([^)]*)", task["name"])
    assert all(step in steps for step in ("Make", "Score", "Write"))
    # Of each bundle one element with its runs and one with its counts.
    assert 0 < task["metrics"]["write-records"] < 100
