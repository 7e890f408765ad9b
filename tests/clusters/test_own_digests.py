"""Rows generated in the workers: one digest, whatever runs the pipeline and how."""

import pathlib
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pytest
from clusters.notes import Cluster

from beam_pipeline.engines.submit import AddStages
from beam_pipeline.own_pipelines.write_dataset import WriteDataset
from tests.clusters.own_runs import Loss, replacing_losses, run
from tests.conftest import Headline
from tests.support.own_pipelines import bytes_of, digest_of
from transforms.work.store import Store

Folder = pathlib.Path

# Beam leaves the output of the job server that it has started open.
pytestmark = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning",
    "ignore::ResourceWarning",
)
ROWS = 200_000
PARTS = 40


def generated(output: Folder, *, loss: Loss | None = None) -> AddStages:
    """A pipeline that generates rows and scores them.

    Args:
      output: the dataset's folder.
      loss: of a worker, when it stores its rows.
    """

    def make(part: int) -> Iterator[list[dict[str, Any]]]:
        numbers = range(part, ROWS, PARTS)
        for start in range(0, len(numbers), 1000):
            yield [
                {
                    "id": number,
                    "name": f"name {number * 7919 % 1009}",
                    "share": None if number % 17 == 0 else number / 8,
                    "species": f"species {number % 5}",
                }
                for number in numbers[start : start + 1000]
            ]

    def score(row: dict[str, Any]) -> dict[str, Any]:
        if loss is not None:
            loss.before(Store, "put_rows")
        return {**row, "score": row["id"] % 100 / 100}

    def add(pipeline: beam.Pipeline) -> None:
        made = (
            pipeline
            | "Parts" >> beam.Create(range(PARTS))
            | "Make" >> beam.FlatMap(make)
        )
        (
            made
            | "Give" >> beam.FlatMap(lambda rows: rows)
            | "Score" >> beam.Map(score)
            | "Write"
            >> WriteDataset(
                output,
                label="species",
                splits={"train": 0.9, "test": 0.1},
                key="id",
                num_shards=4,
                shared_output=True,
            )
        )

    return add


@pytest.fixture(scope="session")
def expected(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Folder:
    """The dataset of one worker on this machine."""
    folder = tmp_path_factory.mktemp("generated")
    run("local", generated(folder / "out"), folder, request)
    return folder / "out"


def check(output: Folder, expected: Folder, headline: Headline, where: str) -> None:
    """Asserts that a dataset has the bytes of one worker on this machine."""
    assert bytes_of(output) == bytes_of(expected)
    digest = digest_of(expected)
    headline("H7", f"{ROWS:,} rows of an own pipeline, {where}: {digest[:19]}")


def test_on_prism(
    tmp_path: Folder,
    expected: Folder,
    request: pytest.FixtureRequest,
    headline: Headline,
) -> None:
    """Beam's portable runner gives the same bytes."""
    run("prism", generated(tmp_path / "out"), tmp_path, request)
    check(tmp_path / "out", expected, headline, "Prism")


def test_on_flink_with_a_lost_worker(
    flink: Cluster,
    tmp_path: Folder,
    expected: Folder,
    request: pytest.FixtureRequest,
    headline: Headline,
) -> None:
    """A task manager is killed when a worker stores its rows: the same bytes."""
    loss = Loss(tmp_path, "lost")
    with replacing_losses():
        run("flink", generated(tmp_path / "out", loss=loss), tmp_path, request)
    assert (tmp_path / "lost").exists()
    check(tmp_path / "out", expected, headline, "Flink, a task manager killed")
