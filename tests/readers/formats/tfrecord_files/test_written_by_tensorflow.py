"""TFRecord files that TensorFlow and TFDS have written, converted again."""

import pathlib

import numpy as np
import pytest

from tests.readers.written import write_with_tfds
from tests.support.examples import Values, serialise
from tests.support.format_sources import kinds_of, sorted_messages
from tests.support.image_sources import image_bytes
from tests.support.outputs import payloads
from tests.support.runs import convert

Folder = pathlib.Path


def stored(number: int) -> bytes:
    """Returns a record; every fourth has no count."""
    values: Values = {
        "photo": ("bytes_list", [image_bytes(number)]),
        "scores": ("float_list", [number / 2] * (number % 3)),
    }
    if number % 4:
        values["count"] = ("int64_list", [number - 5])
    return serialise(values)


def test_bare_files_of_tensorflow(tmp_path: Folder) -> None:
    """Plain, gzip and zlib by content, whatever the names; records as they were."""
    tf = pytest.importorskip("tensorflow")
    root = tmp_path / "in"
    root.mkdir()
    records = [stored(number) for number in range(30)]
    for i, kind in enumerate(("", "GZIP", "ZLIB")):
        # The suffixes are wrong: compressed files have none, plain ones have .gz.
        name = f"part-{i}.tfrecord" + (".gz" if not kind else "")
        options = tf.io.TFRecordOptions(compression_type=kind)
        with tf.io.TFRecordWriter(str(root / name), options) as writer:
            for record in records[i * 10 : i * 10 + 10]:
                writer.write(record)
    convert(root, tmp_path / "out", "--shards", "2")
    assert sorted_messages(tmp_path / "out") == sorted(records)
    kinds = {name: facts["kind"] for name, facts in kinds_of(tmp_path / "out").items()}
    assert kinds == {"count": "int64", "photo": "image", "scores": "float"}
    shards = sorted((tmp_path / "out").glob("*-of-*"))
    read = tf.data.TFRecordDataset(list(map(str, shards))).as_numpy_iterator()
    assert sorted(read) == sorted(payloads(tmp_path / "out"))


def test_directory_written_by_tfds(tmp_path: Folder) -> None:
    """What TFDS has written keeps its splits, classes and images, and is read again."""
    tfds = pytest.importorskip("tensorflow_datasets")
    features = tfds.features.FeaturesDict(
        {
            "image": tfds.features.Image(shape=(9, 12, 3)),
            "label": tfds.features.ClassLabel(names=["zebra", "ant"]),
            "name": tfds.features.Text(),
        }
    )
    (tmp_path / "zoo").mkdir()
    rows = [
        {
            "image": np.full((9, 12, 3), number, np.uint8),
            "label": number % 2,
            "name": f"동물 {number}",
        }
        for number in range(9)
    ]
    write_with_tfds(tmp_path / "zoo", features, {"train": rows[:6], "test": rows[6:]})
    (tmp_path / "names.txt").write_text("ant\nzebra\n")
    names = ("--vocabulary", tmp_path / "names.txt")
    convert(tmp_path / "zoo", tmp_path / "out", *names)
    builder = tfds.builder_from_directory(str(tmp_path / "out"))
    assert builder.info.features["label"].names == ["ant", "zebra"]
    found = [
        (split, row["name"].decode(), int(row["label"]), int(row["image"][0, 0, 0]))
        for split in ("train", "test")
        for row in tfds.as_numpy(builder.as_dataset(split=split))
    ]
    wanted = [
        ("train" if i < 6 else "test", f"동물 {i}", 1 - i % 2, i) for i in range(9)
    ]
    assert sorted(found) == sorted(wanted)
