"""Manifests of images, of every kind the field writes, to records.

Images are Pillow's, manifests are written by csv, json, pandas and pyarrow under the
conventions of tfrecorder, AutoML and Hugging Face.
"""

import functools
import gzip
import pathlib
import unicodedata
import urllib.parse
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beam_pipeline.planning.inputs import find_inputs
from beam_pipeline.planning.plan import make_plan
from beam_pipeline.settings.spec import make_spec
from tests.support.detection import read_planned
from tests.support.image_sources import (
    image_bytes,
    image_struct,
    write_images,
    write_metadata,
)
from tests.support.outputs import account, dataset, records, rejects, split_sizes
from tests.support.runs import command, convert, refused
from tests.support.sources import write_rows
from transforms.core.schema import Feature, Kind
from transforms.formats.csv import sample as csv_sample
from transforms.formats.detection.automl import recognise
from transforms.formats.file_names import split_of_table

Folder = pathlib.Path
Row = dict[str, Any]
TOLERANT = ("--max-reject-rate", 1)


BOX_KEYS = [f"image/object/bbox/{side}" for side in ("xmin", "ymin", "xmax", "ymax")]


def by_name(found: Iterable[Row], key: str = "filename") -> dict[str, Row]:
    return {row[key][0].decode(): row for row in found}


def classes(out: Folder, feature: str = "label") -> list[str]:
    text = (out / f"{feature}.labels.txt").read_text(encoding="utf-8")
    return text.splitlines()


@pytest.mark.parametrize("header", [True, False], ids=["tfrecorder", "automl"])
def test_a_split_column_and_one_label(tmp_path: Folder, *, header: bool) -> None:
    """Bytes are kept, ids follow the sorted names, DISCARD is counted."""
    names = [f"images/{i:02}.{('jpg', 'png')[i % 2]}" for i in range(24)]
    images = write_images(tmp_path, names)
    uses = ["TRAIN", "VALIDATION", "TEST", "DISCARD"]
    labels = ["dog", "고양이", "ant"]
    rows = [[uses[i % 4], name, labels[i % 3]] for i, name in enumerate(names)]
    head = [["split", "image_uri", "label"]] if header else []
    source = write_rows(tmp_path / "m.csv", [*head, *rows])
    out = tmp_path / "out"
    convert(source, out)
    assert classes(out) == sorted(labels, key=str.encode)
    assert split_sizes(out) == {"train": 6, "validation": 6, "test": 6}
    assert account(out)["skipped"] == {"discarded": 6}
    assert account(out)["read"] == 24
    for use in uses[:3]:
        found = by_name(records(out, use.lower()))
        assert sorted(found) == [name for u, name, _ in rows if u == use]
        for _, name, label in [row for row in rows if row[0] == use]:
            row = found[name]
            assert row["image"] == [images[name]]
            assert row["label"] == [classes(out).index(label)]
            assert row["height"] == [4]
            assert row["width"] == [6]
            assert row["depth"] == [3]


def test_unassigned_rows_fall_by_shares(tmp_path: Folder) -> None:
    """UNASSIGNED and no ML_USE at all go to 80/10/10, or to the given shares."""
    rows = []
    for i in range(120):
        head = (["UNASSIGNED"], [""], [])[i % 3]
        rows.append([*head, "a.png" if i == 0 else f"{i}.png", "x"])
    write_images(tmp_path, ["a.png", *(f"{i}.png" for i in range(1, 120))])
    source = write_rows(tmp_path / "m.csv", [["TEST", "t.png", "x"], *rows])
    write_images(tmp_path, ["t.png"])
    convert(source, tmp_path / "out")
    sizes = split_sizes(tmp_path / "out")
    assert sum(sizes.values()) == 121
    assert 80 <= sizes["train"] <= 112
    assert 3 <= sizes["validation"] <= 27
    assert "t.png" in by_name(records(tmp_path / "out", "test"))
    convert(source, tmp_path / "half", "--splits", "one=1/2,two=1/2")
    sizes = split_sizes(tmp_path / "half")
    assert sizes["test"] == 1
    assert 40 <= sizes["one"] <= 80
    assert sizes["one"] + sizes["two"] == 120


