"""CIFAR files as their reader reads them."""

import os
import pathlib
from typing import Any

import numpy as np
import pytest

from transforms.formats.raw_rows import RawRows
from transforms.formats.table import InputFile


def real_folder() -> pathlib.Path:
    """Returns the folder of the real files, of which there are two, or skips."""
    folder = os.environ.get("BEAM_TFRECORD_TEST_DATA")
    if not folder:
        pytest.skip("BEAM_TFRECORD_TEST_DATA is not set")
    return pathlib.Path(folder, "cifar-10-batches-bin")


def listed(path: pathlib.Path) -> InputFile:
    return InputFile(path.name, str(path), path.stat().st_size)


def read_all(reader: Any, file: InputFile, columns: list[str]) -> list[RawRows]:
    return [
        raw
        for block in reader.blocks(file, block_bytes=100_000, limit_rows=None)
        for raw in reader.read(file, block, columns)
    ]


def rows_of(raws: list[RawRows], name: str) -> list[Any]:
    return [value for raw in raws for value in raw.columns[name].to_pylist()]


def pixels_of(records: np.ndarray) -> np.ndarray:
    """As in tutorials: reshapes to depth-major, transposes to height-width-depth."""
    depth_major = records[:, -3072:].reshape(-1, 3, 32, 32)
    return depth_major.transpose(0, 2, 3, 1)
