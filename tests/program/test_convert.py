"""`convert` from the command line to the committed directory."""

import contextlib
import csv
import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
from typing import Any

import pytest

from beam_pipeline import sample
from tests.support.outputs import (
    TFDS_FILES,
    contents,
    dataset,
    manifest,
    names,
    rows,
    split_sizes,
)
from tests.support.runs import command, convert, process, refused
from tests.support.sources import write_csv, write_files
from transforms.publishing import target

Folder = pathlib.Path


class TestOutputDirectory:
    def test_images_give_shards_manifest_and_tfds_files(
        self, photos: Folder, tmp_path: Folder
    ) -> None:
        """The directory of an image job holds these files and no others."""
        run = convert(photos, tmp_path / "out")
        assert names(tmp_path / "out") == [
            "catalogue",
            *TFDS_FILES,
            "index",
            "label.labels.txt",
            "manifest.json",
            "photos-test.tfrecord-00000-of-00001",
            "photos-train.tfrecord-00000-of-00001",
            "photos-validation.tfrecord-00000-of-00001",
            "schema.pbtxt",
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
            "index",
            "manifest.json",
            "rows-test.tfrecord-00000-of-00001",
            "rows-train.tfrecord-00000-of-00001",
            "rows-validation.tfrecord-00000-of-00001",
            "schema.pbtxt",
        ]
        assert names(out / "index") == [
            f"rows-{split}.tfrecord-00000-of-00001.u64"
            for split in ("test", "train", "validation")
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
        """The folder has the files of the manifest, with their sizes."""
        convert(photos, tmp_path / "out", "--shards", 2)
        facts = dataset(tmp_path / "out")
        shards = [shard for split in facts["splits"] for shard in split["shards"]]
        beside = [*facts["files"], *manifest(tmp_path / "out")["derived"]]
        named = {item["file"]: item["bytes"] for item in [*shards, *beside]}
        assert named == {
            name: len(data) for name, data in contents(tmp_path / "out").items()
        }

    def test_verify_finds_the_new_dataset_sound(
        self, photos: Folder, tmp_path: Folder
    ) -> None:
        """`verify` ends with 0 on what `convert` has written."""
        convert(photos, tmp_path / "out")
        assert command("verify", tmp_path / "out").code == 0

    def test_work_folder_is_removed_afterwards(
        self, small: Folder, tmp_path: Folder
    ) -> None:
        """Nothing but the target is left where the target is."""
        (tmp_path / "outs").mkdir()
        convert(small, tmp_path / "outs" / "out")
        assert names(tmp_path / "outs") == ["out"]

    def test_missing_parents_of_the_output_are_made(
        self, small: Folder, tmp_path: Folder
    ) -> None:
        """An output may be several folders deep below one that does not exist."""
        convert(small, tmp_path / "a" / "b" / "out")
        assert "manifest.json" in names(tmp_path / "a" / "b" / "out")

    def test_an_empty_folder_may_be_the_output(
        self, small: Folder, tmp_path: Folder
    ) -> None:
        """A folder made beforehand, with nothing in it, is a fresh target."""
        (tmp_path / "out").mkdir()
        convert(small, tmp_path / "out")
        assert len(rows(tmp_path / "out")) == 20

    @pytest.mark.parametrize("output", [".", "./", "..", "../../out", "../in"])
    def test_the_current_folder_is_not_replaced(
        self,
        output: str,
        small: Folder,
        tmp_path: Folder,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """An output that is the shell's folder, or above it, is refused before work."""
        (tmp_path / "out" / "in").mkdir(parents=True)
        monkeypatch.chdir(tmp_path / "out" / "in")
        assert "current folder" in refused(2, small, output)
        found = {path.name for path in tmp_path.rglob("*")}
        assert found == {"source", "small.csv", "out", "in"}

    def test_a_removed_current_folder_is_named(
        self, small: Folder, tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Where the shell's folder is gone the message says so, not "None"."""
        (tmp_path / "gone").mkdir()
        monkeypatch.chdir(tmp_path / "gone")
        (tmp_path / "gone").rmdir()
        for output in ("out", tmp_path / "out"):
            assert "current folder" in refused(2, small, output)
        assert [path.name for path in tmp_path.iterdir()] == ["source"]

    @pytest.mark.parametrize(
        "name",
        ["a[1]", "b*", "c?", "{d}", "with space", "새 자료", "-dash", "%#$x", "e\nf"],
    )
    def test_unusual_names_of_the_output_are_used_unchanged(
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
        """Names beside the target with the same start stay unchanged (row 23)."""
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
            assert "another" in refused(5, small, out)
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
        refused(5, small, tmp_path / "out")
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
    @pytest.mark.stress
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
