"""Rejects of `convert`: how they are named, and how many a run tolerates."""

import hashlib
import json
import pathlib

import pytest

import beam_pipeline
from tests.support.outputs import EMPTY_SHA256, account, contents, names, rejects
from tests.support.runs import convert, refused
from tests.support.sources import write_csv, write_files

# The stages' own code: what is tested here is not up to Beam.
pytestmark = pytest.mark.usefixtures("without_runner")

Folder = pathlib.Path


class TestRejects:
    CSV = (
        'id,name\n1,a\n\n2,"x\ny"\n3\n4,d,e\nfive,z\n'
        + "".join(f"{number},n\n" for number in range(6, 406))
    ).encode()

    def test_rows_of_csv_are_named_by_row_and_line(self, tmp_path: Folder) -> None:
        """The rejects of a CSV, exactly: blank lines are lines and no rows."""
        source = write_files(tmp_path / "source", {"t.csv": self.CSV}) / "t.csv"
        run = convert(source, tmp_path / "out")
        text = (tmp_path / "out" / "rejects.jsonl").read_text()
        assert [list(json.loads(line)) for line in text.splitlines()] == [
            ["source", "row", "line", "stage", "reason", "message", "sha256"]
        ] * 3
        common = {"source": "t.csv", "stage": "read"}
        assert rejects(tmp_path / "out") == [
            common
            | {
                "row": 3,
                "line": 6,
                "reason": "field_count",
                "message": "row has 1 field, 2 expected",
                "sha256": hashlib.sha256(b"3").hexdigest(),
            },
            common
            | {
                "row": 4,
                "line": 7,
                "reason": "field_count",
                "message": "row has 3 fields, 2 expected",
                "sha256": hashlib.sha256(b"4,d,e").hexdigest(),
            },
            common
            | {
                "row": 5,
                "line": 8,
                "reason": "not_an_integer",
                "message": "column 'id' holds 'five': not an integer (a whole "
                "decimal number, no leading zeros)",
                "sha256": hashlib.sha256(b"five,z").hexdigest(),
            },
        ]
        assert account(tmp_path / "out") == {
            "read": 405,
            "written": 402,
            "rejected": {"field_count": 2, "not_an_integer": 1},
            "skipped": {},
        }
        assert "rejected 3" in run.out

    def test_files_have_neither_row_nor_line(
        self, photos: Folder, jpeg: bytes, tmp_path: Folder
    ) -> None:
        """The rejects of a tree, exactly and sorted by path."""
        good = {f"a/{number:03}.jpg": jpeg for number in range(20)}
        bad = {"b/zero.jpg": b"", "a/zero.png": b"", "a/html.jpg": b"<html></html>"}
        source = write_files(tmp_path / "tree", good | bad)
        convert(source, tmp_path / "out", "--max-reject-rate", 0.2)
        found = rejects(tmp_path / "out")
        assert found[1] == {
            "source": "a/zero.png",
            "row": None,
            "line": None,
            "stage": "write",
            "reason": "empty_file",
            "message": "the file is empty",
            "sha256": EMPTY_SHA256,
        }
        assert [(item["source"], item["reason"]) for item in found] == [
            ("a/html.jpg", "not_an_image"),
            ("a/zero.png", "empty_file"),
            ("b/zero.jpg", "empty_file"),
        ]

    def test_more_than_tolerated_commits_nothing(self, tmp_path: Folder) -> None:
        """Exit code 3 leaves the rejects beside the target, and no target."""
        lines = [*range(199), "1,1", "2,2", "3,3"]
        source = write_csv(tmp_path / "source" / "t.csv", "n", lines)
        (tmp_path / "outs").mkdir()
        message = refused(3, source, tmp_path / "outs" / "out")
        # And the finished work, for a try that tolerates more.
        assert names(tmp_path / "outs") == [".out.beam-tfrecord", "out.rejects.jsonl"]
        left = (tmp_path / "outs" / "out.rejects.jsonl").read_text().splitlines()
        assert [json.loads(line)["row"] for line in left] == [200, 201, 202]
        assert f"beam-tfrecord rejects {tmp_path / 'outs' / 'out'}" in message
        assert "--max-reject-rate 0.015" in message
        assert "field_count: 3, as t.csv, row 200, line 201: row has 2" in message

    def test_a_dataset_with_more_rejects_than_asked_for_is_not_up_to_date(
        self, tmp_path: Folder
    ) -> None:
        """The rate is no part of the digest: it is looked at where nothing is done."""
        source = write_csv(tmp_path / "t.csv", "n", [*range(999), "x"])
        convert(source, tmp_path / "out")
        before = contents(tmp_path / "out")
        report = tmp_path / "report.json"
        options = ("--report-json", report, "--max-reject-rate", 0)
        message = refused(3, source, tmp_path / "out", *options)
        assert "1 of 1,000 were: not_an_integer: 1." in message
        assert json.loads(report.read_text())["rejects"] == str(tmp_path / "out")
        assert contents(tmp_path / "out") == before
        convert(source, tmp_path / "out", "--max-reject-rate", 0.001)
        convert(source, tmp_path / "out")

    def test_a_report_of_too_many_rejects_has_the_counts(
        self, tmp_path: Folder
    ) -> None:
        """Read, rejected by reason, skipped, and where the rejects are."""
        write_csv(tmp_path / "s" / "t.csv", "n", [*range(199), "1,", "2,", "3,"])
        write_files(tmp_path / "s", {"notes.txt": b"-"})
        report = tmp_path / "report.json"
        refused(3, tmp_path / "s", tmp_path / "out", "--report-json", report)
        found = json.loads(report.read_text())
        assert found["read"] == 203
        assert found["rejected"] == {"field_count": 3}
        assert found["skipped"] == {"other_suffix": 1}
        assert found["rejects"] == str(tmp_path / "out.rejects.jsonl")
        # A run that fails sooner has none, whatever the one before has left.
        (tmp_path / "s" / "t.csv").write_text('n\n"1\n')
        refused(4, tmp_path / "s", tmp_path / "out", "--report-json", report)
        found = json.loads(report.read_text())
        assert found["read"] is found["rejected"] is found["rejects"] is None

    @pytest.mark.parametrize("by", ["command", "python"])
    def test_rejects_of_a_failed_run_end_with_the_next_one(
        self, tmp_path: Folder, by: str
    ) -> None:
        """Also where that finds the dataset up to date: they were of other input."""
        source, out = tmp_path / "source" / "t.csv", tmp_path / "out"
        bad = write_csv(source, "n", [*range(99), "1,1", "2,2"]).read_text()
        good = write_csv(source, "n", range(99)).read_text()
        convert(source, out, "--fingerprint", "content")
        source.write_text(bad)
        flags = ("--fingerprint", "content", "--overwrite")
        refused(3, source, out, *flags)
        assert (tmp_path / "out.rejects.jsonl").exists()
        source.write_text(good)
        if by == "command":
            assert convert(source, out, *flags).out.startswith("up to date")
        else:
            found = beam_pipeline.convert(source, out, fingerprint="content")
            assert found.status == "up to date"
        assert not (tmp_path / "out.rejects.jsonl").exists()
