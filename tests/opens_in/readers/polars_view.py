"""Polars: `DataFrame` of a view."""

from collections.abc import Iterator
from typing import Any

import polars

from beam_tfrecord import open_dataset
from tests.opens_in.report import report


def rows(folder: str, names: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    view = open_dataset(folder)["train"].select(names)
    yield from polars.DataFrame(view).iter_rows(named=True)


report(rows, "polars")
