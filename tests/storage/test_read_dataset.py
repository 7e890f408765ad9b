"""A dataset in a bucket: its rows, and those of no other."""

import pathlib
from typing import Any

import pyarrow as pa
import pytest

from beam_tfrecord import DamageError, InputError, ReadDataset, open_dataset
from tests.storage.conftest import MEASURES, Server
from tests.storage.program import Program
from tests.support.tfrecord_pipelines import given_by, pipeline
from transforms.storage.remote import RemotePath

Folder = pathlib.Path


def rows_of(path: Folder | str, *arguments: Any, **options: Any) -> list[Any]:
    found = given_by(ReadDataset(path, *arguments, **options))
    return sorted(found, key=lambda row: row["id"])


def test_a_dataset_in_a_bucket(
    server: Server, measures: Folder, local_measures: Folder, tmp_path: Folder
) -> None:
    """As on a disk; also after it was replaced, and not while it is."""
    target = f"{server.url}/out/measures"
    program = Program(server, tmp_path)
    program.run("convert", measures, target, *MEASURES)
    place = server.place("out/measures")
    expected = rows_of(local_measures)
    assert rows_of(place) == expected
    assert rows_of(place, "test", ["id"]) == rows_of(local_measures, "test", ["id"])
    waiting = pipeline()
    waiting | ReadDataset(place)
    program.run("convert", measures, target, *MEASURES, "--seed", "7", "--overwrite")
    with pytest.raises(InputError, match="was replaced while open: its digest was"):
        waiting.run().wait_until_finish()
    assert rows_of(place) == expected


def test_views_of_a_bucket(
    server: Server,
    measures: Folder,
    local_measures: Folder,
    tmp_path: Folder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As on a disk; the index of a shard is fetched once, whole, when it is needed."""
    target = f"{server.url}/out/measures"
    program = Program(server, tmp_path)
    program.run("convert", measures, target, *MEASURES, "--catalogue")
    fetched: list[tuple[str, int]] = []
    read_range = RemotePath.read_range

    def counted(path: RemotePath, start: int, stop: int) -> bytes:
        fetched.append((path.path.rpartition("/")[2], start))
        return read_range(path, start, stop)

    monkeypatch.setattr(RemotePath, "read_range", counted)
    here, there = (
        open_dataset(local_measures),
        open_dataset(server.place("out/measures")),
    )
    assert there.splits == here.splits
    assert fetched == []
    for split in here:
        assert [there[split][place] for place in range(len(there[split]))] == [
            *here[split]
        ]
        mixed = there[split].shuffled(seed=1)
        assert [*mixed] == [*here[split].shuffled(seed=1)]
        assert [*mixed.records] == [*here[split].shuffled(seed=1).records]
    indexes = [(name, start) for name, start in fetched if name.endswith(".u64")]
    names = [path.name for path in sorted((local_measures / "index").glob("*.u64"))]
    assert sorted(indexes) == [(name, 0) for name in names]
    ids = pa.table(there["train"].select(["id"]))["id"].to_pylist()
    assert ids == [row["id"] for row in here["train"]]
    chosen = there["train"].where("id > 5")
    assert [row["id"] for row in chosen] == [number for number in ids if number > 5]
    program.run("convert", measures, target, *MEASURES, "--seed", "7", "--overwrite")
    for read in (lambda: there["train"][0], lambda: there["train"].where("id > 5")):
        with pytest.raises(DamageError, match="replaced while open"):
            read()
