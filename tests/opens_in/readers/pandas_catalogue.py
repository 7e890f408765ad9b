"""pandas: `read_parquet` of the catalogue."""

from collections.abc import Iterator
from typing import Any

import pandas

from tests.opens_in.readers.catalogue_rows import parts, row_of
from tests.opens_in.report import report


def rows(folder: str, names: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    for part in parts(folder):
        for row in pandas.read_parquet(part).to_dict("records"):
            yield row_of(folder, row, names)


report(rows, "pandas")
