"""TensorFlow Datasets: `tfds.load` of ROOT/NAME/1.0.0 by its name."""

import os
from collections.abc import Iterator
from typing import Any

import tensorflow_datasets as tfds

from tests.opens_in.report import report


def rows(folder: str, names: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    root, name = os.path.split(os.path.dirname(folder))
    as_stored = {"image": tfds.decode.SkipDecoding()} if "image" in names else None
    dataset = tfds.load(name, data_dir=root, split="train", decoders=as_stored)
    yield from tfds.as_numpy(dataset)


report(rows, "tensorflow-datasets")
