"""`convert` from the command line to the committed directory."""

import contextlib
import csv
import dataclasses
import hashlib
import io
import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from typing import Any, BinaryIO

import pytest
import yaml

import beam_pipeline
from beam_pipeline import sample
from beam_pipeline.cli import main
from transforms.core.example import messages
from transforms.core.tfrecord import TFRecordReader
from transforms.errors import RejectLimitError
from transforms.files import open_input
from transforms.publishing import target

Folder = pathlib.Path

TFDS_FILES = ["dataset_info.json", "features.json"]
EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()


@dataclasses.dataclass(frozen=True)
class Run:
    """What a run of the command line came to."""

    code: int
    out: str
    err: str


def command(*arguments: object) -> Run:
    """Runs the command line in this process."""
    out, err = io.StringIO(), io.StringIO()
    handler = signal.getsignal(signal.SIGTERM)
    try:
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            pytest.raises(SystemExit) as stop,
        ):
            main([str(argument) for argument in arguments])
    finally:
        signal.signal(signal.SIGTERM, handler)
    assert isinstance(stop.value.code, int)
    return Run(stop.value.code, out.getvalue(), err.getvalue())


def convert(source: object, output: object, *options: object) -> Run:
    """Runs `convert`; it must end with 0."""
    run = command("convert", source, output, *options)
    assert run.code == 0, run.err
    return run


def refused(code: int, source: object, output: object, *options: object) -> str:
    """Runs `convert`, which must end with `code`; returns its message."""
    run = command("convert", source, output, *options)
    assert run.code == code, run
    assert run.out == ""
    assert "Traceback" not in run.err
    # Before it may stand what the run is doing to what it has found.
    said, mark, error = run.err.rpartition("error: ")
    assert mark
    assert said == "" or said.endswith("\n")
    assert len(error.encode()) <= 1024 + len("\n")
    return mark + error


def process(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs the command line as a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "beam_pipeline", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        **{"timeout": 60, **options},
    )


def manifest(directory: Folder) -> dict[str, Any]:
    return json.loads((directory / "manifest.json").read_bytes())


def dataset(directory: Folder) -> dict[str, Any]:
    """Returns the part of the manifest that input and spec decide."""
    return manifest(directory)["dataset"]


def names(directory: Folder) -> list[str]:
    return sorted(os.listdir(directory))


def contents(directory: Folder) -> dict[str, bytes]:
    """Returns every file but the manifest, by name."""
    return {
        path.name: path.read_bytes()
        for path in directory.iterdir()
        if path.name != "manifest.json"
    }


def payloads(directory: Folder, split: str | None = None) -> list[bytes]:
    """Returns the records of a split, or of all splits, in the shards' order."""
    return [
        payload
        for facts in dataset(directory)["splits"]
        if split in (None, facts["name"])
        for shard in facts["shards"]
        for payload in TFRecordReader(str(directory / shard["file"]))
    ]


def row_of(payload: bytes) -> dict[str, Any]:
    """Returns a record of scalars as plain values."""
    row = {}
    for name, feature in messages.Example.FromString(payload).features.feature.items():
        (value,) = getattr(feature, feature.WhichOneof("kind")).value
        row[name] = value
    return row


def rows(directory: Folder, split: str | None = None) -> list[dict[str, Any]]:
    return [row_of(payload) for payload in payloads(directory, split)]


def rejects(directory: Folder) -> list[dict[str, Any]]:
    text = (directory / "rejects.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def account(directory: Folder) -> dict[str, Any]:
    return dataset(directory)["account"]


def split_sizes(directory: Folder) -> dict[str, int]:
    return {split["name"]: split["records"] for split in dataset(directory)["splits"]}


def write_csv(path: Folder, columns: str, lines: Iterable[object]) -> Folder:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([columns, *map(str, lines), ""]), encoding="utf-8")
    return path


def write_files(root: Folder, files: Mapping[str, bytes]) -> Folder:
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """84 drawn images as split/label/file; none of the tests changes them."""
    folder = tmp_path_factory.mktemp("source") / "photos"
    sample.write_photos(folder)
    return folder


