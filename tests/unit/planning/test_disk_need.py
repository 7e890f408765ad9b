"""A job's disk space is estimated, checked and reported before anything is read."""

import os
import pathlib
import types

import pytest

from beam_pipeline import sample
from beam_pipeline.planning import sizes
from beam_pipeline.planning.sizes import check_room, free_bytes
from tests.support.plans import planned
from tests.support.segments import IN_FILES
from tests.support.sources import write_csv
from transforms.errors import StorageError

Folder = pathlib.Path


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    lines = (f"{number},w{number % 7}" for number in range(20_000))
    return write_csv(tmp_path_factory.mktemp("table") / "t.csv", "n,w", lines)


def free(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(sizes, "free_bytes", lambda directory: size)


def test_a_limit_counts(table: Folder, tmp_path: Folder) -> None:
    """Ten rows of a large table need little room, in files too."""
    assert planned(table, tmp_path, IN_FILES, limit=10).needed_bytes < 10_000


@pytest.mark.parametrize(
    ("compression", "free_share", "is_refused"),
    [
        ("none", 0.6, False),
        ("none", 0.4, True),
        ("gzip", 0.4, False),
        ("gzip", 0.01, True),
    ],
)
def test_verdicts(
    *,
    table: Folder,
    tmp_path: Folder,
    monkeypatch: pytest.MonkeyPatch,
    compression: str,
    free_share: float,
    is_refused: bool,
) -> None:
    """What cannot be enough is refused, with figures (row 37)."""
    plan = planned(table, tmp_path, compression=compression)
    free(monkeypatch, int(plan.needed_bytes * free_share))
    if is_refused:
        with pytest.raises(StorageError, match=r"needs about .* and .* are free"):
            check_room(plan.spec, plan.needed_bytes)
    else:
        check_room(plan.spec, plan.needed_bytes)


@pytest.mark.parametrize(
    "settings", [{"resize": "crop:8x8"}, {"image_format": "jpeg"}, {"channels": 1}]
)
def test_images_that_are_encoded_again(
    settings: dict[str, object], tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thumbnail of a photo that would not fit may fit: it is not refused."""
    sample.write_photos(tmp_path / "photos")
    plan = planned(tmp_path / "photos", tmp_path, **settings)
    free(monkeypatch, int(plan.needed_bytes * 0.1))
    check_room(plan.spec, plan.needed_bytes)


def test_unfinished_work_counts_as_room(tmp_path: Folder) -> None:
    """It is taken over or removed; the folder of the output need not be there yet."""
    status = os.statvfs(tmp_path)
    plain = free_bytes(str(tmp_path / "a" / "b" / "out"))
    assert plain == pytest.approx(status.f_bavail * status.f_frsize, rel=0.2)
    left = tmp_path / ".out.beam-tfrecord" / "job" / "segments"
    left.mkdir(parents=True)
    with (left / "x").open("wb") as file:
        file.truncate(10**12)
    assert free_bytes(str(tmp_path / "out")) > 10**12


def test_a_file_system_that_does_not_say(
    table: Folder, tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not known stops no run."""

    def fail(path: object) -> types.SimpleNamespace:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "statvfs", fail)
    plan = planned(table, tmp_path)
    check_room(plan.spec, plan.needed_bytes)
