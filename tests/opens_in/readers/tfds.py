"""TensorFlow Datasets, as OPENED_BY says: ROOT/NAME/1.0.0 by its name or its folder."""

import os
from collections.abc import Iterator
from typing import Any

import tensorflow_datasets as tfds

from tests.opens_in.report import report


def rows(folder: str, names: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    as_stored = {"image": tfds.decode.SkipDecoding()} if "image" in names else None
    if os.environ["OPENED_BY"] == "name":
        root, name = os.path.split(os.path.dirname(folder))
        dataset = tfds.load(name, data_dir=root, split="train", decoders=as_stored)
    else:
        builder = tfds.builder_from_directory(folder)
        dataset = builder.as_dataset(split="train", decoders=as_stored)
        assert len(dataset) == builder.info.splits["train"].num_examples
    yield from tfds.as_numpy(dataset)


report(rows, "tensorflow-datasets")
