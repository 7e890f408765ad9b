"""Boxes, key points and masks under the specifications of TensorFlow's own readers."""

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
MASK = "image/object/mask"


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
        "image/class/text": many(text),
        "image/class/label": many(number),
        "image/class/confidence": many(tf.float32),
        "image/neg_category_ids": many(number),
        "image/not_exhaustive_category_ids": many(number),
        **{f"image/object/bbox/{side}": many(tf.float32) for side in SIDES},
        "image/object/class/label": many(number),
        "image/object/class/text": many(text),
        "image/object/area": many(tf.float32),
        "image/object/is_crowd": many(number),
        "image/object/difficult": many(number),
        "image/object/group_of": many(number),
        "image/object/weight": many(tf.float32),
        # With `load_instance_masks` and `instance_mask_type` PNG_MASKS.
        MASK: many(text),
        f"{MASK}/weight": many(tf.float32),
        # With `num_keypoints`.
        "image/object/keypoint/x": many(tf.float32),
        "image/object/keypoint/y": many(tf.float32),
        "image/object/keypoint/visibility": many(number),
    }


def dense(row: dict[str, Any]) -> dict[str, Any]:
    """Returns a row with its lists as the readers have them."""
    import tensorflow as tf

    lists = {k: v for k, v in row.items() if isinstance(v, tf.SparseTensor)}
    return row | {name: tf.sparse.to_dense(v) for name, v in lists.items()}


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
    row = dense(tf.io.parse_single_example(record, specification(tf)))
    assert tf.io.decode_image(row["image/encoded"]).shape == (20, 40, 3)
    sides = [row[f"image/object/bbox/{side}"] for side in SIDES]
    assert tf.stack(sides, axis=1).numpy().tolist() == [[0.25, 0.25, 0.75, 0.75]] * 2
    assert row["image/object/class/text"].numpy().tolist() == [b"cat"] * 2
    points = [row[f"image/object/keypoint/{axis}"] for axis in "yx"]
    pairs = tf.reshape(tf.stack(points, axis=1), [-1, 2, 2]).numpy().tolist()
    assert pairs == [[float32(0.4, 0.4), [0, 0]], [[0, 0], [0, 0]]]
    seen = row["image/object/keypoint/visibility"].numpy().tolist()
    assert seen == [2, 0, 0, 0]


def write_outlined(root: Folder, layout: str) -> Folder:
    """Writes an image with the outline of one object, and one without objects."""
    if layout == "coco":
        outline = [[10, 5, 30, 5, 30, 15, 10, 15]]
        points = {"keypoints": [2, 2, 2, 0, 0, 0], "num_keypoints": 1}
        things = box(1, 1, [10, 5, 20, 10], segmentation=outline, **points)
        images = [image(n, width=40, height=20) for n in (1, 2)]
        return tree(root, coco(images, [things]))
    (root / "labels").mkdir(parents=True)
    outlines = {"1": "0 .25 .25 .75 .25 .75 .75 .25 .75\n", "2": ""}
    for name, line in outlines.items():
        write_image(root / f"images/{name}.jpg", (40, 20))
        (root / f"labels/{name}.txt").write_text(line)
    (root / "data.yaml").write_text("train: images\nnames: [person]\n")
    return root


def vision_specification(tf: Any) -> dict[str, Any]:
    """Returns the features of `TfExampleDecoder` in official/vision/dataloaders."""
    lists = ("bbox/{}", "class/label", "area", "is_crowd", "mask")
    keys = {f"image/object/{key.format(side)}" for key in lists for side in SIDES}
    one = tf.io.FixedLenFeature
    return {
        "image/encoded": one((), tf.string),
        "image/source_id": one((), tf.string),
        "image/height": one((), tf.int64, -1),
        "image/width": one((), tf.int64, -1),
        **{key: value for key, value in specification(tf).items() if key in keys},
    }


@pytest.mark.parametrize("reader", ["object detection API", "TF-Vision"])
@pytest.mark.parametrize("layout", ["coco", "yolo"])
def test_instance_masks(layout: str, reader: str, tmp_path: Folder, tf: Any) -> None:
    """Both decode a mask an object, of the image's size, and none without objects."""
    is_vision = reader == "TF-Vision"
    features = (vision_specification if is_vision else specification)(tf)
    decode = tf.io.decode_png if is_vision else tf.io.decode_image
    source = write_outlined(tmp_path / "in", layout)
    convert(source, tmp_path / "out", "--masks", "all")
    found = {}
    for record in payloads(tmp_path / "out"):
        row = dense(tf.io.parse_single_example(record, features))
        height, width = row["image/height"], row["image/width"]
        sides = [row[f"image/object/bbox/{side}"] for side in SIDES]
        masks = [tf.squeeze(decode(png, channels=1), axis=2) for png in row[MASK]]
        assert all(mask.shape == (height, width) == (20, 40) for mask in masks)
        # Where a source has none, areas are those of boxes, and nothing is a crowd.
        assert len(row["image/object/area"]) in (0, len(masks))
        assert not any(row["image/object/is_crowd"])
        found[int(row["image/source_id"].numpy().removesuffix(b".jpg"))] = (
            tf.stack(sides, axis=1).numpy().tolist(),
            row["image/object/class/label"].numpy().tolist(),
            [np.argwhere(mask).tolist() for mask in masks],
        )
    pixels = [[y, x] for y in range(5, 15) for x in range(10, 30)]
    assert found[1] == ([[0.25, 0.25, 0.75, 0.75]], [1], [pixels])
    assert found[2] == ([], [], [])


def test_the_printed_program_draws(tmp_path: Folder, tf: Any) -> None:
    """Masks, boxes and points are on the image, nothing is on one without objects."""
    source = write_outlined(tmp_path / "in", "coco")
    convert(source, tmp_path / "out", "--masks", "all")
    names: dict[str, Any] = {"__name__": "printed"}
    exec(command("code", tmp_path / "out", "--as", "tensorflow").out, names)
    batch = next(iter(names["read"]("train").map(names["prepare"]).ragged_batch(2)))
    wanted = np.zeros((2, 40, 40), bool)
    at = batch["image/source_id"].numpy().tolist().index(b"1")
    wanted[at, 9:30, 9:30] = wanted[at, 3:5, 1:3] = True
    np.testing.assert_array_equal(drawn_pixels(names["draw"], batch, tmp_path), wanted)
