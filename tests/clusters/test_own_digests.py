"""Rows generated in the workers: one digest, whatever runs the pipeline and how."""

import pathlib

import pytest
from clusters.notes import Cluster

from tests.clusters.own_runs import ROWS, Loss, replacing_losses, run, scored
from tests.conftest import Headline
from tests.support.own_pipelines import bytes_of, digest_of

Folder = pathlib.Path

# Beam leaves the output of the job server that it has started open.
pytestmark = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning",
    "ignore::ResourceWarning",
)


@pytest.fixture(scope="session")
def expected(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Folder:
    """The dataset of one worker on this machine."""
    folder = tmp_path_factory.mktemp("generated")
    run("local", scored(folder / "out", num_shards=4), folder, request)
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
    run("prism", scored(tmp_path / "out", num_shards=4), tmp_path, request)
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
        add = scored(tmp_path / "out", loss=loss, num_shards=4)
        run("flink", add, tmp_path, request)
    assert (tmp_path / "lost").exists()
    check(tmp_path / "out", expected, headline, "Flink, a task manager killed")
