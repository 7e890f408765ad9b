"""Grain: `TFRecordIterDataset`, which reads one file in sequence."""

import glob
from collections.abc import Iterator
from typing import Any

import grain

from tests.opens_in.report import report
from transforms.core.example.messages import parse_example


def rows(folder: str, names: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    for file in sorted(glob.glob(f"{folder}/*-train.tfrecord-*")):
        for record in grain.experimental.TFRecordIterDataset(file):
            row = parse_example(record)
            yield {name: row[name][0] if name in row else None for name in names}


report(rows, "grain")
