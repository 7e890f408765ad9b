"""Reject logs and their files: order, parts, kept items, and what they cost."""

import dataclasses
import errno
import hashlib
import itertools
import json
import os
import pathlib
import random
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

import google_crc32c
import pytest

from tests.support.datasets import example, write_records
from tests.support.file_operations import failing_once, watched
from tests.support.outputs import row_of
from tests.support.runs import command, failed, python
from transforms.core.model import RejectLog
from transforms.core.reasons import Reason, Rejection
from transforms.core.tfrecord.reader import TFRecordReader
from transforms.errors import DamageError, StorageError, TargetError
from transforms.publishing.earlier_rejects import find_rejects
from transforms.storage import retry, row_spool
from transforms.work import rejects
from transforms.work.rejects import (
    MAX_KEPT_BYTES,
    is_items_name,
    is_rejects_name,
    leave_rejects,
    remove_left,
    write_rejects,
)
from transforms.work.store import Store

Folder = pathlib.Path


def rejection(
    source: str, row: int | None, message: str = "no", **extra: Any
) -> Rejection:
    fields = {"reason": Reason.FIELD_COUNT, "sha256": "ab", **extra}
    return Rejection(source, row, row, "read", message=message, **fields)


def gathered(store: Store, task: str, rejections: Iterable[Rejection]) -> RejectLog:
    log = store.put_rejects(task, rejections)
    assert log is not None
    return log


@pytest.fixture
def store(tmp_path: Folder) -> Store:
    made = Store(str(tmp_path / "work"))
    made.make()
    return made


@pytest.fixture
def keeping(tmp_path: Folder) -> Store:
    made = Store(str(tmp_path / "work"), keep_items=True)
    made.make()
    return made


def lines_in(folder: str) -> list[str]:
    """Returns the lines of all files of rejects, in the order of their names."""
    return [
        line
        for name in sorted(filter(is_rejects_name, os.listdir(folder)))
        for line in pathlib.Path(folder, name).read_text("utf-8").splitlines()
    ]


def items_in(folder: str) -> Iterator[dict[str, Any]]:
    """Yields the features of each kept item."""
    for name in sorted(filter(is_items_name, os.listdir(folder))):
        yield from map(row_of, TFRecordReader(os.path.join(folder, name)))


def test_messages_are_bounded(store: Store) -> None:
    """A message of any length is at most 1 KiB, on one line, in valid JSON."""
    hostile = "line\nbreak\r\u2028\x00\x1b[2J"
    gathered_log = gathered(store, "t", [rejection(hostile, 1, "값\n\x07" * 100_000)])
    write_rejects([gathered_log], store.dataset, attempts=store.attempts)
    data = pathlib.Path(store.dataset, "rejects.jsonl").read_bytes()
    assert data.count(b"\n") == 1
    item = json.loads(data)
    assert len(item["message"].encode()) <= 1024
    assert item["source"] == hostile
    assert " ".join(item) == "source row line stage reason message sha256"


def test_lone_surrogates_are_written(keeping: Store) -> None:
    """A name that is no UTF-8 costs a mark, not the run."""
    odd = rejection("a\udcff.csv", 3, "b\udcff", raw=b"\xff")
    write_rejects(
        [gathered(keeping, "t", [odd])], keeping.dataset, attempts=keeping.attempts
    )
    (line,) = lines_in(keeping.dataset)
    assert json.loads(line)["source"] == "a?.csv"
    assert [item["source"] for item in items_in(keeping.dataset)] == [b"a?.csv"]


