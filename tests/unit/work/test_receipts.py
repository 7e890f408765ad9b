"""Receipts of shards that were finished together."""

import dataclasses
import os
import pathlib

import google_crc32c
import pytest

from transforms.core.model import RejectLog, ShardFile
from transforms.core.reasons import Reason
from transforms.core.statistics import Statistics
from transforms.work.receipts import (
    FinishedShards,
    ShardDone,
    count_finished,
    keep_shards,
)
from transforms.work.store import Store


@pytest.fixture
def store(tmp_path: pathlib.Path) -> Store:
    found = Store(str(tmp_path / "work"))
    for folder in (found.attempts, found.receipts, found.dataset):
        os.makedirs(folder)
    return found


def done(store: Store, name: str, *, rejected: int = 0) -> ShardDone:
    """Writes a shard; returns its facts."""
    content = name.encode()
    pathlib.Path(store.dataset, name).write_bytes(content)
    statistics = {"text": Statistics(2, 1, 7, {3: 1}), "none": Statistics()}
    crc = google_crc32c.value(content)
    shard = ShardFile(name, "train", 0, 2, len(content), 1, crc, statistics)
    log = RejectLog({Reason.FIELD_COUNT: rejected}, payload=b"a\rb\nc \xff")
    return ShardDone(shard, (log,) if rejected else ())


def group(store: Store, *names: str, rejected: int = 0) -> dict[str, ShardDone]:
    shards = {
        name.encode().hex(): done(store, name, rejected=rejected) for name in names
    }
    keep_shards(store, [*shards.items()])
    return shards


def receipts(store: Store) -> list[pathlib.Path]:
    return sorted(pathlib.Path(store.receipts).iterdir())


def test_each_shard_of_several_groups_is_found(store: Store) -> None:
    """One file a group; facts come back as they were, of known digests alone."""
    shards = group(store, "a", "b", rejected=2) | group(store, "c")
    assert len(receipts(store)) == 2
    finished = FinishedShards(store)
    assert {digest: finished.find(digest) for digest in shards} == shards
    assert finished.find(b"d".hex()) is None
    assert count_finished(store) == (0, 3)


def test_no_shards_leave_no_receipt(store: Store) -> None:
    """Where none of a group may be reused, nothing is written."""
    keep_shards(store, [])
    assert receipts(store) == []
    assert FinishedShards(store).find("aa") is None


def test_the_same_group_has_the_same_receipt(store: Store) -> None:
    """Its name says the shards, so a second attempt replaces it."""
    group(store, "a", "b")
    before = {path: path.read_bytes() for path in receipts(store)}
    group(store, "a", "b")
    assert {path: path.read_bytes() for path in receipts(store)} == before


@pytest.mark.parametrize("at", [0, 8, 40, -1])
def test_a_damaged_receipt_serves_none_of_its_shards(store: Store, at: int) -> None:
    """Whichever byte has changed; other groups are found."""
    damaged = group(store, "a", "b")
    (path,) = receipts(store)
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    whole = group(store, "c", "d")
    finished = FinishedShards(store)
    assert [finished.find(digest) for digest in damaged] == [None, None]
    assert [finished.find(digest) for digest in whole] == [*whole.values()]


def test_a_damaged_shard_is_not_found(store: Store) -> None:
    """Its neighbours in the group are."""
    shards = group(store, "a", "b", "c")
    pathlib.Path(store.dataset, "a").write_bytes(b"b")
    pathlib.Path(store.dataset, "b").unlink()
    finished = FinishedShards(store)
    assert [finished.find(digest) for digest in shards] == [
        None,
        None,
        [*shards.values()][2],
    ]


def test_what_is_no_receipt_is_passed_over(store: Store) -> None:
    """Files of others, and receipts of other versions, are no shards."""
    shards = group(store, "a")
    for name in ("mine.shards", "c0ffee.shards", "c0ffee.shard", "c0ffee-x.shards"):
        pathlib.Path(store.receipts, name).write_text("00000000 []")
    assert count_finished(store) == (0, 1)
    finished = FinishedShards(store)
    assert [finished.find(digest) for digest in shards] == [*shards.values()]


def test_a_folder_that_is_not_there_has_no_receipts(store: Store) -> None:
    """A run that has not begun has finished nothing."""
    gone = dataclasses.replace(store, folder=f"{store.folder}-gone")
    assert count_finished(gone) == (0, 0)
    assert FinishedShards(gone).find("aa") is None
