"""Section A of the catalogue of faults, writing: the rows without a test elsewhere.

Kills, failing operations, two writers and foreign files: `test_kill_points`; resume and
changed inputs: `test_resume`; retries, signals and full disks: `test_retry`; targets:
`test_convert`. Each test has the number of its row.
"""

import json
import os
import pathlib
import time
from typing import Any

import apache_beam as beam
import pytest

from beam_pipeline.job import make_job
from beam_pipeline.planning.plan import make_plan
from beam_pipeline.running.convert import open_work_folder
from beam_pipeline.settings.spec import make_spec
from tests.support import direct_run
from tests.support.direct_run import run_directly
from tests.support.file_operations import watched
from tests.support.outputs import contents, manifest
from tests.support.runs import command, convert, refused
from tests.support.sources import write_csv
from transforms import files
from transforms.core.example import payload
from transforms.errors import BeamTFRecordError
from transforms.shards import shard_group
from transforms.shards.shard_job import ShardJob, ShardTask
from transforms.shards.write_shard import ShardDraft, draft_shard, write_shard
from transforms.stages import commit
from transforms.storage import draft_group
from transforms.tfrecord.write import WriteTFRecords

Folder = pathlib.Path


@pytest.fixture
def table(tmp_path: Folder) -> Folder:
    return write_csv(
        tmp_path / "in" / "t.csv", "a,b", [f"{i},{i / 4}" for i in range(60)]
    )


def settings(table: Folder, out: Folder, **others: Any) -> dict[str, Any]:
    return {"source": str(table), "output": str(out), "name": "set", **others}


def test_row_6_synced_before_it_is_named(table: Folder, tmp_path: Folder) -> None:
    """Data, then name, then folder: in that order, for all that is published."""
    seen: list[tuple[str, str]] = []
    with watched(lambda what, path: seen.append((what, path))):
        run_directly(settings(table, tmp_path / "out", shards=3))
    steps = [what for what, _ in seen]
    named = [
        index
        for index, (what, path) in enumerate(seen)
        if what == "replace" and "/dataset/" in path.rpartition(" -> ")[2]
    ]
    # Three shards, the sidecars and the manifest.
    assert len(named) >= 6
    for index in named:
        # The file that is renamed: it is synced between its last write and this.
        before = steps[:index]
        last_write = len(before) - 1 - before[::-1].index("write")
        assert "fsync" in before[last_write:]
    assert "manifest.json" in seen[named[-1]][1]
    # The first such rename makes the work folder.
    published = next(
        index
        for index, (what, path) in enumerate(seen)
        if what == "renameat2" and path.endswith(f" -> {tmp_path / 'out'}")
    )
    assert "fsync" in steps[named[-1] : published]
    assert "fsync" in steps[published:]


