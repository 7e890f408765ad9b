"""Several writers on one target in an object store, step by step in any order."""

import contextlib
import dataclasses
import json
import os
import pickle
from pathlib import Path
from typing import Any

import google_crc32c
import pytest

from tests.support import schedules
from tests.support.folder_store import FolderStore, install
from tests.support.schedules import Writers, check_dataset, names_of
from tests.support.stress import sizes
from transforms.core.manifest import MANIFEST_NAME, Manifest
from transforms.core.model import ShardFile
from transforms.core.statistics import StatisticsTable
from transforms.core.tfrecord.frame import frame
from transforms.errors import CommitError, StorageError, TargetError
from transforms.publishing import target, work_folder
from transforms.publishing.bucket import publication
from transforms.publishing.bucket import runs as bucket_runs
from transforms.publishing.bucket import target as bucket
from transforms.storage.object_store import Look
from transforms.work import versions
from transforms.work.store import Store

_WORK = ".out.beam-tfrecord"


class _Client(FolderStore):
    """A store with uploads in parts, and the files of one target."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.unfinished: list[tuple[str, str]] = []

    def uploads(self, prefix: str) -> list[tuple[str, str]]:
        return [each for each in self.unfinished if each[0].startswith(prefix)]

    def give_up(self, key: str, upload: str) -> None:
        self.unfinished.remove((key, upload))

    def read_file(self, name: str) -> bytes:
        return self.read(f"out/{name}")


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> _Client:
    """The client of every place."""
    made = _Client(tmp_path)
    install(made, monkeypatch)
    return made


@pytest.mark.parametrize("seeds", sizes(range(20), range(800)), ids=str)
def test_any_schedule(client: _Client, seeds: range) -> None:
    """What a manifest names is whole at any time, and in the end nothing else is."""

    def look() -> None:
        if client.look(f"out/{MANIFEST_NAME}").version:
            check_dataset(client.read_file, pointers=False)

    for seed in seeds:
        writers = Writers("s3://bucket/out", seed)
        with writers.patched():
            for _ in range(2):
                writers.run(look)
            work_folder.clear("s3://bucket/out", sure=True)
        expected = []
        if client.look(f"out/{MANIFEST_NAME}").version:
            manifest = check_dataset(client.read_file, pointers=True)
            expected = [f"out/{name}" for name in names_of(manifest)]
        # One that has published may have been killed before it could say so.
        assert expected or "committed" not in writers.outcomes, seed
        assert client.keys == expected, seed
        for key in expected:
            client.remove(key)


def test_a_stopped_run_puts_nothing_more(client: _Client) -> None:
    """Its threads may go on in this process, after all that it had put was removed."""
    directory = "s3://bucket/out"
    store = Store("s3://bucket/.out.beam-tfrecord/w")
    with work_folder.held(directory) as hold:
        job = "0" * 32
        store = work_folder.open_store(directory, hold, store, job=job, seen="")
        other = work_folder.open_store(directory, hold, store, job=job, seen="")
        # As Beam hands it on.
        sent = pickle.loads(pickle.dumps(store))
        sent.announce("a")
        store.abandon()
        work_folder.leave(directory, hold, store, seen="")
    assert sent.is_abandoned
    with pytest.raises(CommitError, match="was stopped"):
        sent.announce("b")
    assert not other.is_abandoned
    assert client.keys == []


def test_uploads_of_the_dead_alone_are_given_up(
    client: _Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not those of a run that begins once it was asked who is there, nor of others."""
    dead = [("out/a", "1"), ("out.rejects.jsonl", "2"), (f"{_WORK}/w/b", "3")]
    foreign, late = [("out2/a", "4"), ("out.rejected/a", "5")], [("out/c", "6")]
    client.unfinished = dead + foreign
    gone = bucket_runs.this_run() | {"process": f"{2**22 + 1}"}
    client.put(f"{_WORK}/others/gone", json.dumps(gone).encode())
    ask = bucket_runs.beside

    def asked(folder: str, hold: bucket_runs.Hold) -> Any:
        client.unfinished += late
        return ask(folder, hold)

    monkeypatch.setattr(bucket, "beside", asked)
    bucket.remove_work("s3://bucket/out", bucket_runs.Hold())
    assert client.unfinished == foreign + late


