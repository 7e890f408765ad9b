"""The report of `convert`, as JSON, of runs that end well and of those that fail."""

import json
import pathlib
from typing import BinaryIO

import pytest

from tests.support.outputs import dataset
from tests.support.runs import command, convert, refused
from tests.support.sources import write_csv
from transforms.files import open_input

# The stages' own code: what is tested here is not up to Beam.
pytestmark = pytest.mark.usefixtures("without_runner")

Folder = pathlib.Path


class TestReport:
    def test_success(self, small: Folder, tmp_path: Folder) -> None:
        """A scheduler learns status, code, place, digest and counts."""
        report = tmp_path / "report.json"
        convert(small, tmp_path / "out", "--report-json", report)
        found = json.loads(report.read_text())
        assert found.pop("seconds") > 0
        facts = dataset(tmp_path / "out")
        (split,) = facts["splits"]
        assert found == {
            "status": "committed",
            "exit_code": 0,
            "output": str(tmp_path / "out"),
            "digest": facts["digest"],
            "records": 20,
            "splits": {"train": {"records": 20, "bytes": split["bytes"], "shards": 1}},
            "read": 20,
            "written": 20,
            "rejected": {},
            "skipped": {},
            "parts": {},
            "image_notes": {},
            "notes": [],
            "dropped_by_steps": 0,
            "added_by_steps": 0,
        }

    def test_too_many_rejects(self, tmp_path: Folder) -> None:
        """The report of a failure has its code, its type and its message."""
        source = write_csv(
            tmp_path / "source" / "t.csv", "n", [*range(99), "1,1", "2,2"]
        )
        report = tmp_path / "report.json"
        message = refused(3, source, tmp_path / "out", "--report-json", report)
        found = json.loads(report.read_text())
        assert found["status"] == "failed"
        assert found["exit_code"] == 3
        assert found["error"] == "RejectLimitError"
        assert found["message"] in message
        assert found["output"] == str(tmp_path / "out")

    @pytest.mark.parametrize(
        ("code", "source", "options"),
        [
            (2, "nothing.csv", ()),
            (2, "small.csv", ("--shards", 0)),
            (2, "small.csv", ("--spec", "nothing.yaml")),
            (4, "a-folder.csv", ()),
        ],
        ids=["no source", "bad setting", "no spec", "folder"],
    )
    def test_no_failure_leaves_the_report_of_an_earlier_run(
        self,
        code: int,
        source: str,
        options: tuple[object, ...],
        small: Folder,
        tmp_path: Folder,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Whatever went wrong, the report does not say "committed"."""
        monkeypatch.chdir(small.parent)
        (small.parent / "a-folder.csv").mkdir()
        report = tmp_path / "report.json"
        report.write_text('{"status": "committed", "exit_code": 0}')
        out = tmp_path / "out"
        refused(code, source, out, "--report-json", report, *options)
        assert json.loads(report.read_text())["status"] == "failed"
        assert json.loads(report.read_text())["exit_code"] == code

    def test_a_report_holds_no_secret(self, small: Folder, tmp_path: Folder) -> None:
        """Not even where a setting is no path, so that none was taken off."""
        spec = tmp_path / "job.yaml"
        spec.write_text(f"source: {small}\noutput: ['s3://AK:hush@b/x']\n")
        report = tmp_path / "report.json"
        run = command("convert", "--spec", spec, "--report-json", report)
        assert run.code == 2
        assert "hush" not in run.err + report.read_text()
        run = command("convert", small, "s3://AK:hu/sh@b/x", "--report-json", report)
        assert run.code == 2
        assert "written %2F" in run.err

    def test_an_unreadable_source_is_reported(
        self, small: Folder, tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """An error of the operating system is reported like any other."""

        def denied(path: str) -> BinaryIO:
            if path == str(small):
                raise PermissionError(13, "Permission denied", path)
            return open_input(path)

        monkeypatch.setattr("transforms.files.open_input", denied)
        report = tmp_path / "report.json"
        run = command("convert", small, tmp_path / "out", "--report-json", report)
        assert run.code == 4
        assert "small.csv" in run.err
        assert json.loads(report.read_text())["exit_code"] == run.code

    def test_a_place_that_cannot_be_written_is_refused_before_the_work(
        self, small: Folder, tmp_path: Folder
    ) -> None:
        """No exit code but 0 may come from a run that has committed."""
        report = tmp_path / "no folder" / "report.json"
        refused(2, small, tmp_path / "out", "--report-json", report)
        assert not (tmp_path / "out").exists()

    def test_a_report_inside_the_output_is_refused(
        self, small: Folder, tmp_path: Folder
    ) -> None:
        """It would be a foreign file there, and block the next --overwrite."""
        report = tmp_path / "out" / "report.json"
        run = command("convert", small, tmp_path / "out", "--report-json", report)
        assert run.code == 2
        assert not (tmp_path / "out").exists()
