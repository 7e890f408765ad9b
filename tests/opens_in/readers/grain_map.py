"""Grain: a shuffled `MapDataset` over a view."""

from collections.abc import Iterator
from typing import Any

import grain

from beam_tfrecord import open_dataset
from tests.opens_in.report import report


def rows(folder: str, names: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    view = open_dataset(folder)["train"].select(names)
    yield from grain.MapDataset.source(view).shuffle(seed=1).to_iter_dataset()


report(rows, "grain")
