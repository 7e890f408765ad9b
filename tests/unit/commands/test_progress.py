"""Progress: read off the work folder, rising from 0 to 1."""

import os
import pathlib

import pytest

from beam_pipeline.commands.progress import look, shown_progress
from beam_pipeline.planning.plan import Plan
from tests.support import plans
from tests.support.segments import IN_FILES, IN_MEMORY
from transforms.work.store import Store

Folder = pathlib.Path


def planned(tmp_path: Folder, where: str) -> Plan:
    source = tmp_path / "rows.csv"
    source.write_text("a,b\n" + "1,2.5\n" * 10_000)
    return plans.planned(source, tmp_path, where)


@pytest.fixture
def plan(tmp_path: Folder) -> Plan:
    """A job whose segments are files."""
    made = planned(tmp_path, IN_FILES)
    Store(made.work_folder).make()
    return made


def put(folder: str, name: str, size: int) -> None:
    with open(os.path.join(folder, name), "wb") as file:
        file.truncate(size)


def test_before_the_start(tmp_path: Folder) -> None:
    """Without a work folder nothing has been done, and looking makes none."""
    for where in (IN_FILES, IN_MEMORY):
        assert look(planned(tmp_path, where)) == (0.0, "reading")
    assert os.listdir(tmp_path) == ["rows.csv"]


def test_reading_shows_by_segment_files(plan: Plan) -> None:
    """Each block read is a segment file; all of them are half of the job."""
    assert look(plan)[1] == "reading"
    put(Store(plan.work_folder).segments, "a.segments", 5)
    assert look(plan) == (0.5, "writing")
    for name in "bcd":
        put(Store(plan.work_folder).segments, f"{name}.segments", 5)
    assert look(plan)[0] == 0.5


def test_a_segment_in_the_making_is_no_shard(plan: Plan) -> None:
    """While segments are written the job is reading: the bar does not jump ahead."""
    put(Store(plan.work_folder).attempts, "1-0-ab.tmp", 5_000)
    share, phase = look(plan)
    assert phase == "reading"
    assert share <= 0.5


def test_writing_shows_by_bytes(plan: Plan) -> None:
    """Bytes of shards, against what was estimated, are the other half."""
    store = Store(plan.work_folder)
    wanted = sum(plan.planned.record_bytes.values())
    put(store.segments, "a.segments", 5)
    put(store.dataset, "x-train.tfrecord-00000-of-00002", wanted // 2)
    share, phase = look(plan)
    assert phase == "writing"
    assert share == pytest.approx(0.75, abs=0.01)
    put(store.dataset, "x-train.tfrecord-00001-of-00002", wanted)
    assert look(plan) == (1.0, "committing")


@pytest.mark.parametrize("quiet", [True, False])
@pytest.mark.parametrize("is_long", [True, False])
def test_without_a_terminal(
    plan: Plan,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    quiet: bool,
    is_long: bool,
) -> None:
    """Long runs leave a line on stderr now and then; short and quiet ones do not."""
    if is_long:
        monkeypatch.setattr("beam_pipeline.commands.progress._LINE_SECONDS", 0.0)
    with shown_progress(plan, quiet=quiet) as watch:
        for _ in range(3):
            watch()
    captured = capfd.readouterr()
    assert captured.out == ""
    assert ("0% reading" in captured.err) == (is_long and not quiet)
    assert bool(captured.err) == (is_long and not quiet)
