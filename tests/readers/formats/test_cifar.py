"""Tests of `unit/formats/test_cifar.py` with TensorFlow."""

import io

import numpy as np
import pytest
from PIL import Image

from tests.support.cifar import listed, pixels_of, read_all, real_folder, rows_of
from tests.support.images import check_image
from transforms.core.image.check import ImageInfo
from transforms.core.schema import Kind
from transforms.formats.binary import Cifar10Reader


def test_real_images_as_png() -> None:
    """PNG-encoded, Pillow and TensorFlow read every pixel back."""
    path = real_folder() / "test_batch.bin"
    records = np.fromfile(path, np.uint8).reshape(-1, 3073)
    reader = Cifar10Reader("png")
    files = rows_of(read_all(reader, listed(path), ["image"]), "image")
    assert len(files) == len(records)
    for data, wanted in zip(files, pixels_of(records), strict=True):
        with Image.open(io.BytesIO(data)) as image:
            assert np.array_equal(np.array(image), wanted)
    assert check_image(files[0], "decode") == ImageInfo("png", 32, 32, 3)
    kinds = {f.name: f.kind for f in reader.plan([listed(path)]).features}
    assert kinds["image"] is Kind.IMAGE
    assert {"height", "width", "depth"} <= set(kinds)
    tf = pytest.importorskip("tensorflow")
    for data, wanted in list(zip(files, pixels_of(records), strict=True))[:50]:
        assert np.array_equal(tf.io.decode_image(data).numpy(), wanted)
