"""Runs that are killed, and runs that meet: the bucket holds one dataset, whole."""

import json
import socket
import time
from pathlib import Path

import pytest

from tests.storage.conftest import MEASURES, PETS, Server
from tests.storage.fault_proxy import FaultProxy
from tests.storage.program import (
    Program,
    assert_same,
    assert_whole,
    kill,
    manifest_at,
    program_on,
    puts,
    stall,
    until,
)

_KILLS = 10


def test_what_is_finished_is_not_done_again(
    server: Server, measures: Path, local_measures: Path, tmp_path: Path
) -> None:
    """A job goes on that was killed among segments, among shards and after them."""
    arguments = ("convert", measures, f"{server.url}/out", *MEASURES)
    spools = tmp_path / "temporary"
    spools.mkdir()
    with FaultProxy(server.endpoint) as proxy:
        endpoint = server.through(proxy.endpoint)
        program = Program(endpoint, tmp_path, TMPDIR=str(spools))
        stall(proxy, ".segments", skip=2)
        with program.running(*arguments) as process:
            until(lambda: len(puts(proxy, ".segments")) == 3)
            kill(process)
        # The 6 shards are announced one by one, and then put together.
        stall(proxy, "-of-00003", skip=8)
        with program.running(*arguments) as process:
            until(lambda: len(puts(proxy, "-of-00003")) > 8)
            kill(process)
        # The partial upload ended with its process.
        assert [path for path in spools.rglob("*") if path.is_file()] == []
        assert len(puts(proxy, ".segments")) == 2
        assert server.keys("out/manifest") == []
        stall(proxy, "out/dataset_info")
        with program.running(*arguments) as process:
            until(lambda: bool(puts(proxy, "out/dataset_info")))
            kill(process)
        assert not puts(proxy, ".segments")
        assert server.keys("out/manifest") == []
        proxy.set()
        done = program.run(*arguments)
        assert "going on where an earlier run ended: 4 blocks read" in done.err
        assert "6 shards written" in done.err
        assert not puts(proxy, "out/measures-")
    assert_same(server, "out", local_measures)


def test_kills_at_any_time(server: Server, pets: Path, tmp_path: Path) -> None:
    """The manifest names the old dataset or the new one; the next run succeeds."""
    target = f"{server.url}/out"
    program = Program(server, tmp_path)
    convert = ("convert", pets, target, *PETS)
    program.run(*convert)
    digests = {manifest_at(server, "out").digest}
    overwrite = (*convert, "--overwrite", "--seed")
    begin = time.monotonic()
    program.run(*overwrite, "1")
    seconds = time.monotonic() - begin
    digests.add(manifest_at(server, "out").digest)
    # From when Beam is loaded until the end: where the bucket is being changed.
    for number in range(_KILLS):
        seed = number % 2
        with program.running(*overwrite, seed) as process:
            time.sleep(seconds * (0.4 + 0.6 * number / _KILLS))
            if process.poll() is None:
                kill(process)
        manifest = assert_whole(server, "out", alone=False)
        assert manifest.digest in digests
    program.run(*overwrite, "0")
    assert assert_whole(server, "out").digest in digests
    program.run(*overwrite, "1")
    assert_whole(server, "out")


@pytest.mark.parametrize("stands", [False, True], ids=["fresh", "overwrite"])
def test_two_runs_on_one_machine(
    server: Server, pets: Path, tmp_path: Path, stands: bool
) -> None:
    """The second is refused at once; the first ends as if it had been alone."""
    program = Program(server, tmp_path)
    arguments = ["convert", pets, f"{server.url}/out", *PETS]
    if stands:
        program.run(*arguments, "--seed", "7")
        arguments.append("--overwrite")
    with FaultProxy(server.endpoint) as proxy:
        first = Program(server.through(proxy.endpoint), tmp_path)
        stall(proxy, "dataset_info")
        with first.running(*arguments) as process:
            until(lambda: puts(proxy, "dataset_info"))
            second = program.run(*arguments, code=5)
            assert "Only one run may write to a target" in second.err
            assert f"process {process.pid} on {socket.gethostname()!r}" in second.err
            proxy.set()
            assert first.ended(process).code == 0
    assert_whole(server, "out")


@pytest.mark.parametrize("stands", [False, True], ids=["fresh", "overwrite"])
def test_two_runs_on_two_machines(
    server: Server, pets: Path, tmp_path: Path, stands: bool
) -> None:
    """One commits. The other fails, says so, and removes its uploads."""
    arguments = ["convert", pets, f"{server.url}/out", *PETS]
    if stands:
        Program(server, tmp_path).run(*arguments, "--seed", "7")
        arguments.append("--overwrite")
    with FaultProxy(server.endpoint) as proxy:
        first = program_on(server.through(proxy.endpoint), tmp_path / "a", "host-a")
        second = program_on(server, tmp_path / "b", "host-b")
        stall(proxy, "out/manifest.json")
        with first.running(*arguments) as process:
            until(lambda: puts(proxy, "out/manifest.json"))
            # It holds the target, and has put all but the manifest.
            assert json.loads(server.read(".out.beam-tfrecord/holder"))["host"] == (
                "host-a"
            )
            second.run(*arguments, "--seed", "3")
            stood = manifest_at(server, "out")
            assert stood.folder.startswith("data-")
            # What the first one has is still there for it to fail with.
            assert any(
                key.startswith("out/") and stood.folder not in key
                for key in server.keys("out/")
            )
            proxy.set()
            done = first.ended(process)
        assert done.code == 5, done
        assert "was written by another run since" in done.err
        assert "Traceback" not in done.err
    assert assert_whole(server, "out").digest == stood.digest
    found = Program(server, tmp_path).run("verify", f"{server.url}/out")
    assert "warning" not in found.out + found.err


