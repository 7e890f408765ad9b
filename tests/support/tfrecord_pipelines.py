"""Pipelines that write and read TFRecord files."""

import functools
import operator
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from transforms.core.tfrecord.reader import TFRecordReader
from transforms.tfrecord.write import WriteTFRecords

Folder = pathlib.Path
RECORDS = [b"record %d" % number for number in range(300)]


def pipeline(*flags: str) -> beam.Pipeline:
    """Plain DirectRunner would first look for another runner on the network."""
    return beam.Pipeline(runner="FnApiRunner", options=PipelineOptions(list(flags)))


_given: list[Any] = []


def _keep(element: Any) -> None:
    # The runner is in this process, so this reaches the test.
    _given.append(element)


def given_by(*steps: Any) -> list[Any]:
    """Returns what steps give at the begin of a pipeline, in no particular order."""
    _given.clear()
    with pipeline() as p:
        functools.reduce(operator.or_, [*steps, beam.Map(_keep)], p)
    return [*_given]


def write(
    prefix: Folder | str,
    records: Iterable[Any] = RECORDS,
    *,
    flags: Sequence[str] = (),
    bundles: int = 1,
    **options: Any,
) -> None:
    """Writes the records, divided into this many bundles."""
    records = list(records)
    with pipeline(*flags) as p:
        parts = [
            p
            | f"Part {i}" >> beam.Create(records[i::bundles], reshuffle=False)
            | f"Type {i}" >> beam.Map(lambda x: x).with_output_types(Any)
            for i in range(bundles)
        ]
        parts | beam.Flatten() | WriteTFRecords(str(prefix), **options)


def contents(folder: Folder) -> dict[str, bytes]:
    """Returns every file below the folder, hidden ones too; folders end in '/'."""
    return {
        f"{path.relative_to(folder)}{'/' * path.is_dir()}": (
            b"" if path.is_dir() else path.read_bytes()
        )
        for path in sorted(folder.rglob("*"))
    }


def payloads(*paths: Folder) -> list[bytes]:
    """Returns the records of the files, without a pipeline, in sorted order."""
    assert paths
    return sorted(r for p in paths for r in TFRecordReader(p, allow_empty=True))