@pytest.mark.parametrize(
    ("changed", "age", "state"),
    [
        ({}, 0, "HERE"),
        ({"process": f"{2**22 + 1}"}, 0, "GONE"),
        ({"start": "1"}, 0, "GONE"),
        # Containers of one name.
        ({"machine": "another", "process": f"{2**22 + 1}"}, 0, "UNKNOWN"),
        ({"host": "another", "process": f"{2**22 + 1}"}, 0, "UNKNOWN"),
        # Nobody renews it.
        ({"host": "another"}, 10**6, "UNKNOWN"),
        ({"host": "another", "leased": True}, 59, "UNKNOWN"),
        ({"host": "another", "leased": True}, 60, "EXPIRED"),
        ({"leased": True}, 10**6, "HERE"),
        # The engine's job goes on without the process that submitted it.
        ({"start": "1", "engine": "flink"}, 0, "UNKNOWN"),
        ({"start": "1", "engine": "flink", "leased": True}, 60, "EXPIRED"),
    ],
)
def test_who_is_dead(changed: dict[str, Any], age: float, state: str) -> None:
    """By the process on this machine, else by the age of the lease."""
    run = bucket_runs.this_run() | changed
    assert bucket_runs._state(run, Look("1", age)).name == state


def test_a_process_that_cannot_be_looked_at_lives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As where /proc shows each user his own alone, or there is none."""

    def refused(*arguments: object) -> None:
        raise PermissionError

    monkeypatch.setattr(bucket_runs, "open", refused, raising=False)
    monkeypatch.setattr(os, "kill", refused)
    assert bucket_runs._start_of(1) != ""
    run = bucket_runs.this_run() | {"process": "1"}
    assert bucket_runs._state(run, Look()).name == "HERE"


@pytest.mark.parametrize("note", [b"", b"{", b"[]", b"{}", b"\xff", b'{"host": "a"}'])
def test_an_entry_that_is_no_note(client: _Client, note: bytes) -> None:
    """A foreign entry in place of a run's note is named, and nothing is removed."""
    client.put(f"{_WORK}/holder", note)
    with pytest.raises(TargetError, match="holder' must be the note of a run"):
        work_folder.clear("s3://bucket/out", sure=True)
    assert client.keys == [f"{_WORK}/holder"]


