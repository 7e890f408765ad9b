"""Leases on real stores: who is taken for dead, and what its work becomes."""

import json
import time
from pathlib import Path

import pytest

from tests.storage.conftest import MEASURES, PETS, Server
from tests.storage.fault_proxy import FaultProxy
from tests.storage.program import (
    assert_same,
    assert_whole,
    kill,
    manifest_at,
    program_on,
    puts,
    stall,
    until,
)
from transforms.errors import CommitError
from transforms.work import lease
from transforms.work.versions import look_at

_HOLDER = ".out.beam-tfrecord/holder"


@pytest.fixture
def reached(server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """The server, as this process reaches it."""
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return server


def test_the_age_of_an_object(reached: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the clock of the store, whatever this machine takes the time to be."""
    monkeypatch.setattr(time, "time", lambda: 0.0)
    path = f"{reached.url}/a"
    assert look_at(path).version == ""
    reached.write("a", b"1")
    before = look_at(path)
    time.sleep(3)
    after = look_at(path)
    assert after.version == before.version != ""
    # Whole seconds, each rounded down.
    assert 2 <= after.age - before.age <= 4
    reached.write("a", b"2")
    assert look_at(path).version != before.version
    assert look_at(path).age <= 2


def test_renewals(reached: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease is renewed by any process of its run, and by no other."""
    note = {"host": "a", "process": "1", "start": "1", "run": "x"}
    reached.write(_HOLDER, json.dumps(note).encode())
    path = f"{reached.url}/{_HOLDER}"
    held = lease.Lease(path, "x")
    first = look_at(path).version
    # It was handed over, and has just begun.
    lease.renew(held)
    second = look_at(path).version
    assert second != first
    renewed = json.loads(reached.read(_HOLDER))
    assert lease.is_leased(renewed)
    assert {**renewed, **note} == renewed
    # Another process has renewed it a moment ago.
    lease.renew(held)
    assert look_at(path).version == second
    monkeypatch.setattr(lease, "_RECENT_SECONDS", -60.0)
    lease.renew(held)
    assert look_at(path).version != second
    lease.describe(held, {"engine": "flink"})
    assert json.loads(reached.read(_HOLDER))["engine"] == "flink"
    assert not held.is_taken
    reached.write(_HOLDER, json.dumps({**note, "run": "y"}).encode())
    assert held.is_taken
    with pytest.raises(CommitError, match="another run has taken its place"):
        lease.renew(held)
    with pytest.raises(CommitError, match="another run has taken its place"):
        lease.check_held(held)


def test_a_run_on_another_host_goes_on(
    server: Server, measures: Path, local_measures: Path, tmp_path: Path
) -> None:
    """A pod that is started again has another name, and does nothing twice."""
    arguments = ("convert", measures, f"{server.url}/out", *MEASURES)
    with FaultProxy(server.endpoint) as proxy:
        first = program_on(server.through(proxy.endpoint), tmp_path / "a", "host-a")
        stall(proxy, "-of-00003", skip=8)
        with first.running(*arguments) as process:
            until(lambda: len(puts(proxy, "-of-00003")) > 8)
            kill(process)
    done = program_on(server, tmp_path / "b", "host-b").run(*arguments)
    assert "on 'host-a' was at work on the same job" in done.err
    assert "going on where an earlier run ended: 4 blocks read" in done.err
    assert_same(server, "out", local_measures)


def test_the_living_on_another_host(server: Server, pets: Path, tmp_path: Path) -> None:
    """Where a lease is renewed, the later run takes nothing over, and works apart."""
    arguments = ("convert", pets, f"{server.url}/out", *PETS)
    with FaultProxy(server.endpoint) as proxy:
        first = program_on(server.through(proxy.endpoint), tmp_path / "a", "host-a")
        stall(proxy, "out/manifest.json")
        with first.running(*arguments) as process:
            until(lambda: puts(proxy, "out/manifest.json"))
            program_on(server, tmp_path / "b", "host-b").run(*arguments)
            assert manifest_at(server, "out").folder.startswith("data-")
            proxy.set()
            done = first.ended(process)
        assert done.code == 5
        assert "was written by another run since" in done.err
    assert_whole(server, "out")


def test_a_run_whose_lease_was_taken(
    server: Server, pets: Path, tmp_path: Path
) -> None:
    """It ends by itself, publishes nothing and removes nothing."""
    arguments = ("convert", pets, f"{server.url}/out", *PETS)
    with FaultProxy(server.endpoint) as proxy:
        program = program_on(server.through(proxy.endpoint), tmp_path / "a", "host-a")
        stall(proxy, "-of-00002", skip=3)
        with program.running(*arguments) as process:
            until(lambda: len(puts(proxy, "-of-00002")) > 3)
            note = json.loads(server.read(_HOLDER))
            other = {**note, "host": "host-b", "run": "another"}
            server.write(_HOLDER, json.dumps(other).encode())
            before = server.keys()
            done = program.ended(process)
            assert done.code == 1
            assert "another run has taken its place" in done.err
            assert {*before} <= {*server.keys()}
    assert server.keys("out/manifest") == []
    assert json.loads(server.read(_HOLDER)) == other
