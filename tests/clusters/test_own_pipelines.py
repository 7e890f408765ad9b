"""Pipelines of one's own on real engines: the same bytes, and no row that travels."""

import json
import pathlib
import re
import urllib.request
from typing import Any

import apache_beam as beam
import pytest

from beam_pipeline.engines.cluster import Cluster
from beam_pipeline.engines.engine import AddStages
from beam_pipeline.engines.hooks import RunHooks
from beam_pipeline.engines.submission import run_on_engine
from beam_pipeline.own_pipelines.read_dataset import ReadDataset
from beam_pipeline.own_pipelines.read_rows import ReadRows
from beam_pipeline.own_pipelines.write_dataset import WriteDataset
from beam_pipeline.settings.spec import make_spec
from tests.clusters.runs import flags_for
from tests.support.engines import choose
from tests.support.own_pipelines import bytes_of
from transforms.stages.examples import DecodeExamples, EncodeExamples
from transforms.tfrecord.read import ReadAllTFRecords
from transforms.tfrecord.write import WriteTFRecords

Folder = pathlib.Path

# Beam leaves the output of the job server that it has started open.
pytestmark = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning",
    "ignore::ResourceWarning",
)
on_engines = pytest.mark.parametrize("engine", ["flink", "prism"])
PARTS = 40
PART_ROWS = 5_000


def run(
    engine: str, add: AddStages, folder: Folder, request: pytest.FixtureRequest
) -> None:
    """Runs a pipeline to its end on an engine, or on the runner inside Beam."""
    if engine == "local":
        with beam.Pipeline(runner="FnApiRunner") as pipeline:
            add(pipeline)
        return
    _, _, *master = flags_for(engine, request)
    given = {"source": "rows", "output": str(folder / "out"), "runner": engine}
    if master:
        given["flink_master"] = master[1]
    chosen = choose(make_spec(given), [])
    assert chosen is not None
    work = folder / f"engine-{engine}"
    run_on_engine(chosen.engine, chosen.place, add, RunHooks(), work_folder=str(work))


def scored(output: Folder, **settings: Any) -> AddStages:
    """The first example: generated rows, a score, a whole dataset."""

    def make(part: int) -> Any:
        for number in range(part * PART_ROWS, (part + 1) * PART_ROWS):
            yield {
                "id": number,
                "name": f"name {number * 7919 % 1009}",
                "share": None if number % 17 == 0 else number / 8,
                "species": f"species {number % 5}",
            }

    def score(row: dict[str, Any]) -> dict[str, Any]:
        return {**row, "score": row["id"] % 100 / 100}

    def add(pipeline: beam.Pipeline) -> None:
        (
            pipeline
            | "Parts" >> beam.Create(range(PARTS))
            | "Make" >> beam.FlatMap(make)
            | "Score" >> beam.Map(score)
            | "Write"
            >> WriteDataset(
                output,
                label="species",
                splits={"train": 0.9, "test": 0.1},
                key="id",
                **settings,
            )
        )

    return add


@on_engines
def test_scored_rows(
    engine: str, tmp_path: Folder, request: pytest.FixtureRequest
) -> None:
    """200,000 rows of an own pipeline: the bytes of the local run."""
    run("local", scored(tmp_path / "here"), tmp_path, request)
    run(engine, scored(tmp_path / "there"), tmp_path, request)
    assert bytes_of(tmp_path / "there") == bytes_of(tmp_path / "here")


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
            read = pipeline | ReadRows(photos)
            (
                read.rows
                | "Keep" >> beam.Filter(lambda row: not row["image"].endswith("0.jpg"))
                | "Relabel" >> beam.Map(relabel)
                | WriteDataset(
                    output,
                    splits="column:split",
                    resize="shorter:64",
                    accounts=read.accounts,
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
    """What was written is read by the engine's workers, all of it."""
    dataset, seen = tmp_path / "dataset", tmp_path / "seen"
    run("local", scored(dataset), tmp_path, request)

    def note(rows: list[dict[str, Any]]) -> None:
        found = sorted(f"{row['species']} {row['score']:.2f}" for row in rows)
        seen.write_text("\n".join(found))

    def add(pipeline: beam.Pipeline) -> None:
        (
            pipeline
            | ReadDataset(dataset, split="test", columns=["species", "score"])
            | beam.combiners.ToList()
            | beam.Map(note)
        )

    run(engine, add, tmp_path, request)
    there = seen.read_text()
    run("local", add, tmp_path, request)
    assert there == seen.read_text()
    assert 19_000 < len(there.splitlines()) < 21_000


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


def asked(cluster: Cluster, path: str) -> Any:
    with urllib.request.urlopen(cluster.web + path) as answer:
        return json.load(answer)


@on_engines
def test_examples_of_own_files(
    engine: str, tmp_path: Folder, request: pytest.FixtureRequest
) -> None:
    """Rows become Examples in files, and come back from the files that are named."""
    schema, files = {"id": "int64", "name": "text"}, tmp_path / "files"
    rows = [{"id": n, "name": f"n{n}" if n % 3 else None} for n in range(5000)]
    seen = tmp_path / "seen"

    def note(found: list[dict[str, Any]]) -> None:
        seen.write_text(json.dumps(sorted(found, key=lambda row: row["id"])))

    def write(pipeline: beam.Pipeline) -> None:
        records = pipeline | beam.Create(rows) | EncodeExamples(schema)
        records | WriteTFRecords(f"{files}/x", num_shards=3)

    def read(pipeline: beam.Pipeline) -> None:
        (
            pipeline
            | beam.Create([f"{files}/x*"])
            | ReadAllTFRecords()
            | DecodeExamples(schema)
            | beam.combiners.ToList()
            | beam.Map(note)
        )

    run(engine, write, tmp_path, request)
    run(engine, read, tmp_path, request)
    assert json.loads(seen.read_text()) == rows
