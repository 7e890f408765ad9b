"""Tests of `unit/formats/detection/test_coco.py` with TensorFlow."""

import pathlib

import pytest

from tests.support.coco import EXAMPLE, tree
from tests.support.detection import (
    records,
    source_of,
)
from transforms.formats.detection.coco import CocoReader

Folder = pathlib.Path


@pytest.fixture
def root(tmp_path: Folder) -> Folder:
    return tmp_path / "coco"


def test_tensorflow_reads_the_records(root: Folder) -> None:
    """The Object Detection API's own way of parsing gives boxes, classes and images."""
    tf = pytest.importorskip("tensorflow")
    source = source_of(tree(root, EXAMPLE), CocoReader(), ".json")
    varlen = {
        **{
            f"image/object/bbox/{s}": tf.float32
            for s in ("xmin", "ymin", "xmax", "ymax")
        },
        "image/object/class/text": tf.string,
        "image/object/class/label": tf.int64,
        "image/object/is_crowd": tf.int64,
        "image/object/area": tf.float32,
    }
    parsed = tf.io.parse_example(
        records(source, root),
        {
            "image/encoded": tf.io.FixedLenFeature((), tf.string),
            "image/filename": tf.io.FixedLenFeature((), tf.string, ""),
            "image/source_id": tf.io.FixedLenFeature((), tf.string, ""),
            **{name: tf.io.VarLenFeature(kind) for name, kind in varlen.items()},
        },
    )
    assert parsed["image/source_id"].numpy().tolist() == [b"9", b"2", b"7"]
    values = {
        name: [
            list(row[row != filler])
            for row in tf.sparse.to_dense(parsed[name], filler).numpy()
        ]
        for name, kind in varlen.items()
        for filler in [b"" if kind == tf.string else -1]
    }
    assert values["image/object/bbox/ymin"] == [[0], [0.125, 0.5], []]
    assert values["image/object/bbox/xmax"] == [[1], [0.375, 1], []]
    assert values["image/object/class/text"] == [[b"person"], [b"car", b"brush"], []]
    assert values["image/object/class/label"] == [[1], [3, 90], []]
    assert values["image/object/area"] == [[300.5], [300.5, 7.25], []]
    shapes = [tf.io.decode_jpeg(d).shape for d in parsed["image/encoded"].numpy()]
    assert shapes == [(48, 64, 3), (96, 64, 3), (48, 64, 3)]
