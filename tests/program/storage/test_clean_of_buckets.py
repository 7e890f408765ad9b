"""The command `clean` on an output in an object store."""

import pathlib

import pytest

from tests.support.memory_store import MemoryStore, install
from tests.support.runs import command, done
from tests.support.sources import write_csv
from transforms.errors import StorageError
from transforms.publishing.bucket import BucketTarget

pytestmark = pytest.mark.usefixtures("without_runner")

Folder = pathlib.Path

OUT = "s3://bucket/out"
DAY = 86400.0


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    return install(MemoryStore(), monkeypatch)


@pytest.fixture
def left(
    store: MemoryStore, tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """What a run that could not publish has left; returns the keys."""
    source = write_csv(tmp_path / "in" / "a.csv", "x", range(100))

    def failing(*_arguments: object, **_options: object) -> None:
        raise StorageError("It fails here.")

    with monkeypatch.context() as patch:
        patch.setattr(BucketTarget, "publish", failing)
        assert command("convert", source, OUT).code == 1
    assert any(key.startswith("out/data-") for key in store.keys)
    return store.keys


def test_what_is_young_stays(store: MemoryStore, left: list[str]) -> None:
    """A run may be at work there."""
    run = done("clean", OUT)
    assert "not 7 days old" in run.out
    assert store.keys == left
    store.age(2 * DAY)
    assert command("clean", OUT).code == 0
    assert store.keys == left
    run = done("clean", OUT, "--older-than", "1")
    assert "removed" in run.out
    assert store.keys == []


def test_a_dry_run_removes_nothing(store: MemoryStore, left: list[str]) -> None:
    """It says what would be removed."""
    store.age(8 * DAY)
    run = done("clean", OUT, "--dry-run")
    assert "would be removed" in run.out
    assert store.keys == left


def test_the_dataset_stays(
    store: MemoryStore, left: list[str], tmp_path: Folder
) -> None:
    """Beside what a run of another job has left."""
    source = write_csv(tmp_path / "in" / "b.csv", "x", range(50))
    assert command("convert", source, OUT).code == 0
    store.age(8 * DAY)
    assert command("clean", OUT).code == 0
    assert not {*left} & {*store.keys}
    assert command("verify", OUT).code == 0
