"""Images as TensorFlow decodes them."""

import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np


def tensorflow_shape(data: bytes) -> tuple[int, ...] | None:
    """The shape that both ways of decoding agree on, or None if one refuses."""
    import tensorflow as tf

    shapes = []
    for options in ({}, {"expand_animations": False}):
        try:
            shapes.append(tuple(tf.io.decode_image(data, **options).shape))
        except tf.errors.InvalidArgumentError:
            return None
    assert shapes[0] == shapes[1]
    return shapes[0]


def drawn_pixels(
    draw: Callable[[Any, str], None], batch: Any, folder: pathlib.Path
) -> Any:
    """Which pixels of each image the `draw` of a printed program changes."""
    import tensorflow as tf

    draw(batch, str(folder / "drawn.png"))
    drawn = tf.io.decode_png(tf.io.read_file(str(folder / "drawn.png"))).numpy()
    images = batch["image/encoded"].numpy() * 255
    pixels = np.split(drawn.astype(np.float32), len(images), axis=1)
    return (np.abs(np.stack(pixels) - images) > 2).any(axis=3)
