"""Small sources, written for a test."""

import csv
import pathlib
from collections.abc import Iterable, Mapping, Sequence

Folder = pathlib.Path


def write_csv(path: Folder, columns: str, lines: Iterable[object]) -> Folder:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([columns, *map(str, lines), ""]), encoding="utf-8")
    return path


def write_files(root: Folder, files: Mapping[str, bytes]) -> Folder:
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root


def write_rows(path: Folder, rows: Sequence[Sequence[object]]) -> Folder:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    return path
