"""Archives as sources: images, WebDataset samples and tables, from plan to records."""

import collections
import contextlib
import csv
import errno
import functools
import gzip
import io
import json
import os
import pathlib
import sys
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from beam_pipeline.planning.inputs import PlannedSource, find_inputs
from beam_pipeline.planning.tables import plan_tables
from beam_pipeline.settings.spec import make_spec
from tests.support.outputs import payloads, rejects
from tests.support.runs import convert, refused
from transforms.core.example import messages
from transforms.core.model import Block, Reading
from transforms.errors import DamageError, SourceError, SpecError
from transforms.formats.archive import base, listing, tables
from transforms.formats.archive.webdataset_samples import key_and_column
from transforms.formats.listing import write_listing
from transforms.formats.source import Source

# The stages' own code: what is tested here is not up to Beam.
pytestmark = pytest.mark.usefixtures("without_runner")

Folder = pathlib.Path


@functools.cache
def png(number: int) -> bytes:
    """A small image of its own colour."""
    out = io.BytesIO()
    colour = (number * 40 % 256, number * 7 % 256, 9)
    Image.new("RGB", (4 + number % 3, 3), colour).save(out, "PNG")
    return out.getvalue()


def write(path: Folder, members: Iterable[tuple[str, bytes]]) -> Folder:
    """Writes an archive of the kind that its name says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
            for name, data in members:
                made.writestr(name, data)
        return path
    mode = {".tar": "w", ".gz": "w:gz", ".bz2": "w:bz2", ".xz": "w:xz"}[path.suffix]
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def plan(source: Folder | str, tmp: Folder, **settings: Any) -> PlannedSource:
    given = {"source": str(source), "output": str(tmp / "out"), **settings}
    spec = make_spec(given)
    return plan_tables(spec, find_inputs(spec))


def source_of(planned: PlannedSource, tmp: Folder) -> Source:
    listing = str(tmp / "listing.arrow")
    write_listing(planned.listing, listing, attempts=str(tmp))
    return planned.make(listing)


def readings(planned: PlannedSource, tmp: Folder) -> list[tuple[Block, Reading]]:
    source = source_of(planned, tmp)
    blocks = [b for number in source.inputs() for b in source.blocks(number)]
    found = [(block, item) for block in blocks for item in source.read(block)]
    places = [(item.batch.block.origin, item.batch.block.start) for _, item in found]
    assert len(set(places)) == len(places)
    return found


def rows_of(planned: PlannedSource, tmp: Folder) -> list[dict[str, Any]]:
    """Every row with its origin, number and split."""
    out = []
    for _, reading in readings(planned, tmp):
        batch = reading.batch
        rows = batch.rows.to_pylist()
        assert len(rows) == len(batch.numbers)
        for i, row in enumerate(rows):
            origin = batch.block.origin
            row["__origin"] = (
                origin if batch.origins is None else batch.origins[i].as_py()
            )
            row["__row"] = int(batch.numbers[i])
            if batch.splits is not None:
                row["__split"] = batch.splits[i].as_py()
            out.append(row)
    return out


def rejected(planned: PlannedSource, tmp: Folder) -> dict[str, str]:
    found = readings(planned, tmp)
    return {r.source: str(r.reason) for _, item in found for r in item.rejections}


def skipped(planned: PlannedSource, tmp: Folder) -> dict[str, int]:
    total: dict[str, int] = {}
    for _, item in readings(planned, tmp):
        for reason, count in item.skipped.items():
            total[reason] = total.get(reason, 0) + count
    return total


ARCHIVES = ["a.zip", "a.tar", "a.tar.gz", "a.tar.xz"]
PETS = [
    ("cat/1.png", png(1)),
    ("cat/2.png", png(2)),
    ("dog/고양이.png", png(3)),
    ("README.txt", b"about"),
    ("cat/.DS_Store", b"litter"),
]


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


@pytest.mark.parametrize(
    ("archives", "expected"),
    [
        (("train.zip", "test.zip"), {("train", "cat"), ("test", "cat")}),
        (("train.tar.gz", "test.tar"), {("train", "cat"), ("test", "cat")}),
    ],
)
def test_archives_as_splits(
    archives: tuple[str, ...], expected: set[tuple[str, str]], tmp_path: Folder
) -> None:
    """Several archives are folders of their names."""
    for i, name in enumerate(archives):
        write(tmp_path / "in" / name, [("cat/1.png", png(i))])
    planned = plan(tmp_path / "in", tmp_path)
    rows = rows_of(planned, tmp_path)
    assert {(r["__split"], r["label"]) for r in rows} == expected
    assert {r["__origin"] for r in rows} == {f"{name}/cat/1.png" for name in archives}


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


@pytest.mark.parametrize("name", ["a.zip", "a.tar", "a.tar.gz"])
def test_bad_members_are_rejects(name: str, tmp_path: Folder) -> None:
    """Each bad member is a reject by its name, the good ones are rows."""
    members = [
        ("cat/1.png", png(1)),
        ("../cat/2.png", png(2)),
        ("cat/1.PNG", png(3)),
        ("cat/inner.zip", b"PK"),
        ("dog/4.png", png(4)),
    ]
    planned = plan(write(tmp_path / name, members), tmp_path)
    assert len(rows_of(planned, tmp_path)) == 2
    assert rejected(planned, tmp_path) == {
        "../cat/2.png": "unsafe_path",
        "cat/1.PNG": "duplicate_name",
        "cat/inner.zip": "nested_archive",
    }


def test_images_outside_a_vocabulary_are_distinguished(tmp_path: Folder) -> None:
    """Rows that a rule rejects later have their own names too."""
    path = write(tmp_path / "a.zip", PETS)
    planned = plan(path, tmp_path, vocabulary=["dog"])
    assert rejected(planned, tmp_path) == {
        "cat/1.png": "unknown_label",
        "cat/2.png": "unknown_label",
    }


@pytest.mark.parametrize("name", ["a.zip", "a.tar", "a.tar.gz"])
def test_blocks_hold_every_image_once(
    name: str, tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However the archive is cut, the rows are the same, in its order."""
    module = sys.modules["transforms.formats.archive.base"]
    monkeypatch.setattr(module, "_MAX_BLOCK_ROWS", 7)
    members = [(f"c{i % 3}/{i}.png", png(i)) for i in range(50)]
    planned = plan(write(tmp_path / name, members), tmp_path)
    rows = rows_of(planned, tmp_path)
    assert [r["filename"] for r in rows] == [path for path, _ in members]
    assert len(readings(planned, tmp_path)) == 8
    limited = plan(tmp_path / name, tmp_path, limit=10)
    assert [r["filename"] for r in rows_of(limited, tmp_path)] == [
        path for path, _ in members[:10]
    ]


