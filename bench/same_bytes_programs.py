"""Programs in Python whose datasets `same_bytes.py` compares.

    python -P bench/same_bytes_programs.py NAME SOURCES

Runs the function NAME, with the folder that `same_bytes_sources.py` has filled. It
writes into the current folder: datasets, or the class of the error that ended it. `-P`
keeps this folder's modules from hiding others.
"""

import pathlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

import apache_beam as beam
import numpy as np
import pandas as pd
import pyarrow as pa

import beam_tfrecord

__all__ = ["PROGRAMS"]

_ROWS = 2000
_RUNNER = "FnApiRunner"


def _rows(count: int = _ROWS) -> list[dict[str, Any]]:
    return [
        {
            "id": number,
            "score": number / 8,
            "name": f"name {number % 30}",
            "kind": None if number % 40 == 7 else "abc"[number % 3],
            "values": [number, number * 2][: number % 3],
            "box": {"x": number % 10, "y": number % 7 / 4},
        }
        for number in range(count)
    ]


def rows(_: str) -> None:
    """Converts dicts."""
    splits = {"train": 0.8, "test": 0.2}
    beam_tfrecord.convert(_rows(), "set", label_column="kind", splits=splits, workers=1)


def generator(_: str) -> None:
    """Converts dicts of a generator, into compressed shards."""
    beam_tfrecord.convert(iter(_rows()), "set", shards=3, compression="gzip", workers=1)


def arrays(_: str) -> None:
    """Converts a dict of arrays, those of pixels into PNG files."""
    pixels = np.random.default_rng(3).integers(0, 256, (40, 16, 16, 3), np.uint8)
    columns = {"image": pixels, "label": np.arange(40) % 4}
    beam_tfrecord.convert(
        columns, "set", features={"image": {"kind": "image"}}, workers=1
    )


def frame(_: str) -> None:
    """Converts a DataFrame with missing values, categories and times."""
    columns = {
        "height": [None if n % 9 == 0 else n / 4 for n in range(_ROWS)],
        "pet": pd.Categorical([f"pet {n % 5}" for n in range(_ROWS)]),
        "day": pd.date_range("2026-01-01", periods=_ROWS, freq="h"),
    }
    beam_tfrecord.convert(pd.DataFrame(columns), "set", label_column="pet", workers=1)


def write_dataset(_: str) -> None:
    """Writes rows of a pipeline, with keys, splits and a reject."""
    given = [*_rows(), {"id": _ROWS, "score": "tall"}]
    splits = {"train": 0.8, "test": 0.2}
    with beam.Pipeline(runner=_RUNNER) as pipeline:
        made = pipeline | beam.Create(given)
        made | beam_tfrecord.WriteDataset(
            "set", label="kind", key="id", splits=splits, features={"score": "float"}
        )


def write_batches(_: str) -> None:
    """Writes Arrow batches of a pipeline, without keys."""
    table = pa.Table.from_pylist(_rows())
    with beam.Pipeline(runner=_RUNNER) as pipeline:
        made = pipeline | beam.Create(table.to_batches(max_chunksize=300))
        made | beam_tfrecord.WriteDataset("set", num_shards=3, compression="gzip")


def read_rows(sources: str) -> None:
    """Reads a tree of images in a pipeline and writes it with their account."""
    with beam.Pipeline(runner=_RUNNER) as pipeline:
        read = pipeline | beam_tfrecord.ReadRows(f"{sources}/photos")
        read.rows | beam_tfrecord.WriteDataset(
            "set",
            label="label",
            splits="column:split",
            resize="shorter:32",
            accounts=read.accounts,
        )


def too_many_rejects(_: str) -> None:
    """Writes rows of a pipeline of which more are rejected than is allowed."""
    given = [{"id": n, "score": "tall" if n % 20 == 3 else n} for n in range(_ROWS)]
    with beam.Pipeline(runner=_RUNNER) as pipeline:
        made = pipeline | beam.Create(given)
        made | beam_tfrecord.WriteDataset("set", key="id", features={"score": "float"})


def write_tfrecords(_: str) -> None:
    """Writes encoded rows of a pipeline, plain and compressed."""
    schema = {"id": "int64", "name": "text", "score": "float"}
    given = [{key: row[key] for key in schema} for row in _rows()]
    with beam.Pipeline(runner=_RUNNER) as pipeline:
        made = pipeline | beam.Create(given) | beam_tfrecord.EncodeExamples(schema)
        made | "Write plain" >> beam_tfrecord.WriteTFRecords(
            "plain", file_name_suffix=".tfrecord", num_shards=3
        )
        made | "Write packed" >> beam_tfrecord.WriteTFRecords(
            "packed", file_name_suffix=".tfrecord.gz", compression_type="gzip"
        )


def examples(_: str) -> None:
    """Encodes rows one by one and as a batch."""
    given = [{key: row[key] for key in ("id", "name", "values")} for row in _rows()]
    one_by_one = [beam_tfrecord.encode_example(row) for row in given]
    batch = pa.RecordBatch.from_pylist(given)
    together = beam_tfrecord.encode_examples(batch)
    for name, records in (("one.bin", one_by_one), ("batch.bin", together)):
        content = b"".join(bytes(memoryview(record)) for record in records)
        pathlib.Path(name).write_bytes(content)


PROGRAMS: Mapping[str, Callable[[str], None]] = {
    program.__name__.replace("_", "-"): program
    for program in (
        *(rows, generator, arrays, frame, write_dataset, write_batches, read_rows),
        *(too_many_rejects, write_tfrecords, examples),
    )
}

if __name__ == "__main__":
    try:
        PROGRAMS[sys.argv[1]](sys.argv[2])
    except beam_tfrecord.BeamTFRecordError as error:
        pathlib.Path("error.txt").write_text(f"{type(error).__name__}\n")
        raise
