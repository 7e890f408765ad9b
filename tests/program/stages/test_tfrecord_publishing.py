"""WriteTFRecords replaces files by renames: failures, kills and other writers."""

import errno
import fcntl
import os
import pathlib
import shutil
from collections.abc import Callable, Iterable
from typing import Any

import apache_beam as beam
import pytest

from tests.support.tfrecord_pipelines import (
    RECORDS,
    contents,
    payloads,
    pipeline,
    write,
)
from transforms.core import segment
from transforms.errors import (
    CommitError,
    ConservationError,
    DamageError,
    EncodingError,
    TargetError,
)
from transforms.tfrecord import renaming
from transforms.tfrecord import write as tfrecord
from transforms.tfrecord.write import WriteTFRecords
from transforms.work.store import Store

Folder = pathlib.Path


def test_overwrites_exactly_its_names(tmp_path: Folder) -> None:
    """Old files of these names are replaced, links too, and not what they point to."""
    (tmp_path / "elsewhere").write_bytes(b"precious")
    (tmp_path / "x-00000-of-00002").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "x-00001-of-00002").write_bytes(b"old")
    write(tmp_path / "x", num_shards=2)
    assert (tmp_path / "elsewhere").read_bytes() == b"precious"
    assert payloads(*tmp_path.glob("x-*")) == sorted(RECORDS)
    assert len(contents(tmp_path)) == 3


def test_refuses_what_it_cannot_replace(tmp_path: Folder) -> None:
    """A folder under a file's name, a file where the folder should be: no write."""
    (tmp_path / "x-00001-of-00002").mkdir()
    (tmp_path / "file").write_bytes(b"")
    before = contents(tmp_path)
    with pytest.raises(TargetError, match="x-00001-of-00002"):
        write(tmp_path / "x", num_shards=2)
    with pytest.raises(TargetError, match="file"):
        write(tmp_path / "file" / "x")
    with pytest.raises(TargetError, match="too long"):
        write(tmp_path / ("가" * 90))
    assert contents(tmp_path) == before


def _old_files(folder: Folder) -> dict[str, bytes]:
    """Makes files under two of the three names that a test will write."""
    (folder / "x-00000-of-00003").write_bytes(b"old 0")
    (folder / "x-00002-of-00003").write_bytes(b"old 2")
    return contents(folder)


def _give_a_text(_: pytest.MonkeyPatch) -> None:
    """The records have one already."""


def _damage_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the disk change what is spooled."""
    real = Store.put_rows

    def damaged(store: Any, name: str, pieces: Any) -> str:
        stored = real(store, name, pieces)
        with open(os.path.join(store.segments, stored), "r+b") as file:
            file.seek(-9, os.SEEK_END)
            file.write(b"?")
        return stored

    monkeypatch.setattr(Store, "put_rows", damaged)


def _fill_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.replace

    def full(source: str, target: str) -> None:
        if os.path.basename(os.path.dirname(target)) == "dataset":
            raise OSError(errno.ENOSPC, "No space left on device", target)
        real(source, target)

    monkeypatch.setattr(os, "replace", full)


def _lose_records(monkeypatch: pytest.MonkeyPatch) -> None:
    real = tfrecord.in_order
    monkeypatch.setattr(tfrecord, "in_order", lambda given: real(given)[1:])


@pytest.mark.parametrize(
    ("fault", "spilled", "error", "words"),
    [
        (_give_a_text, False, EncodingError, "str.*element 200"),
        (_give_a_text, True, EncodingError, "str.*element 200"),
        (_damage_pieces, True, DamageError, "as it was written"),
        (_fill_disk, False, CommitError, "No space left on device.*dataset"),
        (_fill_disk, True, CommitError, "No space left on device.*dataset"),
        (_lose_records, False, ConservationError, "300 records"),
    ],
)
def test_a_fault_leaves_all_as_it_was(
    tmp_path: Folder,
    monkeypatch: pytest.MonkeyPatch,
    fault: Callable[[pytest.MonkeyPatch], None],
    spilled: bool,
    error: type[Exception],
    words: str,
) -> None:
    """An element that is not bytes, a bad disk, a lost record: nothing is published."""
    if spilled:
        monkeypatch.setattr(segment, "_INLINE_BYTES", 0)
        monkeypatch.setattr(tfrecord, "PIECE_BYTES", 2000)
    before = _old_files(tmp_path)
    records: list[Any] = [*RECORDS]
    if fault is _give_a_text:
        records[200] = "text"
    fault(monkeypatch)
    with pytest.raises(error, match=words):
        write(tmp_path / "x", records, num_shards=3)
    assert contents(tmp_path) == before


def test_failure_in_front(tmp_path: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an error in the user's own step files are as they were; work is left."""
    monkeypatch.setattr(segment, "_INLINE_BYTES", 0)
    monkeypatch.setattr(tfrecord, "PIECE_BYTES", 2000)
    before = _old_files(tmp_path)

    def fail(number: int) -> bytes:
        if number == 200:
            raise ValueError("mine")
        return RECORDS[number]

    p = pipeline()
    records = p | beam.Create(range(300), reshuffle=False) | beam.Map(fail)
    records | WriteTFRecords(str(tmp_path / "x"), num_shards=3)
    with pytest.raises(ValueError, match="mine"):
        p.run()
    (work,) = tmp_path.glob(".*")
    assert {path.name: path.read_bytes() for path in tmp_path.glob("x*")} == before
    assert sorted(work.glob("*/segments/*"))
    write(tmp_path / "x", num_shards=3)
    assert len(contents(tmp_path)) == 3


