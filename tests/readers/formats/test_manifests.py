"""Files that name images, as TensorFlow and TFDS read their records."""

import gzip
import pathlib
import random
import unicodedata
import urllib.parse
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.image_sources import (
    image_bytes,
    image_struct,
    write_images,
    write_metadata,
)
from tests.support.manifest_sources import split_names, write_rows
from tests.support.outputs import account, dataset, rejects
from tests.support.runs import convert, refused

Folder = pathlib.Path
Row = dict[str, Any]
TOLERANT = ("--max-reject-rate", 1)
BOX_KEYS = [f"image/object/bbox/{side}" for side in ("xmin", "ymin", "xmax", "ymax")]


@pytest.fixture(scope="module")
def tf() -> Any:
    return pytest.importorskip("tensorflow")


def records(tf: Any, out: Folder, split: str | None = None) -> list[Row]:
    """Returns the records as TensorFlow parses them: lists of values by key."""
    found = []
    for facts in dataset(out)["splits"]:
        if split not in (None, facts["name"]):
            continue
        paths = [str(out / shard["file"]) for shard in facts["shards"]]
        for payload in tf.data.TFRecordDataset(paths).as_numpy_iterator():
            features = tf.train.Example.FromString(payload).features.feature
            found.append(
                {
                    key: list(getattr(value, value.WhichOneof("kind")).value)
                    for key, value in features.items()
                    if value.WhichOneof("kind")
                }
            )
    return found


def by_name(found: Iterable[Row], key: str = "filename") -> dict[str, Row]:
    return {row[key][0].decode(): row for row in found}


def classes(out: Folder, feature: str = "label") -> list[str]:
    text = (out / f"{feature}.labels.txt").read_text(encoding="utf-8")
    return text.splitlines()


@pytest.mark.parametrize("header", [True, False], ids=["tfrecorder", "automl"])
def test_a_split_column_and_one_label(
    tf: Any, tmp_path: Folder, *, header: bool
) -> None:
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
    assert split_names(out) == {"train": 6, "validation": 6, "test": 6}
    assert account(out)["skipped"] == {"discarded": 6}
    assert account(out)["read"] == 24
    for use in uses[:3]:
        found = by_name(records(tf, out, use.lower()))
        assert sorted(found) == [name for u, name, _ in rows if u == use]
        for _, name, label in [row for row in rows if row[0] == use]:
            row = found[name]
            assert row["image"] == [images[name]]
            assert row["label"] == [classes(out).index(label)]
            assert row["height"] == [4]
            assert row["width"] == [6]
            assert row["depth"] == [3]


def test_unassigned_rows_fall_by_shares(tf: Any, tmp_path: Folder) -> None:
    """UNASSIGNED and no ML_USE at all go to 80/10/10, or to the given shares."""
    rows = []
    for i in range(120):
        head = (["UNASSIGNED"], [""], [])[i % 3]
        rows.append([*head, "a.png" if i == 0 else f"{i}.png", "x"])
    write_images(tmp_path, ["a.png", *(f"{i}.png" for i in range(1, 120))])
    source = write_rows(tmp_path / "m.csv", [["TEST", "t.png", "x"], *rows])
    write_images(tmp_path, ["t.png"])
    convert(source, tmp_path / "out")
    sizes = split_names(tmp_path / "out")
    assert sum(sizes.values()) == 121
    assert 80 <= sizes["train"] <= 112
    assert 3 <= sizes["validation"] <= 27
    assert "t.png" in by_name(records(tf, tmp_path / "out", "test"))
    convert(source, tmp_path / "half", "--splits", "one=1/2,two=1/2")
    sizes = split_names(tmp_path / "half")
    assert sizes["test"] == 1
    assert 40 <= sizes["one"] <= 80
    assert sizes["one"] + sizes["two"] == 120


def test_several_labels_and_none(tf: Any, tmp_path: Folder) -> None:
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
    found = by_name(records(tf, out))
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
    assert set(by_name(records(tf, out, "test"))) == {"c.png", composed}


def test_boxes(tf: Any, tmp_path: Folder) -> None:
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
    found = by_name(records(tf, out), "image/filename")
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


