"""Samples of CSV files that are in memory."""

import functools
import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from transforms.formats.csv.dialect import CsvDialect
from transforms.formats.csv.sample import SampleInput, sample_blocks
from transforms.formats.table import TableSample


def sample(*files: bytes, dialect: Any = None, **options: Any) -> TableSample:
    """Returns the sample of files `1.csv`, `2.csv`, ... with these bytes."""
    inputs = [
        SampleInput(
            f"{number}.csv",
            len(data),
            functools.partial(io.BytesIO, data),
            dialect or CsvDialect(),
        )
        for number, data in enumerate(files, start=1)
    ]
    return sample_of(inputs, **options)


def sample_of(inputs: Sequence[SampleInput], **options: Any) -> TableSample:
    """Returns the sample of these inputs."""
    sizes = np.array([each.size for each in inputs])
    get = inputs.__getitem__
    return sample_blocks(range(len(inputs)), get, sizes=sizes, **options)
