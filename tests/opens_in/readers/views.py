"""pandas, Polars and DuckDB, as LIBRARY says: a view as a stream of batches."""

import os
from collections.abc import Iterable
from typing import Any
from unittest import mock

import duckdb
import pandas
import polars

from beam_tfrecord import open_dataset
from tests.opens_in.report import report
from transforms.reading.view import View

_LIBRARY = os.environ["LIBRARY"]


def rows(folder: str, names: tuple[str, ...]) -> Iterable[dict[str, Any]]:
    view = open_dataset(folder)["train"].select(names)
    # No single row is read.
    with mock.patch.object(View, "__getitem__", side_effect=AssertionError):
        if _LIBRARY == "duckdb":
            found = duckdb.sql("select * from view").fetchall()
            return [dict(zip(names, values, strict=True)) for values in found]
        if _LIBRARY == "polars":
            return polars.DataFrame(view).to_dicts()
        return pandas.DataFrame.from_arrow(view).to_dict("records")


report(rows, _LIBRARY)
