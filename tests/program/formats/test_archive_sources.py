"""Archives as sources: images and samples, plans and blocks, and the program."""

import json
import pathlib
from typing import Any

import pytest

from tests.support.archive_sources import (
    ARCHIVES,
    PETS,
    plan,
    png,
    readings,
    rejected,
    rows_of,
    skipped,
    write,
)
from transforms.errors import SourceError
from transforms.formats.archive import row_archives
from transforms.formats.archive.webdataset import key_and_column

Folder = pathlib.Path


@pytest.mark.parametrize("name", ARCHIVES)
def test_images_as_label_and_file(name: str, tmp_path: Folder) -> None:
    """Rows are the images, their folders the labels; the rest is counted."""
    planned = plan(write(tmp_path / name, PETS), tmp_path)
    rows = rows_of(planned, tmp_path)
    assert [(r["label"], r["filename"], r["image"]) for r in rows] == [
        (path.partition("/")[0], path, data) for path, data in PETS[:3]
    ]
    assert [(r["__origin"], r["__row"]) for r in rows] == [
        (path, 0) for path, _ in PETS[:3]
    ]
    assert skipped(planned, tmp_path) == {"other_suffix": 1, "hidden": 1}
    assert planned.records == {"train": 3}
    label = planned.schema.label
    assert label is not None
    assert label.name == "label"


@pytest.mark.parametrize("name", ARCHIVES)
@pytest.mark.parametrize("top", ["", "pets-1.0/data/"])
def test_images_as_split_label_and_file(name: str, top: str, tmp_path: Folder) -> None:
    """Folders that all images share do not count; the first that differs is a split."""
    members = [
        (f"{top}{split}/{label}/{i}.png", png(i))
        for i, (split, label) in enumerate(
            [("train", "cat"), ("train", "dog"), ("test", "cat")]
        )
    ]
    planned = plan(write(tmp_path / name, members), tmp_path)
    found = {(r["__split"], r["label"]) for r in rows_of(planned, tmp_path)}
    assert found == {("train", "cat"), ("train", "dog"), ("test", "cat")}
    assert planned.rule.names == ("train", "test")


def test_archives_as_splits(tmp_path: Folder) -> None:
    """Several archives, of any kinds, are folders of their names."""
    names = ("train.zip", "test.tar.gz")
    for i, name in enumerate(names):
        write(tmp_path / "in" / name, [("cat/1.png", png(i))])
    planned = plan(tmp_path / "in", tmp_path)
    rows = rows_of(planned, tmp_path)
    found = {(r["__split"], r["label"]) for r in rows}
    assert found == {("train", "cat"), ("test", "cat")}
    assert {r["__origin"] for r in rows} == {f"{name}/cat/1.png" for name in names}


def test_archives_as_labels(tmp_path: Folder) -> None:
    """One flat archive a class, as some data sets come: its name is the label."""
    for i, name in enumerate(["n01440764", "n01443537"]):
        write(tmp_path / "in" / f"{name}.tar", [(f"{name}_1.png", png(i))])
    rows = rows_of(plan(tmp_path / "in", tmp_path), tmp_path)
    assert [r["label"] for r in rows] == ["n01440764", "n01443537"]


def test_images_without_folders_are_refused(tmp_path: Folder) -> None:
    """No folder, no label: an error with examples, as for a folder of images."""
    path = write(tmp_path / "a.zip", [("1.png", png(1)), ("x/2.png", png(2))])
    with pytest.raises(SourceError, match=r"label/file.*1\.png"):
        plan(path, tmp_path)
    path = write(tmp_path / "b.zip", [("notes.txt", b"")])
    with pytest.raises(SourceError, match=r"must hold images.*notes\.txt"):
        plan(path, tmp_path)


def test_images_of_which_none_can_be_read(tmp_path: Folder) -> None:
    """The error says why, of the first one: some programs write backslashes."""
    path = write(tmp_path / "in.zip", [("cat\\a.png", png(1)), ("notes.txt", b"")])
    with pytest.raises(SourceError, match="backslash"):
        plan(path, tmp_path)


def test_images_outside_a_vocabulary_are_distinguished(tmp_path: Folder) -> None:
    """Rows that a rule rejects later have their own names too."""
    path = write(tmp_path / "a.zip", PETS)
    planned = plan(path, tmp_path, vocabulary=["dog"])
    assert rejected(planned, tmp_path) == {
        "cat/1.png": "unknown_label",
        "cat/2.png": "unknown_label",
    }


def test_fault_125_archive_changes_after_planning(tmp_path: Folder) -> None:
    """An archive that was replaced or removed before it is read is an error."""
    path = write(tmp_path / "a.zip", PETS)
    planned = plan(path, tmp_path)
    write(path, [*PETS, ("dog/9.png", png(9))])
    with pytest.raises(SourceError, match=r"must stay as it is.*changed"):
        rows_of(planned, tmp_path)
    path.unlink()
    with pytest.raises(SourceError, match="it is gone"):
        rows_of(planned, tmp_path)


# --- WebDataset -------------------------------------------------------------------


def shard(first: int, count: int, **more: Any) -> list[tuple[str, bytes]]:
    members = []
    for i in range(first, first + count):
        fields = {
            "cls": str(i % 3).encode(),
            "json": json.dumps({"caption": f"no {i}", "size": {"w": i}}).encode(),
            "png": png(i),
            "txt": f"텍스트 {i}".encode(),
            **more,
        }
        members += [(f"{i:06d}.{name}", data) for name, data in fields.items()]
    return members


