"""Runs of version 0.2 in a bucket, dead or at work beside one of this version.

What they have put there at the moment before their manifest, and that manifest, is in
`tests/data/v0.2`. They are runs of another machine.
"""

import pathlib

import pytest

from tests.support.memory_store import MemoryStore, install
from tests.support.runs import Run, command
from tests.support.schedules import check_dataset
from tests.support.version_0_2 import (
    JOBS,
    beside,
    copy_sources,
    flags_of,
    put_objects,
)
from transforms.core.manifest import Manifest
from transforms.storage.entries import OvertakenError

pytestmark = pytest.mark.usefixtures("without_runner")

Folder = pathlib.Path

# Exit codes.
SOUND, USAGE, RACE = 0, 2, 5


@pytest.fixture
def folder(tmp_path: Folder, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """The folder that the jobs are run in, with the sources."""
    copy_sources(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    return install(MemoryStore(), monkeypatch)


def convert_table(out: str, seed: int) -> Run:
    """Runs the job of the table; that of 0.2 in the buckets has seed 1."""
    flags = (*flags_of("table"), "--seed", seed, "--overwrite")
    return command("convert", JOBS["table"][0], out, *flags)


def keys_of(store: MemoryStore, name: str) -> list[str]:
    """Returns the keys of all that the dataset of a target consists of."""
    found = Manifest.from_bytes(store.read(f"{name}/manifest.json"))
    own = {found.path("", each) for each in found.file_names}
    named = {"manifest.json", *found.root_names, *own} - {
        f"{found.folder}/manifest.json"
    }
    return sorted(f"{name}/{each}" for each in named)


def check_files(store: MemoryStore, name: str) -> None:
    """Checks the objects that the manifest names, by their checksums."""
    check_dataset(lambda file: store.read(f"{name}/{file}"), pointers=False)


NAME = "bucket-replacing"
KEY = f"{NAME}/manifest.json"
OUT = f"s3://b/{NAME}"


def test_this_version_publishes_first_in_a_bucket(
    folder: Folder, store: MemoryStore
) -> None:
    """The store refuses the manifest of 0.2, whose own objects stay till then."""
    late = put_objects(NAME, store)
    seen, theirs = store.look(KEY).version, {*store.keys}
    before = {*keys_of(store, NAME)}
    run = convert_table(OUT, 3)
    assert run.code == SOUND, run.err
    assert store.look(KEY).version != seen
    with pytest.raises(OvertakenError):
        store.put(KEY, late, seen)
    check_files(store, NAME)
    assert theirs - before <= {*store.keys}
    assert command("verify", OUT).code == SOUND


def test_0_2_publishes_first_in_a_bucket(
    folder: Folder, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This version ends with 5, and all objects of that dataset are whole."""
    late = put_objects(NAME, store)
    seen = store.look(KEY).version
    check = beside(monkeypatch, lambda: store.put(KEY, late, seen))
    run = convert_table(OUT, 3)
    check()
    assert (run.code, run.out) == (RACE, "")
    assert store.read(KEY) == late
    check_files(store, NAME)


def test_a_dead_run_in_a_fresh_bucket(folder: Folder, store: MemoryStore) -> None:
    """Its files are in the target itself: they are named, and stay."""
    put_objects("bucket-fresh", store)
    before = store.keys
    run = convert_table("s3://b/bucket-fresh", 1)
    assert run.code == USAGE
    assert "-of-0000" in run.err
    assert store.keys == before
