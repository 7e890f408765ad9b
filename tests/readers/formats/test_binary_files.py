"""CIFAR files, as TensorFlow reads their records."""

import pathlib

import numpy as np
import pytest

from tests.readers.parsed import read_with_tensorflow
from tests.support.format_sources import CIFAR_NAMES, cifar10, hwc
from tests.support.runs import convert

Folder = pathlib.Path


@pytest.mark.parametrize("encode", ["raw", "png"])
def test_cifar10(tmp_path: Folder, encode: str) -> None:
    """TensorFlow reads the arrays that NumPy transposes to, raw and as PNG."""
    tf = pytest.importorskip("tensorflow")
    made = cifar10(tmp_path / "in")
    out = tmp_path / "out"
    convert(tmp_path / "in", out, "--no-shuffle", "--encode", encode)
    train = np.concatenate([made["data_batch_1"], made["data_batch_2"]])
    for split, wanted in {"train": train, "test": made["test_batch"]}.items():
        found = read_with_tensorflow(out, {"image": "string", "label": "int64"}, split)
        assert [row["label"] for row in found] == wanted[:, 0].tolist()
        for row, pixels in zip(found, hwc(wanted), strict=True):
            if encode == "png":
                image = tf.io.decode_image(row["image"]).numpy()
            else:
                flat = tf.io.decode_raw(row["image"], tf.uint8).numpy()
                image = flat.reshape(32, 32, 3)
            assert np.array_equal(image, pixels)
    assert (out / "label.labels.txt").read_text().split() == CIFAR_NAMES
