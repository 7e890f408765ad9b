"""TensorFlow: `tf.data` over the shards."""

import glob
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from tests.opens_in.report import report

_FEATURES = {
    "image": tf.io.FixedLenFeature([], tf.string),
    "label": tf.io.FixedLenFeature([], tf.int64),
    "filename": tf.io.FixedLenFeature([], tf.string),
    "height": tf.io.FixedLenFeature([], tf.int64),
    "id": tf.io.FixedLenFeature([], tf.int64),
    "age": tf.io.FixedLenFeature([], tf.int64, -1),
    "weight": tf.io.FixedLenFeature([], tf.float32, float("nan")),
    "note": tf.io.FixedLenFeature([], tf.string, ""),
    "animal": tf.io.FixedLenFeature([], tf.int64),
}


def rows(folder: str, names: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    description = {name: _FEATURES[name] for name in names}
    files = sorted(glob.glob(f"{folder}/*-train.tfrecord-*"))
    for record in tf.data.TFRecordDataset(files):
        row = tf.io.parse_single_example(record, description)
        yield {name: value.numpy() for name, value in row.items()}


report(rows, "tensorflow")