def test_row_9_a_shard_written_twice_is_one(
    table: Folder, tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bundle that is run again after it had written gives one copy."""
    run_directly(settings(table, tmp_path / "once", shards=3))

    def twice(task: ShardTask, job: ShardJob, *encoded: Any) -> ShardDraft:
        write_shard(task, job)
        return draft_shard(task, job, *encoded)

    monkeypatch.setattr(shard_group, "draft_shard", twice)
    run_directly(settings(table, tmp_path / "twice", shards=3))
    assert contents(tmp_path / "twice") == contents(tmp_path / "once")


def test_row_10_an_attempt_that_ends_late_is_never_seen(
    table: Folder, tmp_path: Folder
) -> None:
    """After the commit its file has nowhere to go: an error, and no file."""
    out = tmp_path / "out"
    plan = make_plan(make_spec(settings(table, out)))
    with open_work_folder(plan) as (store, _):
        late = files.create(
            os.path.join(store.dataset, "set-train.tfrecord-00000-of-00001"),
            attempts=store.attempts,
        )
        file = late.__enter__()
        file.write(b"of a zombie")
        direct_run._run(make_job(plan, store))
        before = contents(out)
        with pytest.raises((OSError, BeamTFRecordError)):
            late.__exit__(None, None, None)
    assert contents(out) == before
    assert sorted(os.listdir(tmp_path)) == ["in", "out"]


def test_row_11_a_commit_done_twice_is_one(
    table: Folder, tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second finds the first one's dataset and gives its digest."""
    out = tmp_path / "out"
    plain = commit.commit_dataset
    digests: list[str] = []

    def twice(*arguments: Any, **options: Any) -> str:
        digests.extend(plain(*arguments, **options) for _ in range(2))
        return digests[-1]

    monkeypatch.setattr(direct_run, "commit_dataset", twice)
    run_directly(settings(table, out))
    assert digests[0] == digests[1] == manifest(out)["dataset"]["digest"]


def test_row_14_a_close_that_fails_is_a_failed_shard(
    table: Folder, tmp_path: Folder
) -> None:
    """An error that comes late, at close, is no success."""

    def hook(what: str, path: str) -> None:
        if what == "close" and "attempts" in path:
            raise OSError(122, "Disk quota exceeded", path)

    with watched(hook), pytest.raises((OSError, BeamTFRecordError), match="quota"):
        run_directly(settings(table, tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_row_15_an_error_while_a_file_is_open_publishes_nothing(
    tmp_path: Folder,
) -> None:
    """Leaving the block by an exception is not the end of the file."""
    (tmp_path / "attempts").mkdir()
    path = tmp_path / "file"
    stopped = RuntimeError("in the middle")

    def half() -> None:
        with files.create(str(path), attempts=str(tmp_path / "attempts")) as file:
            file.write(b"half")
            raise stopped

    with pytest.raises(RuntimeError, match="in the middle"):
        half()
    assert not path.exists()
    assert os.listdir(tmp_path / "attempts") == []


def test_row_18_unfinished_work_is_on_the_targets_file_system(
    table: Folder, tmp_path: Folder
) -> None:
    """Every rename stays in the target's parent: none can cross a device."""
    out = tmp_path / "out"
    seen: list[str] = []
    with watched(lambda what, path: seen.append(path) if " -> " in path else None):
        run_directly(settings(table, out, shards=2))
    assert seen
    for renamed in seen:
        for path in renamed.split(" -> "):
            # The second argument of `mkdir` is a mode.
            assert path.startswith(str(tmp_path)) or path.isdecimal()


def test_row_26_runs_of_one_second_share_no_names(tmp_path: Folder) -> None:
    """Attempts are named by process, number and chance, never by the clock."""
    names = set()
    for _ in range(200):
        with files.create(str(tmp_path / "f"), attempts=str(tmp_path)) as file:
            file.write(b"")
            names |= {n for n in os.listdir(tmp_path) if n.endswith(".tmp")}
    assert len(names) == 200
    assert str(int(time.time()))[:6] not in "".join(sorted(names)[:1])


def test_row_28_changed_inputs_are_another_job(table: Folder, tmp_path: Folder) -> None:
    """A changed cell or option gives another digest; old shards are not reused."""
    out = tmp_path / "out"
    jobs = [
        make_plan(make_spec(settings(table, out, **change))).digest
        for change in ({}, {"seed": 1}, {"shards": 2})
    ]
    table.write_text(table.read_text().replace("7,1.75", "7,1.5"))
    os.utime(table, ns=(1, 1))
    jobs.append(make_plan(make_spec(settings(table, out))).digest)
    assert len(set(jobs)) == 4


def test_row_31_a_record_over_the_shard_size_has_its_shard(tmp_path: Folder) -> None:
    """It is written, alone or with others; nothing is split and nothing is lost."""
    wide = "x" * 300_000
    source = write_csv(tmp_path / "in" / "t.csv", "t", ["a", wide, "b"])
    run = convert(source, tmp_path / "out", "--shard-size", "100KB")
    assert "committed" in run.out
    facts = manifest(tmp_path / "out")["dataset"]
    assert facts["account"]["written"] == 3
    assert max(s["bytes"] for s in facts["splits"][0]["shards"]) > 300_000


def test_row_32_a_record_that_no_parser_takes_is_refused(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over 2 GiB protobuf writes and cannot read; the limit is lowered for the test."""
    monkeypatch.setattr(payload, "MAX_EXAMPLE_BYTES", 10_000)
    source = write_csv(tmp_path / "in" / "t.csv", "t", ["a", "x" * 20_000])
    message = refused(1, source, tmp_path / "out", "--segments", "inline")
    assert "must not exceed 10000" in message.replace(",", "")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("element", ["text", None, {"a": 1}, 7])
def test_row_33_an_element_of_another_type_is_named(
    element: Any, tmp_path: Folder
) -> None:
    """What it must be, and what was found; not a bare AssertionError."""
    with (
        pytest.raises(Exception, match="must be bytes, not") as failure,
        beam.Pipeline("FnApiRunner") as pipeline,
    ):
        _ = (
            pipeline
            | beam.Create([b"good", element], reshuffle=False)
            # Where Beam knows the types, it refuses by itself.
            | beam.Map(lambda each: each).with_output_types(Any)
            | WriteTFRecords(str(tmp_path / "out"), coder=beam.coders.BytesCoder())
        )
    assert type(element).__name__ in str(failure.value)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("option", [(), ("--verify",), ("--no-verify",)])
def test_row_34_shards_are_read_again_before_the_commit(
    option: tuple[str, ...],
    table: Folder,
    tmp_path: Folder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A bit that flips between the write and the commit is found, by default too."""
    out = tmp_path / "out"

    publish = draft_group._publish

    def spoilt(draft: files.Draft) -> None:
        publish(draft)
        path = pathlib.Path(draft.path)
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 4
        path.write_bytes(data)

    monkeypatch.setattr(draft_group, "_publish", spoilt)
    run = command("convert", table, out, *option)
    if option == ("--no-verify",):
        assert run.code == 0
        assert command("verify", out).code == 1
        return
    assert run.code == 1
    assert "must read as it was written" in run.err
    assert not out.exists()
    monkeypatch.setattr(draft_group, "_publish", publish)
    convert(table, out, *option)
    assert command("verify", out).code == 0


def test_row_35_the_clock_decides_nothing(
    table: Folder, tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a clock that jumps back and forth the bytes are the same."""
    run_directly(settings(table, tmp_path / "one"))
    jumps = iter(range(10**9))
    monkeypatch.setattr(time, "time", lambda: 1e9 * (next(jumps) % 3))
    run_directly(settings(table, tmp_path / "two"))
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    digests = [manifest(tmp_path / n)["dataset"]["digest"] for n in ("one", "two")]
    assert digests[0] == digests[1]


def test_row_36_a_cut_manifest_is_no_dataset(table: Folder, tmp_path: Folder) -> None:
    """Every command that reads it says so, and it is not replaced."""
    out = tmp_path / "out"
    run_directly(settings(table, out))
    text = (out / "manifest.json").read_text()
    assert json.loads(text)
    (out / "manifest.json").write_text(text[: len(text) // 2])
    for line in (("verify", out), ("inspect", out), ("head", out)):
        run = command(*line)
        assert run.code in (1, 2)
        assert "manifest.json" in run.err + run.out
    assert "cannot be replaced safely" in refused(2, table, out, "--overwrite")
