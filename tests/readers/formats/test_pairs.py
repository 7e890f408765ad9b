"""Masks of classes and of objects, as TensorFlow's own readers decode them."""

import pathlib
from typing import Any

import numpy as np
import pytest

from tests.support.coco import box, coco, image, tree
from tests.support.masks import numbers, write_mask, write_pairs, write_photo
from tests.support.outputs import payloads
from tests.support.runs import command, convert

Folder = pathlib.Path
MASK = "image/segmentation/class/encoded"


@pytest.fixture(scope="module")
def tf() -> Any:
    return pytest.importorskip("tensorflow")


def test_class_masks(tmp_path: Folder, tf: Any) -> None:
    """`decode_png(channels=1)` gives the class numbers, whatever the file was."""
    root = write_pairs(
        tmp_path / "in",
        grey=numbers(0, 1, 15),
        wide=numbers(0, 1, 15).astype(np.uint16),
        equal=np.stack([numbers(0, 1, 15)] * 3, axis=-1),
    )
    write_photo(root / "images/palette.jpg", 9)
    write_mask(root / "masks/palette.png", numbers(0, 1, 15), palette=True)
    convert(root, tmp_path / "out")
    # As DeepLab and TF-Vision parse it.
    specification = {
        "image/encoded": tf.io.FixedLenFeature((), tf.string),
        "image/filename": tf.io.FixedLenFeature((), tf.string),
        "image/format": tf.io.FixedLenFeature((), tf.string, "jpeg"),
        "image/height": tf.io.FixedLenFeature((), tf.int64, 0),
        "image/width": tf.io.FixedLenFeature((), tf.int64, 0),
        MASK: tf.io.FixedLenFeature((), tf.string, ""),
        "image/segmentation/class/format": tf.io.FixedLenFeature((), tf.string, "png"),
    }
    found = 0
    for payload in payloads(tmp_path / "out"):
        row = tf.io.parse_single_example(payload, specification)
        label = tf.io.decode_image(row[MASK], channels=1, expand_animations=False)
        label = tf.reshape(label, (row["image/height"], row["image/width"]))
        np.testing.assert_array_equal(label.numpy(), numbers(0, 1, 15))
        found += 1
    assert found == 4
    tfds = pytest.importorskip("tensorflow_datasets")
    for row in tfds.builder_from_directory(str(tmp_path / "out")).as_dataset("train"):
        np.testing.assert_array_equal(row[MASK].numpy()[..., 0], numbers(0, 1, 15))


def test_ids_from_256(tmp_path: Folder, tf: Any) -> None:
    """They are decoded with 16 bits."""
    root = write_pairs(tmp_path / "in", a=numbers(0, 1000))
    convert(root, tmp_path / "out")
    (payload,) = payloads(tmp_path / "out")
    row = tf.io.parse_single_example(
        payload, {MASK: tf.io.FixedLenFeature((), tf.string)}
    )
    label = tf.io.decode_png(row[MASK], channels=1, dtype=tf.uint16)
    np.testing.assert_array_equal(label.numpy()[..., 0], numbers(0, 1000))


def test_object_masks(tmp_path: Folder, tf: Any) -> None:
    """The Object Detection API's decoder of PNG_MASKS reads them, as pycocotools."""
    api = pytest.importorskip("pycocotools.mask")
    outlines = [
        [[8.3, 12, 24, 12.7, 24, 36, 8, 36.2]],
        [[1, 1, 60, 5, 30, 40], [40, 40, 60, 40, 60, 47]],
    ]
    boxes = [box(n + 1, 1, segmentation=each) for n, each in enumerate(outlines)]
    root = tree(tmp_path / "in", coco([image(1)], boxes))
    convert(root, tmp_path / "out", "--masks", "all")
    (payload,) = payloads(tmp_path / "out")
    row = tf.io.parse_single_example(
        payload,
        {
            "image/height": tf.io.FixedLenFeature((), tf.int64),
            "image/width": tf.io.FixedLenFeature((), tf.int64),
            "image/object/mask": tf.io.VarLenFeature(tf.string),
        },
    )

    def decode(png: Any) -> Any:
        one = tf.squeeze(tf.io.decode_image(png, expand_animations=False), axis=2)
        one.set_shape([None, None])
        return tf.cast(tf.greater(tf.cast(one, tf.float32), 0), tf.float32)

    pngs = tf.sparse.to_dense(row["image/object/mask"], default_value="")
    masks = tf.map_fn(decode, pngs, fn_output_signature=tf.float32).numpy()
    for mask, outline in zip(masks, outlines, strict=True):
        runs = api.merge(api.frPyObjects(outline, 48, 64))
        area = int(api.area(runs))
        assert mask.shape == (48, 64)
        assert mask.sum() == area
        box_of = api.toBbox(runs)
        ys, xs = np.nonzero(mask)
        assert [xs.min(), ys.min()] == box_of[:2].tolist()


@pytest.mark.parametrize("values", [(0, 1, 15), (0, 1000)])
def test_the_printed_program(
    tmp_path: Folder, values: tuple[int, ...], tf: Any
) -> None:
    """It gives batches of images and of class numbers, resized without new ones."""
    root = write_pairs(tmp_path / "in", a=numbers(*values), b=numbers(0, 1))
    convert(root, tmp_path / "out")
    program = command("schema", tmp_path / "out", "--as", "tensorflow").out
    names: dict[str, Any] = {"__name__": "printed"}
    exec(program, names)
    (batch,) = names["batches"]("train")
    assert batch["image/encoded"].shape == (2, 40, 40, 3)
    assert batch[MASK].shape == (2, 40, 40, 1)
    assert {*np.unique(batch[MASK])} == {1, *values}


def test_the_printed_program_of_objects(tmp_path: Folder, tf: Any) -> None:
    """Images have any number of masks, also none."""
    outline = [[8, 12, 24, 12, 24, 36, 8, 36]]
    boxes = [box(n, 1, segmentation=outline) for n in (1, 2)]
    tree(tmp_path / "in", coco([image(1), image(2)], boxes))
    convert(tmp_path / "in", tmp_path / "out", "--masks", "all")
    program = command("schema", tmp_path / "out", "--as", "tensorflow").out
    names: dict[str, Any] = {"__name__": "printed"}
    exec(program, names)
    (batch,) = names["batches"]("train")
    counts = batch["image/object/mask"].row_lengths().numpy().tolist()
    assert sorted(counts) == [0, 2]
