"""The work folder: segments and reject logs, inline and in files."""

import json
import os
import pathlib

import pyarrow as pa
import pytest

from transforms.core.model import RejectLog
from transforms.core.reasons import Reason, Rejection
from transforms.errors import StorageError
from transforms.work.rejects import read_lines
from transforms.work.store import Store

Folder = pathlib.Path
PARTS = [
    (2, pa.py_buffer(b"first")),
    (1, pa.py_buffer(b"")),
    (7, pa.py_buffer(b"x" * 100_000)),
]


@pytest.fixture(params=["inline", "files"])
def store(request: pytest.FixtureRequest, tmp_path: Folder) -> Store:
    made = Store(str(tmp_path / "work"), inline=request.param == "inline")
    made.make()
    return made


@pytest.fixture
def file_store(tmp_path: Folder) -> Store:
    made = Store(str(tmp_path / "work"))
    made.make()
    return made


def rejection(source: str, row: int | None, message: str = "no") -> Rejection:
    return Rejection(source, row, row, "read", Reason.FIELD_COUNT, message, "ab")


def places_in(log: RejectLog | None) -> list[tuple[str, int | None]]:
    """Returns (source, row) of each line, in the order of the log."""
    assert log is not None
    items = map(json.loads, read_lines(log))
    return [(item["source"], item["row"]) for item in items]


def test_segments_come_back(store: Store) -> None:
    """Each segment gives its own message, and says whose and how many rows it is."""
    segments = store.put("고양이/[a]*.csv", 5, PARTS)
    messages = [message for _, message in PARTS]
    assert [store.get(segment) for segment in segments] == messages
    assert [*store.get_all(segments)] == messages
    backwards = segments[::-1]
    assert [*store.get_all([*backwards, segments[0]])] == [*messages[::-1], messages[0]]
    for segment, (rows, message) in zip(segments, PARTS, strict=True):
        assert (segment.origin, segment.start) == ("고양이/[a]*.csv", 5)
        assert (segment.rows, segment.size) == (rows, message.size)
        assert bool(segment.file) is not store.inline
    assert os.listdir(store.attempts) == []
    assert len(os.listdir(store.segments)) == (0 if store.inline else 1)


def test_a_second_attempt_replaces_the_first(file_store: Store) -> None:
    """The block alone names the file: the same descriptors, no second file."""
    first = file_store.put("a.csv", 5, PARTS)
    assert file_store.put("a.csv", 5, PARTS) == first
    assert len(os.listdir(file_store.segments)) == 1


def test_blocks_have_files_of_their_own(file_store: Store) -> None:
    """Origins and starts that look the same when joined are distinguished."""
    blocks = [("a", 11), ("1a", 1), ("a1", 1), ("", 1), ("", 11), ("1", 1), ("é", 1)]
    names = {file_store.put(o, start, PARTS)[0].file for o, start in blocks}
    assert len(names) == len(blocks)
    assert names == {*os.listdir(file_store.segments)}


def test_cut_segment_file_is_an_error(file_store: Store) -> None:
    """A segment file that lost its end is an error, not fewer rows."""
    *_, last = file_store.put("a.csv", 5, PARTS)
    with open(os.path.join(file_store.segments, last.file), "r+b") as file:
        file.truncate(50_000)
    with pytest.raises(OSError, match="shorter"):
        file_store.get(last)


def test_failed_writes_leave_nothing(
    file_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the disk is full no segments and no log appear, and no temporary file."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(StorageError, match="No space"):
        file_store.put("a.csv", 5, PARTS)
    with pytest.raises((OSError, StorageError), match="No space"):
        file_store.put_rejects("a", (rejection("a", row) for row in range(2_000)))
    for folder in (file_store.segments, file_store.rejects, file_store.attempts):
        assert os.listdir(folder) == []


def test_rejects_are_counted(store: Store) -> None:
    """A log has the rejections as they came, and counts by reason."""
    places = [("b", 2), ("a", 10), ("a", 9), ("c", None)]
    log = store.put_rejects("task", [rejection(*place) for place in places])
    assert log is not None
    assert places_in(log) == places
    assert log.counts == {Reason.FIELD_COUNT: 4}
    assert log.items == 4


def test_long_logs_are_spilled(store: Store) -> None:
    """Many rejects travel as a path; other bytes are another file."""
    many = [rejection("a", row, "x" * 100) for row in range(2_000)]
    log = store.put_rejects("task", many)
    assert log is not None
    assert log.path
    assert not log.payload
    assert [row for _, row in places_in(log)] == list(range(2_000))
    assert store.put_rejects("task", many) == log
    assert len(os.listdir(store.rejects)) == 1
    other = store.put_rejects("task", many[::-1])
    assert [row for _, row in places_in(other)] == list(range(2_000))[::-1]
    assert [row for _, row in places_in(log)] == list(range(2_000))
    assert os.listdir(store.attempts) == []


def test_tasks_have_logs_of_their_own(file_store: Store) -> None:
    """Two tasks never write to one file."""
    many = [rejection("a", row, "x" * 100) for row in range(2_000)]
    logs = [file_store.put_rejects(f"task {i}", many) for i in range(3)]
    assert len({log.path for log in logs if log is not None}) == len(logs)
