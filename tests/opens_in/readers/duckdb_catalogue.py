"""DuckDB: `read_parquet` of the catalogue."""

from collections.abc import Iterator
from typing import Any

import duckdb

from tests.opens_in.readers.catalogue_rows import row_of
from tests.opens_in.report import report


def rows(folder: str, names: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    found = duckdb.sql(f"select * from read_parquet('{folder}/catalogue/train-*.pq')")
    for values in found.fetchall():
        yield row_of(folder, dict(zip(found.columns, values, strict=True)), names)


report(rows, "duckdb")
