"""Ray Data: `read_tfrecords`, which needs TensorFlow."""

import glob
from collections.abc import Iterator
from typing import Any

import ray.data

from tests.opens_in.report import report


def rows(folder: str, names: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    files = sorted(glob.glob(f"{folder}/*-train.tfrecord-*"))
    yield from ray.data.read_tfrecords(files).iter_rows()


report(rows, "ray")