def test_several_labels_and_none(tmp_path: Folder) -> None:
    """Labels are a list, empty for none; several rows of an image are joined."""
    composed, decomposed = (unicodedata.normalize(f, "é.png") for f in ("NFC", "NFD"))
    names = ["a.png", "b.png", "c.png", composed]
    images = write_images(tmp_path, names)
    rows = [
        ["TRAIN", "a.png", "red", "round"],
        ["TRAIN", "b.png"],
        ["TEST", "c.png", "blue"],
        ["TRAIN", "a.png", "soft", "red"],
        ["TEST", composed, "blue"],
        ["TEST", decomposed, "round"],
    ]
    out = tmp_path / "out"
    convert(write_rows(tmp_path / "m.csv", rows), out)
    assert classes(out) == ["blue", "red", "round", "soft"]
    found = by_name(records(out))
    labels = {
        name: [classes(out)[i] for i in row.get("label", [])]
        for name, row in found.items()
    }
    assert labels == {
        "a.png": ["red", "round", "soft"],
        "b.png": [],
        "c.png": ["blue"],
        composed: ["blue", "round"],
    }
    assert {name: row["image"][0] for name, row in found.items()} == images
    assert account(out)["read"] == 4
    assert set(by_name(records(out, "test"))) == {"c.png", composed}


def test_boxes(tmp_path: Folder) -> None:
    """Both forms of corners, an image of none, classes from 1; bad boxes are parts."""
    images = write_images(tmp_path, ["a.png", "b.png", "c.png", "d.png"])
    nothing = [""] * 8
    rows: list[list[object]] = [
        ["TRAIN", "a.png", "car", 0.1, 0.2, 0.3, 0.2, 0.3, 0.4, 0.1, 0.4],
        ["TEST", "b.png", "", *nothing],
        ["TRAIN", "a.png", "bus", 0.5, 0.5, "", "", 1, 1, "", ""],
        ["TRAIN", "c.png", "car", 0.9, 0.1, "", "", 0.2, 0.3, "", ""],  # reversed
        ["TRAIN", "c.png", "car", 0.1, 0.1, "", "", 30, 40, "", ""],  # pixels
        ["TRAIN", "c.png", "car", 0.1, 0.1, "", "", "x", 0.3, "", ""],
        ["TRAIN", "c.png", "", 0.1, 0.1, "", "", 0.2, 0.3, "", ""],
        ["TRAIN", "c.png", "car", 0.1, 0.1, 0.4, 0.2, 0.3, 0.3, 0.1, 0.3],
        ["TRAIN", "c.png", "ant", 0, 0, "", "", 0.25, 0.75, "", ""],
        ["DISCARD", "d.png", "cow", 0.1, 0.1, "", "", 0.2, 0.2, "", ""],
    ]
    out = tmp_path / "out"
    convert(write_rows(tmp_path / "m.csv", rows), out, *TOLERANT)
    found = by_name(records(out), "image/filename")
    assert {name: row["image/encoded"][0] for name, row in found.items()} == {
        name: data for name, data in images.items() if name != "d.png"
    }
    a = found["a.png"]
    assert a["image/object/class/text"] == [b"car", b"bus"]
    assert a["image/object/class/label"] == [3, 2]
    expected = [[0.1, 0.5], [0.2, 0.5], [0.3, 1], [0.4, 1]]
    for key, values in zip(BOX_KEYS, expected, strict=True):
        assert np.array_equal(
            np.array(a[key], np.float32), np.array(values, np.float32)
        )
    assert a["image/height"] == [4]
    assert a["image/format"] == [b"png"]
    assert all(not found["b.png"].get(key) for key in BOX_KEYS)
    assert found["c.png"]["image/object/class/text"] == [b"ant"]
    bad = rejects(out)
    assert [line["line"] for line in bad] == [4, 5, 6, 7, 8]
    assert {line["part"] for line in bad} == {"boxes"}
    assert {line["row"] for line in bad} == {4}
    assert [line["reason"] for line in bad].count("missing_value") == 1
    assert "upright" in bad[4]["message"]
    assert "c.png" in bad[4]["message"]
    assert account(out)["parts"]["boxes"] == {
        "read": 9,
        "written": 3,
        "rejected": 5,
        "gone": 1,
    }
    names = (out / "label_map.pbtxt").read_text()
    assert [names.index(name) for name in ("ant", "bus", "car")] == sorted(
        names.index(name) for name in ("ant", "bus", "car")
    )
    assert "cow" not in names


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_metadata_in_folders_of_splits(tmp_path: Folder, kind: str) -> None:
    """A folder's whole name says the split; the vocabulary is that of all splits."""
    root = tmp_path / "data"
    splits = {"train": "train", "valid": "validation", "test": "test"}
    images: dict[str, dict[str, bytes]] = {}
    for number, folder in enumerate(splits):
        names = [f"{i}.png" for i in range(number + 2)]
        images[folder] = write_images(root / folder, names)
        animals = ["bee", "ape", "cow"]
        rows = [
            {"file_name": name, "animal": animals[(number + i) % 3]}
            for i, name in enumerate(names)
        ]
        write_metadata(root / folder / f"metadata.{kind}", rows)
    out = tmp_path / "out"
    convert(root, out, "--label-column", "animal")
    assert split_sizes(out) == {"train": 2, "validation": 3, "test": 4}
    assert classes(out, "animal") == ["ape", "bee", "cow"]
    for folder, split in splits.items():
        found = by_name(records(out, split))
        assert {n: row["image"][0] for n, row in found.items()} == images[folder]
    (first,) = [r for n, r in by_name(records(out, "test")).items() if n == "0.png"]
    assert first["animal"] == [classes(out, "animal").index("cow")]