class _Broken:
    """`os.replace` that does not give a file its final name."""

    def __init__(self, broken: int) -> None:
        self.name = f"x-0000{broken}-of-00003"
        self.real = os.replace

    def __call__(self, source: str, target: str) -> None:
        if os.path.basename(target) == self.name:
            raise OSError(errno.ENOSPC, "no room", target)
        self.real(source, target)


@pytest.mark.parametrize("broken", [0, 1, 2])
def test_failing_rename(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch, broken: int
) -> None:
    """Each name has its new file or its old one; the next run replaces them all."""
    write(tmp_path / "whole" / "x", num_shards=3)
    expected = contents(tmp_path / "whole")
    shutil.rmtree(tmp_path / "whole")
    before = _old_files(tmp_path)
    monkeypatch.setattr(os, "replace", _Broken(broken))
    with pytest.raises(CommitError, match=r"no room.*next run replaces"):
        write(tmp_path / "x", num_shards=3)
    seen = {path.name: path.read_bytes() for path in tmp_path.glob("x-*")}
    new = {name: expected[name] for name in sorted(expected)[:broken]}
    assert seen == before | new
    monkeypatch.undo()
    write(tmp_path / "x", num_shards=3)
    assert contents(tmp_path) == expected


@pytest.mark.parametrize(
    ("renamed", "cleared"), [(True, False), (True, True), (False, True)]
)
def test_a_second_attempt_at_the_renames(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch, renamed: bool, cleared: bool
) -> None:
    """It goes on with the files that are left, and fails where another run has them."""
    write(tmp_path / "whole" / "x", num_shards=3)
    expected = contents(tmp_path / "whole")
    folder = tmp_path / "again"
    folder.mkdir()
    before = _old_files(folder)
    real = renaming.publish

    def publish(plan: Any, written: Iterable[Any], target: Any) -> list[str]:
        shards = list(written)
        if renamed:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(os, "replace", _Broken(1))
                with pytest.raises(CommitError):
                    real(plan, shards, target)
        if cleared:
            shutil.rmtree(target.hidden)
        names = real(plan, shards, target)
        # A third one has nothing to do.
        assert real(plan, shards, target) == names
        return names

    monkeypatch.setattr(tfrecord, "publish", publish)
    if not cleared:
        write(folder / "x", num_shards=3)
        assert contents(folder) == expected
        return
    with pytest.raises(CommitError, match="Run again"):
        write(folder / "x", num_shards=3)
    first = "x-00000-of-00003"
    assert contents(folder) == before | ({first: expected[first]} if renamed else {})


def test_files_left_by_other_runs_are_removed(tmp_path: Folder) -> None:
    """What a killed run left goes with the next one of the same names, no other's."""
    mine = tmp_path / ".x-SSSSS-of-NNNNN.beam-tfrecord" / "0123456789abcdef" / "runs"
    other = tmp_path / ".y-SSSSS-of-NNNNN.beam-tfrecord" / "456789abcdef0123" / "runs"
    for folder in (mine, other):
        folder.mkdir(parents=True)
        (folder / "left").write_bytes(b"left")
        (folder.parent.parent / "made-by-beam-tfrecord").write_bytes(b"")
    write(tmp_path / "x")
    assert [name for name in contents(tmp_path) if name[-1] != "/"] == [
        ".y-SSSSS-of-NNNNN.beam-tfrecord/456789abcdef0123/runs/left",
        ".y-SSSSS-of-NNNNN.beam-tfrecord/made-by-beam-tfrecord",
        "x-00000-of-00001",
    ]
    assert not mine.parent.parent.exists()


def test_one_renames_at_a_time(tmp_path: Folder) -> None:
    """While another run renames its files, this one fails and leaves it alone."""
    hidden = tmp_path / ".x-SSSSS-of-NNNNN.beam-tfrecord"
    (hidden / "0123456789abcdef").mkdir(parents=True)
    (hidden / "made-by-beam-tfrecord").write_bytes(b"")
    with open(hidden / "lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        before = contents(tmp_path)
        with pytest.raises(TargetError, match="Only one run"):
            write(tmp_path / "x")
        assert contents(tmp_path) == before
    write(tmp_path / "x")
    assert list(contents(tmp_path)) == ["x-00000-of-00001"]
