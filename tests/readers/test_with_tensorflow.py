"""TensorFlow and TFDS read every record and every value of committed datasets."""

import csv
import math
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from beam_pipeline import sample
from tests.support.outputs import dataset
from tests.support.runs import convert
from tests.support.sources import write_csv

Folder = pathlib.Path
Row = dict[str, Any]


MISSING_WORDS = {"NA", "N/A", "null", "None"}


@pytest.fixture(scope="module")
def tfds() -> Any:
    return pytest.importorskip("tensorflow_datasets")


@pytest.fixture(scope="module")
def real() -> Folder:
    """The folder of real data, for those who have it."""
    folder = os.environ.get("BEAM_TFRECORD_TEST_DATA")
    if not folder:
        pytest.skip("BEAM_TFRECORD_TEST_DATA is not set")
    return pathlib.Path(folder)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    folder = tmp_path_factory.mktemp("source") / "photos"
    sample.write_photos(folder)
    return folder


@pytest.fixture(scope="module")
def holes(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """A table of every kind, with missing cells in every column but the first."""
    lines = [
        ",".join(
            (
                str(number),
                str(number - 50) if number % 3 else "",
                f"{number / 7:.6f}" if number % 4 else "NA",
                ("TRUE", "false")[number % 2] if number % 5 else "",
                f'"text ""{number}"", 글"' if number % 6 else "",
                ("red", "green", "NA")[number % 3] if number % 7 else "",
            )
        )
        for number in range(200)
    ]
    path = tmp_path_factory.mktemp("source") / "holes.csv"
    return write_csv(path, "id,int,float,flag,text,colour", lines)


def files(out: Folder) -> list[str]:
    return [
        str(out / shard["file"])
        for facts in dataset(out)["splits"]
        for shard in facts["shards"]
    ]


def examples(tf: Any, out: Folder) -> list[Row]:
    """Returns every record of a dataset, parsed by TensorFlow's own message."""
    found = []
    for record in tf.data.TFRecordDataset(files(out)):
        row = {}
        message = tf.train.Example.FromString(record.numpy())
        for name, feature in message.features.feature.items():
            (value,) = getattr(feature, feature.WhichOneof("kind")).value
            row[name] = value
        found.append(row)
    return found


def expected(path: Folder, out: Folder) -> list[Row]:
    """Returns the rows of a table as the kinds of the dataset's features say.

    An independent reading: the csv module and Python's own numbers. It cannot tell
    "" from a blank cell, so the tables here hold no quoted empty text.
    """
    features = dataset(out)["features"]
    with path.open(newline="", encoding="utf-8") as file:
        return [
            {
                feature["name"]: value
                for feature in features
                if (value := cell(row[feature["name"]], feature)) is not None
            }
            for row in csv.DictReader(file)
        ]


def cell(text: str, feature: Mapping[str, Any]) -> Any:
    kind = feature["kind"]
    if text == "" or (kind in ("int64", "float", "bool") and text in MISSING_WORDS):
        return None
    if kind == "int64":
        return int(text)
    if kind == "float":
        return float(np.float32(text))
    if kind == "bool":
        return int({"true": True, "false": False}[text.lower()])
    if kind == "label":
        return feature["classes"].index(text)
    return text.encode()


def by_repr(rows: list[Row]) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in rows)


def tfds_rows(tfds: Any, out: Folder) -> dict[str, list[Row]]:
    """Returns split -> rows as TFDS yields them, without decoding images."""
    builder = tfds.builder_from_directory(str(out))
    skip = {
        name: tfds.decode.SkipDecoding()
        for name, feature in builder.info.features.items()
        if isinstance(feature, tfds.features.Image)
    }
    return {
        split: [
            {name: value.numpy() for name, value in row.items()}
            for row in builder.as_dataset(split=split, decoders=skip)
        ]
        for split in builder.info.splits
    }


def test_every_value_of_a_table_with_holes(
    tf: Any, holes: Folder, tmp_path: Folder
) -> None:
    """Values are the table's, and what is missing there has no key."""
    out = tmp_path / "out"
    convert(holes, out, "--label-column", "colour", "--splits", "a=1,b=1")
    assert {f["name"]: f["kind"] for f in dataset(out)["features"]} == {
        "id": "int64",
        "int": "int64",
        "float": "float",
        "flag": "bool",
        "text": "text",
        "colour": "label",
    }
    assert by_repr(examples(tf, out)) == by_repr(expected(holes, out))