def test_columns_named_as_what_is_read_off_images(tmp_path: Folder) -> None:
    """The table's own height is kept, and its own `image` is not an image's name."""
    images = write_images(tmp_path, ["a.png"])
    rows = [{"file_name": "a.png", "height": 99, "image": "words", "filename": "x"}]
    write_metadata(tmp_path / "list.csv", rows)
    convert(tmp_path / "list.csv", tmp_path / "out")
    (row,) = records(tmp_path / "out")
    assert row["file_name"] == [images["a.png"]]
    assert row["height"] == [99]
    assert row["image"] == [b"words"]
    assert row["filename"] == [b"x"]
    assert row["file_name/height"] == [4]
    write_metadata(tmp_path / "short.csv", [{"file_name": "a.png", "height": 99}])
    convert(tmp_path / "short.csv", tmp_path / "short")
    (row,) = records(tmp_path / "short")
    assert row["image"] == [images["a.png"]]
    assert (row["height"], row["width"]) == ([99], [6])


def test_hugging_face_parquet(tmp_path: Folder) -> None:
    """struct<bytes, path> and an int class label; numbered files say their split."""
    (tmp_path / "hub/data").mkdir(parents=True)
    pictures = {i: image_bytes(i, "JPEG") for i in range(6)}
    files = {
        "train-00000-of-00002-5b31.parquet": [0, 1],
        "train-00001-of-00002-5b31.parquet": [2, 3],
        "test-00000-of-00001.parquet": [4, 5],
    }
    for name, numbers in files.items():
        table = pa.table(
            {
                "image": image_struct([(pictures[i], f"{i}.jpg") for i in numbers]),
                "label": pa.array([i % 3 for i in numbers], pa.int64()),
            }
        )
        pq.write_table(table, tmp_path / "hub/data" / name)
    out = tmp_path / "out"
    convert(tmp_path / "hub", out)
    assert split_sizes(out) == {"train": 4, "test": 2}
    train = sorted((r["label"][0], r["image"][0]) for r in records(out, "train"))
    assert train == sorted((i % 3, pictures[i]) for i in range(4))
    assert {r["image"][0] for r in records(out, "test")} == {
        pictures[4],
        pictures[5],
    }


