"""Small sources, written for a test."""

import pathlib
from collections.abc import Iterable, Mapping

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