def test_the_tutorials_description(tf: Any, photos: Folder, tmp_path: Folder) -> None:
    """The tutorial's own reader takes what --preset tutorial writes (W5)."""
    convert(photos, tmp_path / "out", "--preset", "tutorial")
    description = {
        "height": tf.io.FixedLenFeature([], tf.int64),
        "width": tf.io.FixedLenFeature([], tf.int64),
        "depth": tf.io.FixedLenFeature([], tf.int64),
        "label": tf.io.FixedLenFeature([], tf.int64),
        "image_raw": tf.io.FixedLenFeature([], tf.string),
    }
    data = tf.data.TFRecordDataset(files(tmp_path / "out"))
    parsed = [tf.io.parse_single_example(record, description) for record in data]
    stored = {row["image_raw"].numpy() for row in parsed}
    assert stored == {path.read_bytes() for path in photos.rglob("*.*")}


def test_images_of_every_split(tfds: Any, photos: Folder, tmp_path: Folder) -> None:
    """Every image, with the name of its label, and decoded to its shape."""
    convert(photos, tmp_path / "out", "--shards", 2)
    found = tfds_rows(tfds, tmp_path / "out")
    builder = tfds.builder_from_directory(str(tmp_path / "out"))
    names = builder.info.features["label"].names
    assert names == ["circle", "square", "triangle"]
    assert {k: len(v) for k, v in found.items()} == sample.IMAGES_PER_SPLIT
    for rows in found.values():
        for row in rows:
            name = row["filename"].decode()
            assert row["image"] == (photos / name).read_bytes()
            assert names[row["label"]] == name.split("/")[1]
    for row in builder.as_dataset(split="test"):
        shape = (row["height"], row["width"], row["depth"])
        assert row["image"].shape == tuple(int(n) for n in shape)


@pytest.mark.stress
class TestRealData:
    def test_clothing(self, tf: Any, tfds: Any, real: Folder, tmp_path: Folder) -> None:
        """Every photograph, byte for byte, through both readers (W12)."""
        convert(real / "clothing", tmp_path / "out")
        paths = list((real / "clothing").rglob("*.jpg"))
        found = examples(tf, tmp_path / "out")
        assert len(found) == len(paths) > 1000
        for row in found:
            path = real / "clothing" / row["filename"].decode()
            assert row["image"] == path.read_bytes()
            shape = tf.io.decode_jpeg(row["image"]).shape
            assert shape == (row["height"], row["width"], row["depth"])
        read = tfds_rows(tfds, tmp_path / "out")
        assert {split: len(rows) for split, rows in read.items()} == {
            split: len(list((real / "clothing" / split).rglob("*.jpg")))
            for split in ("train", "validation", "test")
        }

    @pytest.mark.parametrize(
        ("name", "label"),
        [
            ("penguins", "species"),
            ("penguins", "sex"),
            ("titanic", "alive"),
            ("titanic", "deck"),
            ("taxis", "payment"),
        ],
    )
    def test_tables(
        self, name: str, label: str, tf: Any, tfds: Any, real: Folder, tmp_path: Folder
    ) -> None:
        """Every row of real tables, and every value, through both readers."""
        path = real / "tabular" / f"{name}.csv"
        out = tmp_path / "out"
        convert(path, out, "--label-column", label, "--splits", "train=0.9,test=0.1")
        wanted = expected(path, out)
        assert by_repr(examples(tf, out)) == by_repr(wanted)
        read = [row for rows in tfds_rows(tfds, out).values() for row in rows]
        assert len(read) == len(wanted)
        for feature in dataset(out)["features"]:
            values = [row[feature["name"]] for row in wanted if feature["name"] in row]
            assert len(values) == feature["present"]
            if feature["kind"] == "float":
                seen = sum(float(row[feature["name"]]) for row in read)
                lowest = float(np.finfo(np.float32).min)
                absent = (len(wanted) - len(values)) * lowest
                assert math.isclose(seen, sum(values) + absent, rel_tol=1e-6)