@pytest.fixture(scope="session")
def table(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """10,000 rows of four features; none of the tests changes them."""
    path = tmp_path_factory.mktemp("source") / "rows.csv"
    sample.write_rows(path)
    return path


@pytest.fixture
def jpeg(photos: Folder) -> bytes:
    return (photos / "train" / "circle" / "0000.jpg").read_bytes()


@pytest.fixture
def small(tmp_path: Folder) -> Folder:
    """A CSV of 20 rows, `number` and `word`."""
    return write_csv(
        tmp_path / "source" / "small.csv",
        "number,word",
        (f"{number},w{number % 3}" for number in range(20)),
    )


class TestOutputDirectory:
    def test_images_give_shards_manifest_and_tfds_files(
        self, photos: Folder, tmp_path: Folder
    ) -> None:
        """The directory of an image job holds these files and no others."""
        run = convert(photos, tmp_path / "out")
        assert names(tmp_path / "out") == [
            *TFDS_FILES,
            "label.labels.txt",
            "manifest.json",
            "photos-test.tfrecord-00000-of-00001",
            "photos-train.tfrecord-00000-of-00001",
            "photos-validation.tfrecord-00000-of-00001",
        ]
        assert split_sizes(tmp_path / "out") == sample.IMAGES_PER_SPLIT
        assert str(tmp_path / "out") in run.out.splitlines()[-1]
        assert "Traceback" not in run.err

    def test_image_records_hold_the_untouched_file(
        self, photos: Folder, tmp_path: Folder
    ) -> None:
        """Every image comes back byte for byte, with its label, name and shape."""
        convert(photos, tmp_path / "out")
        labels = ["circle", "square", "triangle"]
        stored = rows(tmp_path / "out")
        assert len(stored) == 84
        for row in stored:
            name = row["filename"].decode()
            assert set(row) == {
                *("image", "label", "filename", "height", "width", "depth")
            }
            assert row["image"] == (photos / name).read_bytes()
            assert labels[row["label"]] == name.split("/")[1]
            assert row["depth"] == 3
            assert 64 <= row["height"] <= 160
            assert 64 <= row["width"] <= 160
        assert (tmp_path / "out" / "label.labels.txt").read_text().split() == labels

    def test_csv_gives_shards_manifest_and_tfds_files(
        self, table: Folder, tmp_path: Folder
    ) -> None:
        """The directory of a CSV job holds these files and no others."""
        out = tmp_path / "out"
        convert(table, out, "--splits", "train=0.8,validation=0.1,test=0.1")
        assert names(out) == [
            *TFDS_FILES,
            "manifest.json",
            "rows-test.tfrecord-00000-of-00001",
            "rows-train.tfrecord-00000-of-00001",
            "rows-validation.tfrecord-00000-of-00001",
        ]
        assert sum(split_sizes(out).values()) == sample.ROWS

    def test_every_csv_value_is_in_some_record(
        self, table: Folder, tmp_path: Folder
    ) -> None:
        """The records of all splits are the rows of the file, missing ones absent."""
        convert(table, tmp_path / "out", "--splits", "a=1,b=1")
        with table.open(newline="") as file:
            wanted = sorted(
                (
                    row["feature0"] == "True",
                    int(row["feature1"]),
                    row["feature2"].encode(),
                    float(row["feature3"]) if row["feature3"] else -99.0,
                )
                for row in csv.DictReader(file)
            )
        found = sorted(
            (
                bool(row["feature0"]),
                row["feature1"],
                row["feature2"],
                row.get("feature3", -99.0),
            )
            for row in rows(tmp_path / "out")
        )
        assert [row[:3] for row in found] == [row[:3] for row in wanted]
        assert [row[3] for row in found] == pytest.approx([row[3] for row in wanted])

    def test_manifest_names_every_other_file_with_its_size(
        self, photos: Folder, tmp_path: Folder
    ) -> None:
        """What the manifest names is what lies there, in size."""
        convert(photos, tmp_path / "out", "--shards", 2)
        facts = dataset(tmp_path / "out")
        shards = [shard for split in facts["splits"] for shard in split["shards"]]
        named = {item["file"]: item["bytes"] for item in [*shards, *facts["files"]]}
        assert named == {
            name: len(data) for name, data in contents(tmp_path / "out").items()
        }

    def test_verify_finds_the_new_dataset_sound(
        self, photos: Folder, tmp_path: Folder
    ) -> None:
        """`verify` ends with 0 on what `convert` has written."""
        convert(photos, tmp_path / "out")
        assert command("verify", tmp_path / "out").code == 0

    def test_work_folder_is_gone_afterwards(
        self, small: Folder, tmp_path: Folder
    ) -> None:
        """Nothing but the target is left where the target is."""
        (tmp_path / "outs").mkdir()
        convert(small, tmp_path / "outs" / "out")
        assert names(tmp_path / "outs") == ["out"]

    def test_missing_parents_of_the_output_are_made(
        self, small: Folder, tmp_path: Folder
    ) -> None:
        """An output may lie several folders deep in what does not exist yet."""
        convert(small, tmp_path / "a" / "b" / "out")
        assert "manifest.json" in names(tmp_path / "a" / "b" / "out")

    def test_an_empty_folder_may_be_the_output(
        self, small: Folder, tmp_path: Folder
    ) -> None:
        """A folder made beforehand, with nothing in it, is a fresh target."""
        (tmp_path / "out").mkdir()
        convert(small, tmp_path / "out")
        assert len(rows(tmp_path / "out")) == 20

    def test_the_current_folder_may_be_the_output(
        self, small: Folder, tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """`.` is an output like any other empty folder."""
        (tmp_path / "out").mkdir()
        monkeypatch.chdir(tmp_path / "out")
        convert(small, ".")
        assert len(rows(tmp_path / "out")) == 20

    @pytest.mark.parametrize(
        "name",
        ["a[1]", "b*", "c?", "{d}", "with space", "새 자료", "-dash", "%#$x", "e\nf"],
    )
    def test_odd_names_of_the_output_are_taken_as_they_are(
        self,
        name: str,
        small: Folder,
        tmp_path: Folder,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """No character of the output's name is a pattern (faults row 24)."""
        near = [tmp_path / "outs" / other for other in ("a1", "b7", "c7")]
        for folder in near:
            write_files(folder, {"small-train.tfrecord-00000-of-00001": b"keep"})
        monkeypatch.chdir(tmp_path / "outs")
        for options in ([], ["--overwrite"]):
            convert(small, f"./{name}", *options)
        assert len(rows(tmp_path / "outs" / name)) == 20
        assert names(tmp_path / "outs") == sorted([name, "a1", "b7", "c7"])
        for folder in near:
            assert [path.read_bytes() for path in folder.iterdir()] == [b"keep"]

    def test_a_name_of_255_bytes_is_refused_before_the_work_or_works(
        self, small: Folder, tmp_path: Folder
    ) -> None:
        """The longest names are no reason to fail half-way (faults row 24)."""
        out = tmp_path / ("n" * 250)
        run = command("convert", small, out)
        assert run.code in (0, 2), run.err
        assert "manifest.json" in names(out) if run.code == 0 else not out.exists()

    def test_an_output_that_is_not_utf8_shows_no_traceback(
        self, small: Folder, tmp_path: Folder
    ) -> None:
        """A target named in bytes works, or is an error of one line (row 24)."""
        out = os.fsencode(tmp_path) + b"/outs/bad\xff"
        run = subprocess.run(
            [sys.executable, "-m", "beam_pipeline", "convert", str(small), out],
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert run.returncode in (0, 2), run.stderr
        assert b"Traceback" not in run.stderr
        (tmp_path / "outs").mkdir(exist_ok=True)
        left = os.listdir(os.path.dirname(out))
        assert left == ([b"bad\xff"] if run.returncode == 0 else [])


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

    def test_rejects_of_many_files_are_sorted_by_source_and_row(
        self, tmp_path: Folder
    ) -> None:
        """Lines of several files and blocks stand by file name, then by row."""
        lines = [str(n) if n % 150 else "x" for n in range(1, 501)]
        for name in ("b.csv", "a.csv", "c.csv"):
            write_csv(tmp_path / "tables" / name, "n", lines)
        convert(tmp_path / "tables", tmp_path / "out")
        assert [(r["source"], r["row"]) for r in rejects(tmp_path / "out")] == [
            (name, row)
            for name in ("a.csv", "b.csv", "c.csv")
            for row in (150, 300, 450)
        ]

    def test_no_rejects_no_file(self, small: Folder, tmp_path: Folder) -> None:
        """`rejects.jsonl` is there only when something was rejected."""
        convert(small, tmp_path / "out")
        assert "rejects.jsonl" not in names(tmp_path / "out")

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

    def test_a_share_just_tolerated_commits(self, tmp_path: Folder) -> None:
        """Two of 200 rows are 1 %, and that is tolerated by default."""
        source = write_csv(tmp_path / "source" / "t.csv", "n", [*range(198), "x", "y"])
        convert(source, tmp_path / "out")
        assert account(tmp_path / "out")["rejected"] == {"not_an_integer": 2}

    def test_one_of_ten_is_always_tolerated(self, tmp_path: Folder) -> None:
        """A hundredth of 40 items is no item; by default, one reject is no failure."""
        spec = write_files(tmp_path, {"s.yaml": b"features: {n: {kind: int64}}"})
        options = ("--spec", spec / "s.yaml")
        nine = write_csv(tmp_path / "nine.csv", "n", [*range(8), "x"])
        assert "--max-reject-rate 0.12" in refused(3, nine, tmp_path / "a", *options)
        ten = write_csv(tmp_path / "ten.csv", "n", [*range(9), "x"])
        convert(ten, tmp_path / "b", *options)
        assert account(tmp_path / "b")["written"] == 9
        two = write_csv(tmp_path / "two.csv", "n", [*range(40), "x", "y"])
        assert "--max-reject-rate 0.048" in refused(3, two, tmp_path / "c", *options)
        convert(two, tmp_path / "c", *options, "--max-reject-rate", 0.048)

    @pytest.mark.parametrize("rate", ["0", "0.01"])
    def test_an_explicit_rate_is_taken_as_it_is(
        self, rate: str, tmp_path: Folder
    ) -> None:
        """By flag, spec and Python alike, also where it is the usual one."""
        source = write_csv(tmp_path / "t.csv", "n", [*range(40), "x"])
        text = "features: {n: {kind: int64}}\n"
        (tmp_path / "a.yaml").write_text(text)
        (tmp_path / "b.yaml").write_text(f"{text}max_reject_rate: {rate}\n")
        flag = ("--max-reject-rate", rate)
        refused(3, source, tmp_path / "a", "--spec", tmp_path / "a.yaml", *flag)
        refused(3, source, tmp_path / "b", "--spec", tmp_path / "b.yaml")
        with pytest.raises(RejectLimitError):
            beam_pipeline.convert(
                source,
                tmp_path / "c",
                features={"n": "int64"},
                max_reject_rate=float(rate),
            )

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

    def test_none_tolerated(self, tmp_path: Folder) -> None:
        """With a rate of 0 one reject is too many."""
        source = write_csv(tmp_path / "source" / "t.csv", "n", [*range(999), "x"])
        refused(3, source, tmp_path / "out", "--max-reject-rate", 0)

    def test_old_dataset_survives_too_many_rejects(
        self, small: Folder, tmp_path: Folder
    ) -> None:
        """Exit code 3 with --overwrite leaves the old dataset as it was."""
        convert(small, tmp_path / "out")
        before = contents(tmp_path / "out")
        bad = write_csv(
            tmp_path / "source" / "bad.csv", "n", [*range(99), "1,1", "2,2"]
        )
        refused(3, bad, tmp_path / "out", "--overwrite")
        assert contents(tmp_path / "out") == before


class TestOverwrite:
    def test_an_existing_dataset_is_kept_by_default(
        self, small: Folder, tmp_path: Folder
    ) -> None:
        """Without --overwrite a second run ends with 2 and changes nothing (row 21)."""
        convert(small, tmp_path / "out")
        before = contents(tmp_path / "out")
        assert "--overwrite" in refused(2, small, tmp_path / "out", "--seed", 1)
        assert contents(tmp_path / "out") == before

    def test_other_shard_counts_leave_no_old_shard(
        self, small: Folder, tmp_path: Folder
    ) -> None:
        """The new dataset has its own files only, whatever the old had (row 22)."""
        convert(small, tmp_path / "out", "--shards", 5)
        convert(small, tmp_path / "out", "--shards", 2, "--overwrite")
        convert(small, tmp_path / "fresh", "--shards", 2)
        assert contents(tmp_path / "out") == contents(tmp_path / "fresh")

    def test_neighbours_are_not_touched(self, small: Folder, tmp_path: Folder) -> None:
        """Names that start alike, beside the target, stay as they are (row 23)."""
        near = {
            "out-aug/small-train.tfrecord-00000-of-00001": b"1",
            "outx": b"2",
            ".out": b"3",
            "out.rejects": b"4",
            ".out.beam-tfrecordx/y": b"5",
        }
        write_files(tmp_path / "outs", near)
        for options in ([], ["--overwrite"]):
            convert(small, tmp_path / "outs" / "out", *options)
        for name, data in near.items():
            assert (tmp_path / "outs" / name).read_bytes() == data

    def test_what_the_manifest_does_not_name_is_never_deleted(
        self, small: Folder, tmp_path: Folder
    ) -> None:
        """A foreign file in the target is named, and both stay."""
        convert(small, tmp_path / "out")
        (tmp_path / "out" / "notes.txt").write_text("mine")
        before = contents(tmp_path / "out")
        assert "'notes.txt'" in refused(2, small, tmp_path / "out", "--overwrite")
        assert contents(tmp_path / "out") == before

    def test_a_failed_run_keeps_the_old_dataset(
        self, small: Folder, tmp_path: Folder
    ) -> None:
        """A source that breaks during the run leaves the old dataset (row 7)."""
        convert(small, tmp_path / "out")
        before = contents(tmp_path / "out")
        small.write_text('number,word\n1,"a\n')
        refused(4, small, tmp_path / "out", "--overwrite")
        assert contents(tmp_path / "out") == before
        assert sorted(names(tmp_path)) == ["out", "source"]


class TestSpec:
    def test_yaml_gives_the_settings(self, small: Folder, tmp_path: Folder) -> None:
        """A spec with everything in it needs no argument at all."""
        settings = {"source": str(small), "output": str(tmp_path / "out"), "shards": 3}
        (tmp_path / "job.yaml").write_text(yaml.safe_dump(settings))
        assert command("convert", "--spec", tmp_path / "job.yaml").code == 0
        convert(small, tmp_path / "flags", "--shards", 3)
        assert contents(tmp_path / "out") == contents(tmp_path / "flags")

    def test_flags_win(self, small: Folder, tmp_path: Folder) -> None:
        """What stands in the spec and as a flag is taken from the flag."""
        (tmp_path / "job.yaml").write_text("shards: 3\nseed: 4\nshuffle: false\n")
        options = ("--spec", tmp_path / "job.yaml", "--shards", 2, "--shuffle")
        convert(small, tmp_path / "out", *options)
        convert(small, tmp_path / "flags", "--shards", 2, "--seed", 4)
        assert contents(tmp_path / "out") == contents(tmp_path / "flags")

    @pytest.mark.parametrize(
        "options",
        [
            ("--splits", "a=0.7,b=0.3", "--seed", 5, "--shards", 2),
            ("--label-column", "word", "--no-shuffle", "--name", "other"),
            ("--compression", "zlib", "--limit", 7, "--include", "*.csv"),
        ],
    )
    def test_a_manifest_is_a_spec(
        self, options: tuple[object, ...], small: Folder, tmp_path: Folder
    ) -> None:
        """The spec in a manifest makes the same bytes again."""
        convert(small, tmp_path / "out", *options)
        spec = manifest(tmp_path / "out")["run"]["spec"]
        (tmp_path / "job.yaml").write_text(yaml.safe_dump(spec))
        for name, path in (
            ("whole", tmp_path / "out" / "manifest.json"),
            ("part", tmp_path / "job.yaml"),
        ):
            convert(small, tmp_path / name, "--spec", path)
            assert contents(tmp_path / name) == contents(tmp_path / "out")
            assert dataset(tmp_path / name) == dataset(tmp_path / "out")

    def test_typo_gets_the_nearest_setting(
        self, small: Folder, tmp_path: Folder
    ) -> None:
        """An unknown setting is exit code 2 and names the one that was meant."""
        (tmp_path / "job.yaml").write_text("shrads: 3\n")
        message = refused(2, small, tmp_path / "out", "--spec", tmp_path / "job.yaml")
        assert "'shards'" in message

    def test_every_fault_is_named_at_once(
        self, small: Folder, tmp_path: Folder
    ) -> None:
        """Three mistakes take one try to see."""
        (tmp_path / "job.yaml").write_text("limit: abc\nspilts: {a: 1}\nseed: -1\n")
        message = refused(2, small, tmp_path / "out", "--spec", tmp_path / "job.yaml")
        for word in ("limit", "'splits'", "seed"):
            assert word in message

    @pytest.mark.parametrize("text", ["- a\n", "a: [", "", "\xff\x00", "just text"])
    def test_what_is_no_mapping_is_refused(
        self, text: str, small: Folder, tmp_path: Folder
    ) -> None:
        """A spec that is not YAML, or no mapping, is exit code 2 and named."""
        (tmp_path / "job.yaml").write_text(text, encoding="latin-1")
        message = refused(2, small, tmp_path / "out", "--spec", tmp_path / "job.yaml")
        assert "job.yaml" in message

    def test_a_split_named_twice_is_refused(
        self, small: Folder, tmp_path: Folder
    ) -> None:
        """The second share of a split does not silently replace the first."""
        (tmp_path / "job.yaml").write_text("splits: {a: 0.8, b: 0.1, a: 0.1}\n")
        refused(2, small, tmp_path / "out", "--spec", tmp_path / "job.yaml")


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


class TestOptions:
    @pytest.mark.parametrize(
        "name", ["a\nb", "\x1b[31m", "a\x9b", "a\u202eb", "a\u2028b"]
    )
    def test_a_name_has_no_control_characters(
        self, name: str, small: Folder, tmp_path: Folder
    ) -> None:
        """It becomes the name of files, and listings show these in terminals."""
        message = refused(2, small, tmp_path / "out", "--name", name)
        assert "no control characters" in message
        assert name not in message

    def test_quiet_prints_nothing(self, small: Folder, tmp_path: Folder) -> None:
        """--quiet leaves both streams empty."""
        run = convert(small, tmp_path / "out", "--quiet")
        assert (run.out, run.err) == ("", "")

    def test_quiet_still_prints_errors(self, small: Folder, tmp_path: Folder) -> None:
        """--quiet does not hide why a run failed."""
        convert(small, tmp_path / "out", "--quiet")
        refused(2, small, tmp_path / "out", "--quiet", "--seed", 1)

    def test_limit_takes_the_first_rows(self, tmp_path: Folder) -> None:
        """--limit reads the first rows in source order, across files."""
        write_csv(tmp_path / "t" / "a.csv", "n", range(3))
        write_csv(tmp_path / "t" / "b.csv", "n", range(3, 9))
        convert(tmp_path / "t", tmp_path / "out", "--limit", 5, "--no-shuffle")
        assert [row["n"] for row in rows(tmp_path / "out")] == [0, 1, 2, 3, 4]

    def test_limit_takes_the_first_images_and_counts_the_rest(
        self, photos: Folder, tmp_path: Folder
    ) -> None:
        """Images beyond the limit are skipped, and said to be."""
        convert(photos / "train", tmp_path / "out", "--limit", 7)
        paths = sorted(
            str(path.relative_to(photos / "train"))
            for path in (photos / "train").rglob("*.*")
        )
        found = sorted(row["filename"].decode() for row in rows(tmp_path / "out"))
        assert found == paths[:7]
        assert account(tmp_path / "out")["skipped"] == {"beyond_limit": 53}

    def test_limit_beyond_the_source_takes_all(
        self, small: Folder, tmp_path: Folder
    ) -> None:
        """A limit that is not reached changes no record."""
        convert(small, tmp_path / "out", "--limit", 1000)
        convert(small, tmp_path / "all")
        assert contents(tmp_path / "out") == contents(tmp_path / "all")

    def test_shards_are_counted_for_each_split(
        self, table: Folder, tmp_path: Folder
    ) -> None:
        """--shards 3 gives every split three files of about the same size."""
        convert(table, tmp_path / "out", "--splits", "a=0.5,b=0.5", "--shards", 3)
        for split in dataset(tmp_path / "out")["splits"]:
            assert [shard["file"] for shard in split["shards"]] == [
                f"rows-{split['name']}.tfrecord-0000{i}-of-00003" for i in range(3)
            ]
            sizes = [shard["records"] for shard in split["shards"]]
            assert min(sizes) > 0.8 * max(sizes)

    def test_shard_size_decides_the_count(
        self, table: Folder, tmp_path: Folder
    ) -> None:
        """Shards of 250 kB at most, about: a megabyte of records makes four or five."""
        convert(table, tmp_path / "out", "--shard-size", "250kB")
        (split,) = dataset(tmp_path / "out")["splits"]
        assert len(split["shards"]) in (4, 5)
        assert all(150_000 < shard["bytes"] < 300_000 for shard in split["shards"])

    def test_fewer_rows_than_shards_make_no_empty_file(
        self, small: Folder, tmp_path: Folder
    ) -> None:
        """No shard is empty, and the names count those there are (row 30)."""
        convert(small, tmp_path / "out", "--shards", 50)
        (split,) = dataset(tmp_path / "out")["splits"]
        assert all(shard["records"] for shard in split["shards"])
        count = len(split["shards"])
        assert [shard["file"] for shard in split["shards"]] == [
            f"small-train.tfrecord-{i:05}-of-{count:05}" for i in range(count)
        ]

    def test_no_shuffle_keeps_the_order_of_the_source(self, tmp_path: Folder) -> None:
        """Over files and shards, records stand as the rows do."""
        for index, name in enumerate(("a.csv", "b.csv")):
            numbers = range(index * 3000, (index + 1) * 3000)
            write_csv(tmp_path / "t" / name, "n", numbers)
        convert(tmp_path / "t", tmp_path / "out", "--no-shuffle", "--shards", 4)
        (split,) = dataset(tmp_path / "out")["splits"]
        assert len(split["shards"]) == 4
        assert [row["n"] for row in rows(tmp_path / "out")] == list(range(6000))

    def test_no_shuffle_keeps_images_in_the_order_of_their_paths(
        self, photos: Folder, tmp_path: Folder
    ) -> None:
        """Images stand in the byte order of their paths."""
        convert(photos, tmp_path / "out", "--no-shuffle", "--shards", 2)
        for split in ("train", "test", "validation"):
            found = [row["filename"] for row in rows(tmp_path / "out", split)]
            assert len(found) == sample.IMAGES_PER_SPLIT[split]
            assert found == sorted(found)

    def test_shuffling_changes_the_order_and_no_row(
        self, table: Folder, tmp_path: Folder
    ) -> None:
        """By default the order is another, of the same records."""
        convert(table, tmp_path / "mixed")
        convert(table, tmp_path / "plain", "--no-shuffle")
        mixed, plain = payloads(tmp_path / "mixed"), payloads(tmp_path / "plain")
        assert mixed != plain
        assert sorted(mixed) == sorted(plain)

    def test_splits_have_their_shares(self, table: Folder, tmp_path: Folder) -> None:
        """10,000 rows fall near 70, 20 and 10 %, whatever the shares sum to."""
        convert(table, tmp_path / "out", "--splits", "train=7,dev=2,test=1")
        sizes = split_sizes(tmp_path / "out")
        assert list(sizes) == ["train", "dev", "test"]
        assert sizes["train"] == pytest.approx(7000, abs=200)
        assert sizes["dev"] == pytest.approx(2000, abs=200)
        assert sizes["test"] == pytest.approx(1000, abs=150)

    def test_split_column_says_the_split(self, tmp_path: Folder) -> None:
        """Each row goes where its cell says, and the cell is no feature."""
        lines = [f"{'test' if n % 4 == 0 else 'train'},{n}" for n in range(40)]
        source = write_csv(tmp_path / "t.csv", "part,n", lines)
        convert(source, tmp_path / "out", "--split-column", "part")
        test = {row["n"] for row in rows(tmp_path / "out", "test")}
        train = {row["n"] for row in rows(tmp_path / "out", "train")}
        assert test == set(range(0, 40, 4))
        assert train == set(range(40)) - test
        assert all(set(row) == {"n"} for row in rows(tmp_path / "out"))

    def test_a_cell_that_names_no_split_is_a_reject(self, tmp_path: Folder) -> None:
        """A blank, 'all' or odd name of a split loses the row, not the run."""
        lines = [f"train,{n}" for n in range(10)] + [",1", "all,2", "a/b,3"]
        source = write_csv(tmp_path / "t.csv", "part,n", lines)
        options = ("--split-column", "part", "--max-reject-rate", 0.5)
        convert(source, tmp_path / "out", *options)
        assert [(r["row"], r["reason"]) for r in rejects(tmp_path / "out")] == [
            (11, "bad_split"),
            (12, "bad_split"),
            (13, "bad_split"),
        ]

    def test_a_text_label_becomes_class_ids(
        self, table: Folder, tmp_path: Folder
    ) -> None:
        """Ids are positions in the sorted names, which stand in the labels file."""
        convert(table, tmp_path / "out", "--label-column", "feature2")
        text = (tmp_path / "out" / "feature2.labels.txt").read_text()
        assert text == "cat\nchicken\ndog\ngoat\nhorse\n"
        animals = ("cat", "dog", "chicken", "horse", "goat")
        for row in rows(tmp_path / "out"):
            assert text.split()[row["feature2"]] == animals[row["feature1"]]

    def test_an_integer_label_stays_its_integers(
        self, table: Folder, tmp_path: Folder
    ) -> None:
        """A label column of numbers is counted by number and gets no names."""
        convert(table, tmp_path / "out", "--label-column", "feature1")
        assert not [name for name in names(tmp_path / "out") if "labels" in name]
        (split,) = dataset(tmp_path / "out")["splits"]
        counts = split["classes"]["feature1"]
        assert sum(counts.values()) == sample.ROWS
        assert set(counts) == {"0", "1", "2", "3", "4"}

    def test_include_and_exclude_choose_files(
        self, photos: Folder, tmp_path: Folder
    ) -> None:
        """What they leave out is counted by reason."""
        options = ("--include", "*.png", "--exclude", "test/*")
        convert(photos, tmp_path / "out", *options)
        found = [row["filename"].decode() for row in rows(tmp_path / "out")]
        assert found
        assert all(name.endswith(".png") for name in found)
        assert not any(name.startswith("test/") for name in found)
        facts = account(tmp_path / "out")
        assert facts["read"] == 84
        assert facts["skipped"] == {"excluded": 2, "not_included": 68}
        assert facts["written"] == 14

    @pytest.mark.parametrize(("form", "suffix"), [("gzip", "gz"), ("zlib", "zlib")])
    def test_compressed_shards_come_without_tfds_files(
        self, form: str, suffix: str, photos: Folder, tmp_path: Folder
    ) -> None:
        """TFDS reads none of it, and a line of the summary says so."""
        run = convert(photos, tmp_path / "out", "--compression", form)
        assert names(tmp_path / "out") == [
            "manifest.json",
            *(
                f"photos-{split}.tfrecord-00000-of-00001.{suffix}"
                for split in ("test", "train", "validation")
            ),
        ]
        assert any("TFDS" in line and form in line for line in run.out.splitlines())
        convert(photos, tmp_path / "plain")
        assert payloads(tmp_path / "out") == payloads(tmp_path / "plain")

    def test_tutorial_preset_has_the_tutorials_features(
        self, photos: Folder, tmp_path: Folder
    ) -> None:
        """height, width, depth, label, image_raw, and nothing else (W5)."""
        convert(photos, tmp_path / "out", "--preset", "tutorial")
        for row in rows(tmp_path / "out"):
            assert set(row) == {"height", "width", "depth", "label", "image_raw"}
            assert type(row["image_raw"]) is bytes
        stored = {row["image_raw"] for row in rows(tmp_path / "out", "test")}
        files = (photos / "test").rglob("*.*")
        assert stored == {path.read_bytes() for path in files}

    def test_feature_names_are_settable(self, photos: Folder, tmp_path: Folder) -> None:
        """A feature gets another name, or is left out by an empty one."""
        options = ("--feature-name", "image=pixels", "--feature-name", "filename=")
        convert(photos, tmp_path / "out", *options)
        assert set(rows(tmp_path / "out")[0]) == {
            *("pixels", "label", "height", "width", "depth")
        }

    def test_a_name_gives_the_prefix(self, small: Folder, tmp_path: Folder) -> None:
        """--name replaces the source's base name in the shards' names."""
        convert(small, tmp_path / "out", "--name", "other.v2")
        assert "other.v2-train.tfrecord-00000-of-00001" in names(tmp_path / "out")

    def test_header_only_is_refused(self, tmp_path: Folder) -> None:
        """A CSV without a row is no dataset, by default (rows 29, 101)."""
        source = write_csv(tmp_path / "t.csv", "a,b", [])
        assert "--allow-empty" in refused(4, source, tmp_path / "out")
        assert names(tmp_path) == ["t.csv"]

    def test_header_only_with_allow_empty(self, tmp_path: Folder) -> None:
        """With --allow-empty it is a committed dataset of no record."""
        source = write_csv(tmp_path / "source" / "t.csv", "a,b", [])
        convert(source, tmp_path / "out", "--allow-empty")
        assert dataset(tmp_path / "out")["account"]["read"] == 0
        assert not [name for name in names(tmp_path / "out") if "tfrecord" in name]
        assert command("verify", tmp_path / "out").code == 0

    def test_only_rejects_with_allow_empty(self, tmp_path: Folder) -> None:
        """All images bad, all tolerated: the rejects are left; committed if allowed."""
        source = write_files(tmp_path / "tree", {"a/x.jpg": b"", "a/y.jpg": b""})
        options = ("--max-reject-rate", 1)
        report = ("--report-json", tmp_path / "report.json")
        message = refused(3, source, tmp_path / "out", *options, *report)
        assert "all 2 were rejected: empty_file: 2, as a/x.jpg: " in message
        assert "--allow-empty" in message
        left = (tmp_path / "out.rejects.jsonl").read_text().splitlines()
        assert [json.loads(line)["reason"] for line in left] == ["empty_file"] * 2
        found = json.loads(report[1].read_text())
        assert (found["read"], found["rejected"]) == (2, {"empty_file": 2})
        convert(source, tmp_path / "out", *options, "--allow-empty")
        assert len(rejects(tmp_path / "out")) == 2


class TestPlan:
    def test_plan_writes_nothing(self, photos: Folder, tmp_path: Folder) -> None:
        """`plan` shows splits, labels and counts, and leaves no trace."""
        (tmp_path / "outs").mkdir()
        run = command("plan", photos, tmp_path / "outs" / "out", "--shards", 2)
        assert run.code == 0
        assert names(tmp_path / "outs") == []
        for word in ("train", "60", "circle", "square", "triangle", "nothing"):
            assert word in run.out

    def test_plan_shows_the_inferred_schema(
        self, table: Folder, tmp_path: Folder
    ) -> None:
        """The kind, range and examples of every column are there to see."""
        run = command("plan", table, tmp_path / "out")
        lines = {line.split()[0]: line for line in run.out.splitlines() if line}
        for name, kind in zip(
            ("feature0", "feature1", "feature2", "feature3"),
            ("bool", "int64", "text", "float"),
            strict=True,
        ):
            assert kind in lines[name]
        assert "99.8" in lines["feature3"]

    def test_plan_refuses_what_convert_refuses(
        self, small: Folder, tmp_path: Folder
    ) -> None:
        """A plan that could not be carried out ends with 2 as well."""
        convert(small, tmp_path / "out")
        assert command("plan", small, tmp_path / "out", "--seed", 1).code == 2
        run = command("plan", small, tmp_path / "out")
        assert run.code == 0
        assert run.out.startswith("up to date")
        assert command("plan", tmp_path / "nothing.csv", tmp_path / "o").code == 2


class TestTwoRuns:
    def test_the_second_of_two_at_once_is_refused(
        self, small: Folder, tmp_path: Folder
    ) -> None:
        """While one run holds the target, another ends with an error (row 25)."""
        from beam_pipeline.planning.plan import make_plan
        from beam_pipeline.running.convert import open_work_folder
        from beam_pipeline.settings.spec import make_spec

        out = tmp_path / "out"
        plan = make_plan(make_spec({"source": str(small), "output": str(out)}))
        with open_work_folder(plan):
            assert "another" in refused(2, small, out)
        convert(small, out)

    def test_a_target_written_meanwhile_is_not_replaced(
        self, small: Folder, tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A run that finds another dataset at its commit ends with 1 (row 25)."""
        other = write_csv(tmp_path / "source" / "other.csv", "z", range(5))
        convert(other, tmp_path / "other")
        publish = target.publish

        def late(folder: str, directory: str, *, seen: str) -> None:
            os.rename(tmp_path / "other", directory)
            publish(folder, directory, seen=seen)

        monkeypatch.setattr(target, "publish", late)
        refused(1, small, tmp_path / "out")
        assert len(rows(tmp_path / "out")) == 5
        # The finished work serves a next try, with --overwrite.
        assert names(tmp_path) == [".out.beam-tfrecord", "out", "source"]

    def test_a_lock_that_was_removed_meanwhile_is_no_lock(
        self, small: Folder, tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Of three runs, no two hold the target when the first has just left.

        The second opens the lock's file; the first removes it and leaves; the third
        makes a new one. Both the second and the third must not get their lock.
        """
        import fcntl

        from transforms import files
        from transforms.errors import TargetError

        path = str(tmp_path / "lock")
        flock = fcntl.flock
        calls: list[int] = []

        def between(file: Any, operation: int) -> None:
            calls.append(operation)
            if len(calls) == 1:
                os.unlink(path)
                held.enter_context(files.exclusive_lock(path))
            flock(file, operation)

        monkeypatch.setattr(fcntl, "flock", between)
        with (
            contextlib.ExitStack() as held,
            pytest.raises(TargetError),
            files.exclusive_lock(path),
        ):
            pass


class TestInterrupted:
    def test_a_rerun_after_a_kill_gives_the_same_bytes_and_no_litter(
        self, table: Folder, tmp_path: Folder
    ) -> None:
        """SIGKILL at several moments; the next run cleans up (rows 1-5)."""
        convert(table, tmp_path / "whole", "--shards", 3)
        out = tmp_path / "outs" / "out"
        out.parent.mkdir()
        script = (
            "import os, signal, sys\n"
            "from {package} import {module}\n"
            "def die(*args, **kwargs): os.kill(os.getpid(), signal.SIGKILL)\n"
            "{module}.{name} = die\n"
            "from beam_pipeline.cli import main\n"
            "main(sys.argv[1:])\n"
        )
        for package, module, name in (
            ("transforms.publishing", "target", "publish"),
            ("transforms", "files", "sync_directory"),
        ):
            code = script.format(package=package, module=module, name=name)
            arguments = ["convert", str(table), str(out), "--shards", "3"]
            run = subprocess.run(
                [sys.executable, "-c", code, *arguments],
                capture_output=True,
                timeout=60,
                check=False,
            )
            assert run.returncode == -signal.SIGKILL
            assert not out.exists()
            assert names(out.parent) == [".out.beam-tfrecord"]
        convert(table, out, "--shards", 3)
        assert contents(out) == contents(tmp_path / "whole")
        assert names(out.parent) == ["out"]

    def test_a_file_that_cannot_grow_is_named(
        self, table: Folder, tmp_path: Folder
    ) -> None:
        """No room for a shard: exit code 1, the path and the reason (row 13)."""
        (tmp_path / "outs").mkdir()
        report = tmp_path / "report.json"

        def limit() -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))

        run = process(
            *("convert", table, tmp_path / "outs" / "out", "--report-json", report),
            preexec_fn=limit,
        )
        assert run.returncode == 1
        assert "Traceback" not in run.stderr
        assert names(tmp_path / "outs") == []
        assert json.loads(report.read_text())["exit_code"] == 1
        assert "File too large" in run.stderr
        assert str(tmp_path / "outs") in run.stderr
