"""The report of `convert`, as JSON, of runs that end well and of those that fail."""

import json
import pathlib
import re

import pytest

from tests.support.outputs import dataset
from tests.support.pages import blocks_of
from tests.support.runs import command, convert, failed, python, refused
from tests.support.sources import write_csv

# The stages' own code: what is tested here is not up to Beam.
pytestmark = pytest.mark.usefixtures("without_runner")

Folder = pathlib.Path

# What tells a report of an earlier run from other files.
EARLIER = {"status": "committed", "exit_code": 0, "output": "/out", "seconds": 1.5}


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
            "classes": {"train": split["classes"]},
            "part": "",
            "drift": {},
            "notes": [],
            "dropped_by_steps": 0,
            "added_by_steps": 0,
        }

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
        report.write_text(json.dumps(EARLIER))
        out = tmp_path / "out"
        refused(code, source, out, "--report-json", report, *options)
        assert json.loads(report.read_text())["status"] == "failed"
        assert json.loads(report.read_text())["exit_code"] == code

    def test_a_failure_names_what_a_success_names(
        self, small: Folder, tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The absolute folder, and the part: a monitor knows both runs as one job."""
        monkeypatch.chdir(tmp_path)
        report = tmp_path / "report.json"
        options = ("--part", "1", "--report-json", report)
        refused(4, write_csv(tmp_path / "e.csv", "id", []), "out", *options)
        failure = json.loads(report.read_text())
        convert(small, "out", *options)
        success = json.loads(report.read_text())
        assert (
            failure["output"] == success["output"] == str(tmp_path / "out" / "part=1")
        )
        assert failure["part"] == success["part"] == "1"

    def test_monitors_take_the_report_of_a_failure(
        self, small: Folder, tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The programs for Prometheus and OpenLineage say that a run failed."""
        monkeypatch.chdir(tmp_path)
        blocks = [block.text for block in blocks_of("docs/how-to/nightly.md")]
        monitors = [text for text in blocks if '"report.json"' in text]
        assert len(monitors) == 2
        for code, options in (
            (0, ()),
            (2, ("--shards", 0)),
            (3, ("--min-records", 99)),
        ):
            run = command(
                "convert", small, "out", "--report-json", "report.json", *options
            )
            assert run.code == code
            printed = python("-c", "\n".join(monitors), check=True).stdout
            up = f'dataset_up{{dataset="{tmp_path / "out"}"}} {int(code == 0)}\n'
            assert up in (tmp_path / "dataset.prom").read_text()
            event = json.loads(printed)
            assert event["eventType"] == ("FAIL" if code else "COMPLETE")
            assert event["job"]["name"] == str(tmp_path / "out")

    def test_a_report_holds_no_secret(self, small: Folder, tmp_path: Folder) -> None:
        """Not even where a setting is no path, so that none was taken off."""
        spec = tmp_path / "job.yaml"
        spec.write_text(f"source: {small}\noutput: ['s3://AK:hush@b/x']\n")
        report = tmp_path / "report.json"
        run = failed(2, "convert", "--spec", spec, "--report-json", report)
        assert "hush" not in run.err + report.read_text()
        run = failed(2, "convert", small, "s3://AK:hu/sh@b/x", "--report-json", report)
        assert "environment" in run.err


class TestNotes:
    """What a run says about records that are there, but perhaps should not be."""

    def test_records_without_the_label(self, tmp_path: Folder) -> None:
        """The run, its report and `inspect` count them, and name the remedy."""
        lines = [f"{n},{'' if n % 10 == 3 else 'ab'[n % 2]}" for n in range(60)]
        source = write_csv(tmp_path / "t.csv", "id,kind", lines)
        options = ("--label-column", "kind")
        spec = tmp_path / "spec.yaml"
        spec.write_text("features: {kind: {missing: reject}}")
        out, report = tmp_path / "out", tmp_path / "report.json"
        said = convert(source, out, *options, "--report-json", report).out
        note = (
            "of 60 records 6 have no 'kind', the label to predict; readers find it "
            "missing, or -1. To reject such rows, give 'kind' 'missing: reject' in a "
            "--spec"
        )
        assert f"note: {note}\n" in said
        assert json.loads(report.read_text())["notes"] == [note]
        assert note in command("inspect", out).out
        strict = (*options, "--spec", spec, "--max-reject-rate", 0.5)
        assert "note" not in command("plan", source, tmp_path / "b", *strict).out
        assert "note" not in convert(source, tmp_path / "b", *strict).out
        # A column that nothing is to be predicted from may be empty.
        assert "note" not in convert(source, tmp_path / "c").out

    def test_rows_of_one_key(self, tmp_path: Folder) -> None:
        """They stay, and a note counts them and names two of them."""
        lines = [f"{n},a" for n in range(40)] + ["7,b", "7,c", "30,d"]
        source = write_csv(tmp_path / "t.csv", "id,kind", lines)
        options = ("--shards", 7)
        said = convert(source, tmp_path / "out", *options, "--key-column", "id").out
        assert "note: 3 rows have a key that an earlier row has, as t.csv, row " in said
        (places,) = re.findall(r"as t.csv, row (\d+) and t.csv, row (\d+);", said)
        assert places in [("8", "41"), ("31", "43")]
        assert dataset(tmp_path / "out")["account"]["written"] == 43
        assert "note" not in convert(source, tmp_path / "b", *options).out
        unique = write_csv(tmp_path / "u.csv", "id,kind", lines[:40])
        convert_unique = convert(unique, tmp_path / "u", *options, "--key-column", "id")
        assert "note" not in convert_unique.out

    def test_a_dataset_that_shrinks(self, tmp_path: Folder) -> None:
        """A note says how many records there were, if most of them are gone."""
        note = "the dataset that was replaced had 40 records; this one has 19"
        for count, noted in ((40, False), (19, True), (19, False), (10, False)):
            source = write_csv(tmp_path / "t.csv", "id", range(count))
            said = convert(source, tmp_path / "out", "--overwrite", "--seed", count).out
            assert (f"note: {note}\n" in said) is noted

    def test_features_that_differ_from_those_replaced(self, tmp_path: Folder) -> None:
        """A note names each with what it was and is, and class ids that changed."""
        note = (
            "note: changed from the dataset that was replaced: 'n' was int64 and is "
            "float (not in every record), 3 class ids of 'kind' changed: 0 was 'cat' "
            "and is 'ant', 'x' was int64 and is absent, 'y' was absent and is text\n"
        )
        for head, lines, noted in (
            ("n,kind,x", ["1,cat,1", "2,dog,2"], ""),
            ("n,kind,x", ["3,cat,1", "4,dog,2", "5,emu,3"], ""),
            ("n,kind,y", ["1.5,cat,a", "2,ant,b", ",dog,c"], note),
        ):
            source = write_csv(tmp_path / "t.csv", head, lines)
            options = ("--overwrite", "--label-column", "kind")
            said = convert(source, tmp_path / "out", *options).out
            assert noted in said
            assert ("note: " in said) is bool(noted)

    def test_tables_of_another_format(self, tmp_path: Folder) -> None:
        """A note names the tables that the run does not read, and how to read them."""
        write_csv(tmp_path / "in" / "t.csv", "id", range(9))
        for number in range(2):
            (tmp_path / "in" / f"{number}.jsonl").write_text('{"id": 1}\n')
        note = (
            "2 JSON lines files skipped, such as '0.jsonl'; --format jsonl reads these "
            "instead\n"
        )
        assert note in convert(tmp_path / "in", tmp_path / "out").err
        assert f"note    {note}" in command("plan", tmp_path / "in", tmp_path / "b").out
        options = ("--exclude", "*.jsonl")
        assert not convert(tmp_path / "in", tmp_path / "b", *options).err
