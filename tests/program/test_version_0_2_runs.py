"""Runs of version 0.2 that were killed, or work beside one of this version.

What they leave, and what they hold at the decisive moments, is in `tests/data/v0.2`.
That program cannot be installed here: as it does, tests hold its locks and put its
dataset in place. Buckets are in `test_version_0_2_buckets.py`.
"""

import contextlib
import fcntl
import json
import os
import pathlib
import shutil
import threading
from collections.abc import Iterator

import pytest

from tests.support.outputs import contents, dataset, manifest, split_sizes
from tests.support.own_pipelines import write_rows
from tests.support.runs import Run, command
from tests.support.version_0_2 import (
    JOBS,
    MAKE,
    beside,
    copy_sources,
    copy_target,
    flags_of,
)
from transforms.storage import folders

pytestmark = pytest.mark.usefixtures("without_runner")

Folder = pathlib.Path

WORK = ".parts.beam-tfrecord"
MARKER = "made-by-beam-tfrecord"
ABOUT = (
    b"Unfinished work of beam-tfrecord. The next run for the same output goes on with\n"
    b"it, and `beam-tfrecord clean` removes it.\n"
)
# The seed of the dataset that is at the target after each kill.
AFTER = {"writing": 0, "publishing": 0, "published": 1}
# Exit codes.
SOUND, LEFT, RACE = 0, 1, 5


