"""TensorFlow Datasets: `builder_from_directory`."""

from collections.abc import Iterator
from typing import Any

import tensorflow_datasets as tfds

from tests.opens_in.report import report


def rows(folder: str, names: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    builder = tfds.builder_from_directory(folder)
    as_stored = {"image": tfds.decode.SkipDecoding()} if "image" in names else None
    dataset = builder.as_dataset(split="train", decoders=as_stored)
    assert len(dataset) == builder.info.splits["train"].num_examples
    yield from tfds.as_numpy(dataset)


report(rows, "tensorflow-datasets")
