"""Tests of `unit/core/image/test_png_encode.py` with TensorFlow."""

import numpy as np
import pytest

from tests.support.idx import noise
from tests.support.images import check_image
from transforms.core.image.formats import ImageInfo
from transforms.core.image.png_encode import encode_png


@pytest.mark.parametrize("channels", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
@pytest.mark.parametrize("sides", [(1, 1), (5, 3), (32, 32), (150, 500), (1, 70_000)])
def test_png_decodes_to_its_pixels(
    channels: int, dtype: str, sides: tuple[int, int]
) -> None:
    """TensorFlow gives back every pixel, and our own check the right facts."""
    tf = pytest.importorskip("tensorflow")
    shape = (3, *sides, channels) if channels else (3, *sides)
    for pixels in (noise(shape, dtype), noise(shape, dtype, smooth=True)):
        files = encode_png(pixels).to_pylist()
        assert len(files) == 3
        for data, wanted in zip(files, pixels, strict=True):
            found = tf.io.decode_png(data, dtype=dtype).numpy()
            assert np.array_equal(found, wanted.reshape(found.shape))
            info = ImageInfo("png", *sides, channels or 1)
            assert check_image(data, "decode") == info
