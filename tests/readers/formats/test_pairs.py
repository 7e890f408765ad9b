"""Masks of classes and of objects, as TensorFlow's own readers decode them."""

import pathlib
from typing import Any

import numpy as np
import pytest

from tests.readers.decoded import drawn_pixels
from tests.support.masks import numbers, write_mask, write_pairs, write_photo
from tests.support.outputs import payloads
from tests.support.runs import command, convert

Folder = pathlib.Path
MASK = "image/segmentation/class/encoded"


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
    # As DeepLab parses it; TF-Vision's is the same but for names and formats.
    specification = {
        "image/encoded": tf.io.FixedLenFeature((), tf.string, ""),
        "image/filename": tf.io.FixedLenFeature((), tf.string, ""),
        "image/format": tf.io.FixedLenFeature((), tf.string, "jpeg"),
        "image/height": tf.io.FixedLenFeature((), tf.int64, 0),
        "image/width": tf.io.FixedLenFeature((), tf.int64, 0),
        MASK: tf.io.FixedLenFeature((), tf.string, ""),
        "image/segmentation/class/format": tf.io.FixedLenFeature((), tf.string, "png"),
    }
    found = 0
    for payload in payloads(tmp_path / "out"):
        row = tf.io.parse_single_example(payload, specification)
        assert tf.io.decode_image(row["image/encoded"], channels=3).shape == (20, 40, 3)
        assert row["image/filename"] != ""
        label = tf.io.decode_image(row[MASK], channels=1, expand_animations=False)
        label = tf.reshape(label, (row["image/height"], row["image/width"]))
        np.testing.assert_array_equal(label.numpy(), numbers(0, 1, 15))
        found += 1
    assert found == 4
    tfds = pytest.importorskip("tensorflow_datasets")
    for row in tfds.builder_from_directory(str(tmp_path / "out")).as_dataset("train"):
        np.testing.assert_array_equal(row[MASK].numpy()[..., 0], numbers(0, 1, 15))


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
    drawn = drawn_pixels(names["draw"], batch, tmp_path)
    np.testing.assert_array_equal(drawn, batch[MASK][..., 0].numpy() > 0)
