"""The settings of `convert`, as flags and in files, from end to end."""

import json
import pathlib

import pytest
import yaml

from tests.support.outputs import (
    account,
    contents,
    dataset,
    manifest,
    names,
    payloads,
    rejects,
    rows,
)
from tests.support.runs import command, convert, refused
from tests.support.sources import write_csv, write_files

# The stages' own code: what is tested here is not up to Beam.
pytestmark = pytest.mark.usefixtures("without_runner")

Folder = pathlib.Path


class TestSpec:
    def test_yaml_gives_the_settings(self, small: Folder, tmp_path: Folder) -> None:
        """A spec with everything in it needs no argument at all."""
        settings = {"source": str(small), "output": str(tmp_path / "out"), "shards": 3}
        (tmp_path / "job.yaml").write_text(yaml.safe_dump(settings))
        assert command("convert", "--spec", tmp_path / "job.yaml").code == 0
        convert(small, tmp_path / "flags", "--shards", 3)
        assert contents(tmp_path / "out") == contents(tmp_path / "flags")

    @pytest.mark.parametrize(
        "options",
        [
            ("--splits", "a=0.7,b=0.3", "--seed", 5, "--shards", 2),
            ("--label-column", "word", "--no-shuffle", "--name", "other"),
            ("--compression", "gzip", "--limit", 7, "--include", "*.csv"),
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

    def test_shard_size_decides_the_count(
        self, table: Folder, tmp_path: Folder
    ) -> None:
        """Shards of 250 kB at most, about: a megabyte of records makes four or five."""
        convert(table, tmp_path / "out", "--shard-size", "250kB")
        (split,) = dataset(tmp_path / "out")["splits"]
        assert len(split["shards"]) in (4, 5)
        assert all(150_000 < shard["bytes"] < 300_000 for shard in split["shards"])

    def test_no_shuffle_keeps_the_order_of_the_source(self, tmp_path: Folder) -> None:
        """Across files and shards, records are in the order of the rows."""
        for index, name in enumerate(("a.csv", "b.csv")):
            numbers = range(index * 3000, (index + 1) * 3000)
            write_csv(tmp_path / "t" / name, "n", numbers)
        convert(tmp_path / "t", tmp_path / "out", "--no-shuffle", "--shards", 4)
        (split,) = dataset(tmp_path / "out")["splits"]
        assert len(split["shards"]) == 4
        assert [row["n"] for row in rows(tmp_path / "out")] == list(range(6000))

    def test_split_column_decides_the_split(self, tmp_path: Folder) -> None:
        """Each row goes where its cell says, and the cell is no feature."""
        lines = [f"{'test' if n % 4 == 0 else 'train'},{n}" for n in range(40)]
        source = write_csv(tmp_path / "t.csv", "part,n", lines)
        convert(source, tmp_path / "out", "--split-column", "part")
        test = {row["n"] for row in rows(tmp_path / "out", "test")}
        train = {row["n"] for row in rows(tmp_path / "out", "train")}
        assert test == set(range(0, 40, 4))
        assert train == set(range(40)) - test
        assert all(set(row) == {"n"} for row in rows(tmp_path / "out"))

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

    def test_compressed_shards_come_without_tfds_files(
        self, photos: Folder, tmp_path: Folder
    ) -> None:
        """TFDS cannot read it, and a line of the summary says so."""
        run = convert(photos, tmp_path / "out", "--compression", "gzip")
        assert {*names(tmp_path / "out")} - {"catalogue"} == {
            "manifest.json",
            *(
                f"photos-{split}.tfrecord-00000-of-00001.gz"
                for split in ("test", "train", "validation")
            ),
            "schema.pbtxt",
        }
        assert any("TFDS" in line and "gzip" in line for line in run.out.splitlines())
        convert(photos, tmp_path / "plain")
        assert payloads(tmp_path / "out") == payloads(tmp_path / "plain")

    def test_a_feature_name_may_hold_an_equals_sign(
        self, photos: Folder, tmp_path: Folder
    ) -> None:
        """The first one ends the role, and the rest is the name."""
        convert(photos, tmp_path / "out", "--feature-name", "label=kind=class")
        assert "kind=class" in rows(tmp_path / "out")[0]

    def test_only_rejects_with_min_records_0(self, tmp_path: Folder) -> None:
        """All images bad, all tolerated: the rejects are left; committed if allowed."""
        source = write_files(tmp_path / "tree", {"a/x.jpg": b"", "a/y.jpg": b""})
        options = ("--max-reject-rate", 1)
        report = ("--report-json", tmp_path / "report.json")
        message = refused(3, source, tmp_path / "out", *options, *report)
        assert "all 2 were rejected: empty_file: 2, as a/x.jpg: " in message
        assert "--min-records 0" in message
        left = (tmp_path / "out.rejects.jsonl").read_text().splitlines()
        assert [json.loads(line)["reason"] for line in left] == ["empty_file"] * 2
        found = json.loads(report[1].read_text())
        assert (found["read"], found["rejected"]) == (2, {"empty_file": 2})
        convert(source, tmp_path / "out", *options, "--min-records=0")
        assert len(rejects(tmp_path / "out")) == 2