def test_two_runs_that_begin_together(
    server: Server, pets: Path, tmp_path: Path
) -> None:
    """Whoever is first: exactly one has committed when a second one could not."""
    runs = [program_on(server, tmp_path / host, host) for host in ("host-a", "host-b")]
    arguments = ("convert", pets, f"{server.url}/out", *PETS, "--overwrite", "--seed")
    with (
        runs[0].running(*arguments, "1") as one,
        runs[1].running(*arguments, "2") as other,
    ):
        done = [runs[0].ended(one), runs[1].ended(other)]
    # One after the other they may both have come to an end.
    assert sorted(each.code for each in done) in ([0, 0], [0, 5]), done
    assert all("Traceback" not in each.err for each in done)
    assert_whole(server, "out")


@pytest.mark.parametrize("stands", [False, True], ids=["fresh", "overwrite"])
def test_a_run_starts_and_ends_after_the_plan_of_another(
    server: Server, pets: Path, tmp_path: Path, stands: bool
) -> None:
    """Who finds the target free, but not as it was planned for, puts nothing there."""
    arguments = ("convert", pets, f"{server.url}/out", *PETS, "--overwrite", "--seed")
    if stands:
        Program(server, tmp_path).run(*arguments, "7")
    with FaultProxy(server.endpoint) as proxy:
        late = program_on(server.through(proxy.endpoint), tmp_path / "a", "host-a")
        stall(proxy, "/holder")
        with late.running(*arguments, "1") as process:
            until(lambda: puts(proxy, "/holder"))
            program_on(server, tmp_path / "b", "host-b").run(*arguments, "2")
            stood = assert_whole(server, "out", alone=False)
            proxy.set()
            done = late.ended(process)
        assert done.code == 5, done
        assert "was written by another run since" in done.err
        assert not puts(proxy, "out/")
    assert assert_whole(server, "out").digest == stood.digest


def test_the_dead_of_another_machine(
    server: Server, pets: Path, local_pets: Path, tmp_path: Path
) -> None:
    """Nothing of it is touched, nor is anything lost by it; `clean` removes it."""
    away = {"host": "elsewhere", "process": "12", "start": "7", "run": "abc"}
    server.write(".out.beam-tfrecord/holder", json.dumps(away).encode())
    work, shard = f"{'0':0>32}", "pets-train.tfrecord-00000-of-00009"
    server.write(f".out.beam-tfrecord/names/{work}/{shard}", b"")
    server.write(f"out/{shard}", b"half")
    server.write(f".out.beam-tfrecord/{work}/segments/a.segments", b"rows")
    before = server.keys()
    program = Program(server, tmp_path)
    arguments = ("convert", pets, f"{server.url}/out", *PETS)
    program.run(*arguments)
    assert manifest_at(server, "out").folder.startswith("data-")
    assert {*before} < {*server.keys()}
    assert "up to date" in program.run(*arguments).out
    assert {*before} < {*server.keys()}
    program.run("clean", f"{server.url}/out")
    assert_same(server, "out", local_pets)


def test_unfinished_uploads_of_the_dead(
    s3_server: Server, pets: Path, tmp_path: Path
) -> None:
    """Partial uploads are aborted: they are invisible, and their owner pays."""
    dead = ("out/pets-train.tfrecord-00000-of-00002", "out.rejects.jsonl")
    for key in (*dead, "other/a"):
        s3_server._s3.create_multipart_upload(Bucket=s3_server.bucket, Key=key)
    program = Program(s3_server, tmp_path)
    program.run("convert", pets, f"{s3_server.url}/out", *PETS)
    assert s3_server.uploads() == ["other/a"]


def test_kept_work(server: Server, measures: Path, tmp_path: Path) -> None:
    """`--keep-work` serves the next run, which reads only what is new."""
    server.write_tree("in", measures)
    arguments = ("convert", f"{server.url}/in", f"{server.url}/out", *MEASURES)
    program = Program(server, tmp_path)
    program.run(*arguments, "--keep-work")
    assert server.keys(".out.beam-tfrecord/")
    server.write("in/part-9.csv", b"id,weight,animal,note\n9000,1.5,cat,new\n")
    done = program.run(*arguments, "--keep-work", "--overwrite")
    assert "4 blocks read" in done.err
    assert assert_whole(server, "out", alone=False).records == 2001
    program.run("clean", f"{server.url}/out")
    assert_whole(server, "out")
