"""TFX: `TFExampleRecord` of tfx_bsl under Beam, with `schema.pbtxt`."""

import glob
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx_bsl.public import tfxio

from tests.opens_in.report import GATHERED, gather, report


def rows(folder: str, names: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    with open(f"{folder}/schema.pbtxt") as file:
        schema = text_format.Parse(file.read(), schema_pb2.Schema())
    source = tfxio.TFExampleRecord(
        glob.glob(f"{folder}/*-train.tfrecord-*"),
        schema=schema,
        telemetry_descriptors=["test"],
    )
    GATHERED.clear()
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        _ = pipeline | source.BeamSource() | beam.Map(gather)
    for batch in GATHERED:
        for row in batch.to_pylist():
            yield {name: (row[name] or [None])[0] for name in names}


report(rows, "tfx-bsl", "apache-beam")
