"""Pipelines whose workers an engine starts: what they see, and which they are."""

import os
import pathlib
import re
from collections.abc import Callable
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from beam_pipeline.own_pipelines import read_rows, write_dataset
from beam_pipeline.own_pipelines.engine_workers import workers_of
from beam_pipeline.own_pipelines.read_rows import ReadRows
from beam_pipeline.own_pipelines.write_dataset import WriteDataset
from tests.support.sources import write_csv
from transforms.errors import TargetError, WorkerError
from transforms.publishing.target import SharedRun
from transforms.storage import visibility
from transforms.work import worker_check
from transforms.work.worker_check import WorkerRules

Folder = pathlib.Path

FLINK = ["--flink_master=far.example:8081"]
POOL = ["--environment_type=EXTERNAL", "--environment_config=localhost:50000"]
DOCKER = ["--environment_type=DOCKER"]
PROCESS = ["--environment_type=PROCESS", '--environment_config={"command":"/w"}']


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test is a process of its own, as far as the check of workers knows."""
    monkeypatch.setattr(visibility, "_known", None)
    monkeypatch.setattr(worker_check, "_checked", set())


def pipeline_of(runner: str, *flags: str) -> beam.Pipeline:
    """Returns a pipeline for an engine, which runs inside Beam all the same."""
    kind: Callable[..., Any] = type(runner, (FnApiRunner,), {})
    pipeline = beam.Pipeline(runner="FnApiRunner", options=PipelineOptions([*flags]))
    pipeline.runner = kind()
    return pipeline


def rows_of(pipeline: beam.Pipeline) -> "beam.PCollection[Any]":
    return pipeline | beam.Create([{"id": n, "name": f"n{n}"} for n in range(20)])


@pytest.mark.parametrize(
    ("runner", "flags", "at"),
    [
        ("FlinkRunner", FLINK, "'far.example'"),
        ("FlinkRunner", ["--flink_master=localhost:8081", *POOL], ""),
        ("FlinkRunner", ["--flink_master=localhost:8081"], ""),
        ("SparkRunner", ["--spark_master_url=spark://far:7077"], "'far'"),
        ("SparkRunner", PROCESS, ""),
        ("SparkRunner", ["--spark_master_url=spark://localhost:7077"], ""),
        ("PrismRunner", POOL, ""),
        ("PrismRunner", ["--job_endpoint=far:8099"], "'far'"),
        ("PortableRunner", ["--job_endpoint=localhost:8099"], ""),
        ("PortableRunner", ["--job_endpoint=localhost:8099", *DOCKER], ""),
        ("DataflowRunner", [], ""),
    ],
)
def test_where_local_paths_are_refused(
    tmp_path: Folder, runner: str, flags: list[str], at: str
) -> None:
    """Workers on another host, in containers, or that somebody else starts."""
    pipeline = pipeline_of(runner, *flags)
    who = f"The workers of {runner}{f' at {at}' if at else ''}"
    with pytest.raises(TargetError, match=f"{re.escape(who)} must see the output"):
        rows_of(pipeline) | WriteDataset(tmp_path / "out")
    rows_of(pipeline_of(runner, *flags)) | WriteDataset("s3://bucket/out")
    if runner != "DataflowRunner":
        shared = WriteDataset(tmp_path / "out", shared_output=True)
        rows_of(pipeline_of(runner, *flags)) | shared
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("runner", "flags"),
    [
        ("FnApiRunner", FLINK),
        ("FlinkRunner", []),
        ("FlinkRunner", ["--environment_type=LOOPBACK"]),
        ("SparkRunner", []),
        ("PrismRunner", []),
        ("PortableRunner", ["--job_endpoint=embed"]),
        (
            "FlinkRunner",
            ["--flink_master=localhost:8081", "--environment_type=LOOPBACK"],
        ),
    ],
)
def test_where_workers_are_threads(runner: str, flags: list[str]) -> None:
    """Of the program itself: they see what it sees."""
    assert workers_of(pipeline_of(runner, *flags)) is None


def test_the_folder_of_images_must_be_where_the_workers_are() -> None:
    """Workers read what is below it."""
    with pytest.raises(TargetError, match="must see the folder of --images-root"):
        rows_of(pipeline_of("FlinkRunner", *POOL)) | WriteDataset(
            "s3://bucket/out", images_root="photos"
        )


@pytest.fixture
def table(tmp_path: Folder) -> Folder:
    """A small table."""
    return write_csv(tmp_path / "rows.csv", "id", [1, 2])


def test_sources(table: Folder) -> None:
    """`ReadRows` has the same words."""
    with pytest.raises(TargetError, match="PrismRunner must see the source") as caught:
        pipeline_of("PrismRunner", *POOL) | ReadRows(table)
    assert "  " not in str(caught.value)
    pipeline_of("PrismRunner", *POOL) | ReadRows(table, shared_output=True)


def test_large_files_must_be_where_the_workers_are(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that does not travel in the graph is refused like any other."""
    monkeypatch.setattr("beam_pipeline.own_pipelines.engine_workers._FILE_BYTES", 8)
    table = tmp_path / "ids.csv"
    table.write_text("id,split\n1,train\n2,test\n")
    write = WriteDataset("s3://bucket/out", key="id", split_ids=str(table))
    with pytest.raises(TargetError, match=r"too large for the graph; '.*ids\.csv'"):
        rows_of(pipeline_of("FlinkRunner", *FLINK)) | write


def of_the_future(wanted: dict[str, str], **others: Any) -> WorkerRules:
    """Rules of a program of another version."""
    return WorkerRules({**wanted, "beam-tfrecord": "9.9.9"}, **others)


def test_workers_of_other_versions(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the host, what it has and what is wanted; nothing is written."""
    pipeline = pipeline_of("FlinkRunner", *POOL)
    monkeypatch.setattr(write_dataset, "WorkerRules", of_the_future)
    rows_of(pipeline) | WriteDataset(tmp_path / "out", shared_output=True)
    said = rf"host '{os.uname().nodename}'.* has beam-tfrecord \S+ and not 9\.9\.9"
    with pytest.raises(WorkerError, match=said):
        pipeline.run().wait_until_finish()
    assert not (tmp_path / "out").exists()


def test_readers_of_other_versions(
    table: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`ReadRows` alone checks its workers before they read."""
    monkeypatch.setattr(read_rows, "WorkerRules", of_the_future)
    said = r"has beam-tfrecord \S+ and not 9\.9\.9"
    with (
        pytest.raises(WorkerError, match=said),
        pipeline_of("FlinkRunner", *POOL) as pipeline,
    ):
        pipeline | ReadRows(table, shared_output=True)
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        pipeline | ReadRows(table)


def test_a_disk_that_is_not_shared(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers that do not see what the submitter has made write nothing."""
    monkeypatch.setattr(SharedRun, "prepare", lambda self: None)
    with (
        pytest.raises(WorkerError, match=r"/\.out\.beam-tfrecord/.* is not visible"),
        pipeline_of("FlinkRunner", *POOL) as pipeline,
    ):
        rows_of(pipeline) | WriteDataset(tmp_path / "out", shared_output=True)
    assert os.listdir(tmp_path) == []
