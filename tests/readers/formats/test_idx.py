"""Tests of `unit/formats/test_idx.py` with TensorFlow."""

import pathlib

import numpy as np
import pytest

from tests.support.idx import digits, read_all, rows_of, write
from transforms.formats.binary import IdxReader


def test_png(tmp_path: pathlib.Path) -> None:
    """PNG-encoded, TensorFlow reads one channel back as it was."""
    tf = pytest.importorskip("tensorflow")
    images, labels = digits(20)
    file = write(tmp_path, images, labels)
    reader = IdxReader("png")
    for data, wanted in zip(
        rows_of(read_all(reader, file), "image"), images, strict=True
    ):
        assert np.array_equal(tf.io.decode_image(data).numpy()[..., 0], wanted)
    features = reader.plan([file]).features
    assert [f.name for f in features] == ["image", "height", "width", "depth", "label"]
    assert features[0].inline
