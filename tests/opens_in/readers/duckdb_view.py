"""DuckDB: SQL over a view."""

from collections.abc import Iterator
from typing import Any

import duckdb

from beam_tfrecord import open_dataset
from tests.opens_in.report import report


def rows(folder: str, names: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    view = open_dataset(folder)["train"].select(names)  # noqa: F841
    for values in duckdb.sql("select * from view").fetchall():
        yield dict(zip(names, values, strict=True))


report(rows, "duckdb")
