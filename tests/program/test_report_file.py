"""`--report-json`, and the other files that a user names: what they may replace."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from tests.support.outputs import names
from tests.support.runs import command, done, failed
from tests.support.sources import write_csv
from transforms.errors import COMMITTED_NOTE
from transforms.storage.local import LocalPath

Folder = pathlib.Path

pytestmark = pytest.mark.usefixtures("without_runner")


@pytest.fixture
def table(tmp_path: Folder) -> Folder:
    return write_csv(tmp_path / "in" / "table.csv", "a", range(100))


def states(folder: Folder) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.mark.parametrize(
    "report",
    [
        "in/table.csv",
        "in/../in/table.csv",
        "link-to-source",
        "out",
        "out/report.json",
        "out/deep/report.json",
        ".out.beam-tfrecord/report.json",
        "in",
        "s3://bucket/report.json",
        "missing/report.json",
        "/dev/full",
        "notes.txt",
    ],
)
def test_a_report_is_refused_where_it_would_replace_or_be_read(
    report: str, table: Folder, tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit 2 before the run; nothing has changed, and no report was written."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link-to-source").symlink_to("in/table.csv")
    (tmp_path / "notes.txt").write_text("of the user")
    before = states(tmp_path)
    run = failed(2, "convert", table, "out", "--report-json", report)
    assert "report" in run.err
    assert states(tmp_path) == before
    assert not (tmp_path / "out").exists()


def test_a_new_file_in_the_source_is_refused(table: Folder, tmp_path: Folder) -> None:
    """The next run would read it; so too where the run fails for another reason."""
    for flags in ((), ("--spec", "missing.yaml"), ("--shards", 0)):
        report = ("--report-json", tmp_path / "in/report.csv")
        failed(2, "convert", tmp_path / "in", tmp_path / "out", *report, *flags)
        assert names(tmp_path / "in") == ["table.csv"]


def test_a_report_beside_files_that_a_glob_names(
    table: Folder, tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the pattern does not name is no part of the source."""
    monkeypatch.chdir(tmp_path / "in")
    done("convert", "*.csv", "../out", "--report-json", "report.json")
    assert json.loads((tmp_path / "in" / "report.json").read_text())["exit_code"] == 0


@pytest.mark.parametrize("earlier", ["nothing", "empty", "link"])
def test_a_report_replaces_reports(
    earlier: str, table: Folder, tmp_path: Folder
) -> None:
    """Of every run; a link stays one, and its target is replaced."""
    report, out = tmp_path / "report.json", tmp_path / "out"
    if earlier == "empty":
        report.touch()
    elif earlier == "link":
        (tmp_path / "real.json").touch()
        report.symlink_to("real.json")
    for status, code, options in (
        ("committed", 0, ()),
        ("up to date", 0, ()),
        ("failed", 2, ("--seed", 1)),
        ("committed", 0, ("--seed", 1, "--overwrite")),
    ):
        run = command("convert", table, out, "--report-json", report, *options)
        assert run.code == code, run.err
        assert json.loads(report.read_text())["status"] == status
    assert report.is_symlink() == (earlier == "link")
    assert not list(tmp_path.glob(".report-*"))


def test_a_report_that_cannot_be_written_after_the_commit(
    table: Folder, tmp_path: Folder
) -> None:
    """A warning names the file; the exit code is that of the conversion."""
    script = os.path.join(os.path.dirname(sys.executable), "beam-tfrecord")
    with open("/dev/full", "w") as full:
        flags = ["--quiet", "--report-json", "-"]
        run = subprocess.run(
            [script, "convert", table, tmp_path / "out", *flags],
            check=True,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert "warning" in run.stderr
    assert "'-'" in run.stderr
    assert "committed" in run.stderr
    assert (tmp_path / "out" / "manifest.json").exists()


@pytest.mark.parametrize("before", ["", "kept\n"])
def test_standard_output(before: str, table: Folder, tmp_path: Folder) -> None:
    """A file that the shell has opened is written on, behind what is in it."""
    log = tmp_path / "log"
    log.write_text(before)
    script = os.path.join(os.path.dirname(sys.executable), "beam-tfrecord")
    with open(log, "ab") as stdout:
        flags = ["--quiet", "--report-json", "-"]
        subprocess.run(
            [script, "convert", table, tmp_path / "out", *flags],
            check=True,
            stdout=stdout,
        )
    text = log.read_text()
    assert text.startswith(before)
    assert json.loads(text.removeprefix(before))["status"] == "committed"


def test_a_lock_that_cannot_be_written_after_the_commit(
    table: Folder, tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says that the dataset was committed."""
    real, lock = LocalPath.create, tmp_path / "lock"

    def full(path: LocalPath, **options: object) -> object:
        if path.path == str(lock):
            raise OSError(28, "No space left on device", path.path)
        return real(path, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(LocalPath, "create", full)
    flags = ("--splits", "a=1,b=1", "--split-lock", lock)
    run = failed(1, "convert", table, tmp_path / "out", *flags)
    assert COMMITTED_NOTE in run.err
    assert repr(str(lock)) in run.err
    assert (tmp_path / "out" / "manifest.json").exists()
