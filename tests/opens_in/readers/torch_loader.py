"""PyTorch: a shuffled `DataLoader` with 2 workers over a view, with batches."""

from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader

from beam_tfrecord import open_dataset
from tests.opens_in.report import report


def rows(folder: str, names: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    missing = {"age": -1, "weight": float("nan"), "note": ""}
    missing = {name: missing[name] for name in names if name in missing}
    view = open_dataset(folder, missing=missing)["train"].select(names)
    loader = DataLoader(view, batch_size=8, shuffle=True, num_workers=2)
    for batch in loader:
        for values in zip(*(batch[name] for name in names), strict=True):
            yield dict(zip(names, values, strict=True))


if __name__ == "__main__":
    report(rows, "torch")