@pytest.mark.parametrize("digest", ["equal", "another"])
def test_an_owner_paused_for_five_minutes_before_its_put(
    client: _Client, digest: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After its last check another run has published: its put fails, nothing is lost.

    A run of the same job takes its work over meanwhile, any other works apart.
    """
    directory, ages = "s3://bucket/out", {"seconds": 0.0}
    hosts = iter(("a", "b"))

    def this_run() -> dict[str, str]:
        host = next(hosts)
        facts = {"host": host, "machine": host, "process": "1", "start": "1"}
        return {**facts, "run": host * 12}

    def look_at(path: str) -> Look:
        look = client.look("/".join(path.split("/")[3:]))
        return Look(look.version, ages["seconds"])

    monkeypatch.setattr(bucket_runs, "this_run", this_run)
    monkeypatch.setattr(bucket_runs, "renewed", lambda _: contextlib.nullcontext())
    for module in (bucket_runs, bucket):
        monkeypatch.setattr(module, "look_at", look_at)
    jobs = ["0" * 32, ("0" if digest == "equal" else "1") * 32]
    works = [Store(f"s3://bucket/{_WORK}/{job}") for job in jobs]

    def shards(store: Store, job: str) -> list[ShardFile]:
        name, data = "d-train.tfrecord-00000-of-00001", frame(job.encode())
        store.announce(name)
        client.put("/".join(f"{store.dataset}/{name}".split("/")[3:]), data)
        size, crc, facts = len(data), google_crc32c.value(data), StatisticsTable.of({})
        return [ShardFile(name, "train", 0, 1, size, size - 16, crc, facts)]

    with work_folder.held(directory, jobs[0]) as hold:
        store = work_folder.open_store(directory, hold, works[0], job=jobs[0], seen="")
        made = shards(store, jobs[0])
        put_if = versions.put_if

        def paused(path: str, *arguments: Any, **options: Any) -> None:
            """Another run does all of its work between the last check and the put."""
            monkeypatch.setattr(publication, "put_if", put_if)
            ages["seconds"] = 300.0
            with work_folder.held(directory, jobs[1]) as other:
                assert (other.former is not None) == (digest == "equal")
                assert bool(other.apart) == (digest == "another")
                second = work_folder.open_store(
                    directory, other, works[1], job=jobs[1], seen=""
                )
                ages["seconds"] = 0.0
                schedules.commit(
                    directory, 1, jobs[1], "", second, shards(second, jobs[1])
                )
                work_folder.end(directory, other, second, keeps_work=False)
            ages["seconds"] = 300.0
            put_if(path, *arguments, **options)

        monkeypatch.setattr(publication, "put_if", paused)
        with pytest.raises(CommitError, match="was written by another run"):
            schedules.commit(directory, 0, jobs[0], "", store, made)
        # What the other one has published is whole, while the first one still lives.
        found = check_dataset(client.read_file, pointers=True)
        assert found.run["job"] == jobs[1]
        work_folder.leave(directory, hold, store, seen="")
    work_folder.clear(directory, sure=True)
    found = check_dataset(client.read_file, pointers=True)
    assert client.keys == [f"out/{name}" for name in names_of(found)]


def test_the_work_of_a_run_apart_is_not_kept(
    client: _Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No later run would take it over, so it is removed where work is to be kept."""
    monkeypatch.setattr(bucket_runs, "renewed", lambda _: contextlib.nullcontext())
    other = json.dumps(bucket_runs.this_run() | {"host": "another"}).encode()
    client.put(f"{_WORK}/holder", other)
    directory, job = "s3://bucket/out", "0" * 32
    with work_folder.held(directory, job) as hold:
        work = Store(f"s3://bucket/{_WORK}/{job}")
        store = work_folder.open_store(directory, hold, work, job=job, seen="")
        for path, data in ((store.used, b"[]"), (f"{store.receipts}/a.blocks", b"1")):
            client.put(path.removeprefix("s3://bucket/"), data)
        work_folder.end(directory, hold, store, keeps_work=True)
    assert client.keys == [f"{_WORK}/holder"]


def test_a_dataset_that_was_indexed_after_a_publication_was_killed(
    client: _Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its manifest is new, its folder is not: nothing of it is what was replaced."""
    directory, folder = "s3://bucket/out", f"data-{'0' * 32}-{'0' * 12}"
    store = Store(f"s3://bucket/{_WORK}/{'0' * 32}")
    placed = dataclasses.replace(store, placed=f"{directory}/{folder}")
    name, data = "d-train.tfrecord-00000-of-00001", frame(b"record")
    client.put(f"out/{folder}/{name}", data)
    size, crc, facts = len(data), google_crc32c.value(data), StatisticsTable.of({})
    shard = ShardFile(name, "train", 0, 1, size, size - 16, crc, facts)
    schedules.commit(directory, 0, "0" * 32, "", placed, [shard])
    manifest = Manifest.from_bytes(client.read_file(MANIFEST_NAME))
    assert manifest.folder == folder

    def killed(*_arguments: object, **_options: object) -> None:
        raise StorageError("It fails here.")

    run = {**manifest.run, "folder": f"data-{'1' * 32}-{'1' * 12}"}
    later = dataclasses.replace(manifest, run=run)
    monkeypatch.setattr(publication, "put_if", killed)
    with pytest.raises(StorageError):
        publication.publish(later, directory, seen=target.state(directory))
    indexed = dataclasses.replace(manifest, run={**manifest.run, "started": "later"})
    client.put(f"out/{MANIFEST_NAME}", indexed.to_bytes())
    work_folder.clear(directory, sure=True)
    assert check_dataset(client.read_file, pointers=True).run["started"] == "later"
