"""From a folder of images to a JAX model, with Grain.

pip install . jax grain
python -m beam_pipeline.sample .
python images_to_jax.py
"""

from typing import Any

import grain
import jax
import jax.numpy as jnp
import numpy as np

import beam_tfrecord

EPOCHS = 40
Row = dict[str, Any]
Weights = dict[str, jax.Array]


def prepare(row: Row) -> Row:
    """Scales the pixels of a row to a mean of 0 and a deviation of 1."""
    pixels = np.float32(row["image"])
    return row | {"image": (pixels - pixels.mean()) / pixels.std()}


def logits(weights: Weights, images: jax.Array) -> jax.Array:
    """Returns a score for each image and class: a convolution, maxima, a sum."""
    found = jax.lax.conv_general_dilated(
        images,
        weights["kernel"],
        (2, 2),
        "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )
    found = jax.nn.relu(found)
    found = jax.lax.reduce_window(
        found, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 3, 3, 1), "VALID"
    )
    return found.reshape(len(images), -1) @ weights["matrix"]


def loss(weights: Weights, images: jax.Array, labels: jax.Array) -> jax.Array:
    """Returns the mean cross entropy."""
    scores = jax.nn.log_softmax(logits(weights, images))
    return -jnp.take_along_axis(scores, labels[:, None], axis=1).mean()


def step(weights: Weights, images: jax.Array, labels: jax.Array) -> tuple[Weights, Any]:
    """Returns better weights, and the loss before."""
    value, slopes = jax.value_and_grad(loss)(weights, images, labels)
    return jax.tree.map(lambda old, slope: old - 0.05 * slope, weights, slopes), value


def main() -> None:
    """Converts, trains and tests."""
    beam_tfrecord.convert(
        "photos", "out/grey", resize="exact:48x48", channels=1, overwrite=True
    )
    dataset = beam_tfrecord.open_dataset("out/grey", images="array")
    classes = dataset.classes["label"]
    rows = grain.MapDataset.source(dataset["train"].select(["image", "label"]))
    batches = rows.seed(1).shuffle().map(prepare).batch(12)
    print(len(rows), "images in", len(batches), "batches of an epoch")

    first, second = jax.random.split(jax.random.key(1))
    weights = {
        "kernel": jax.random.normal(first, (7, 7, 1, 16)) / 7,
        "matrix": jax.random.normal(second, (8 * 8 * 16, len(classes))) / 32,
    }
    quick_step = jax.jit(step)
    losses = []
    # Grain shuffles each epoch in another way.
    for batch in batches.repeat(EPOCHS).to_iter_dataset():
        weights, value = quick_step(weights, batch["image"], batch["label"])
        losses.append(float(value))
    ends = [np.mean(part) for part in (losses[:5], losses[-5:])]
    print(f"loss on train: {ends[0]:.2f} in the first epoch, {ends[1]:.2f} in the last")

    test = [prepare(row) for row in dataset["test"]]
    scores = logits(weights, jnp.stack([row["image"] for row in test]))
    right = jnp.argmax(scores, axis=1) == jnp.array([row["label"] for row in test])
    print(f"{right.mean():.2f} of {len(test)} test images are recognised")


if __name__ == "__main__":
    main()