def test_hugging_face_paths_that_were_not_embedded(tmp_path: Folder) -> None:
    """If all `bytes` are null, `path` names the image."""
    images = write_images(tmp_path, ["a.png", "b.jpg"])
    column = image_struct([(None, name) for name in images])
    pq.write_table(pa.table({"image": column}), tmp_path / "t.parquet")
    convert(tmp_path / "t.parquet", tmp_path / "out")
    found = [row["image"][0] for row in records(tmp_path / "out")]
    assert sorted(found) == sorted(images.values())


def test_paths_of_every_kind(tmp_path: Folder) -> None:
    """Relative to the manifest, absolute, and file:// with escapes, are one image."""
    names = ["in/plain.png", "in/with space é.png", "in/100%.png"]
    images = write_images(tmp_path, names)
    (tmp_path / "tables").mkdir()
    rows = []
    for name in names:
        whole = str(tmp_path / name)
        paths = (f"../{name}", whole, "file://" + urllib.parse.quote(whole))
        rows += [{"image_path": path, "n": names.index(name)} for path in paths]
    source = tmp_path / "tables/list.csv"
    write_metadata(source, rows)
    convert(source, tmp_path / "out")
    found = records(tmp_path / "out")
    assert len(found) == 9
    for row in found:
        assert row["image"] == [images[names[row["n"][0]]]]


def test_shares_over_a_manifest_split_it_again(tmp_path: Folder) -> None:
    """--splits overrules what the rows say, and DISCARD stays out."""
    names = [f"{i}.png" for i in range(60)]
    write_images(tmp_path, names)
    uses = ["TRAIN", "TEST", "DISCARD"]
    rows = [[uses[i % 3], name, "x"] for i, name in enumerate(names)]
    source = write_rows(tmp_path / "m.csv", [["split", "image_uri", "label"], *rows])
    convert(source, tmp_path / "out", "--splits", "p=0.5,q=0.5")
    sizes = split_sizes(tmp_path / "out")
    assert sorted(sizes) == ["p", "q"]
    assert sum(sizes.values()) == 40
    assert account(tmp_path / "out")["skipped"] == {"discarded": 20}
    assert "split" not in {f["name"] for f in dataset(tmp_path / "out")["features"]}
    plain = write_rows(tmp_path / "plain.csv", rows)
    shares = {"p": "0.5", "q": "0.5"}
    spec = make_spec({"source": str(plain), "output": "-", "splits": shares})
    planned = make_plan(spec).planned
    assert planned.rule.names == ("p", "q")
    assert "split" not in planned.schema.names


