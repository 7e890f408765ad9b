"""`transforms.shards.shard_group`: all of a group is durable before any has a name."""

import errno
import os
import pathlib
import resource
from collections.abc import Callable

import pytest

from transforms import files
from transforms.core.model import ShardFile
from transforms.errors import CommitError, StorageError
from transforms.shards import shard_group
from transforms.shards.shard_group import ShardGroup
from transforms.shards.write_shard import Finished, ShardDraft
from transforms.work import store as store_module
from transforms.work.store import Store

Folder = pathlib.Path


class Group:
    """A group of real files; those that are written again are counted."""

    def __init__(self, folder: Folder) -> None:
        self.store = Store(str(folder), token="run")
        pathlib.Path(self.store.attempts).mkdir()
        pathlib.Path(self.store.dataset).mkdir()
        self.group = ShardGroup()
        self.again: list[str] = []

    def add(self, name: str, *, size: int = 3) -> None:
        path = os.path.join(self.store.dataset, name)
        facts = ShardFile(name, "train", 0, 1, size, size, 0, {})
        finished: Finished = (facts, None, None)

        def write_again() -> Finished:
            self.again.append(name)
            content = name.encode()
            files.write_file(path, content, attempts=self.store.attempts)
            return finished

        draft = files.draft(path, attempts=self.store.attempts)
        draft.write(name.encode())
        self.group.add(ShardDraft(draft, finished, write_again, self.store))

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
        found.add(f"{number:02}")
    return found


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
    assert [shard.name for shard, _, _ in found] == group.named
    assert group.named == [f"{number:02}" for number in range(20)]
    assert group.unfinished == []
    assert group.again == []
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
    assert group.again == [f"{number:02}" for number in range(20)]
    assert [shard.name for shard, _, _ in found] == group.named
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
    found.add("large", size=shard_group._BYTES)
    assert found.group.is_full
    found.group.discard()
    for allowed, most in ((10**6, 256), (resource.RLIM_INFINITY, 256), (40, 10)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, n=allowed: (n, n))
        for number in range(most):
            assert not found.group.is_full
            found.add(str(number))
        assert found.group.is_full
        found.group.discard()
