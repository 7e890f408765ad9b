"""Runs that are killed, and runs that meet: the bucket holds one dataset, whole."""

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
from transforms.storage.files import storage

_KILLS = 10


def test_what_is_finished_is_not_done_again(
    server: Server, measures: Path, local_measures: Path, tmp_path: Path
) -> None:
    """A job goes on that was killed among segments, among shards and after them.

    The run that goes on is on another machine, and waits for nothing.
    """
    arguments = ("convert", measures, f"{server.url}/out", *MEASURES)
    spools = tmp_path / "temporary"
    spools.mkdir()
    with FaultProxy(server.endpoint) as proxy:
        endpoint = server.through(proxy.endpoint)
        program = program_on(endpoint, tmp_path / "a", "host-a", TMPDIR=str(spools))
        stall(proxy, ".segments", skip=2)
        with program.running(*arguments) as process:
            until(lambda: len(puts(proxy, ".segments")) == 3)
            kill(process)
        # The 6 shards are put together.
        stall(proxy, "-of-00003", skip=2)
        with program.running(*arguments) as process:
            until(lambda: len(puts(proxy, "-of-00003")) > 2)
            kill(process)
        # The partial upload ended with its process.
        assert [path for path in spools.rglob("*") if path.is_file()] == []
        assert len(puts(proxy, ".segments")) == 2
        assert server.keys("out/manifest") == []
        stall(proxy, "dataset_info")
        with program.running(*arguments) as process:
            until(lambda: bool(puts(proxy, "dataset_info")))
            kill(process)
        assert not puts(proxy, ".segments")
        assert server.keys("out/manifest") == []
        proxy.set()
        begin = time.monotonic()
        done = program_on(endpoint, tmp_path / "b", "host-b").run(*arguments)
        assert time.monotonic() - begin < 30
        assert "going on where an earlier run ended: 4 blocks read" in done.err
        assert "6 shards written" in done.err
        assert not puts(proxy, "/measures-")
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
    assert assert_whole(server, "out", alone=False).digest in digests
    program.run(*overwrite, "1")
    program.run("clean", target, "--older-than", "0")
    assert_whole(server, "out")


@pytest.mark.parametrize("stands", [False, True], ids=["fresh", "overwrite"])
@pytest.mark.parametrize("seed", [0, 3], ids=["same job", "other job"])
def test_two_runs_of_which_one_is_paused(
    server: Server, pets: Path, tmp_path: Path, stands: bool, seed: int
) -> None:
    """The first to put its manifest wins; one of the same job succeeds as well."""
    arguments = ["convert", pets, f"{server.url}/out", *PETS]
    if stands:
        Program(server, tmp_path).run(*arguments, "--seed", "7")
        arguments.append("--overwrite")
    with FaultProxy(server.endpoint) as proxy:
        first = program_on(server.through(proxy.endpoint), tmp_path / "a", "host-a")
        second = program_on(server, tmp_path / "b", "host-b")
        stall(proxy, "out/manifest.json")
        with first.running(*arguments, "--seed", "0") as process:
            until(lambda: puts(proxy, "out/manifest.json"))
            second.run(*arguments, "--seed", str(seed))
            stood = manifest_at(server, "out")
            proxy.set()
            done = first.ended(process)
    assert "Traceback" not in done.err
    if seed:
        assert done.code == 5, done
        assert "was written by another run since" in done.err
        assert repr(str(stood.run["job"])[:12]) in done.err
        assert_whole(server, "out", alone=False)
        second.run("clean", f"{server.url}/out", "--older-than", "0")
    else:
        assert done.code == 0, done
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
    assert_whole(server, "out", alone=False)


def test_a_file_that_is_there_and_differs(
    server: Server, pets: Path, tmp_path: Path
) -> None:
    """It is not replaced, and the run ends with 5."""
    program = Program(server, tmp_path)
    arguments = ("convert", pets, f"{server.url}/out", *PETS)
    with FaultProxy(server.endpoint) as proxy:
        first = Program(server.through(proxy.endpoint), tmp_path)
        stall(proxy, "out/manifest.json")
        with first.running(*arguments) as process:
            until(lambda: puts(proxy, "out/manifest.json"))
            kill(process)
    key = next(key for key in server.keys("out/data-") if ".tfrecord-" in key)
    server.write(key, b"other bytes")
    done = program.run(*arguments, code=5)
    assert "is never replaced" in done.err
    assert server.read(key) == b"other bytes"
    assert server.keys("out/manifest") == []
    program.run("clean", f"{server.url}/out")
    assert server.read(key) == b"other bytes"
    program.run("clean", f"{server.url}/out", "--older-than", "0")
    assert server.keys() == []
    program.run(*arguments)
    assert_whole(server, "out")


def test_the_age_of_an_object(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each write changes the version, and begins the age again."""
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    path = f"{server.url}/a"
    assert storage(path).look().version == ""
    server.write("a", b"1")
    before = storage(path).look()
    time.sleep(3)
    after = storage(path).look()
    assert after.version == before.version != ""
    # Whole seconds, each rounded down.
    assert 2 <= after.age - before.age <= 4
    server.write("a", b"2")
    assert storage(path).look().version != before.version
    assert storage(path).look().age <= 2