def test_unassigned_beyond_the_sample(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A word that no sampled row had is understood anyway."""
    small = functools.partial(csv_sample.sample_of, sample_bytes=4096)
    monkeypatch.setattr(csv_sample, "sample_of", small)
    (tmp_path / "i.png").write_bytes(image_bytes(1))
    rows = [["TRAIN", "i.png", "x"]] * 3000
    rows[1700] = ["UNASSIGNED", "i.png", "x"]
    source = write_rows(tmp_path / "m.csv", [["split", "image_uri", "label"], *rows])
    planned = make_plan(make_spec({"source": str(source), "output": "-"})).planned
    assert planned.rule.shares
    assert planned.rule.names == ("train", "validation", "test")
    convert(source, tmp_path / "out", "--image-check", "none")
    assert sum(split_sizes(tmp_path / "out").values()) == 3000


def label_of(source: Folder) -> Feature | None:
    spec = make_spec({"source": str(source), "output": "-"})
    return make_plan(spec).planned.schema.label


def test_one_label_each_is_a_class(tmp_path: Folder) -> None:
    """One label per image is a class, even a number; without labels there is none."""
    one = [["TRAIN", "a.png", "7"], ["TRAIN", "b.png", "10"], ["TEST", "a.png", "7"]]
    source = write_rows(tmp_path / "one.csv", one[:2])
    label = label_of(source)
    assert label is not None
    assert (label.kind, label.shape) == (Kind.LABEL, ())
    some = write_rows(tmp_path / "some.csv", [*one, ["TRAIN", "c.png"]])
    label = label_of(some)
    assert label is not None
    assert label.shape == (None,)
    assert label_of(write_rows(tmp_path / "none.csv", [row[:2] for row in one])) is None


def test_rows_that_name_no_image_or_two_splits(tmp_path: Folder) -> None:
    """Each is a reject with its row, line and what must hold."""
    write_images(tmp_path, ["a.png", "b.png", "c.png"])
    rows = [
        ["TRAIN", "a.png", "x"],
        ["TRAIN", "b.png", "x\ny"],
        ["trian", "c.png", "x"],
        ["TEST", "", "x"],
        ["TEST", "b.png", "z"],
        ["TRAIN", "gone.png", "x"],
    ]
    source = write_rows(tmp_path / "m.csv", rows)
    with open(source, "ab") as file:
        file.write(b"TRAIN,\xff.png,x\n\n")
    out = tmp_path / "out"
    convert(source, out, *TOLERANT)
    found = [(r["row"], r["line"], r["reason"]) for r in rejects(out)]
    assert found == [
        (2, 2, "bad_split"),
        (3, 4, "bad_split"),
        (4, 5, "missing_value"),
        (6, None, "unreadable"),
        (7, 8, "invalid_encoding"),
    ]
    messages = [r["message"] for r in rejects(out)]
    assert "row 2" in messages[0]
    assert "row 5" in messages[0]
    assert "trian" in messages[1]
    assert "UNASSIGNED" in messages[1]
    assert "gone.png" in messages[3]
    assert account(out)["read"] == 6
    assert account(out)["written"] == 1


def test_no_row_that_can_be_read(tmp_path: Folder) -> None:
    """A manifest of bad rows alone gives a reject for each."""
    source = tmp_path / "m.csv"
    source.write_bytes(b"TRAIN,\xff.png,x\nTRAIN,\xfe.png,x\n")
    found = read_planned(source, format="automl")
    assert [(r.row, r.reason) for r in found.rejections] == [
        (1, "invalid_encoding"),
        (2, "invalid_encoding"),
    ]


def test_broken_quotes_are_an_error(tmp_path: Folder) -> None:
    """A quote that is never closed would swallow the rest of the file."""
    write_images(tmp_path, ["a.png"])
    source = tmp_path / "m.csv"
    source.write_text('TRAIN,a.png,x\nTRAIN,"a.png,x\nTRAIN,a.png,x\n')
    message = refused(4, source, tmp_path / "out")
    assert "m.csv" in message
    assert "line" in message


@pytest.mark.parametrize(
    ("line", "taken"),
    [
        (b"TRAIN,gs://bucket/a,cat\n", True),
        (b'\xef\xbb\xbfUNASSIGNED,"x, y.JPG"\r\nz', True),
        (b"training,gs://bucket/a.jpg,cat\n", True),
        (b",a.png\n", True),
        (b"\nTEST,a.png,b", True),
        (b"split,image_uri,label\nTRAIN,a.png,b\n", False),
        (b"TRAIN,VALIDATION,TEST\n1,2,3\n", False),
        (b"TRAIN\n", False),
        (b"name,photo.png\n", False),
        (b"\xff\xfe\n", False),
        (b'"TRAIN,a.png\n', False),
        (b"", False),
    ],
)
def test_recognised_by_the_first_line(line: bytes, *, taken: bool) -> None:
    """The first line must say a use and the path of an image."""
    assert recognise([("m.csv", len(line))], lambda _: line) is taken


def test_recognised_among_files(tmp_path: Folder) -> None:
    """A folder with images is the manifest's; tables beside a named file are not."""
    write_images(tmp_path / "d", ["images/a.png"])
    source = write_rows(tmp_path / "d/m.csv", [["TRAIN", "images/a.png", "x"]])

    def format_of(path: Folder) -> str:
        spec = make_spec({"source": str(path), "output": "-"})
        return find_inputs(spec, "folder" if path.is_dir() else "file").format

    assert format_of(tmp_path / "d") == "automl"
    write_rows(tmp_path / "d/other.csv", [["a", "b"], [1, 2]])
    assert format_of(source) == "automl"
    assert format_of(tmp_path / "d/other.csv") == "csv"
    assert format_of(tmp_path / "d") == "images"


def test_metadata_of_two_kinds(tmp_path: Folder) -> None:
    """One kind of metadata file a source, as Hugging Face has it."""
    write_images(tmp_path / "data", ["train/a.png", "test/a.png"])
    rows = [{"file_name": "a.png", "text": "x"}]
    write_metadata(tmp_path / "data/train/metadata.csv", rows)
    write_metadata(tmp_path / "data/test/metadata.jsonl", rows)
    message = refused(4, tmp_path / "data", tmp_path / "out")
    assert "one kind" in message


@pytest.mark.parametrize(
    ("path", "split"),
    [
        ("data/train-00000-of-00002-4e1f.parquet", "train"),
        ("validation-00000-of-00001.csv", "validation"),
        ("dev/metadata.jsonl", "validation"),
        ("Test/deep/x.parquet", "test"),
        ("test/train-0-of-1.parquet", "train"),
        ("photo of test tubes.csv", ""),
        ("test.csv", ""),
        ("trainers/a.csv", ""),
        ("my-train-00000-of-00001.parquet", ""),
        ("train-set/a.csv", ""),
        ("train-00000-of-00001", ""),
    ],
)
def test_splits_in_paths_of_tables(path: str, split: str) -> None:
    """Only the start of a numbered file, and whole names of folders, say a split."""
    assert split_of_table(path) == split


def write_tables(folder: Folder, names: Iterable[str]) -> Folder:
    """Writes a table of one row, its place among the names, for each name."""
    for number, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".parquet"):
            pq.write_table(pa.table({"n": [number], "s": ["x"]}), path)
        elif name.endswith(".jsonl"):
            path.write_text(f'{{"n": {number}, "s": "x"}}\n')
        else:
            text = f"n,s\n{number},x\n".encode()
            path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    return folder


