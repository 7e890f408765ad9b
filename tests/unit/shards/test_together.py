"""`transforms.shards.write_shard`: all of a group is durable before any has a name."""

import dataclasses
import errno
import os
import pathlib
import resource
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pytest

from transforms.core.placing.sharding import ShardCounts, Sharding, ShardRows
from transforms.core.placing.splitting import SplitRule
from transforms.core.schema import Feature, Kind, Schema
from transforms.core.segment import ROW_COLUMN
from transforms.errors import CommitError, StorageError
from transforms.shards import write_shard
from transforms.shards.shard_job import ShardJob, ShardLayout, ShardTask
from transforms.shards.write_shard import ShardGroup
from transforms.work import store as store_module
from transforms.work.store import Store

Folder = pathlib.Path

SCHEMA = Schema((Feature("id", Kind.INT64),))
LAYOUT = ShardLayout("set", SCHEMA, Sharding(SplitRule(), {}))


@dataclasses.dataclass(frozen=True, slots=True)
class Job(ShardJob):
    """A job with a row for each shard; what is loaded is noted."""

    loads: list[list[int]]

    def load(self, tasks: Sequence[ShardTask]) -> tuple[ShardRows, list[int]]:
        numbers = [task.key[1] for task in tasks]
        self.loads.append(numbers)
        rows = pa.table({"id": numbers, ROW_COLUMN: numbers})
        order = np.arange(len(numbers))
        return ShardRows(rows, order, ("a",), np.zeros(1, np.int64)), [1] * len(numbers)


class Group:
    """A group of shards of one row; what is loaded is noted."""

    def __init__(self, folder: Folder) -> None:
        self.store = Store(str(folder), token="run")
        pathlib.Path(self.store.attempts).mkdir()
        pathlib.Path(self.store.dataset).mkdir()
        counts = ShardCounts({("train", number): 1 for number in range(300)}, {})
        self.loads: list[list[int]] = []
        self.group = ShardGroup(Job(counts, {}, LAYOUT, self.store, self.loads))

    def add(self, number: int, *, size: int = 3) -> None:
        self.group.add(ShardTask(("train", number), (), 1, size))

    @property
    def again(self) -> list[int]:
        """The shards that were loaded by themselves."""
        return [sources[0] for sources in self.loads if len(sources) == 1]

    @property
    def named(self) -> list[str]:
        return sorted(os.listdir(self.store.dataset))

    @property
    def unfinished(self) -> list[str]:
        return os.listdir(self.store.attempts)


@pytest.fixture
def group(tmp_path: Folder) -> Group:
    found = Group(tmp_path)
    for number in range(20):
        found.add(number)
    return found


NAMES = [f"set-train.tfrecord-{number:05}-of-00300" for number in range(20)]


def recorded(
    monkeypatch: pytest.MonkeyPatch, fails: Callable[[int], int] = lambda number: 0
) -> list[str]:
    """Notes syncs and renames; `fails` gives the error of the n-th sync, 0 for none."""
    steps: list[str] = []
    real_fsync, real_replace = os.fsync, os.replace

    def fsync(descriptor: int) -> None:
        steps.append("sync")
        if code := fails(steps.count("sync")):
            raise OSError(code, os.strerror(code))
        real_fsync(descriptor)

    def replace(source: str, target: str) -> None:
        steps.append("rename")
        real_replace(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    return steps


def test_all_are_synced_before_any_has_its_name(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    """20 syncs, then 20 renames; the facts come in the order of the shards."""
    steps = recorded(monkeypatch)
    found = group.group.finish()
    assert steps == ["sync"] * 20 + ["rename"] * 20
    assert [finished.shard.name for _, finished in found] == group.named
    assert [task.key[1] for task, _ in found] == [*range(20)]
    assert group.named == NAMES
    assert group.unfinished == []
    assert group.loads == [[*range(20)]]
    assert group.group.finish() == []


def test_a_failed_write_back_fails_the_group(
    group: Group, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """After EIO no file of the group gets its name; all are written again."""
    steps = recorded(monkeypatch, lambda number: errno.EIO * (number == 7))
    found = group.group.finish()
    # A rename is of a file that was written again, and comes after its own sync.
    assert steps[-40:] == ["sync", "rename"] * 20
    assert set(steps[:-40]) == {"sync"}
    assert group.again == [*range(20)]
    assert [finished.shard.name for _, finished in found] == group.named == NAMES
    assert group.unfinished == []
    assert "the 20 shards of its group are written again" in caplog.text
    assert os.strerror(errno.EIO) in caplog.text


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_an_error_that_lasts_names_nothing(
    group: Group, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """The error names a file; nothing has appeared, and nothing is left."""
    recorded(monkeypatch, lambda number: code * (number == 7))
    with pytest.raises(StorageError, match=os.strerror(code)) as failure:
        group.group.finish()
    assert group.store.dataset in str(failure.value)
    assert (group.named, group.unfinished, group.again) == ([], [], [])


def test_a_stopped_run_names_nothing(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that was stopped while its files were synced puts nothing more."""
    monkeypatch.setattr(store_module, "_stopped", {"run"})
    with pytest.raises(CommitError, match="stopped"):
        group.group.finish()
    assert (group.named, group.unfinished) == ([], [])


def test_a_discarded_group_leaves_nothing(group: Group) -> None:
    """The files are gone and the group is empty."""
    group.group.discard()
    assert (group.named, group.unfinished) == ([], [])
    assert group.group.finish() == []


def test_a_group_is_bounded_by_files_bytes_and_descriptors(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """256 files, 64 MB, or a quarter of the descriptors that a process may have."""
    found = Group(tmp_path)
    found.add(0, size=write_shard._BYTES)
    assert found.group.is_full
    found.group.discard()
    for allowed, most in ((10**6, 256), (resource.RLIM_INFINITY, 256), (40, 10)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, n=allowed: (n, n))
        for number in range(most):
            assert not found.group.is_full
            found.add(number)
        assert found.group.is_full
        found.group.discard()
