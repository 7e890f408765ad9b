"""Beam: its own `ReadFromTFRecord`, and the Example of TensorFlow."""

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import tensorflow as tf

from tests.opens_in.report import GATHERED, gather, report


def rows(folder: str, names: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    GATHERED.clear()
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        read = beam.io.ReadFromTFRecord(f"{folder}/*-train.tfrecord-*")
        _ = pipeline | read | beam.Map(gather)
    for record in GATHERED:
        features = tf.train.Example.FromString(record).features.feature
        yield {name: _first(features[name]) for name in names}


def _first(feature: Any) -> Any:
    kind = feature.WhichOneof("kind")
    return getattr(feature, kind).value[0] if kind else None


report(rows, "apache-beam")
