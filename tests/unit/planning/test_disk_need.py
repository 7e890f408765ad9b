"""A job's disk space is estimated, checked and reported before anything is read."""

import os
import pathlib
import types

import pytest

from beam_pipeline import sample
from beam_pipeline.planning import disk_need
from beam_pipeline.planning.disk_need import (
    DiskNeed,
    check_room,
    estimate,
    free_bytes,
    in_words,
)
from tests.support.plans import planned
from tests.support.runs import command
from tests.support.segments import IN_FILES
from tests.support.sources import write_csv
from transforms.errors import StorageError

Folder = pathlib.Path


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    lines = (f"{number},w{number % 7}" for number in range(20_000))
    return write_csv(tmp_path_factory.mktemp("table") / "t.csv", "n,w", lines)


def free(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(disk_need, "free_bytes", lambda directory: size)


def test_a_limit_counts(table: Folder, tmp_path: Folder) -> None:
    """Ten rows of a large table need little room, in files too."""
    need = estimate(planned(table, tmp_path, IN_FILES, limit=10))
    assert need.total < 10_000


@pytest.mark.parametrize(
    ("compressed", "free_share", "verdict"),
    [
        (False, 1.3, "enough"),
        (False, 1.1, "remark"),
        (False, 0.6, "remark"),
        (False, 0.4, "error"),
        (True, 0.4, "remark"),
        (True, 0.01, "error"),
    ],
)
def test_verdicts(
    *,
    table: Folder,
    tmp_path: Folder,
    monkeypatch: pytest.MonkeyPatch,
    compressed: bool,
    free_share: float,
    verdict: str,
) -> None:
    """Less than half is an error, what may not do is said, with figures (row 37)."""
    compression = "gzip" if compressed else "none"
    plan = planned(table, tmp_path, compression=compression)
    free(monkeypatch, int(estimate(plan).total * free_share))
    if verdict == "error":
        with pytest.raises(StorageError, match=r"needs about .* and .* are free"):
            check_room(plan)
        return
    remark = check_room(plan)
    assert bool(remark) == (verdict == "remark")
    assert (" before compression" in remark) == (compressed and verdict == "remark")


@pytest.mark.parametrize(
    "settings", [{"resize": "crop:8x8"}, {"image_format": "jpeg"}, {"channels": 1}]
)
def test_images_that_are_encoded_again(
    settings: dict[str, object], tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thumbnail of a photo that would not fit may fit: remarked, not refused."""
    sample.write_photos(tmp_path / "photos")
    plan = planned(tmp_path / "photos", tmp_path, **settings)
    free(monkeypatch, int(estimate(plan).total * 0.1))
    assert "if images stay as large as they are" in check_room(plan)


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
    assert check_room(planned(table, tmp_path)) == ""


def test_the_plan_shows_it(table: Folder, tmp_path: Folder) -> None:
    """`plan` has a line of what is needed and what is free."""
    run = command("plan", table, tmp_path / "out", IN_FILES)
    line = next(x for x in run.out.splitlines() if x.startswith("disk "))
    assert "of it until the commit" in line
    assert line.endswith(" free")


def test_words() -> None:
    """Whole sums, and what goes again."""
    assert in_words(DiskNeed(0, 3_000_000_000)) == "3.0 GB"
    assert in_words(DiskNeed(10**9, 2 * 10**9)) == (
        "3.0 GB (1.0 GB of it until the commit)"
    )
