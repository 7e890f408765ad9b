"""Samples of CSV files with the bytes given."""

import pathlib
import tempfile
from collections.abc import Mapping
from typing import Any

from tests.support.table_reading import listed
from transforms.formats.csv.sample import SAMPLE_BYTES, CsvReader, sample_of
from transforms.formats.table import TableSample


def sample(
    *files: bytes, sample_bytes: int = SAMPLE_BYTES, **settings: Any
) -> TableSample:
    """Returns the sample of files `1.csv`, `2.csv`, ... with these bytes."""
    named = {f"{number}.csv": data for number, data in enumerate(files, start=1)}
    return named_sample(named, sample_bytes=sample_bytes, **settings)


def named_sample(
    files: Mapping[str, bytes], *, sample_bytes: int = SAMPLE_BYTES, **settings: Any
) -> TableSample:
    """Returns the sample of files of these names."""
    reader = CsvReader(**{"header": True} | settings)
    with tempfile.TemporaryDirectory() as folder:
        for name, data in files.items():
            pathlib.Path(folder, name).write_bytes(data)
        return sample_of(reader, listed(folder, [*files]), sample_bytes=sample_bytes)