def test_fault_122_zip_encoding(tmp_path: Folder) -> None:
    """Names of CP949 are rejects without the option, labels with it."""
    path = write(tmp_path / "a.zip", [("xx/1.png", png(1)), ("cat/2.png", png(2))])
    path.write_bytes(path.read_bytes().replace(b"xx/", "개".encode("cp949") + b"/"))
    assert list(rejected(plan(path, tmp_path), tmp_path).values()) == [
        "invalid_encoding"
    ]
    planned = plan(path, tmp_path, zip_encoding="cp949")
    assert [r["label"] for r in rows_of(planned, tmp_path)] == ["개", "cat"]


def test_names_in_an_encoding_that_has_half_surrogates(tmp_path: Folder) -> None:
    """They are no text; UTF-7 says nothing against them."""
    members = [("b+2AA-.csv", csv_of(0, 1)), ("a+AOQ-.csv", csv_of(1, 1))]
    path = write(tmp_path / "a.zip", members)
    with pytest.raises(SourceError, match=r"names of members must be UTF-8.*2AA"):
        plan(path, tmp_path, zip_encoding="utf-7")
    planned = plan(write(path, members[1:]), tmp_path, zip_encoding="utf-7")
    ((_, reading),) = readings(planned, tmp_path)
    assert reading.batch.block.origin == "a.zip/aä.csv"


@pytest.mark.parametrize("count", [3, 20])
def test_tables_that_are_all_empty(count: int, tmp_path: Folder) -> None:
    """Few are the sample; of many it is a part."""
    path = write(tmp_path / "a.zip", [(f"{i}.csv", b"") for i in range(count)])
    with pytest.raises(SourceError, match=r"a\.zip/0\.csv: no header"):
        plan(path, tmp_path)


