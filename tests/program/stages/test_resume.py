"""A run reuses what earlier runs finished; an unchanged job does nothing."""

import gzip
import json
import os
import pathlib
import re
from collections.abc import Iterator
from typing import Any

import pyarrow.parquet as pq
import pytest

from beam_pipeline.planning import plan
from beam_pipeline.planning.plan import make_plan
from beam_pipeline.settings.spec import make_spec
from beam_pipeline.version import deciding_versions
from tests.support.golden_datasets import bmp
from tests.support.outputs import contents, flip, manifest
from tests.support.runs import command, convert, done, failed, refused
from tests.support.segments import IN_FILES
from tests.support.sources import write_csv, write_files
from tests.support.stress import sizes
from transforms.core.model import Block
from transforms.core.tfrecord.reader import TFRecordReader
from transforms.formats.csv import reader as csv_reader
from transforms.formats.csv.sample import CsvReader
from transforms.formats.file_runs import RunSource, TableSource
from transforms.publishing import target
from transforms.shards import write_shard
from transforms.shards.shard_job import ShardTask
from transforms.shards.write_shard import ShardDraft, draft_shard

Folder = pathlib.Path

pytestmark = pytest.mark.usefixtures("without_runner")

FILES = (IN_FILES, "--workers", "1")


def table(folder: Folder, number: int, rows: int = 200, shift: int = 0) -> Folder:
    lines = [
        f"{number * 1000 + i},{(i * 7 + shift) / 8},{'ab'[i % 2]}" for i in range(rows)
    ]
    return write_csv(folder / f"part-{number}.csv", "id,value,kind", lines)


def tables(folder: Folder, count: int = 4) -> Folder:
    for number in range(count):
        table(folder, number)
    return folder


def images(folder: Folder) -> Folder:
    """Writes 24 images, some with a suffix that gives a note, and one non-image."""
    drawn = {
        f"{label}/{n}.bmp": bmp(4 + n, 5, 10 * n + len(label))
        for label in ("cat", "dog")
        for n in range(12)
    }
    noted = {f"cat/noted-{n}.jpg": bmp(9, 9, n) for n in range(6)}
    return write_files(folder, {**drawn, **noted, "dog/none.bmp": b"BM"})


class Work:
    """What the stages did: origins of blocks read and cut, shards written."""

    def __init__(self) -> None:
        self.read: list[str] = []
        self.cut: list[str] = []
        self.written: list[tuple[str, int]] = []
        self.fail_at: int | None = None


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    """Watches the stages of runs in this process."""
    seen = Work()
    cut = CsvReader.blocks

    for kind in (TableSource, RunSource):
        plain = kind.read

        def watched(self: Any, block: Block, plain: Any = plain) -> Iterator[Any]:
            seen.read.append(block.origin)
            yield from plain(self, block)

        monkeypatch.setattr(kind, "read", watched)

    def cutting(self: Any, file: Any, **options: Any) -> Iterator[Block]:
        seen.cut.append(file.origin)
        yield from cut(self, file, **options)

    def writing(task: ShardTask, *arguments: Any) -> ShardDraft:
        if seen.fail_at is not None and len(seen.written) == seen.fail_at:
            raise RuntimeError("the power of the test")
        seen.written.append(task.key)
        return draft_shard(task, *arguments)

    monkeypatch.setattr(CsvReader, "blocks", cutting)
    monkeypatch.setattr(write_shard, "draft_shard", writing)
    return seen


def hidden(out: Folder) -> Folder:
    return out.parent / f".{out.name}.beam-tfrecord"


def broken_off(
    work: Work, source: Folder, out: Folder, *options: object, after: int = 2
) -> None:
    """Runs until some shards are written; the next one fails."""
    work.written.clear()
    work.fail_at = after
    run = failed(1, "convert", source, out, *options)
    assert "power of the test" in run.err
    work.fail_at = None
    assert len(work.written) == after
    work.read.clear()
    work.cut.clear()
    work.written.clear()


def same(one: Folder, other: Folder) -> bool:
    datasets = (manifest(one)["dataset"], manifest(other)["dataset"])
    return contents(one) == contents(other) and datasets[0] == datasets[1]


LIMITLESS = (*FILES, "--shards", 5, "--name", "set")
OPTIONS = (*LIMITLESS, "--max-reject-rate", 0.1)