@pytest.mark.parametrize("name", ["s.tar", "s.tar.gz"])
def test_webdataset_columns(name: str, tmp_path: Folder) -> None:
    """Suffixes are columns, by what each means; json is spread out."""
    write(tmp_path / name, shard(0, 5, bin=b"\xff\x00"))
    planned = plan(tmp_path / name, tmp_path)
    kinds = {f.name: str(f.kind) for f in planned.schema.features if not f.derived}
    assert kinds == {
        "key": "text",
        "bin": "bytes",
        "cls": "int64",
        "json/caption": "text",
        "json/size/w": "int64",
        "image": "image",
        "txt": "text",
    }
    assert planned.schema.label is not None
    rows = rows_of(planned, tmp_path)
    assert [
        (r["key"], r["cls"], r["json/caption"], r["json/size/w"], r["txt"], r["bin"])
        for r in rows
    ] == [
        (f"{i:06d}", i % 3, f"no {i}", i, f"텍스트 {i}", b"\xff\x00") for i in range(5)
    ]
    assert [r["image"] for r in rows] == [png(i) for i in range(5)]
    assert [(r["__origin"], r["__row"]) for r in rows] == [(name, i) for i in range(5)]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a/b.c/0001.left.JPG", ("a/b.c/0001", "left.jpg")),
        ("0001.jpg", ("0001", "jpg")),
        ("0001.seg.x.png", ("0001", "seg.x.png")),
        ("README", ("", "")),
        ("a.b/README", ("", "")),
        ("a/.hidden", ("", "")),
        ("0001.", ("", "")),
    ],
)
def test_webdataset_keys(name: str, expected: tuple[str, str]) -> None:
    """The key ends at the first dot of the base name."""
    assert key_and_column(name) == expected


def test_webdataset_images_of_several_suffixes_are_one_column(tmp_path: Folder) -> None:
    """jpg here, png there, never both: one column, or most rows would lack theirs."""
    members = [
        ("1.cls", b"1"),
        ("1.png", png(1)),
        ("2.cls", b"2"),
        ("2.bmp", png(2)),
    ]
    rows = rows_of(plan(write(tmp_path / "s.tar", members), tmp_path), tmp_path)
    assert [r["image"] for r in rows] == [png(1), png(2)]


def test_webdataset_bad_samples_are_rejects(tmp_path: Folder) -> None:
    """Bad JSON, a label that is no number, a key that comes again: by row."""
    members = shard(0, 400)
    bad = dict(members)
    bad["000301.json"] = b'{"caption": '
    bad["000302.cls"] = b"cat"
    bad["000303.txt"] = b"\xff\xfe"
    bad["000304.json"] = b'{"caption": 5, "size": {"w": 1}}'
    bad["000305.json"] = b'{"caption": "x", "other": 1}'
    again = [("000000.extra.txt", b"again")]
    path = write(tmp_path / "s.tar", [*bad.items(), *again])
    planned = plan(path, tmp_path)
    found = [r for _, item in readings(planned, tmp_path) for r in item.rejections]
    assert {r.row: str(r.reason) for r in found} == {
        302: "malformed",
        303: "not_an_integer",
        304: "invalid_encoding",
        305: "wrong_type",
        306: "malformed",
        401: "duplicate_name",
    }
    assert all(r.sha256 for r in found)
    assert len(rows_of(planned, tmp_path)) == 395


def test_webdataset_lists_in_a_column_of_text(tmp_path: Folder) -> None:
    """Lists beside texts are kept as JSON, also with members that come late."""
    values = ["x", [{"b": 1}]] * 200
    values[351] = [{"c": 1}]
    members = []
    for i, value in enumerate(values):
        stated = json.dumps({"a": value}).encode()
        members += [(f"{i:03}.json", stated), (f"{i:03}.txt", b"t")]
    rows = rows_of(plan(write(tmp_path / "s.tar", members), tmp_path), tmp_path)
    assert len(rows) == 400
    assert rows[351]["json/a"] == '[{"c": 1}]'


# --- plans and blocks -------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["a.zip", "a.tar", "a.tar.gz", "samples.tar", "samples.tar.gz"]
)
def test_blocks_hold_every_row_once(
    name: str, tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However the archive is cut, in its order; a limit takes the first."""
    monkeypatch.setattr(row_archives, "_MAX_BLOCK_ROWS", 7)
    members = [(f"c{i % 3}/{i}.png", png(i)) for i in range(50)]
    column, wanted = "filename", [path for path, _ in members]
    if name.startswith("samples"):
        members = shard(0, 50)
        column, wanted = "key", [f"{i:06d}" for i in range(50)]
    planned = plan(write(tmp_path / name, members), tmp_path)
    assert [row[column] for row in rows_of(planned, tmp_path)] == wanted
    assert len(readings(planned, tmp_path)) == 8
    limited = plan(tmp_path / name, tmp_path, limit=10)
    assert [row[column] for row in rows_of(limited, tmp_path)] == wanted[:10]


@pytest.mark.parametrize("name", ["images.zip", "images.tar", "samples.tar"])
@pytest.mark.parametrize("count", [4, 8, 9])
def test_skipped_members_beside_full_blocks(
    name: str, count: int, tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come with the first block's rows: the next block has its own beginning."""
    monkeypatch.setattr(row_archives, "_MAX_BLOCK_ROWS", 4)
    members = [(f"a/{i}.png", png(i)) for i in range(count)]
    if name.startswith("samples"):
        members = shard(0, count)
    write(tmp_path / name, [*members, ("a/README", b"of these")])
    planned = plan(tmp_path / name, tmp_path)
    assert len(rows_of(planned, tmp_path)) == count
    assert skipped(planned, tmp_path) == {"other_suffix": 1}