@pytest.fixture
def folder(tmp_path: Folder, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """The folder that the jobs are run in, with the sources."""
    copy_sources(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def killed(moment: str, folder: Folder) -> Folder:
    """Puts what a kill has left into the folder; returns the target."""
    at = copy_target(moment, folder / "killed")
    for path in at.iterdir():
        path.rename(folder / path.name)
    shutil.rmtree(at.parent)
    return folder / "parts"


def run_again(out: object = "parts", *options: object) -> Run:
    """Runs the job that was killed."""
    flags = (*flags_of("parts"), "--seed", 1, "--name", "parts", "--overwrite")
    return command("convert", JOBS["parts"][0], out, *flags, *options)


def fresh_digest(folder: Folder) -> str:
    """Returns the digest of the job on an output of its own."""
    run = run_again(folder / "fresh")
    assert run.code == 0, run.err
    digest: str = dataset(folder / "fresh")["digest"]
    shutil.rmtree(folder / "fresh")
    return digest


def seed_of(out: Folder) -> int:
    seed: int = manifest(out)["run"]["spec"]["seed"]
    return seed


def tree(folder: Folder) -> dict[str, bytes]:
    """Returns all files by their paths; folders are empty."""
    return {
        path.relative_to(folder).as_posix(): b"" if path.is_dir() else path.read_bytes()
        for path in folder.rglob("*")
    }


@contextlib.contextmanager
def locked(path: Folder) -> Iterator[None]:
    """Holds a lock as 0.2 holds it."""
    with open(path, "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


def is_locked(path: Folder) -> bool:
    try:
        with locked(path):
            return False
    except BlockingIOError:
        return True


@pytest.mark.parametrize("moment", AFTER)
def test_clean_removes_what_a_killed_run_has_left(moment: str, folder: Folder) -> None:
    """The work folder goes; the dataset, and files and work of others, stay."""
    out = killed(moment, folder)
    (folder / WORK / "mine.txt").write_text("mine")
    other = folder / ".other.beam-tfrecord"
    shutil.copytree(folder / WORK, other)
    before = tree(other)
    run = command("clean", out)
    assert (run.code, run.err) == (SOUND, "")
    left = [each.name for each in (folder / WORK).iterdir() if each.name != MARKER]
    assert left == ["mine.txt"]
    assert tree(other) == before
    assert seed_of(out) == AFTER[moment]
    assert command("verify", out).code == SOUND
    assert sorted(os.listdir(folder)) == [".other.beam-tfrecord", WORK, "in", "parts"]


@pytest.mark.parametrize("moment", AFTER)
def test_a_killed_job_is_run_again(moment: str, folder: Folder) -> None:
    """It ends with the dataset of a fresh run, and nothing beside that."""
    digest = fresh_digest(folder)
    out = killed(moment, folder)
    run = run_again()
    assert run.code == SOUND, run.err
    assert dataset(out)["digest"] == digest
    assert command("verify", out).code == SOUND
    assert sorted(os.listdir(folder)) == ["in", "parts"]


def test_a_dead_pipeline_is_cleaned_on_demand(folder: Folder) -> None:
    """Its rows stay, with exit code 1, until --pipelines says that it has ended."""
    out = killed("pipeline", folder).with_name("pipeline")
    work = folder / ".pipeline.beam-tfrecord"
    before = tree(work)
    assert command("clean", out).code == LEFT
    assert tree(work) == before
    assert command("clean", "--pipelines", out).code == SOUND
    assert os.listdir(folder) == ["in"]


def test_a_pipeline_beside_a_dead_one(folder: Folder) -> None:
    """It commits all of its rows, and leaves those of the other one alone."""
    out = killed("pipeline", folder).with_name("pipeline")
    work = folder / ".pipeline.beam-tfrecord"
    before = tree(work)
    rows = [MAKE.pipeline_row(number) for number in range(30)]
    write_rows(rows, out, key="id", **MAKE.SPLIT)
    assert split_sizes(out) == {"train": 19, "test": 11}
    assert command("verify", out).code == SOUND
    assert tree(work) == before


def test_a_run_of_0_2_that_writes_is_left_alone(folder: Folder) -> None:
    """While it holds its lock, `convert` ends with 5 and `clean` with 1."""
    out = killed("writing", folder)
    before = tree(folder)
    with locked(folder / WORK / "lock"):
        run = run_again()
        assert run.code == RACE
        (line,) = run.err.splitlines()[-1:]
        assert str(folder / WORK / "lock") in line
        assert command("clean", out).code == LEFT
    assert tree(folder) == before


def test_a_publication_of_0_2_is_waited_for(folder: Folder) -> None:
    """While it holds the lock of publications, this version publishes nothing."""
    out = killed("writing", folder)
    seeds: list[int] = []

    def publish() -> None:
        with locked(folder / WORK / "publishing"):
            started.set()
            done.wait(1.0)
            seeds.append(seed_of(out))

    started, done = threading.Event(), threading.Event()
    thread = threading.Thread(target=publish)
    thread.start()
    started.wait()
    run = run_again()
    thread.join()
    assert run.code == SOUND, run.err
    assert (seeds, seed_of(out)) == ([0], 1)


def test_0_2_publishes_first(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """This version ends with 5, and touches no file of that dataset."""
    out = folder / "parts"
    copy_target("table", folder).rename(out)
    theirs = copy_target("locked", folder)

    def publish() -> None:
        assert folders.exchange(str(theirs), str(out))

    expected = contents(theirs)
    check = beside(monkeypatch, publish)
    run = run_again()
    check()
    assert (run.code, run.out) == (RACE, "")
    assert contents(out) == expected
    assert command("verify", out).code == SOUND


def test_what_0_2_sees_of_a_run(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The marker, the locks, the names and the note are those that 0.2 knows."""
    work = folder / WORK
    copy_target("table", folder).rename(folder / "parts")

    def look() -> None:
        assert (work / MARKER).read_bytes() == ABOUT
        assert is_locked(work / "lock")
        # Of anything else 0.2 would say that it is foreign.
        (own,) = {each.name for each in work.iterdir()} - {"lock", MARKER}
        assert len(own) == 32
        assert set(own) <= set("0123456789abcdef")

    check = beside(monkeypatch, look)
    noted: list[dict[str, str]] = []
    exchange = folders.exchange

    def watched_exchange(source: str, target: str) -> bool:
        assert is_locked(work / "lock")
        assert is_locked(work / "publishing")
        noted.append(json.loads(pathlib.Path(f"{source}.publishing").read_bytes()))
        return exchange(source, target)

    monkeypatch.setattr(folders, "exchange", watched_exchange)
    before = (folder / "parts" / "manifest.json").read_text()
    run = run_again()
    check()
    assert run.code == SOUND, run.err
    (note,) = noted
    theirs = killed("publishing", folder / "0.2").parent
    (path,) = theirs.glob(f"{WORK}/*/dataset.publishing")
    assert note.keys() == json.loads(path.read_bytes()).keys()
    assert note["old"] == before
    assert not work.exists()
