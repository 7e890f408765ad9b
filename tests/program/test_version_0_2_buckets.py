"""Runs of version 0.2 in a bucket, dead or at work beside one of this version.

What they have put there at the moment before their manifest, and that manifest, is in
`tests/data/v0.2`. They are runs of another machine.
"""

import json
import pathlib

import pytest

from beam_pipeline.version import deciding_versions
from tests.support.folder_store import FolderStore, new_store
from tests.support.outputs import dataset
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
from transforms.storage.object_store import OvertakenError

pytestmark = pytest.mark.usefixtures("without_runner")

Folder = pathlib.Path

# Exit codes.
SOUND, RACE = 0, 5


@pytest.fixture
def folder(tmp_path: Folder, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """The folder that the jobs are run in, with the sources."""
    copy_sources(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def store(tmp_path: Folder, monkeypatch: pytest.MonkeyPatch) -> FolderStore:
    return new_store(tmp_path / "store", monkeypatch)


def convert_table(out: str, seed: int) -> Run:
    """Runs the job of the table; that of 0.2 in the buckets has seed 1."""
    flags = (*flags_of("table"), "--seed", seed, "--overwrite")
    return command("convert", JOBS["table"][0], out, *flags)


def keys_of(store: FolderStore, name: str) -> list[str]:
    """Returns the keys of all that the dataset of a target consists of."""
    found = Manifest.from_bytes(store.read(f"{name}/manifest.json"))
    own = {found.path("", each) for each in found.file_names}
    named = {"manifest.json", *found.root_names, *own} - {
        f"{found.folder}/manifest.json"
    }
    return sorted(f"{name}/{each}" for each in named)


def check_files(store: FolderStore, name: str) -> None:
    """Checks the objects that the manifest names, by their checksums."""
    check_dataset(lambda file: store.read(f"{name}/{file}"), pointers=False)


BUCKETS = ("bucket-fresh", "bucket-replacing")


@pytest.mark.parametrize("name", BUCKETS)
def test_this_version_publishes_first_in_a_bucket(
    name: str, folder: Folder, store: FolderStore
) -> None:
    """The store refuses the manifest of 0.2, whose own objects stay till then."""
    late = put_objects(name, store)
    key = f"{name}/manifest.json"
    seen, theirs = store.look(key).version, {*store.keys} - {key}
    run = convert_table(f"s3://b/{name}", 3)
    assert run.code == SOUND, run.err
    assert store.look(key).version != seen
    with pytest.raises(OvertakenError):
        store.put_if(key, late, seen)
    check_files(store, name)
    held = {each for each in theirs if each.startswith(".") or "/data-" in each}
    assert held <= {*store.keys}


@pytest.mark.parametrize("name", BUCKETS)
def test_0_2_publishes_first_in_a_bucket(
    name: str, folder: Folder, store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This version ends with 5, and all objects of that dataset are whole."""
    late = put_objects(name, store)
    key = f"{name}/manifest.json"
    seen = store.look(key).version
    check = beside(monkeypatch, lambda: store.put_if(key, late, seen))
    run = convert_table(f"s3://b/{name}", 3)
    check()
    assert (run.code, run.out) == (RACE, "")
    assert store.read(key) == late
    check_files(store, name)
    assert command("clean", f"s3://b/{name}").code == SOUND
    assert store.keys == keys_of(store, name)
    assert command("verify", f"s3://b/{name}").code == SOUND


@pytest.mark.parametrize("seed", [1, 3])
@pytest.mark.parametrize("name", BUCKETS)
def test_an_expired_run_in_a_bucket(
    name: str, seed: int, folder: Folder, store: FolderStore
) -> None:
    """The dataset is a fresh run's, of the same job or not; the late one is refused."""
    assert convert_table(str(folder / "fresh"), seed).code == SOUND
    late = put_objects(name, store)
    key, holder = f"{name}/manifest.json", f".{name}.beam-tfrecord/holder"
    seen = store.look(key).version
    store.ages[holder] = 120.0
    run = convert_table(f"s3://b/{name}", seed)
    assert run.code == SOUND, run.err
    digest = Manifest.from_bytes(store.read(key)).digest
    assert digest == dataset(folder / "fresh")["digest"]
    assert command("verify", f"s3://b/{name}").code == SOUND
    with pytest.raises(OvertakenError):
        store.put_if(key, late, seen)
    assert command("clean", f"s3://b/{name}").code == SOUND
    assert store.keys == keys_of(store, name)


@pytest.mark.parametrize("name", BUCKETS)
def test_a_later_version_does_not_write_over_a_paused_run(
    name: str, folder: Folder, store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the same job: until its commit it writes none of the objects of 0.2 again."""
    deciding = {**deciding_versions(), "beam-tfrecord": "9.9.9"}
    monkeypatch.setattr("beam_pipeline.planning.plan.deciding_versions", deciding.copy)
    monkeypatch.setattr("beam_pipeline.planning.request.__version__", "9.9.9")
    put_objects(name, store)
    store.ages[f".{name}.beam-tfrecord/holder"] = 120.0
    key = f"{name}/manifest.json"
    before = {each: store.look(each).version for each in store.keys if each != key}
    at_commit: dict[str, str] = {}
    put_if = store.put_if

    def watched_put(path: str, data: bytes, version: str) -> None:
        if path == key:
            at_commit.update({each: store.look(each).version for each in before})
        put_if(path, data, version)

    monkeypatch.setattr(store, "put_if", watched_put)
    run = convert_table(f"s3://b/{name}", 1)
    assert run.code == SOUND, run.err
    assert at_commit == before


@pytest.mark.parametrize("name", BUCKETS)
def test_clean_of_a_bucket(name: str, folder: Folder, store: FolderStore) -> None:
    """Of a dead run nothing stays, and of the dataset before it everything."""
    put_objects(name, store)
    expected = keys_of(store, name) if name == "bucket-replacing" else []
    assert command("clean", f"s3://b/{name}").code == SOUND
    assert store.keys == expected
    if expected:
        assert command("verify", f"s3://b/{name}").code == SOUND


@pytest.mark.parametrize("name", BUCKETS)
def test_what_0_2_sees_of_a_run_in_a_bucket(
    name: str, folder: Folder, store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The notes have the names and the fields of those of 0.2."""
    put_objects(name, store)
    work = f".{name}.beam-tfrecord"
    theirs = {key: store.read(key) for key in store.keys if key.startswith(work)}
    # The same again, with a run of this version.
    for key in store.keys:
        if not key.startswith(f"{name}/") or "/data-" in key or name == "bucket-fresh":
            store.remove(key)
    ours: dict[str, bytes] = {}
    put_if = store.put_if

    def watched_put(key: str, data: bytes, version: str) -> None:
        if key == f"{name}/manifest.json":
            ours.update({k: store.read(k) for k in store.keys if k.startswith(work)})
        put_if(key, data, version)

    monkeypatch.setattr(store, "put_if", watched_put)
    run = convert_table(f"s3://b/{name}", 1)
    assert run.code == SOUND, run.err
    assert forms(ours) == forms(theirs)
    holder = f"{work}/holder"
    assert json.loads(ours[holder]).keys() == json.loads(theirs[holder]).keys()
    for key in (each for each in ours if each.startswith(f"{work}/publishing/")):
        (of_0_2,) = (each for each in theirs if each.startswith(f"{work}/publishing/"))
        assert json.loads(ours[key]).keys() == json.loads(theirs[of_0_2]).keys()
    assert store.keys == keys_of(store, name)


def forms(keys: dict[str, bytes]) -> set[str]:
    """Returns the kinds of notes and works in a work folder, and how deep each is."""
    digits = str.maketrans("0123456789abcdef", "x" * 16)
    out = set()
    for key in keys:
        _, first, *rest = key.split("/")
        fixed = first in ("holder", "others", "places", "names", "publishing")
        out.add("/".join([first if fixed else first.translate(digits), str(len(rest))]))
    return out