@pytest.mark.parametrize("name", ["a.zip", "a.tar", "a.tar.gz"])
def test_a_limit_counts_what_is_skipped(name: str, tmp_path: Folder) -> None:
    """Whether or not the rows that are read are of the first name."""
    members = [(f"{i:02}.csv", csv_of(i, 1)) for i in reversed(range(30))]
    planned = plan(write(tmp_path / name, [*members, ("x", b"")]), tmp_path, limit=3)
    assert [row["id"] for row in rows_of(planned, tmp_path)] == [29, 28, 27]
    assert skipped(planned, tmp_path) == {"other_suffix": 1}


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


def test_fault_119_damaged_archives_are_refused_while_planning(
    tmp_path: Folder,
) -> None:
    """A cut archive is an error before anything is written."""
    for name in ("a.zip", "a.tar", "a.tar.gz"):
        path = write(tmp_path / name, PETS)
        path.write_bytes(
            path.read_bytes()[:-1030] if name == "a.tar" else path.read_bytes()[:-9]
        )
        if name == "a.tar":
            with open(path, "r+b") as file:
                file.truncate(path.stat().st_size // 10240 * 10240 or 3000)
        with pytest.raises(DamageError):
            plan(path, tmp_path)


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
        ("README", None),
        ("a.b/README", None),
        ("a/.hidden", None),
        ("0001.", None),
    ],
)
def test_webdataset_keys(name: str, expected: tuple[str, str] | None) -> None:
    """The key ends at the first dot of the base name."""
    assert key_and_column(name) == expected


def test_webdataset_of_its_own_writer(tmp_path: Folder) -> None:
    """What webdataset writes is read as webdataset reads it."""
    webdataset = pytest.importorskip("webdataset")
    path = tmp_path / "s-000000.tar"
    with webdataset.TarWriter(str(path)) as sink:
        for i in range(7):
            sink.write(
                {
                    "__key__": f"dir/{i:04d}",
                    "png": png(i),
                    "cls": i,
                    "txt": f"text {i}",
                    "json": {"a": [i, 1], "b": i / 4},
                }
            )
    rows = rows_of(plan(path, tmp_path), tmp_path)
    oracle = list(webdataset.WebDataset(str(path), shardshuffle=False))
    assert [r["key"] for r in rows] == [o["__key__"] for o in oracle]
    assert [r["image"] for r in rows] == [o["png"] for o in oracle]
    assert [r["cls"] for r in rows] == [int(o["cls"]) for o in oracle]
    assert [r["txt"].encode() for r in rows] == [o["txt"] for o in oracle]
    assert [r["json/b"] for r in rows] == [json.loads(o["json"])["b"] for o in oracle]


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


def test_webdataset_suffix_that_is_no_text(tmp_path: Folder) -> None:
    """A member whose name is no UTF-8 makes its sample a reject, and no column."""
    members = shard(0, 20)
    place = members.index(next(m for m in members if m[0] == "000003.txt"))
    members[place] = ("000003.t\udcb9t", members[place][1])
    path = tmp_path / "s.tar"
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    planned = plan(path, tmp_path)
    assert "txt" in planned.schema.names
    assert all(name.isprintable() for name in planned.schema.names)
    found = [r for _, item in readings(planned, tmp_path) for r in item.rejections]
    assert [r.row for r in found] == [4]
    assert len(rows_of(planned, tmp_path)) == 19


