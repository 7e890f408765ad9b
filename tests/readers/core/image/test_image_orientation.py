"""Tests of `unit/core/image/test_image_orientation.py` with TensorFlow."""

from typing import Any

import numpy as np
import pytest

from tests.support.prepared_images import SMALLER, oriented, prepared
from transforms.core.image.policy import ImagePolicy


@pytest.mark.parametrize("output", ["jpeg", "png"])
def test_tensorflow_reads_what_carries_a_tag(output: Any) -> None:
    """The tag changes neither shape nor pixels of what TensorFlow decodes."""
    tf = pytest.importorskip("tensorflow")
    for kind in ("JPEG", "PNG", "TIFF", "WEBP"):
        for policy in (ImagePolicy(output=output), SMALLER):
            turned = prepared(oriented(kind, 6), policy).data
            upright = prepared(oriented(kind, 1), policy).data
            np.testing.assert_array_equal(
                tf.io.decode_image(turned), tf.io.decode_image(upright)
            )
