"""The package tfrecord (vahidk): `TFRecordDataset` with 3 workers and the index."""

import glob
from collections.abc import Iterator
from typing import Any

from tfrecord.torch.dataset import TFRecordDataset
from torch.utils.data import DataLoader

from tests.opens_in.report import report


def rows(folder: str, names: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    for file in sorted(glob.glob(f"{folder}/*-train.tfrecord-*")):
        name = file.rpartition("/")[2]
        dataset = TFRecordDataset(file, f"{folder}/index/{name}.idx")
        loader = DataLoader(dataset, batch_size=None, num_workers=3)
        for row in loader:
            yield {name: _scalar(row.get(name)) for name in names}


def _scalar(value: Any) -> Any:
    value = value.numpy() if hasattr(value, "numpy") else value
    is_list = getattr(value, "dtype", None) in ("int64", "float32")
    return value[0] if is_list else value


if __name__ == "__main__":
    report(rows, "tfrecord", "torch")
