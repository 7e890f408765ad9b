"""Boxes and key points under the specification of the Object Detection API."""

import pathlib
from typing import Any

import numpy as np
import pytest

from tests.readers.decoded import drawn_pixels
from tests.support.coco import box, coco, image, tree
from tests.support.detection import float32, write_image
from tests.support.outputs import payloads
from tests.support.runs import command, convert

Folder = pathlib.Path
SIDES = ("ymin", "xmin", "ymax", "xmax")


def specification(tf: Any) -> dict[str, Any]:
    """Returns the features of `TfExampleDecoder` in tensorflow/models."""
    text, number, many = tf.string, tf.int64, tf.io.VarLenFeature
    one = tf.io.FixedLenFeature
    return {
        "image/encoded": one((), text, default_value=""),
        "image/format": one((), text, default_value="jpeg"),
        "image/filename": one((), text, default_value=""),
        "image/key/sha256": one((), text, default_value=""),
        "image/source_id": one((), text, default_value=""),
        "image/height": one((), number, default_value=1),
        "image/width": one((), number, default_value=1),
        **{f"image/object/bbox/{side}": many(tf.float32) for side in SIDES},
        "image/object/class/label": many(number),
        "image/object/class/text": many(text),
        "image/object/area": many(tf.float32),
        "image/object/is_crowd": many(number),
        "image/object/difficult": many(number),
        "image/object/group_of": many(number),
        "image/object/keypoint/x": many(tf.float32),
        "image/object/keypoint/y": many(tf.float32),
        "image/object/keypoint/visibility": many(number),
    }


def test_object_detection_api(tmp_path: Folder) -> None:
    """Its decoder has boxes as y, x, y, x, classes, and points as objects and y, x."""
    tf = pytest.importorskip("tensorflow")
    root = tmp_path / "in"
    write_image(root / "images/a.jpg", (40, 20))
    (root / "labels").mkdir()
    lines = "0 .5 .5 .5 .5 .4 .4 2 .9 .9 0\n0 .5 .5 .5 .5\n"
    (root / "labels/a.txt").write_text(lines)
    config = "train: images\nnames: [cat]\nkpt_shape: [2, 3]\n"
    (root / "data.yaml").write_text(config)
    convert(root, tmp_path / "out")
    (record,) = payloads(tmp_path / "out")
    row = tf.io.parse_single_example(record, specification(tf))
    lists = {k: v for k, v in row.items() if isinstance(v, tf.SparseTensor)}
    row |= {name: tf.sparse.to_dense(v) for name, v in lists.items()}
    assert tf.io.decode_image(row["image/encoded"]).shape == (20, 40, 3)
    sides = [row[f"image/object/bbox/{side}"] for side in SIDES]
    assert tf.stack(sides, axis=1).numpy().tolist() == [[0.25, 0.25, 0.75, 0.75]] * 2
    assert row["image/object/class/text"].numpy().tolist() == [b"cat"] * 2
    points = [row[f"image/object/keypoint/{axis}"] for axis in "yx"]
    pairs = tf.reshape(tf.stack(points, axis=1), [-1, 2, 2]).numpy().tolist()
    assert pairs == [[float32(0.4, 0.4), [0, 0]], [[0, 0], [0, 0]]]
    seen = row["image/object/keypoint/visibility"].numpy().tolist()
    assert seen == [2, 0, 0, 0]


def test_the_printed_program_draws(tmp_path: Folder, tf: Any) -> None:
    """Masks, boxes and points are on the image, nothing is on one without objects."""
    outline = [[10, 5, 30, 5, 30, 15, 10, 15]]
    points = {"keypoints": [2, 2, 2, 0, 0, 0], "num_keypoints": 1}
    things = box(1, 1, [10, 5, 20, 10], segmentation=outline, **points)
    images = [image(n, width=40, height=20) for n in (1, 2)]
    convert(
        tree(tmp_path / "in", coco(images, [things])),
        tmp_path / "out",
        "--masks",
        "all",
    )
    names: dict[str, Any] = {"__name__": "printed"}
    exec(command("code", tmp_path / "out", "--as", "tensorflow").out, names)
    batch = next(iter(names["read"]("train").map(names["prepare"]).ragged_batch(2)))
    wanted = np.zeros((2, 40, 40), bool)
    at = batch["image/source_id"].numpy().tolist().index(b"1")
    wanted[at, 9:30, 9:30] = wanted[at, 3:5, 1:3] = True
    np.testing.assert_array_equal(drawn_pixels(names["draw"], batch, tmp_path), wanted)
