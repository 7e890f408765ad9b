"""Polars: `read_parquet` of the catalogue."""

from collections.abc import Iterator
from typing import Any

import polars

from tests.opens_in.readers.catalogue_rows import parts, row_of
from tests.opens_in.report import report


def rows(folder: str, names: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    for row in polars.read_parquet(parts(folder)).iter_rows(named=True):
        yield row_of(folder, row, names)


report(rows, "polars")
