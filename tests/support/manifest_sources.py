"""Files that name images, and the splits and classes made from them."""

import csv
import pathlib
from collections.abc import Sequence

from tests.support.outputs import dataset

Folder = pathlib.Path


def write_rows(path: Folder, rows: Sequence[Sequence[object]]) -> Folder:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    return path


def split_names(out: Folder) -> dict[str, int]:
    return {
        facts["name"]: sum(shard["records"] for shard in facts["shards"])
        for facts in dataset(out)["splits"]
    }