def test_webdataset_cut_into_blocks(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks and pieces hold every sample once; a limit takes the first."""
    module = sys.modules["transforms.formats.archive.base"]
    monkeypatch.setattr(module, "_MAX_BLOCK_ROWS", 6)
    for name in ("s.tar", "t.tar.gz"):
        write(tmp_path / name, shard(0, 20))
        planned = plan(tmp_path / name, tmp_path)
        keys = [r["key"] for r in rows_of(planned, tmp_path)]
        assert keys == [f"{i:06d}" for i in range(20)]
        limited = plan(tmp_path / name, tmp_path, limit=7)
        assert [r["key"] for r in rows_of(limited, tmp_path)] == keys[:7]


# --- tables -----------------------------------------------------------------------


def csv_of(first: int, count: int) -> bytes:
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(["id", "name", "weight"])
    for i in range(first, first + count):
        writer.writerow([i, f'a "quoted"\nname, {i}', i / 4])
    return out.getvalue().encode()


@pytest.mark.parametrize("name", ARCHIVES)
@pytest.mark.parametrize("packed", [False, True])
def test_csv_in_archives(name: str, packed: bool, tmp_path: Folder) -> None:
    """Members are tables of one schema; a row's origin is its member."""
    suffix = ".csv.gz" if packed else ".csv"
    members = []
    for i in range(3):
        data = csv_of(100 * i, 100)
        data = gzip.compress(data) if packed else data
        members.append((f"data/part{i}{suffix}", data))
    members.append(("README", b"about"))
    planned = plan(write(tmp_path / name, members), tmp_path)
    rows = rows_of(planned, tmp_path)
    assert [(r["id"], r["name"], r["weight"]) for r in rows] == [
        (i, f'a "quoted"\nname, {i}', i / 4) for i in range(300)
    ]
    assert [(r["__origin"], r["__row"]) for r in rows] == [
        (f"{name}/data/part{i // 100}{suffix}", i % 100) for i in range(300)
    ]
    assert skipped(planned, tmp_path) == {"other_suffix": 1}
    limited = plan(tmp_path / name, tmp_path, limit=150)
    assert [r["id"] for r in rows_of(limited, tmp_path)] == list(range(150))


@pytest.mark.parametrize("name", ["images.zip", "images.tar", "samples.tar"])
@pytest.mark.parametrize("count", [4, 8, 9])
def test_skipped_members_beside_full_blocks(
    name: str, count: int, tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come with the first block's rows: the next block has its own beginning."""
    monkeypatch.setattr(base, "_MAX_BLOCK_ROWS", 4)
    members = [(f"a/{i}.png", png(i)) for i in range(count)]
    if name.startswith("samples"):
        members = shard(0, count)
    write(tmp_path / name, [*members, ("a/README", b"of these")])
    planned = plan(tmp_path / name, tmp_path)
    assert len(rows_of(planned, tmp_path)) == count
    assert skipped(planned, tmp_path) == {"other_suffix": 1}


@pytest.mark.parametrize(
    "name", ["csv.zip", "csv.tar.gz", "samples.tar.gz", "images.tar.gz"]
)
def test_a_plan_looks_at_each_archive_once(
    name: str, tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many there are, each is listed once, and each member opened once."""
    seen: collections.Counter[str] = collections.Counter()

    def count(module: Any, function: str) -> None:
        real = getattr(module, function)

        def counted(*arguments: Any, **options: Any) -> Any:
            seen[function] += 1
            return real(*arguments, **options)

        monkeypatch.setattr(module, function, counted)

    count(listing, "list_members")
    count(tables, "stream_member")
    for i in range(4):
        table = [(f"{i}.csv", csv_of(3 * i, 3))]
        members = shard(3 * i, 3) if name.startswith("samples") else table
        if name.startswith("images"):
            # Each archive is a class.
            members = [(f"{i}.jpg", b"1"), ("x.jpg", b"2")]
        write(tmp_path / "in" / f"{i}{name}", members)
    plan(tmp_path / "in", tmp_path)
    streams = {"stream_member": 4} if name.endswith(".zip") else {}
    assert seen == {"list_members": 4, **streams}


@pytest.mark.parametrize("name", ["a.zip", "a.tar.gz"])
def test_parquet_in_archives(name: str, tmp_path: Folder) -> None:
    """A format that has to seek is read from memory."""
    members = []
    for i in range(2):
        out = io.BytesIO()
        table = pa.table({"id": np.arange(50) + 50 * i, "x": np.arange(50) / 8})
        pq.write_table(table, out, row_group_size=20)
        members.append((f"{i}.parquet", out.getvalue()))
    rows = rows_of(plan(write(tmp_path / name, members), tmp_path), tmp_path)
    assert [r["id"] for r in rows] == list(range(100))


@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz"])
def test_json_lines_in_archives(name: str, tmp_path: Folder) -> None:
    """JSON lines, and a folder of a name beside."""
    members = []
    for i in range(2):
        lines = [json.dumps({"id": 10 * i + j, "x": f"n{j}"}) for j in range(10)]
        members.append((f"d/{i}.jsonl", ("\n".join(lines) + "\n").encode()))
    rows = rows_of(plan(write(tmp_path / name, members), tmp_path), tmp_path)
    assert [(r["id"], r["x"]) for r in rows] == [(i, f"n{i % 10}") for i in range(20)]


def _messy_tables(count: int) -> list[tuple[str, bytes]]:
    """Small CSV files in folders, some empty, with other line ends or bad rows."""
    made = []
    for number in range(count):
        rows = [f"{number * 10 + row},{'x' if row == 3 else row}" for row in range(4)]
        end = "\r\n" if number % 5 == 4 else "\n"
        text = end.join(["id,height", *rows[: number % 6]])
        if number % 7 == 3:
            text += f"{end}1,2,3"
        mark = b"\xef\xbb\xbf" if number % 4 == 1 else b""
        name = f"{'ab'[number % 2]}/{number * 7919 % 1000:03}.csv"
        made.append((name, mark + text.encode() + end.encode()))
    return [*made, ("readme.txt", b"")]


@pytest.mark.parametrize("order", ["sorted", "unsorted"])
@pytest.mark.parametrize("name", ["a.zip", "a.tar", "a.tar.gz"])
def test_small_tables_together_are_what_each_is(
    name: str, order: str, tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows, their order, positions and rejects are those of members read one by one."""
    members = _messy_tables(60)
    source = write(tmp_path / name, sorted(members) if order == "sorted" else members)
    monkeypatch.setattr(tables, "_RUN_MEMBERS", 25)
    monkeypatch.setattr(tables, "_HELD_MEMBERS", 7)

    def read() -> tuple[int, list[str], list[str], Any]:
        planned = plan(source, tmp_path, features={"height": {"kind": "int64"}})
        rows, bad = [], []
        skipped: collections.Counter[str] = collections.Counter()
        blocks = set()
        for block, reading in readings(planned, tmp_path):
            blocks.add(block)
            batch = reading.batch
            positions, values = batch.positions, batch.rows.to_pylist()
            if positions is None:
                positions = batch.block.positions_of(batch.numbers)
            places = zip(batch.numbers.tolist(), positions.tolist(), strict=True)
            for at, (number, position) in enumerate(places):
                origin = batch.block.origin
                if batch.origins is not None:
                    origin = batch.origins[at].as_py()
                rows.append((origin, number, position, *values[at].values()))
            bad += [
                (r.source, r.row, r.line, r.reason, r.message, r.raw)
                for r in reading.rejections
            ]
            skipped.update(reading.skipped)
        return len(blocks), sorted(map(repr, rows)), sorted(map(repr, bad)), skipped

    count, *together = read()
    # Members of a packed tar that are too large to be sorted are read one by one.
    monkeypatch.setattr(tables, "_MOST_SORTED_BYTES", 0)
    assert read() == (count, *together)
    monkeypatch.setattr(tables, "_FEWEST_MEMBERS", 1000)
    alone, *apart = read()
    assert together == apart
    assert len(together[1]) > 10
    assert together[2] == {"other_suffix": 1}
    if name != "a.tar.gz":
        assert count == 3 < alone


@pytest.mark.parametrize("order", ["sorted", "unsorted"])
@pytest.mark.parametrize("name", ["a.zip", "a.tar", "a.tar.gz"])
def test_small_tables_are_parsed_together(
    name: str, order: str, tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In whatever order the archive has them, and however it is packed."""
    members = [(f"{i * 7919 % 1000:03}.csv", csv_of(i, 1)) for i in range(100)]
    source = write(tmp_path / name, sorted(members) if order == "sorted" else members)
    batches = [
        reading.batch for _, reading in readings(plan(source, tmp_path), tmp_path)
    ]
    assert len(batches) == 1
    assert batches[0].origins.to_pylist() == [f"{name}/{n}" for n, _ in sorted(members)]


def test_no_room_to_sort_small_tables(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the temporary file cannot be made or written, each is read by itself."""
    members = [(f"{i * 7919 % 1000:03}.csv", csv_of(i, 1)) for i in range(60)]
    planned = plan(write(tmp_path / "a.tar.gz", members), tmp_path)
    expected = rows_of(planned, tmp_path)

    class Full(io.BytesIO):
        def write(self, data: Any) -> int:
            if self.tell() + len(data) > 100:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().write(data)

    for broken in (Full, functools.partial(open, tmp_path / "gone" / "x", "wb")):
        monkeypatch.setattr("tempfile.TemporaryFile", lambda b=broken, **_: b())
        batches = [reading.batch for _, reading in readings(planned, tmp_path)]
        assert len(batches) == 60
        rows = [row for batch in batches for row in batch.rows.to_pylist()]
        assert sorted(row["id"] for row in rows) == sorted(r["id"] for r in expected)


@pytest.mark.parametrize("name", ["zip", "tar", "tar.gz"])
def test_a_sample_is_spread_over_all_archives(
    name: str, tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every third of 24 tables in ten archives, most of whose listings are not kept."""
    monkeypatch.setattr(tables, "_KEPT_LISTS", 2)
    number = 0
    for archive in range(10):
        count = (3, 2, 1, 4)[archive % 4]
        members = [
            (f"{number + i:02}.csv", csv_of(number + i, 1)) for i in range(count)
        ]
        write(tmp_path / "in" / f"{archive}.{name}", members)
        number += count
    looked_at: list[str] = []
    real = tables.ArchiveTables._opened

    @contextlib.contextmanager
    def opened(self: Any, archives: Any) -> Iterator[Any]:
        with real(self, archives) as found:
            looked_at.extend(file.origin for file in found[0])
            yield found

    monkeypatch.setattr(tables.ArchiveTables, "_opened", opened)
    plan(tmp_path / "in", tmp_path)
    step = -(-number // 8)
    assert [origin.rpartition("/")[2] for origin in looked_at] == [
        f"{i:02}.csv" for i in range(0, number, step)
    ]


def test_csv_settings_reach_the_members(tmp_path: Folder) -> None:
    """Dialects are for tables in archives, and refused for images."""
    path = write(tmp_path / "a.zip", [("a.csv", b"id;x\n1;a\n2;b\n")])
    rows = rows_of(plan(path, tmp_path, delimiter=";"), tmp_path)
    assert [(r["id"], r["x"]) for r in rows] == [(1, "a"), (2, "b")]
    with pytest.raises(SpecError, match="delimiter is not for images"):
        plan(write(tmp_path / "b.zip", PETS), tmp_path, delimiter=";")


@pytest.mark.parametrize("name", ["a.zip", "a.tar.gz"])
def test_tables_in_archives_are_trimmed(name: str, tmp_path: Folder) -> None:
    """Spaces around names and cells go as in a plain file; other members refuse it."""
    text = b" id , x \n 1 , a b \n2,\n"
    path = write(tmp_path / name, [("a.csv", text), ("b.csv", text)])
    rows = rows_of(plan(path, tmp_path, trim=True), tmp_path)
    assert [(r["id"], r["x"]) for r in rows] == [(1, "a b"), (2, None)] * 2
    with pytest.raises(SpecError, match="trim is not for images in archives"):
        plan(write(tmp_path / "b.zip", PETS), tmp_path, trim=True)


def test_bad_rows_of_tables_in_archives(tmp_path: Folder) -> None:
    """A reject names the member, the row and the line in it."""
    text = "id,x\n" + "".join(f"{i},a\n" for i in range(500)) + "oops,b\n1,2,3\n"
    path = write(tmp_path / "a.tar.gz", [("t.csv", text.encode())])
    planned = plan(path, tmp_path)
    found = [r for _, item in readings(planned, tmp_path) for r in item.rejections]
    assert [(r.source, r.row, r.line, str(r.reason)) for r in found] == [
        ("a.tar.gz/t.csv", 501, 502, "not_an_integer"),
        ("a.tar.gz/t.csv", 502, 503, "field_count"),
    ]


def test_fault_118_damaged_tables_are_errors(tmp_path: Folder) -> None:
    """A table that is damaged or of another kind: no rows are lost."""
    path = write(
        tmp_path / "a.zip", [("a.csv", csv_of(0, 100)), ("b.csv", csv_of(0, 9))]
    )
    data = bytearray(path.read_bytes())
    data[60] ^= 8
    path.write_bytes(bytes(data))
    with pytest.raises(DamageError, match=r"a\.zip: member 'a\.csv'"):
        plan(path, tmp_path)
    write(path, [("a.csv", csv_of(0, 3)), ("b.parquet", b"")])
    with pytest.raises(SourceError, match="of one format; found csv, parquet"):
        plan(path, tmp_path)
    write(path, [("a.csv", csv_of(0, 3)), ("../b.csv", csv_of(0, 3))])
    with pytest.raises(SourceError, match="must be relative paths"):
        plan(path, tmp_path)


def test_nothing_is_written_to_disk(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No file appears where the process may write, whatever is read."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("TMPDIR", str(home))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.chdir(home)
    archives = tmp_path / "in"
    for name, members in {
        "images": PETS,
        "tables": [("a.csv", csv_of(0, 10))],
        "samples": shard(0, 3),
    }.items():
        path = write(archives / name / "a.tar.gz", members)
        planned = plan(path, tmp_path)
        before = set(os.listdir("/proc/self/fd")) if os.path.isdir("/proc") else set()
        assert rows_of(planned, tmp_path)
        if before:
            assert len(os.listdir("/proc/self/fd")) == len(before)
    assert not list(home.iterdir())


# --- from the command line --------------------------------------------------------


def by_name(directory: Folder) -> dict[bytes, dict[str, Any]]:
    """Every record as plain values, by its file name."""
    found = [parsed(payload) for payload in payloads(directory)]
    records = {record["filename"][0]: record for record in found}
    assert len(records) == len(found)
    return records


def parsed(payload: bytes) -> dict[str, Any]:
    example = messages.Example.FromString(payload)
    out = {}
    for name, feature in example.features.feature.items():
        kind = feature.WhichOneof("kind")
        out[name] = list(getattr(feature, kind).value)
    return out


@pytest.mark.parametrize("name", ["pets.zip", "pets.tar", "pets.tar.gz"])
def test_converting_an_archive_is_converting_its_folder(
    name: str, tmp_path: Folder
) -> None:
    """The records of an archive are those of the folder that was packed."""
    members = [
        (f"{split}/{label}/{i}.png", png(i))
        for i, (split, label) in enumerate(
            [("train", "cat"), ("train", "개"), ("test", "cat")] * 7
        )
    ]
    members.append(("test/cat/bad.png", b"no image"))
    for path, data in members:
        target = tmp_path / "tree" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    write(tmp_path / name, members)
    options = ("--name", "pets", "--max-reject-rate", "0.5")
    convert(tmp_path / "tree", tmp_path / "a", *options)
    convert(tmp_path / name, tmp_path / "b", *options)
    assert by_name(tmp_path / "a") == by_name(tmp_path / "b")
    assert len(by_name(tmp_path / "b")) == 21
    for split in ("train", "test"):
        assert payloads(tmp_path / "a", split) == payloads(tmp_path / "b", split)
    for directory in ("a", "b"):
        found = rejects(tmp_path / directory)
        assert [(r["source"], r["reason"]) for r in found] == [
            ("test/cat/bad.png", "not_an_image")
        ]


def test_converting_samples(tmp_path: Folder) -> None:
    """WebDataset shards from end to end, the images among the records."""
    for i in range(3):
        write(tmp_path / "in" / f"s-{i:06d}.tar", shard(10 * i, 10))
    convert(tmp_path / "in", tmp_path / "out", "--shards", "2")
    found = {r["key"][0]: r for r in map(parsed, payloads(tmp_path / "out"))}
    assert set(found) == {f"{i:06d}".encode() for i in range(30)}
    for i in range(30):
        record = found[f"{i:06d}".encode()]
        assert record["image"] == [png(i)]
        assert record["cls"] == [i % 3]
        assert record["txt"] == [f"텍스트 {i}".encode()]
        assert record["json/caption"] == [f"no {i}".encode()]


@pytest.mark.parametrize("name", ["t.zip", "t.tar.gz"])
def test_converting_tables(name: str, tmp_path: Folder) -> None:
    """CSV members from end to end."""
    write(tmp_path / name, [(f"{i}.csv", csv_of(100 * i, 100)) for i in range(3)])
    convert(tmp_path / name, tmp_path / "out", "--splits", "train=0.9,test=0.1")
    found = [parsed(payload)["id"][0] for payload in payloads(tmp_path / "out")]
    assert sorted(found) == list(range(300))


def test_a_bad_archive_is_one_clear_error(tmp_path: Folder) -> None:
    """Damage and what is no archive have exit code 4; nothing is committed."""
    path = write(tmp_path / "a.tar.gz", PETS)
    path.write_bytes(path.read_bytes()[:-20])
    message = refused(4, path, tmp_path / "out")
    assert "a.tar.gz: the archive is damaged" in message
    (tmp_path / "b.zip").write_bytes(b"<html>")
    assert "must be a zip, or a tar" in refused(4, tmp_path / "b.zip", tmp_path / "out")
    assert not (tmp_path / "out").exists()
