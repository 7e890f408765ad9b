"""`verify`: each kind of damage is named, by file, record and offset."""

import gzip
import io
import os
import pathlib
import sys
from collections.abc import Callable
from typing import Any

import pytest

from beam_pipeline.commands import head, progress, repair, verify
from beam_pipeline.commands.verify import Finding
from beam_pipeline.datasets.dataset import Dataset, open_target
from tests.support.datasets import animals, example, write_dataset, write_records
from tests.support.outputs import contents
from transforms.core.manifest import MANIFEST_NAME
from transforms.core.tfrecord import frame

Folder = pathlib.Path
SHARD = "animals-train.tfrecord-00001-of-00003"


@pytest.fixture
def folder(tmp_path: Folder) -> Folder:
    """A dataset of two splits, three shards and one, 14 records."""
    directory = tmp_path / "out"
    write_dataset(directory, {"train": animals(4, 5, 3), "test": animals(2, start=50)})
    return directory


def findings(folder: Folder) -> list[Finding]:
    target = open_target(str(folder))
    assert isinstance(target, Dataset)
    return list(verify.verify_dataset(target).findings)


def only(folder: Folder) -> Finding:
    (finding,) = findings(folder)
    assert finding.is_damage
    return finding


def change(path: Folder, edit: Callable[[bytes], bytes]) -> None:
    path.write_bytes(edit(path.read_bytes()))


def flip(position: int) -> Callable[[bytes], bytes]:
    return lambda data: (
        data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]
    )


def starts(path: Folder) -> list[int]:
    """Returns where the records of a plain file begin, and its end."""
    data, found = path.read_bytes(), [0]
    while found[-1] < len(data):
        length = int.from_bytes(data[found[-1] : found[-1] + 8], "little")
        found.append(found[-1] + length + frame.OVERHEAD_BYTES)
    return found


