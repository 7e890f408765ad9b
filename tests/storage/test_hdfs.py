"""HDFS, through Arrow and Hadoop's own client: a real name node and data node."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.storage.conftest import MEASURES, PETS
from tests.storage.hdfs_servers import Hdfs, hdfs_running
from tests.storage.program import Program, files_of
from tests.support.outputs import contents

# How long a run goes on between two looks.
_RUNS_SECONDS = 0.1


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    """An empty HDFS."""
    with hdfs_running(tmp_path_factory.mktemp("hdfs")) as found:
        yield found


def assert_same(hdfs: Hdfs, target: str, local: Path) -> None:
    """A dataset there has the bytes of a local one, and nothing else is there."""
    assert files_of(hdfs.files(target)) == contents(local)
    folder, _, name = target.rpartition("/")
    assert [each for each in hdfs.names(folder) if name in each] == [name]


def test_a_dataset_in_hdfs(
    hdfs: Hdfs, pets: Path, local_pets: Path, tmp_path: Path
) -> None:
    """Converted, sound, up to date, the bytes of a local one; nothing beside it."""
    program = Program(hdfs, tmp_path)
    target = hdfs.url("sets/one")
    # A process with Java must not fork: these workers are new interpreters.
    program.run("convert", pets, target, *PETS, "--workers", "2")
    assert "sound: 32 records" in program.run("verify", target).out
    # Hadoop's own settings name the name node too.
    assert "sound: 32 records" in program.run("verify", "hdfs:///sets/one").out
    assert "up to date" in program.run("convert", pets, target, *PETS).out
    assert_same(hdfs, "sets/one", local_pets)
    assert "no dead run" in program.run("clean", target).out


def test_sources_in_hdfs(
    hdfs: Hdfs, pets: Path, local_pets: Path, measures: Path, tmp_path: Path
) -> None:
    """Images there give the bytes of those here; a pattern names the files there."""
    hdfs.put(pets, "sources/pets")
    hdfs.put(measures, "sources/measures")
    program = Program(hdfs, tmp_path)
    program.run("convert", hdfs.url("sources/pets"), "here", *PETS)
    assert contents(tmp_path / "here") == contents(local_pets)
    pattern = hdfs.url("sources/measures/part-[01].csv")
    done = program.run("convert", pattern, "rows", "--splits", "train=0.8,test=0.2")
    assert "1,000" in done.out
    done = program.run("convert", hdfs.url("sources/none"), "none", code=2)
    assert "The source must exist" in done.err


def test_a_killed_run_is_continued(
    hdfs: Hdfs, measures: Path, local_measures: Path, tmp_path: Path
) -> None:
    """Killed after some blocks; the next run ends it, with nothing left over."""
    program = Program(hdfs, tmp_path)
    arguments = ("convert", measures, hdfs.url("sets/killed"), *MEASURES)
    with program.running(*arguments) as process:
        # A block is finished when it has a receipt, which comes after its segments.
        work = "sets/.killed.beam-tfrecord"
        _halt(process, lambda: _made(hdfs, work, "receipts", ".block"))
    assert "manifest.json" not in hdfs.names("sets/killed")
    assert "going on where an earlier run ended" in program.run(*arguments).err
    assert_same(hdfs, "sets/killed", local_measures)


def test_a_stopped_run_is_continued(
    hdfs: Hdfs, measures: Path, local_measures: Path, tmp_path: Path
) -> None:
    """Ctrl-C is ours, and not Java's: 130, with words, and the next run goes on."""
    program = Program(hdfs, tmp_path)
    arguments = ("convert", measures, hdfs.url("sets/stopped"), *MEASURES)
    with program.running(*arguments) as process:
        work = "sets/.stopped.beam-tfrecord"
        _halt(process, lambda: _made(hdfs, work, "segments", ".segments"))
        process.send_signal(signal.SIGINT)
        os.killpg(process.pid, signal.SIGCONT)
        done = program.ended(process)
    assert done.code == 130, done.err
    assert "nothing was committed" in done.err.lower()
    program.run(*arguments)
    assert_same(hdfs, "sets/stopped", local_measures)


def _halt(process: "subprocess.Popen[str]", once: Callable[[], object]) -> None:
    """Halts a run as soon as something holds.

    To look takes longer than the rest of the run, which therefore halts meanwhile.
    """
    while True:
        time.sleep(_RUNS_SECONDS)
        os.killpg(process.pid, signal.SIGSTOP)
        if once():
            return
        assert process.poll() is None, "it ended before"
        os.killpg(process.pid, signal.SIGCONT)


def _made(hdfs: Hdfs, folder: str, kind: str, ending: str) -> bool:
    works = [name for name in hdfs.names(folder) if name != "uses"]
    return any(
        name.endswith(ending)
        for work in works
        for name in hdfs.names(f"{folder}/{work}/{kind}")
    )


def test_no_overwrite_without_conditions(
    hdfs: Hdfs, pets: Path, tmp_path: Path
) -> None:
    """Arrow cannot write on a condition: a dataset there is not replaced."""
    program = Program(hdfs, tmp_path)
    arguments = ("convert", pets, hdfs.url("sets/twice"), *PETS)
    program.run(*arguments)
    before = hdfs.files("sets/twice")
    done = program.run(*arguments, "--seed", "2", "--overwrite", code=2)
    assert "needs a store that writes on a condition" in done.err
    assert hdfs.files("sets/twice") == before


def test_a_name_node_that_does_not_answer(
    hdfs: Hdfs, pets: Path, tmp_path: Path
) -> None:
    """It is not taken for one that holds nothing, as Arrow takes it."""
    program = Program(hdfs, tmp_path)
    target = "hdfs://127.0.0.1:1/sets/out"
    for arguments in (("verify", target), ("convert", pets, target, *PETS)):
        done = program.ended(program.started(*arguments))
        assert done.code == 1, done.err
        (error,) = [line for line in done.err.splitlines() if line[:6] == "error:"]
        assert f"{target}" in error
        assert "Hadoop's client" in error


@pytest.mark.parametrize("name", ["CLASSPATH", "ARROW_LIBHDFS_DIR"])
def test_what_is_missing_is_named(hdfs: Hdfs, name: str, tmp_path: Path) -> None:
    """Rather than the end of the process, in Java."""
    program = Program(hdfs, tmp_path, **{name: "", "HADOOP_HOME": ""})
    done = program.run("verify", hdfs.url("sets/one"), code=1)
    assert "ARROW_LIBHDFS_DIR" in done.err
    assert len(done.err.splitlines()) == 1
