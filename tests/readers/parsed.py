"""Records as TensorFlow parses them."""

import pathlib
from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.outputs import dataset

Folder = pathlib.Path


def read_with_tensorflow(
    directory: Folder, description: Mapping[str, str], split: str
) -> list[dict[str, Any]]:
    """Returns a split as TensorFlow parses it, in the order of the shards.

    Args:
      directory: of the dataset.
      description: feature -> "int64", "string"..., "*" behind for lists.
      split: its name.
    """
    tf = pytest.importorskip("tensorflow")
    features = {
        name: tf.io.VarLenFeature(kind[:-1])
        if kind.endswith("*")
        else tf.io.FixedLenFeature([], kind)
        for name, kind in description.items()
    }
    shards = [
        str(directory / shard["file"])
        for facts in dataset(directory)["splits"]
        if facts["name"] == split
        for shard in facts["shards"]
    ]
    out = []
    for record in tf.data.TFRecordDataset(shards):
        parsed = tf.io.parse_example(record, features)
        out.append(
            {
                name: value.values.numpy().tolist()
                if isinstance(value, tf.sparse.SparseTensor)
                else value.numpy()
                for name, value in parsed.items()
            }
        )
    return out
