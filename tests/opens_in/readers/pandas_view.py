"""pandas: `DataFrame.from_arrow` of a view."""

from collections.abc import Iterator
from typing import Any

import pandas

from beam_tfrecord import open_dataset
from tests.opens_in.report import report


def rows(folder: str, names: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    view = open_dataset(folder)["train"].select(names)
    yield from pandas.DataFrame.from_arrow(view).to_dict("records")


report(rows, "pandas")