def test_compressed_manifests(tf: Any, tmp_path: Folder) -> None:
    """A packed manifest, rows shuffled, gives every image in its order."""
    names = [f"{i:02}.png" for i in range(20)]
    images = write_images(tmp_path, names)
    rows = [["TRAIN", name, f"l{i % 4}"] for i, name in enumerate(names)] * 2
    random.Random(1).shuffle(rows)
    text = "".join(f"{','.join(row)}\n" for row in rows)
    source = tmp_path / "m.csv.gz"
    source.write_bytes(gzip.compress(text.encode()))
    convert(source, tmp_path / "out", "--no-shuffle")
    found = records(tf, tmp_path / "out")
    assert {n: row["image"][0] for n, row in by_name(found).items()} == images
    order = list(dict.fromkeys(row[1] for row in rows))
    assert [row["filename"][0].decode() for row in found] == order
    convert(source, tmp_path / "some", "--limit", 7, "--no-shuffle")
    some = records(tf, tmp_path / "some")
    assert [row["filename"][0].decode() for row in some] == order[:7]


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_metadata_in_folders_of_splits(tf: Any, tmp_path: Folder, kind: str) -> None:
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
    assert split_names(out) == {"train": 2, "validation": 3, "test": 4}
    assert classes(out, "animal") == ["ape", "bee", "cow"]
    for folder, split in splits.items():
        found = by_name(records(tf, out, split))
        assert {n: row["image"][0] for n, row in found.items()} == images[folder]
    (first,) = [r for n, r in by_name(records(tf, out, "test")).items() if n == "0.png"]
    assert first["animal"] == [classes(out, "animal").index("cow")]


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_metadata_of_several_images_a_row(tf: Any, tmp_path: Folder, kind: str) -> None:
    """file_name and X_file_name are images, other columns features of their types."""
    left = write_images(tmp_path / "data", [f"l/{i}.jpg" for i in range(3)])
    for i in range(3):
        path = tmp_path / f"data/r/{i}.png"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(image_bytes(50 + i, size=(9, 7)))
    rows = [
        {
            "file_name": f"l/{i}.jpg",
            "mask_file_name": f"r/{i}.png",
            "text": f"글 {i}, and",
            "n": i,
            "score": i / 4,
        }
        for i in range(3)
    ]
    write_metadata(tmp_path / f"data/metadata.{kind}", rows)
    out = tmp_path / "out"
    convert(tmp_path / "data", out)
    found = {row["n"][0]: row for row in records(tf, out)}
    features = {f["name"]: f["kind"] for f in dataset(out)["features"]}
    pictures = [name for name, kind in features.items() if kind == "image"]
    assert pictures == ["file_name", "mask"]
    for i in range(3):
        assert found[i]["file_name"] == [left[f"l/{i}.jpg"]]
        assert found[i]["mask"] == [image_bytes(50 + i, size=(9, 7))]
        assert found[i]["mask/height"] == [7]
        assert found[i]["mask/width"] == [9]
        assert found[i]["file_name/height"] == [4]
        assert found[i]["text"] == [f"글 {i}, and".encode()]
        assert found[i]["score"] == [i / 4]
    assert account(out)["skipped"] == {}


def test_columns_named_as_what_is_read_off_images(tf: Any, tmp_path: Folder) -> None:
    """The table's own height is kept, and its own `image` is not an image's name."""
    images = write_images(tmp_path, ["a.png"])
    rows = [{"file_name": "a.png", "height": 99, "image": "words", "filename": "x"}]
    write_metadata(tmp_path / "list.csv", rows)
    convert(tmp_path / "list.csv", tmp_path / "out")
    (row,) = records(tf, tmp_path / "out")
    assert row["file_name"] == [images["a.png"]]
    assert row["height"] == [99]
    assert row["image"] == [b"words"]
    assert row["filename"] == [b"x"]
    assert row["file_name/height"] == [4]
    write_metadata(tmp_path / "short.csv", [{"file_name": "a.png", "height": 99}])
    convert(tmp_path / "short.csv", tmp_path / "short")
    (row,) = records(tf, tmp_path / "short")
    assert row["image"] == [images["a.png"]]
    assert (row["height"], row["width"]) == ([99], [6])


def test_hugging_face_parquet(tf: Any, tmp_path: Folder) -> None:
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
    assert split_names(out) == {"train": 4, "test": 2}
    train = sorted((r["label"][0], r["image"][0]) for r in records(tf, out, "train"))
    assert train == sorted((i % 3, pictures[i]) for i in range(4))
    assert {r["image"][0] for r in records(tf, out, "test")} == {
        pictures[4],
        pictures[5],
    }