def splits_planned(source: object, **settings: object) -> dict[str, int]:
    spec = make_spec({"source": str(source), "output": "-", **settings})
    return dict(make_plan(spec).planned.records)


@pytest.mark.parametrize(
    ("names", "splits"),
    [
        (("train.csv", "test.csv"), "train test"),
        (("Train.csv", "val.csv.gz"), "train validation"),
        (("train.jsonl", "valid.jsonl", "test.jsonl"), "train validation test"),
        (("train.parquet", "dev.parquet"), "train validation"),
        (("d/training.csv", "e/testing.csv"), "train test"),
        (("train-00000-of-00001.csv", "test.csv"), "train test"),
        (("train.csv", "test.csv", "more.csv"), "train"),
        (("train.csv", "test set.csv"), "train"),
        (("train.v2.csv", "test.v2.csv"), "train"),
        (("test.csv",), "train"),
    ],
)
def test_tables_called_train_and_test_are_splits(
    names: tuple[str, ...], splits: str, tmp_path: Folder
) -> None:
    """Where every file is called by such a word, and there are two at least."""
    source = write_tables(tmp_path / "s", names)
    found = splits_planned(source)
    assert list(found) == splits.split()
    assert sum(found.values()) == len(names)


def test_why_tables_called_train_and_test_are_splits(tmp_path: Folder) -> None:
    """The plan says why; options overrule it."""
    source = write_tables(tmp_path / "s", ["test.csv", "train.csv", "val.csv"])
    run = command("plan", f"{source}/*.csv", tmp_path / "out")
    why = "test.csv: test"
    assert "split by the paths of files (train.csv: train; val.csv: valid" in run.out
    assert why in run.out
    shares = splits_planned(source, splits={"a": "1/2", "b": "1/2"})
    assert list(shares) == ["a", "b"]
    run = command("plan", source, tmp_path / "o", "--splits", "a=0.5,b=0.5")
    assert "split by" not in run.out
    assert list(splits_planned(source, split_column="n")) == ["0", "1", "2"]
    assert splits_planned(source / "test.csv") == {"train": 1}