def test_sound_dataset(folder: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    """A dataset as it was committed: exit 0, one line."""
    assert verify.show(str(folder)) == 0
    line = capsys.readouterr().out
    assert "sound: 14 records" in line
    assert line.count("\n") == 1


def test_sound_empty_shards_and_splits(tmp_path: Folder) -> None:
    """A file without a record is right where the manifest says so."""
    write_dataset(tmp_path / "out", {"train": [*animals(2), []], "test": []})
    assert verify.show(str(tmp_path / "out")) == 0


@pytest.mark.parametrize(
    ("within", "kind"),
    [(0, "length-crc"), (8, "length-crc"), (12, "data-crc"), (-1, "data-crc")],
)
def test_flipped_byte(
    folder: Folder, within: int, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """In length, its checksum, payload or its checksum: file, record and offset."""
    begin, end = starts(folder / SHARD)[2:4]
    change(folder / SHARD, flip(begin + within if within >= 0 else end - 1))
    assert verify.show(str(folder)) == 1
    printed = capsys.readouterr().out
    assert f"{SHARD}: record 2 at byte {begin:,}" in printed
    assert frame.DAMAGE_KINDS[kind] in printed
    found = only(folder)
    assert (found.file, found.kind) == (SHARD, kind)
    assert (found.record, found.offset) == (2, begin)


@pytest.mark.parametrize(
    ("kept", "kind", "meaning"),
    [
        ([0, 1, 2], "content", "3 records"),
        ([0, 2, 3, 4], "content", "4 records"),
        ([0, 1, 1, 2, 3, 4], "content", "6 records"),
        ([1, 0, 2, 3, 4], "content", "5 records"),
        ([], "empty", "no record"),
    ],
)
def test_sound_records_that_are_not_those_of_the_manifest(
    folder: Folder, kept: list[int], kind: str, meaning: str
) -> None:
    """Silent for every other reader: cut at a boundary, lost, doubled or swapped."""
    edges = starts(folder / SHARD)
    change(
        folder / SHARD,
        lambda data: b"".join(data[edges[n] : edges[n + 1]] for n in kept),
    )
    damage = only(folder)
    assert (damage.file, damage.kind) == (SHARD, kind)
    assert meaning in damage.message


def test_missing_shard(folder: Folder) -> None:
    """With the number of records that went with it."""
    (folder / SHARD).unlink()
    found = only(folder)
    assert (found.file, found.kind) == (SHARD, "missing")
    assert "5 records" in found.message


@pytest.mark.parametrize(
    "name",
    [
        "animals-train.tfrecord-00003-of-00004",
        "animals-valid.tfrecord-00000-of-00001",
        f"{SHARD}.gz",
    ],
)
def test_extra_shard(folder: Folder, name: str) -> None:
    """A shard of another generation is damage: whoever globs reads it too."""
    write_records(folder / name, [example({"id": 1})])
    found = only(folder)
    assert (found.file, found.kind) == (name, "foreign")


def test_other_files_are_warnings(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is no shard of this dataset is mentioned, no more."""
    for name in (".DS_Store", "_SUCCESS", "notes.txt", "other-1.tfrecord"):
        (folder / name).write_bytes(b"x")
    assert verify.show(str(folder)) == 0
    assert capsys.readouterr().out.count("warning  ") == 4


@pytest.mark.parametrize("name", ["features.json", "animal.labels.txt"])
def test_damaged_sidecar(folder: Folder, name: str) -> None:
    """The files beside the shards are named with their checksums too."""
    change(folder / name, flip(3))
    assert (only(folder).file, only(folder).kind) == (name, "content")
    (folder / name).unlink()
    assert (only(folder).file, only(folder).kind) == (name, "missing")


def test_compressed_shard_was_replaced_by_a_plain_one(tmp_path: Folder) -> None:
    """The content must be as compressed as the manifest states."""
    folder = tmp_path / "out"
    write_dataset(folder, {"train": animals(40)}, compression="gzip")
    name = "animals-train.tfrecord-00000-of-00001.gz"
    change(folder / name, gzip.decompress)
    assert only(folder).kind == "compression"


def test_changed_manifest(folder: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    """The digest shows it; the shards' own checksums are still checked."""
    change(
        folder / MANIFEST_NAME, lambda d: d.replace(b'"records": 5', b'"records": 6')
    )
    change(folder / SHARD, flip(12))
    assert verify.show(str(folder)) == 1
    printed = capsys.readouterr().out
    assert "was changed after it was written" in printed
    assert f"{SHARD}: record 0 at byte 0" in printed
    assert "2 of 5 files" in printed


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"\xff", b'{"format": "x/2"}'])
def test_no_manifest_in_the_file_of_that_name(folder: Folder, content: bytes) -> None:
    """Anything else in its place is damage, not a crash."""
    (folder / MANIFEST_NAME).write_bytes(content)
    assert verify.show(str(folder)) == 1


@pytest.mark.parametrize("compression", ["none", "gzip", "zlib"])
def test_single_file(
    tmp_path: Folder, capsys: pytest.CaptureFixture[str], compression: str
) -> None:
    """Without a manifest: the records are sound, their number cannot be judged."""
    path = tmp_path / "some.bin"
    write_records(path, [b"a", b"b"], compression)
    assert verify.show(str(path)) == 0
    printed = capsys.readouterr().out
    assert "2 records" in printed
    assert "Without a manifest" in printed


def test_single_file_of_a_dataset(folder: Folder) -> None:
    """The manifest beside it is used where it names the file."""
    assert verify.show(str(folder / SHARD)) == 0
    os.truncate(folder / SHARD, starts(folder / SHARD)[3])
    assert verify.show(str(folder / SHARD)) == 1
    (folder / MANIFEST_NAME).unlink()
    assert verify.show(str(folder / SHARD)) == 0


def test_directory_without_a_manifest(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its TFRecord files are checked; what cannot be known is said."""
    (folder / MANIFEST_NAME).unlink()
    assert verify.show(str(folder)) == 0
    printed = capsys.readouterr().out
    assert "sound: 14 records, 1.6 kB in 4 files; all checksums match" in printed
    assert "Without a manifest: records missing at the end of a file" in printed


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_commands_take_an_empty_shard(
    compression: str, tmp_path: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is named by `verify`, `head` shows none, and `repair` keeps it."""
    folder, target = tmp_path / "in", tmp_path / "out"
    empty, filled = (f"x-0000{n}-of-00002.tfrecord" for n in (0, 1))
    folder.mkdir()
    write_records(folder / empty, [], compression)
    write_records(folder / filled, [example({"a": 1})], compression)
    for path in (folder, folder / empty):
        assert verify.show(str(path)) == 0
        assert f"{empty}: holds no record" in capsys.readouterr().out
    head.show(str(folder / empty))
    assert capsys.readouterr().out.endswith("no records\n")
    assert repair.run(str(folder), str(target), overwrite=False) == 0
    assert contents(target) == contents(folder)


def test_progress_is_for_terminals_and_large_inputs(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Drawn only from a size on, and cleared at the end."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    target = open_target(str(folder))
    assert isinstance(target, Dataset)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    verify.verify_dataset(target)
    assert terminal.getvalue() == ""
    monkeypatch.setattr(progress, "_MIN_BYTES", 100)
    check_shard, shown = verify._checked, []

    def check(*args: Any) -> Finding | None:
        shown.append(terminal.getvalue())
        return check_shard(*args)

    monkeypatch.setattr(verify, "_checked", check)
    report = verify.verify_dataset(target)
    assert report.is_sound
    assert shown[0] == ""
    assert "100 %" not in shown[-1]
    assert "100 %" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")
