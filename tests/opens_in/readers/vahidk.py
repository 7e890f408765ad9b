"""The package tfrecord (vahidk): its reader, without workers and without an index."""

import glob
from collections.abc import Iterator
from typing import Any

from tfrecord.reader import tfrecord_loader

from tests.opens_in.report import report


def rows(folder: str, names: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    for file in sorted(glob.glob(f"{folder}/*-train.tfrecord-*")):
        for row in tfrecord_loader(file, None):
            yield {name: _scalar(row.get(name)) for name in names}


def _scalar(value: Any) -> Any:
    is_list = getattr(value, "dtype", None) in ("int64", "float32")
    return value[0] if is_list else value


report(rows, "tfrecord")