class TestResume:
    def test_finished_blocks_and_shards_are_not_done_again(
        self, tmp_path: Folder, work: Work
    ) -> None:
        """After a failure the same command reads nothing and writes the rest."""
        source, out = tables(tmp_path / "in"), tmp_path / "out"
        convert(source, tmp_path / "whole", *OPTIONS)
        work.written.clear()
        broken_off(work, source, out, *OPTIONS)
        assert hidden(out).is_dir()
        run = convert(source, out, *OPTIONS)
        assert "going on where an earlier run ended: 4 blocks read, 2 shards" in run.err
        assert work.read == []
        assert len(work.written) == 3
        assert same(out, tmp_path / "whole")
        assert not hidden(out).exists()

    def test_finished_pieces_of_a_block_are_not_read_again(
        self, tmp_path: Folder, work: Work, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A compressed file is one block, however many pieces it is read in."""
        monkeypatch.setattr(csv_reader, "_PIECE_BYTES", 1_000)
        plain, out = table(tmp_path, 0), tmp_path / "out"
        source = write_files(
            tmp_path / "in", {"t.csv.gz": gzip.compress(plain.read_bytes())}
        )
        convert(source, tmp_path / "whole", *OPTIONS)
        broken_off(work, source, out, *OPTIONS)
        run = convert(source, out, *OPTIONS)
        assert "going on where an earlier run ended: 1 block read, 2 shards" in run.err
        assert work.read == []
        assert same(out, tmp_path / "whole")

    def test_the_catalogue_takes_the_rows_of_finished_shards(
        self, tmp_path: Folder, work: Work, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """They left them beside their receipts: nothing is read again for it."""
        source, out = tables(tmp_path / "in"), tmp_path / "out"
        options = (*OPTIONS, "--catalogue")
        convert(source, tmp_path / "whole", *options)
        broken_off(work, source, out, *options)
        scanned: list[str] = []
        scan = TFRecordReader._scan

        def scanning(self: TFRecordReader, *, keep: bool) -> Iterator[Any]:
            scanned.append(self.path)
            return scan(self, keep=keep)

        monkeypatch.setattr(TFRecordReader, "_scan", scanning)
        convert(source, out, *options)
        assert work.read == []
        assert len(work.written) == 3
        assert scanned == []
        assert same(out, tmp_path / "whole")
        (part,) = (out / "catalogue").iterdir()
        found = pq.ParquetFile(part).read()
        assert found["_row"].null_count == 0
        assert sorted({*found["_shard"].to_pylist()}) == [*range(5)]

    def test_segments_in_memory_serve_finished_shards_too(
        self, tmp_path: Folder, work: Work
    ) -> None:
        """Without segment files the rows are read again; finished shards are kept."""
        source, out = tables(tmp_path / "in"), tmp_path / "out"
        options = ("--shards", 5, "--name", "set")
        broken_off(work, source, out, *options)
        run = convert(source, out, *options)
        assert "earlier run ended: 2 shards written" in run.err
        assert len(work.read) == 4
        assert len(work.written) == 3
        convert(source, tmp_path / "whole", *options)
        assert same(out, tmp_path / "whole")

    @pytest.mark.parametrize("place", ["segments", "dataset", "receipts"])
    def test_damaged_work_is_done_again(
        self, tmp_path: Folder, work: Work, place: str
    ) -> None:
        """What a crash has spoilt does not pass: checksums say what is whole."""
        source, out = tables(tmp_path / "in"), tmp_path / "out"
        convert(source, tmp_path / "whole", *OPTIONS)
        work.written.clear()
        broken_off(work, source, out, *OPTIONS)
        for path in sorted(hidden(out).glob(f"*/{place}/**/*")):
            if path.is_dir():
                continue
            flip(path, path.stat().st_size // 2)
        convert(source, out, *OPTIONS)
        assert work.read or len(work.written) == 5
        assert same(out, tmp_path / "whole")

    def test_another_spec_starts_from_the_beginning_and_says_so(
        self, tmp_path: Folder, work: Work
    ) -> None:
        """Of the work for other settings nothing is used, and nothing is left."""
        source, out = tables(tmp_path / "in"), tmp_path / "out"
        broken_off(work, source, out, *OPTIONS)
        run = convert(source, out, *OPTIONS, "--seed", 1)
        assert "starting afresh" in run.err
        assert "other settings" in run.err
        assert len(work.read) == 4
        assert len(work.written) == 5
        assert not hidden(out).exists()

    def test_a_fixed_file_redoes_its_blocks_and_their_shards(
        self, tmp_path: Folder, work: Work
    ) -> None:
        """The other files are not read again."""
        source, out = tables(tmp_path / "in"), tmp_path / "out"
        broken_off(work, source, out, *OPTIONS)
        table(source, 2, shift=1)
        convert(source, out, *OPTIONS)
        assert work.read == ["part-2.csv"]
        assert len(work.written) == 5
        convert(source, tmp_path / "whole", *OPTIONS)
        assert same(out, tmp_path / "whole")

    def test_a_fixed_image_redoes_its_shard_alone(
        self, tmp_path: Folder, work: Work
    ) -> None:
        """Of four finished shards three are kept: the image is in the other one."""
        source, out = images(tmp_path / "in"), tmp_path / "out"
        work.fail_at = 4
        assert command("convert", source, out, *OPTIONS).code == 1
        work.fail_at, finished = None, set(work.written)
        work.written.clear()
        write_files(source, {"cat/3.bmp": bmp(7, 5, 99)})
        convert(source, out, *OPTIONS)
        (last,) = {("train", n) for n in range(5)} - finished
        assert len(set(work.written) - {last}) <= 1
        convert(source, tmp_path / "whole", *OPTIONS)
        assert same(out, tmp_path / "whole")

    def test_too_many_rejects_leave_the_work_for_the_next_try(
        self, tmp_path: Folder, work: Work
    ) -> None:
        """A higher limit commits at once what has been done."""
        source, out = tables(tmp_path / "in"), tmp_path / "out"
        with open(source / "part-1.csv", "a") as file:
            file.write("1,2\n" * 20)
        few = (*LIMITLESS, "--max-reject-rate", 0.01)
        assert command("convert", source, out, *few).code == 3
        work.read.clear()
        work.written.clear()
        convert(source, out, *LIMITLESS, "--max-reject-rate", 0.5)
        assert work.read == []
        assert work.written == []
        assert manifest(out)["dataset"]["account"]["rejected"] == {"field_count": 20}


def small_table(folder: Folder, name: str, suffix: str, value: int = 0) -> None:
    """Writes six rows, one of which is refused."""
    rows = [f"{value + n}" for n in range(5)] + ["x"]
    text = "".join(f"{row},{name}\n" for row in rows)
    if suffix == "jsonl":
        cells = [row if row != "x" else '"x"' for row in rows]
        text = "".join(f'{{"id": {cell}, "name": "{name}"}}\n' for cell in cells)
    head = "id,name\n" if suffix == "csv" else ""
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.{suffix}").write_text(head + text)


def small_tables(folder: Folder, suffix: str) -> Folder:
    """Writes 100 small files, which are read in runs of about eight."""
    for number in range(100):
        small_table(folder, f"part-{number:03}", suffix, number)
    return folder


@pytest.mark.parametrize("suffix", sizes("jsonl", "csv"))
class TestRunsOfSmallFiles:
    OPTIONS = (
        *(*FILES, "--shards", 5, "--name", "set", "--max-reject-rate", 0.5),
        *("--keep-rejected-bytes", "--drop", "name"),
    )

    def options(self, tmp_path: Folder) -> tuple[object, ...]:
        """Returns the options of a run, under which a sixth of the rows is refused."""
        spec = tmp_path / "spec.yaml"
        spec.write_text("features: {id: {kind: int64}}\n")
        return (*self.OPTIONS, "--spec", spec)

    @pytest.mark.parametrize("change", ["first", "changed", "removed"])
    def test_a_file_touches_few_runs(
        self, tmp_path: Folder, work: Work, suffix: str, change: str
    ) -> None:
        """Two runs at most are read again; what was finished gives the same bytes."""
        source, out = small_tables(tmp_path / "in", suffix), tmp_path / "out"
        options = self.options(tmp_path)
        broken_off(work, source, out, *options)
        work.read.clear()
        if change == "removed":
            (source / f"part-050.{suffix}").unlink()
        else:
            name = "a" if change == "first" else "part-050"
            small_table(source, name, suffix, 1_000)
        convert(source, out, *options)
        assert 1 <= len(work.read) <= 2
        convert(source, tmp_path / "whole", *options)
        assert same(out, tmp_path / "whole")


def states(folder: Folder) -> dict[str, tuple[int, int]]:
    return {
        path.name: (path.stat().st_ino, path.stat().st_mtime_ns)
        for path in folder.iterdir()
    }


class TestUpToDate:
    @pytest.mark.parametrize("options", [(), ("--overwrite",)])
    def test_the_same_job_again_does_nothing(
        self, tmp_path: Folder, work: Work, options: tuple[str, ...]
    ) -> None:
        """Exit 0, "up to date", and no file is touched, whatever is allowed."""
        source, out = tables(tmp_path / "in"), tmp_path / "out"
        convert(source, out, *OPTIONS)
        before = states(out)
        work.read.clear()
        work.cut.clear()
        report = tmp_path / "report.json"
        run = convert(source, out, *OPTIONS, *options, "--report-json", report)
        assert run.out.startswith("up to date")
        assert states(out) == before
        assert work.read == []
        assert work.cut == []
        assert json.loads(report.read_text())["status"] == "up to date"
        assert json.loads(report.read_text())["exit_code"] == 0

    def test_a_changed_job_without_overwrite_is_refused_before_reading(
        self, tmp_path: Folder, work: Work
    ) -> None:
        """Exit 2, and the message says what differs."""
        source, out = tables(tmp_path / "in"), tmp_path / "out"
        convert(source, out, *OPTIONS)
        before = states(out)
        work.read.clear()
        error = refused(2, source, out, *OPTIONS, "--seed", 4)
        assert "other settings" in error
        assert "--overwrite" in error
        table(source, 9)
        error = refused(2, source, out, *OPTIONS)
        assert "4 files then, 5 files now" in error
        assert work.read == []
        assert states(out) == before

    def test_changed_inputs_are_reported_and_equal_a_run_from_scratch(
        self, tmp_path: Folder
    ) -> None:
        """New, changed and removed files: the same bytes as from nothing."""
        source, out = tables(tmp_path / "in"), tmp_path / "out"
        convert(source, out, *OPTIONS)
        table(source, 5)
        table(source, 0, shift=3)
        (source / "part-1.csv").unlink()
        run = convert(source, out, *OPTIONS, "--overwrite")
        assert "the dataset at the output will be replaced" in run.err
        assert "inputs have changed" in run.err
        convert(source, tmp_path / "whole", *OPTIONS)
        assert same(out, tmp_path / "whole")

    def test_another_kind_of_fingerprint_is_named(self, tmp_path: Folder) -> None:
        """Inputs that cannot be compared are not said to have changed."""
        source, out = tables(tmp_path / "in"), tmp_path / "out"
        kinds = [("--fingerprint", kind) for kind in ("stat", "content")]
        for made, asked in (kinds, kinds[::-1]):
            convert(source, out, *OPTIONS, *made, "--overwrite")
            run = failed(2, "convert", source, out, *OPTIONS, *asked)
            assert f"it was made with {' '.join(made)}" in run.err
            assert "changed since" not in run.err
            run = command("convert", source, out, *OPTIONS, *made)
            assert run.out.startswith("up to date")

    def test_content_tells_a_touched_file_from_a_changed_one(
        self, tmp_path: Folder
    ) -> None:
        """By size and time it has changed; by content it has not."""
        source, out = tables(tmp_path / "in"), tmp_path / "out"
        by_content = (*OPTIONS, "--fingerprint", "content")
        convert(source, out, *by_content)
        os.utime(source / "part-0.csv", ns=(1, 1))
        assert convert(source, out, *by_content).out.startswith("up to date")
        data = (source / "part-0.csv").read_bytes()
        (source / "part-0.csv").write_bytes(data.replace(b"a", b"b", 1))
        os.utime(source / "part-0.csv", ns=(1, 1))
        assert "changed" in refused(2, source, out, *by_content)

    def test_a_lost_or_cut_file_is_not_up_to_date(self, tmp_path: Folder) -> None:
        """What the manifest names must be there, in its size."""
        source, out = tables(tmp_path / "in"), tmp_path / "out"
        convert(source, out, *OPTIONS)
        shard = sorted(out.glob("*.tfrecord*"))[0]
        shard.write_bytes(shard.read_bytes()[:-1])
        assert "not as they were" in refused(2, source, out, *OPTIONS)
        shard.unlink()
        assert "not as they were" in refused(2, source, out, *OPTIONS)
        assert convert(source, out, *OPTIONS, "--overwrite").out.count("committed")

    def test_a_lock_as_the_run_left_it_is_unchanged(self, tmp_path: Folder) -> None:
        """The run writes its lock itself; only another hand on it counts."""
        source, out = tables(tmp_path / "in"), tmp_path / "out"
        lock = tmp_path / "splits.lock"
        options = (*OPTIONS, "--splits", "train=0.5,test=0.5", "--split-lock", lock)
        convert(source, out, *options)
        assert convert(source, out, *options).out.startswith("up to date")
        lock.write_bytes(lock.read_bytes() + b"x")
        assert "lock" in refused(2, source, out, *options)

    def test_images_that_a_table_names_count_as_inputs(self, tmp_path: Folder) -> None:
        """A changed image under an unchanged table is seen."""
        root = write_files(
            tmp_path / "in", {f"img/{n}.bmp": bmp(4, 4, n) for n in range(4)}
        )
        source = write_csv(
            root / "t.csv", "photo,mark", [f"img/{n}.bmp,{n}" for n in range(4)]
        )
        out = tmp_path / "out"
        options = ("--image-columns", "photo")
        convert(source, out, *options)
        assert convert(source, out, *options).out.startswith("up to date")
        write_files(root, {"img/2.bmp": bmp(5, 4, 77)})
        assert "images" in refused(2, source, out, *options)
        run = convert(source, out, *options, "--overwrite")
        assert "committed" in run.out


class TestClean:
    def test_it_lists_and_removes_what_dead_runs_left(
        self, tmp_path: Folder, work: Work
    ) -> None:
        """First only listed, then removed; a second time there is nothing."""
        source, out = tables(tmp_path / "in"), tmp_path / "out"
        broken_off(work, source, out, *OPTIONS)
        run = done("clean", out, "--dry-run")
        head, line = run.out.splitlines()
        assert head.split() == ["left", "size", "holds"]
        assert re.fullmatch(
            r"\.out\.beam-tfrecord  +[0-9.]+ kB  work on a dataset  would be removed",
            line,
        )
        assert hidden(out).is_dir()
        run = done("clean", out)
        assert run.out.splitlines()[1].endswith("work on a dataset  removed")
        assert not hidden(out).exists()
        run = done("clean", tmp_path)
        assert "no dead run" in run.out

    def test_a_folder_of_targets_is_cleaned_as_a_whole(
        self, tmp_path: Folder, work: Work
    ) -> None:
        """Datasets and sources in it are not touched."""
        source = tables(tmp_path / "in")
        convert(source, tmp_path / "sets" / "good", *OPTIONS)
        work.written.clear()
        before = states(tmp_path / "sets" / "good")
        broken_off(work, source, tmp_path / "sets" / "bad", *OPTIONS)
        done("clean", tmp_path / "sets")
        assert [path.name for path in (tmp_path / "sets").iterdir()] == ["good"]
        assert states(tmp_path / "sets" / "good") == before

    def test_a_running_job_is_left_alone(self, tmp_path: Folder) -> None:
        """Exit 1, and its folder is named."""
        out = tmp_path / "out"
        with target.at(str(out)).held():
            run = failed(1, "clean", out)
            assert "in use by a run" in run.out
            assert hidden(out).is_dir()

    def test_a_path_that_does_not_exist_is_an_error(self, tmp_path: Folder) -> None:
        """A misspelt path is not reported as "no dead run has left anything"."""
        run = failed(2, "clean", tmp_path / "no")
        assert "Correct the path" in run.err


@pytest.mark.parametrize(
    "library",
    "pyarrow pillow pillow-heif zlib zlib-of-pillow libjpeg-turbo libwebp".split(),
)
def test_work_of_other_libraries_is_not_taken_over(
    library: str, tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an earlier run left serves only under the versions that decide bytes."""
    (tmp_path / "t.csv").write_text("x,y\n1,2\n")
    settings = {"source": str(tmp_path / "t.csv"), "output": str(tmp_path / "out")}
    here = make_plan(make_spec(settings))
    work, versions = here.work_digest, deciding_versions()
    if library not in versions:
        pytest.skip(f"{library} is not there")
    monkeypatch.setattr(
        plan, "deciding_versions", lambda: {**versions, library: "another"}
    )
    there = make_plan(make_spec(settings))
    assert there.work_digest != work
    assert there.digest == here.digest
