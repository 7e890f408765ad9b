"""DuckDB: SQL over a view."""

from collections.abc import Iterator
from typing import Any
from unittest import mock

import duckdb

from beam_tfrecord import open_dataset
from tests.opens_in.report import report
from transforms.reading.view import View


def rows(folder: str, names: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    view = open_dataset(folder)["train"].select(names)  # noqa: F841
    # A view is a stream of batches: no single row is read.
    with mock.patch.object(View, "__getitem__", side_effect=AssertionError):
        found = duckdb.sql("select * from view").fetchall()
    for values in found:
        yield dict(zip(names, values, strict=True))


report(rows, "duckdb")
