"""Progress: read off the work folder, rising from 0 to 1."""

import io
import os
import pathlib
import re
import time
from typing import Any

import pytest
from PIL import Image

from beam_pipeline.commands import progress
from beam_pipeline.commands.progress import (
    Progressed,
    look,
    shown_planning,
    shown_progress,
)
from beam_pipeline.planning.plan import Plan
from tests.support import plans
from tests.support.segments import IN_FILES, IN_MEMORY
from transforms.storage import local
from transforms.storage.files import storage
from transforms.storage.local import listed_so_far
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


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def on_terminal(monkeypatch: pytest.MonkeyPatch, kind: str = "xterm") -> Terminal:
    """Makes standard error a terminal of a kind."""
    terminal = Terminal()
    monkeypatch.setenv("TERM", kind)
    monkeypatch.setattr("sys.stderr", terminal)
    return terminal


def put(folder: str, name: str, size: int) -> None:
    with open(os.path.join(folder, name), "wb") as file:
        file.truncate(size)


def test_before_the_start(tmp_path: Folder) -> None:
    """Without a work folder nothing has been done, and looking makes none."""
    for where in (IN_FILES, IN_MEMORY):
        seen = look(planned(tmp_path, where))
        assert (seen.phase, seen.share, seen.written) == ("reading", 0.0, 0)
    assert os.listdir(tmp_path) == ["rows.csv"]


def test_reading_shows_by_segment_files(plan: Plan) -> None:
    """Each block read is a segment file; all of them are half of the job."""
    assert look(plan).phase == "reading"
    put(Store(plan.work_folder).segments, "a.segments", 5)
    seen = look(plan)
    assert (seen.phase, seen.share) == ("writing", 0.5)
    for name in "bcd":
        put(Store(plan.work_folder).segments, f"{name}.segments", 5)
    assert look(plan).share == 0.5


def test_reading_of_a_tree_shows_by_files(tmp_path: Folder) -> None:
    """A block is a run of names, which take less time than what they name."""
    folder = tmp_path / "tree" / "cat"
    folder.mkdir(parents=True)
    Image.new("L", (1, 1)).save(folder / "0.png")
    for number in range(1, 3 * 4096):
        os.link(folder / "0.png", folder / f"{number}.png")
    made = plans.planned(folder.parent, tmp_path, IN_FILES)
    store = Store(made.work_folder)
    store.make()
    assert (look(made).phase, look(made).share) == ("reading", 0.0)
    put(store.segments, "a.segments", 5)
    put(store.segments, "b.segments", 5)
    seen = look(made)
    assert seen.phase == "reading"
    assert seen.share == pytest.approx(0.1)
    put(store.segments, "c.segments", 5)
    assert look(made) == Progressed("writing", 0.15, 0)
    (tmp_path / ".out.beam-tfrecord" / "made-by-beam-tfrecord").write_bytes(b"")
    made = plans.planned(folder.parent, tmp_path, IN_FILES, limit=9)
    store = Store(made.work_folder)
    store.make()
    put(store.segments, "a.segments", 5)
    assert look(made) == Progressed("writing", 0.15, 0)


