"""Keras: a `PyDataset` over a view, with any backend, fitted for an epoch."""

import math
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

from beam_tfrecord import open_dataset
from tests.opens_in.report import report

_SEEN: list[dict[str, Any]] = []


class _Batches(keras.utils.PyDataset):  # type: ignore[misc]
    def __init__(self, view: Any) -> None:
        super().__init__()
        self.view = view

    def __len__(self) -> int:
        return math.ceil(len(self.view) / 8)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        rows = self.view[index * 8 : (index + 1) * 8]
        _SEEN.extend(rows)
        values = np.array([[next(iter(row.values())) is not None] for row in rows])
        return values.astype("float32"), values.astype("float32")


def rows(folder: str, names: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    _SEEN.clear()
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile(loss="mse")
    batches = _Batches(open_dataset(folder)["train"].select(names).shuffled(seed=1))
    model.fit(batches, verbose=0)
    # A model that is built looks at the first batch once more.
    seen = {row["filename" if "filename" in row else "id"]: row for row in _SEEN}
    yield from seen.values()


report(rows, "keras")
