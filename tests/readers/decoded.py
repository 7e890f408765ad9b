"""Images as TensorFlow decodes them."""


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
