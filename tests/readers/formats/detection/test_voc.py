"""Tests of `unit/formats/detection/test_voc.py` with TensorFlow."""

import pathlib

import pytest

from tests.support.detection import (
    records,
    source_of,
)
from tests.support.voc import example
from transforms.formats.detection.voc import VocReader

Folder = pathlib.Path


@pytest.fixture
def root(tmp_path: Folder) -> Folder:
    return tmp_path / "VOC2012"


def test_tensorflow_reads_the_records(root: Folder) -> None:
    """The Object Detection API's own way of parsing gives boxes, classes and images."""
    tf = pytest.importorskip("tensorflow")
    source = source_of(example(root), VocReader(), ".xml")
    parsed = tf.io.parse_example(
        records(source, root),
        {
            "image/encoded": tf.io.FixedLenFeature((), tf.string),
            "image/source_id": tf.io.FixedLenFeature((), tf.string),
            **{
                f"image/object/{name}": tf.io.RaggedFeature(kind)
                for name, kind in {
                    "bbox/xmin": tf.float32,
                    "bbox/ymin": tf.float32,
                    "bbox/xmax": tf.float32,
                    "bbox/ymax": tf.float32,
                    "class/text": tf.string,
                    "class/label": tf.int64,
                    "difficult": tf.int64,
                    "truncated": tf.int64,
                    "view": tf.string,
                }.items()
            },
        },
    )
    objects = {n[13:]: v.to_list() for n, v in parsed.items() if "/object/" in n}
    assert objects == {
        "bbox/xmin": [[0.125, 0.5078125], [], [0]],
        "bbox/ymin": [[0.25, 0], [], [0]],
        "bbox/xmax": [[0.375, 1], [], [1]],
        "bbox/ymax": [[0.75, 1], [], [0.5]],
        "class/text": [[b"dog", "고양이".encode()], [], [b"dog"]],
        "class/label": [[1, 2], [], [1]],
        "difficult": [[0, 1], [], [0]],
        "truncated": [[1, 0], [], [0]],
        "view": [[b"Left", b"Frontal"], [], [b""]],
    }
    for data in parsed["image/encoded"].numpy():
        assert tf.io.decode_jpeg(data).shape == (48, 64, 3)
