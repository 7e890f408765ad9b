"""Rows that a pipeline generates, written by WriteDataset or dropped.

Row i is {"id": int, "score": float, "name": text, "fresh": bool, "label": one of 5
texts}. `peers/beam_rows.py` writes the same rows. `--columns` adds floats to them, and
`--keys` ten floats of this many keys instead.
Prints the seconds from the pipeline's construction to its end as JSON.
"""

import argparse
import functools
import json
import pathlib
import random
import time
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

__all__ = ["LABELS", "arguments", "generated", "run"]

LABELS = ("cat", "dog", "chicken", "horse", "goat")
_PART_ROWS = 10_000
_KEYS_EACH = 10


def _dicts(start: int, stop: int, columns: int = 0) -> Iterator[dict[str, Any]]:
    further = [f"c{column:05d}" for column in range(columns)]
    for number in range(start, stop):
        yield {
            "id": number,
            "score": number / 7,
            "name": f"name {number}",
            "fresh": number % 3 == 0,
            "label": LABELS[number % 5],
            **{name: (number + i) / 7 for i, name in enumerate(further)},
        }


def _sparse(start: int, stop: int, keys: int) -> Iterator[dict[str, Any]]:
    for number in range(start, stop):
        chosen = random.Random(number).sample(range(keys), min(keys, _KEYS_EACH))
        yield {"label": LABELS[number % 5], **{f"k{k:05d}": k / 7 for k in chosen}}


def _batches(start: int, stop: int) -> Iterator[pa.RecordBatch]:
    numbers = np.arange(start, stop)
    words = pa.array(numbers).cast(pa.string())
    columns = {
        "id": numbers,
        "score": numbers / 7,
        "name": pc.binary_join_element_wise("name", words, " "),
        "fresh": numbers % 3 == 0,
        "label": pa.array(LABELS).take(pa.array(numbers % 5)),
    }
    yield pa.RecordBatch.from_pydict(columns)


def generated(
    pipeline: beam.Pipeline, given: argparse.Namespace
) -> "beam.PCollection[Any]":
    """Returns the rows as dicts, or as Arrow batches of 10,000."""
    rows = given.rows
    dicts = functools.partial(_dicts, columns=given.columns)
    if given.keys:
        dicts = functools.partial(_sparse, keys=given.keys)
    make = dicts if given.kind == "dicts" else _batches
    starts = range(0, rows, _PART_ROWS)
    found: beam.PCollection[Any] = (
        pipeline
        | "Parts" >> beam.Create(starts, reshuffle=False)
        | "Make"
        >> beam.FlatMap(
            lambda start: make(start, min(start + _PART_ROWS, rows))
        ).with_output_types(Any)
    )
    return found


def _nothing(_: Any) -> tuple[()]:
    return ()


def arguments() -> argparse.Namespace:
    """Returns what to write: rows, kind and folder."""
    parser = argparse.ArgumentParser()
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--kind", choices=("dicts", "batches"), default="dicts")
    parser.add_argument("--columns", type=int, default=0, help="floats more, in dicts")
    parser.add_argument("--keys", type=int, default=0, help="of which a dict has ten")
    parser.add_argument("--shards", type=int, help="of WriteDataset")
    parser.add_argument("--drop", action="store_true", help="take rows, write none")
    return parser.parse_args()


def run(given: argparse.Namespace, write: "beam.PTransform[Any, Any]") -> float:
    """Runs the pipeline with one worker; returns its seconds."""
    begun = time.perf_counter()
    last = beam.FlatMap(_nothing) if given.drop else write
    with beam.Pipeline(runner=FnApiRunner(), options=PipelineOptions([])) as pipeline:
        generated(pipeline, given) | "Last" >> last
    return time.perf_counter() - begun


def main() -> None:
    """Writes the rows with WriteDataset."""
    from beam_tfrecord import WriteDataset

    given = arguments()
    more = {"num_shards": given.shards} if given.shards else {}
    write = WriteDataset(given.output / "dataset", label="label", **more)
    seconds = run(given, write)
    print(json.dumps({"items": given.rows, "work_seconds": seconds}))


if __name__ == "__main__":
    main()