def test_hugging_face_paths_that_were_not_embedded(tf: Any, tmp_path: Folder) -> None:
    """If all `bytes` are null, `path` names the image."""
    images = write_images(tmp_path, ["a.png", "b.jpg"])
    column = image_struct([(None, name) for name in images])
    pq.write_table(pa.table({"image": column}), tmp_path / "t.parquet")
    convert(tmp_path / "t.parquet", tmp_path / "out")
    found = [row["image"][0] for row in records(tf, tmp_path / "out")]
    assert sorted(found) == sorted(images.values())


def test_paths_of_every_kind(tf: Any, tmp_path: Folder) -> None:
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
    found = records(tf, tmp_path / "out")
    assert len(found) == 9
    for row in found:
        assert row["image"] == [images[names[row["n"][0]]]]


def test_names_that_are_composed_otherwise(tf: Any, tmp_path: Folder) -> None:
    """A table's é finds the file's é, however each is written."""
    composed = unicodedata.normalize("NFC", "cafés/é.png")
    decomposed = unicodedata.normalize("NFD", "naïve/ö.png")
    images = write_images(tmp_path, [composed, decomposed])
    rows = [
        {"file_name": unicodedata.normalize("NFD", composed), "n": 1},
        {"file_name": unicodedata.normalize("NFC", decomposed), "n": 2},
    ]
    write_metadata(tmp_path / "metadata.csv", rows)
    convert(tmp_path / "metadata.csv", tmp_path / "out")
    found = {row["n"][0]: row["image"][0] for row in records(tf, tmp_path / "out")}
    assert found == {1: images[composed], 2: images[decomposed]}


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_images_that_are_not_there(tf: Any, tmp_path: Folder, kind: str) -> None:
    """A missing file, no path, a folder, no image: rejects with row and path."""
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "text.png").write_text("no image")
    write_images(tmp_path, ["ok.png"])
    paths = ["ok.png", "gone.png", "", "folder.png", "text.png", "file:///gone.png"]
    rows = [{"file_name": path, "n": i} for i, path in enumerate(paths)]
    write_metadata(tmp_path / f"list.{kind}", rows)
    out = tmp_path / "out"
    convert(tmp_path / f"list.{kind}", out, "--image-columns", "file_name", *TOLERANT)
    found = {r["row"]: r for r in rejects(out)}
    assert {row: r["reason"] for row, r in found.items()} == {
        2: "unreadable",
        3: "missing_value",
        4: "unreadable",
        5: "not_an_image",
        6: "unreadable",
    }
    assert "gone.png" in found[2]["message"]
    assert "text.png" in found[5]["message"]
    assert [r["n"] for r in records(tf, out)] == [[0]]


def test_image_columns_by_name(tf: Any, tmp_path: Folder) -> None:
    """--image-columns takes any column, and no other; an unknown one is an error."""
    images = write_images(tmp_path, ["a.png", "b.png"])
    rows = [
        {"picture": "a.png", "image_path": "b.png", "n": 1},
        {"picture": "b.png", "image_path": "a.png", "n": 2},
    ]
    write_metadata(tmp_path / "list.csv", rows)
    out = tmp_path / "out"
    convert(tmp_path / "list.csv", out, "--image-columns", "picture")
    for row in records(tf, out):
        name = "a.png" if row["n"] == [1] else "b.png"
        assert row["image"] == [images[name]]
        assert row["image_path"] == [b"b.png" if name == "a.png" else b"a.png"]
    message = refused(
        2, tmp_path / "list.csv", tmp_path / "x", "--image-columns", "pictures"
    )
    assert "picture" in message


def test_images_as_bytes(tf: Any, tmp_path: Folder) -> None:
    """Binary columns that start as images do are images, beside paths and bytes."""
    images = write_images(tmp_path, ["a.png", "b.jpg"])
    table = pa.table(
        {
            "photo": pa.array([image_bytes(7, "JPEG"), image_bytes(8)], pa.binary()),
            "file_name": pa.array(["a.png", "b.jpg"]),
            "blob": pa.array([b"\x00\x01", b"\xff"], pa.binary()),
            "n": pa.array([0, 1], pa.int32()),
        }
    )
    pq.write_table(table, tmp_path / "list.parquet")
    convert(tmp_path / "list.parquet", tmp_path / "out")
    found = {row["n"][0]: row for row in records(tf, tmp_path / "out")}
    assert found[0]["photo"] == [image_bytes(7, "JPEG")]
    assert found[1]["photo"] == [image_bytes(8)]
    assert found[0]["file_name"] == [images["a.png"]]
    assert found[1]["file_name"] == [images["b.jpg"]]
    assert found[1]["blob"] == [b"\xff"]
