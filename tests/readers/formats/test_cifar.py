"""Tests of `unit/formats/test_cifar.py` with TensorFlow."""

import io
import os
import pathlib

import numpy as np
import pytest
from PIL import Image

from tests.support.cifar import listed, pixels_of, read_all, rows_of
from tests.support.images import check_image
from transforms.core.image.check import ImageInfo
from transforms.core.schema import Kind
from transforms.formats.binary import Cifar10Reader


@pytest.fixture
def cifar10() -> pathlib.Path:
    """The real files, of which there are two."""
    folder = os.environ.get("BEAM_TFRECORD_TEST_DATA")
    if not folder:
        pytest.skip("BEAM_TFRECORD_TEST_DATA is not set")
    return pathlib.Path(folder, "cifar-10-batches-bin")


def test_real_images_as_png(cifar10: pathlib.Path) -> None:
    """PNG-encoded, Pillow and TensorFlow read every pixel back."""
    path = cifar10 / "test_batch.bin"
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
