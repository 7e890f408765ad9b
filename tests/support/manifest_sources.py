"""Files that name images, and the splits and classes made from them."""

import csv
import pathlib
from collections.abc import Sequence

Folder = pathlib.Path


def write_rows(path: Folder, rows: Sequence[Sequence[object]]) -> Folder:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    return path