def test_writing_into_a_bucket_shows_by_receipts(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shards go into the target there, where an older dataset may have others."""
    monkeypatch.setattr(progress, "is_remote", lambda path: True)
    shards = sum(plan.sharding.shards.values())
    store = Store(plan.work_folder)
    put(store.segments, "a.segments", 5)
    put(store.dataset, "x", 5_000)
    assert look(plan) == Progressed("writing", 0.5, 0)
    put(store.receipts, f"{'0' * 32}-{shards}.shards", 5)
    assert look(plan) == Progressed("committing", 1.0, 0)


def test_a_segment_in_the_making_is_no_shard(plan: Plan) -> None:
    """While segments are written the job is reading: the bar does not jump ahead."""
    put(Store(plan.work_folder).attempts, "1-0-ab.tmp", 5_000)
    seen = look(plan)
    assert seen.phase == "reading"
    assert seen.share <= 0.5


def test_writing_shows_by_bytes(plan: Plan) -> None:
    """Bytes of shards, against what was estimated, are the other half."""
    store = Store(plan.work_folder)
    wanted = sum(plan.planned.record_bytes.values())
    put(store.segments, "a.segments", 5)
    put(store.dataset, "x-train.tfrecord-00000-of-00002", wanted // 2)
    seen = look(plan)
    assert seen.phase == "writing"
    assert seen.share == pytest.approx(0.75, abs=0.01)
    assert seen.written == wanted // 2
    put(store.dataset, "x-train.tfrecord-00001-of-00002", wanted)
    seen = look(plan)
    assert (seen.phase, seen.share) == ("committing", 1.0)


def test_inline_jobs_show_writing_only(tmp_path: Folder) -> None:
    """Without segment files reading cannot be seen; the shards are the whole job."""
    plan = planned(tmp_path, IN_MEMORY)
    store = Store(plan.work_folder)
    store.make()
    assert look(plan).share == 0.0
    wanted = sum(plan.planned.record_bytes.values())
    put(store.dataset, "x", wanted // 4)
    assert look(plan).share == pytest.approx(0.25, abs=0.01)


@pytest.mark.parametrize("quiet", [True, False])
def test_without_a_terminal(
    plan: Plan, capfd: pytest.CaptureFixture[str], quiet: bool
) -> None:
    """Short runs in a log file leave no line, quiet or not."""
    with shown_progress(plan, quiet=quiet) as watch:
        for _ in range(3):
            watch()
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "")


def test_long_runs_without_a_terminal_say_so(
    plan: Plan, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line on stderr now and then, and nothing on stdout."""
    monkeypatch.setattr("beam_pipeline.commands.progress._LINE_SECONDS", 0.0)
    with shown_progress(plan, quiet=False) as watch:
        watch()
    captured = capfd.readouterr()
    assert captured.out == ""
    assert "0% reading" in captured.err


def test_on_a_terminal(
    plan: Plan, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line that disappears when the run ends."""
    terminal = on_terminal(monkeypatch)
    with shown_progress(plan, quiet=False) as watch:
        watch()
        assert "0% reading" in terminal.getvalue()
    assert terminal.getvalue().endswith(" \r")
    assert capfd.readouterr().out == ""


def test_listing_shows_in_a_log(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Now and then, until planning ends; nothing where it is short or quiet."""
    for quiet in (True, False):
        with shown_planning(quiet=quiet):
            pass
    assert capfd.readouterr() == ("", "")
    monkeypatch.setattr("beam_pipeline.commands.progress._LINE_SECONDS", 0.01)
    with shown_planning(quiet=False):
        time.sleep(0.2)
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("listing and sampling the source")
    assert captured.err.endswith("\n")


def test_a_line_fits_80_columns(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal it shows share, phase and ETA, and the bytes last."""
    terminal = on_terminal(monkeypatch)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("time.monotonic", iter(range(0, 10**6, 7)).__next__)
    store = Store(plan.work_folder)
    put(store.segments, "a.segments", 5)
    with shown_progress(plan, quiet=False) as watch:
        watch()
        put(store.dataset, "x", sum(plan.planned.record_bytes.values()) // 2)
        watch()
        watch()
    lines = re.split(r"[\r\n]+", terminal.getvalue())
    assert all(len(line) < 80 for line in lines)
    wanted = r" 75% writing, ETA \d+:\d\d:\d\d, .* written"
    assert any(re.match(wanted, line) for line in lines)


def test_files_are_counted_while_they_are_listed(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bar counts the files of the folders that were read so far."""
    for number in range(3):
        (tmp_path / "in" / f"{number}").mkdir(parents=True)
        (tmp_path / "in" / f"{number}" / "x.csv").touch()
    seen = []

    def watched(*arguments: Any) -> Any:
        seen.append(listed_so_far())
        return scan(*arguments)

    scan = local._scan
    monkeypatch.setattr(local, "_scan", watched)
    assert len(storage(str(tmp_path / "in")).list_tree()) == 3
    assert seen[1:] == [0, 1, 2]
    assert listed_so_far() == 3
