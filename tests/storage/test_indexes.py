"""`index` of datasets in buckets: its files, then the manifest, on a condition."""

from pathlib import Path

import pytest

from tests.storage.conftest import MEASURES, Server
from tests.storage.fault_proxy import FaultProxy, Rule
from tests.storage.program import (
    Program,
    assert_whole,
    kill,
    manifest_at,
    program_on,
    puts,
    stall,
    until,
)

_INDEX = ("--text", "--catalogue")


@pytest.fixture(params=["first", "later"])
def place(
    request: pytest.FixtureRequest, server: Server, measures: Path, tmp_path: Path
) -> str:
    """A dataset with no indexes; one that has replaced another is in its own folder."""
    program = Program(server, tmp_path)
    arguments = (measures, f"{server.url}/set", *MEASURES, "--no-index")
    program.run("convert", *arguments)
    if request.param == "later":
        program.run("convert", *arguments, "--overwrite", "--seed", 3)
    return "set"


def test_the_manifest_comes_last(server: Server, place: str, tmp_path: Path) -> None:
    """It alone of what was there changes, once, and its digest does not."""
    before = manifest_at(server, place)
    kept = {key: server.read(key) for key in server.keys(f"{place}/")}
    with FaultProxy(server.endpoint) as proxy:
        program = Program(server.through(proxy.endpoint), tmp_path)
        program.run("index", f"{server.url}/{place}", *_INDEX)
        written = puts(proxy, f"{place}/")
        assert len(puts(proxy, f"{place}/manifest.json")) == 1
        last = next(n for n, each in enumerate(written) if "manifest.json" in each)
        assert not any(".pq" in each or ".u64" in each for each in written[last:])
    after = assert_whole(server, place)
    assert after.digest == before.digest
    assert after.dataset_json() == before.dataset_json()
    assert {facts.file.rpartition(".")[2] for facts in after.derived} == {
        *("u64", "idx", "pq", "pbtxt")
    }
    del kept[f"{place}/manifest.json"]
    for key, data in kept.items():
        assert server.read(key) == data
    program = Program(server, tmp_path)
    assert program.run("verify", f"{server.url}/{place}").code == 0
    keys = server.keys()
    program.run("index", f"{server.url}/{place}", *_INDEX)
    assert server.keys() == keys


def test_an_overwrite_meanwhile(
    server: Server, place: str, measures: Path, tmp_path: Path
) -> None:
    """The later dataset stays; of the indexes of the earlier one nothing does."""
    with FaultProxy(server.endpoint) as proxy:
        first = program_on(server.through(proxy.endpoint), tmp_path / "a", "host-a")
        stall(proxy, f"{place}/manifest.json")
        with first.running("index", f"{server.url}/{place}", *_INDEX) as process:
            until(lambda: puts(proxy, f"{place}/manifest.json"))
            other = program_on(server, tmp_path / "b", "host-b")
            options = (*MEASURES, "--overwrite", "--seed", 7)
            other.run("convert", measures, f"{server.url}/{place}", *options)
            manifest = manifest_at(server, place)
            proxy.set()
            done = first.ended(process)
        assert done.code == 5
        assert "written by another run" in done.err
        assert "Traceback" not in done.err
    assert manifest_at(server, place) == manifest
    assert_whole(server, place, alone=False)


def test_a_lost_answer(server: Server, place: str, tmp_path: Path) -> None:
    """The manifest was put; the run that tries again takes it for its own."""
    with FaultProxy(server.endpoint) as proxy:
        program = Program(server.through(proxy.endpoint), tmp_path)
        methods, name = ("PUT", "POST"), f"{place}/manifest.json"
        proxy.set(Rule("cut_answer", methods=methods, contains=name))
        program.run("index", f"{server.url}/{place}", *_INDEX)
        assert len(puts(proxy, name)) > 1
    assert assert_whole(server, place).catalogue_parts("train")


@pytest.mark.parametrize("at", [".u64", ".pq", "manifest.json"])
@pytest.mark.parametrize("after", ["index", "clean", "overwrite"])
def test_what_a_killed_run_has_left(
    at: str,
    after: str,
    server: Server,
    place: str,
    measures: Path,
    tmp_path: Path,
) -> None:
    """It is in nobody's way, and `clean` removes it."""
    target = f"{server.url}/{place}"
    before = manifest_at(server, place)
    with FaultProxy(server.endpoint) as proxy:
        program = Program(server.through(proxy.endpoint), tmp_path)
        stall(proxy, at, skip=0 if at == "manifest.json" else 1)
        with program.running("index", target, *_INDEX) as process:
            until(lambda: len(puts(proxy, at)) > (0 if at == "manifest.json" else 1))
            kill(process)
    assert manifest_at(server, place) == before
    program = Program(server, tmp_path)
    if after == "index":
        program.run("index", target, *_INDEX)
        assert assert_whole(server, place).digest == before.digest
        assert manifest_at(server, place).catalogue_parts("train")
    elif after == "clean":
        program.run("clean", target, "--older-than", "0")
        assert assert_whole(server, place) == before
    else:
        program.run("convert", measures, target, *MEASURES, "--overwrite", "--seed", 7)
        assert assert_whole(server, place, alone=False).digest != before.digest
    program.run("verify", target)