@pytest.mark.parametrize("seed", range(6))
def test_merged_logs_have_one_order(
    store: Store, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Against a plain sort: any logs, in any order of arrival, with runs of any size.

    Ties stay in the order of the logs' tasks and of their rejections.
    """
    dice = random.Random(seed)
    monkeypatch.setattr(row_spool, "_RUN_BYTES", dice.choice([1 << 10, 1 << 14]))
    monkeypatch.setattr(row_spool, "_HELD_BYTES", dice.choice([0, 1 << 10]))
    monkeypatch.setattr(rejects, "_BATCH_BYTES", dice.choice([1, 5_000]))
    monkeypatch.setattr(
        "transforms.work.rejects._INLINE_BYTES", dice.choice([0, 1 << 14])
    )
    logs, plain = [], []
    for task in range(dice.randint(1, 7)):
        found = [
            rejection(
                dice.choice(["a", "a\0", "a\0\1", "b", "é", "z/\U0001f40d"]),
                dice.choice([None, *range(1, 12)]),
                f"{task} {number}",
            )
            for number in range(dice.randint(1, 90))
        ]
        if dice.random() < 0.5:
            found.sort(key=lambda r: (r.source, r.row or 0))
        plain += found
        logs.append(gathered(store, f"task {task}", found))
    wanted = sorted(plain, key=lambda r: (r.source.encode(), r.row or 0))
    dice.shuffle(logs)
    write_rejects(logs, store.dataset, attempts=store.attempts)
    assert lines_in(store.dataset) == [each.to_json() for each in wanted]


@pytest.mark.parametrize("spills", [1, 3])
def test_a_disk_that_fails_in_passing(
    spills: int, keeping: Store, tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error at any one operation changes no byte and leaves nothing (row 8)."""
    policy = dataclasses.replace(retry.POLICY, first_pause=0.0)
    monkeypatch.setattr(retry, "POLICY", policy)
    monkeypatch.setattr(rejects, "_BATCH_BYTES", 20_000)
    rows = range(200 * spills - 20)
    found = [rejection("a.csv", r, 90 * "n", raw=bytes(9)) for r in rows]
    calm = tmp_path / "calm"
    calm.mkdir()

    def write(folder: str) -> None:
        log = gathered(keeping, "t", found)
        assert log.path
        write_rejects([log], folder, attempts=keeping.attempts)

    write(str(calm))
    wanted = {path.name: path.read_bytes() for path in calm.iterdir()}
    counted = [0]

    def hook(what: str, path: str) -> None:
        counted[0] += 1
        if counted[0] == number:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    for number in itertools.count(1):
        counted[0] = 0
        with watched(hook):
            write(keeping.dataset)
        reads = number - 1
        with failing_once(reads, errno.EIO, lost=True) as calls:
            write(keeping.dataset)
        written = {p.name: p.read_bytes() for p in Folder(keeping.dataset).iterdir()}
        assert written == wanted
        assert os.listdir(keeping.attempts) == []
        if max(counted[0], len(calls)) < number:
            break
    assert number > 15


def test_a_disk_that_keeps_failing(
    keeping: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log that cannot be written is reported with its path; no part of it stays."""
    found = [rejection("a.csv", r, 90 * "n") for r in range(500)]
    monkeypatch.setattr(rejects, "_BATCH_BYTES", 20_000)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(StorageError, match="No space left") as caught:
        keeping.put_rejects("t", found)
    assert keeping.folder in str(caught.value)
    assert os.listdir(keeping.attempts) == os.listdir(keeping.rejects) == []


def test_files_are_counted_and_summed_rightly(keeping: Store) -> None:
    """Whole lines, and an item for each of them."""
    many = [rejection("a", row, "x" * (row % 50), raw=bytes(row)) for row in range(400)]
    log = gathered(keeping, "t", many)
    facts = write_rejects([log], keeping.dataset, attempts=keeping.attempts)
    assert [each.file for each in facts] == ["rejects.jsonl", "rejects.items"]
    for each in facts:
        data = pathlib.Path(keeping.dataset, each.file).read_bytes()
        assert (each.bytes, each.crc32c) == (len(data), google_crc32c.value(data))
    assert lines_in(keeping.dataset) == [each.to_json() for each in many]
    assert [item["size"] for item in items_in(keeping.dataset)] == [*range(400)]


def test_items_are_kept(keeping: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line has a record with the item, in the lines' order.

    Records of items that are too long or could not be read lack the bytes.
    """
    monkeypatch.setattr("transforms.work.rejects.MAX_KEPT_BYTES", 1_000)
    raws = [b"", b"\x00\xff\n", bytes(1_000), bytes(1_001), None]
    found = [
        rejection(
            "a.csv",
            number + 1,
            raw=raw,
            sha256=None if raw is None else hashlib.sha256(raw).hexdigest(),
        )
        for number, raw in enumerate(raws)
    ]
    found.append(rejection("b.jpg", None, raw=b"jpeg", reason=Reason.NOT_AN_IMAGE))
    logs = [gathered(keeping, f"{i}", found[i::2]) for i in (1, 0)]
    write_rejects(logs, keeping.dataset, attempts=keeping.attempts)
    items = list(items_in(keeping.dataset))
    assert items[-1] == {
        "source": b"b.jpg",
        "reason": b"not_an_image",
        "sha256": b"ab",
        "size": 4,
        "bytes": b"jpeg",
    }
    assert [item.get("bytes") for item in items] == [*raws[:3], None, None, b"jpeg"]
    assert [item.get("size") for item in items] == [0, 3, 1_000, 1_001, None, 4]
    assert ["sha256" in item for item in items] == [True] * 4 + [False, True]
    assert MAX_KEPT_BYTES == 16 << 20


_MANY = """
import resource, sys
import numpy as np
from transforms.core.model import Rejection
from transforms.formats.raw_rows import RejectedRows
from transforms.work.rejects import write_rejects
from transforms.work.store import Store

def made(places):
    return [
        Rejection("a.csv", p + 1, p, "read", "malformed", f"{p}" + 90 * ".", 64 * "0")
        for p in places.tolist()
    ]

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10

def gather(count):
    log = store.put_rejects("t", RejectedRows(count, made))
    write_rejects([log], store.dataset, attempts=store.attempts)

store = Store(sys.argv[1])
store.make()
gather(20_000)
before = peak()
gather(150_000)
print(peak() - before)
"""


def test_many_rejections_take_little_memory(tmp_path: Folder) -> None:
    """However many rejections there are, few are in memory: all would be 150 MB."""
    done = python("-c", _MANY, tmp_path / "work", check=True)
    assert int(done.stdout) < 30


class TestFind:
    @pytest.mark.parametrize(
        "text",
        ["{", "7", "null", '{"a": 1}', '{"source": 1, "row": "x"}', "\xff", "[1]"],
    )
    def test_other_files_are_no_rejects(self, tmp_path: Folder, text: str) -> None:
        """What is not lines of rejects is refused in one short sentence."""
        path = tmp_path / "x.jsonl"
        path.write_bytes(text.encode("latin-1") + b"\n")
        with pytest.raises(DamageError, match="must be lines of JSON") as refusal:
            list(find_rejects(str(path)).rejections())
        assert len(str(refusal.value).encode()) <= 1024


class TestFilesOfOthers:
    """Under the names of the rejects that a failed run leaves."""

    TEXTS: ClassVar[dict[str, bytes]] = {
        "text": b"mine\n",
        "JSON lines": b'{"source": "a", "row": 1, "reason": "b", "message": "c"}\n',
        "binary": bytes(range(256)) * 5000,
        "TFRecord": b"",
    }

    @pytest.mark.parametrize("name", ["out.rejects.jsonl", "out.rejects.items"])
    @pytest.mark.parametrize("content", [*TEXTS, "folder", "link", "pipe"])
    def test_the_run_is_refused(
        self, name: str, content: str, tmp_path: Folder
    ) -> None:
        """Before it starts: nothing is touched."""
        source, path = tmp_path / "t.csv", tmp_path / name
        source.write_text("n\n1\n2\n")
        if content == "folder":
            path.mkdir()
        elif content == "link":
            path.symlink_to(source)
        elif content == "pipe":
            os.mkfifo(path)
        elif content == "TFRecord":
            write_records(path, [example({"a": 5})])
        else:
            path.write_bytes(self.TEXTS[content])
        before = {p: p.read_bytes() for p in tmp_path.iterdir() if p.is_file()}
        for arguments in (("convert", source), ("clean",)):
            run = failed(2, *arguments, tmp_path / "out")
            assert repr(str(path)) in run.err
            found = {p: p.read_bytes() for p in tmp_path.iterdir() if p.is_file()}
            assert found == before
            assert os.path.lexists(path)

    @pytest.mark.parametrize("keeps", [False, True])
    def test_those_of_a_run_are_known(self, keeps: bool, tmp_path: Folder) -> None:
        """They are replaced by the next run's, and go with a success, or `clean`."""
        source, out = tmp_path / "t.csv", tmp_path / "out"
        source.write_text("n,text\n" + "1,x\n" * 20 + "1,2,고양이\n" * 20)
        flags = ["--keep-rejected-bytes"] * keeps
        left = ["out.rejects.items"] * keeps + ["out.rejects.jsonl"]

        def names() -> list[str]:
            return sorted(n for n in os.listdir(tmp_path) if n.startswith("out."))

        for _ in range(2):
            assert command("convert", source, out, *flags).code == 3
            assert names() == left
        assert command("clean", out).code == 0
        assert names() == []
        assert command("convert", source, out, *flags).code == 3
        more = ("--max-reject-rate", 1)
        assert command("convert", source, out, *more).code == 0
        assert names() == []

    def test_one_that_comes_during_the_run_stays(
        self, store: Store, tmp_path: Folder
    ) -> None:
        """It is looked at again before it would be replaced or removed."""
        path = tmp_path / "out.rejects.jsonl"
        path.write_text("mine\n")
        log = gathered(store, "t", [rejection("a", 1)])
        with pytest.raises(TargetError, match="not written by such a run"):
            leave_rejects([log], str(path), attempts=store.attempts)
        remove_left(str(path))
        assert path.read_text() == "mine\n"
