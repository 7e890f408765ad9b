"""Two datasets, in the form `ROOT/NAME/1.0.0`, and what their records must be."""

import csv
import dataclasses
import pathlib
import subprocess
import sys
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from PIL import Image

import beam_tfrecord
from tests.opens_in.report import ANIMALS
from tests.opens_in.table import Line, write

Folder = pathlib.Path
Row = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Datasets:
    """Folders of two datasets, and their records by key."""

    photos: str
    table: str
    photo_rows: dict[str, Row]
    table_rows: dict[int, Row]


@pytest.fixture(scope="session")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> Datasets:
    """Images in two shards, and rows with missing values in two."""
    folder = tmp_path_factory.mktemp("opens_in")
    photo_rows = _draw(folder / "photos")
    table_rows = _table(folder / "animals.csv")
    found = []
    for source, label in (("photos", None), ("animals.csv", "animal")):
        report = beam_tfrecord.convert(
            folder / source,
            folder / "data" / source.partition(".")[0] / "1.0.0",
            shards=2,
            label_column=label,
            catalogue=True,
        )
        added = [sys.executable, "-m", "beam_pipeline", "index", report.output]
        subprocess.run([*added, "--text"], check=True)
        found.append(report.output)
    photos, table = found
    return Datasets(photos, table, photo_rows, table_rows)


def _draw(folder: Folder) -> dict[str, Row]:
    rows = {}
    for number in range(24):
        label = number % 3
        suffix = ("png", "jpg")[number % 2]
        path = folder / ANIMALS[label] / f"{number:02}.{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        random = np.random.default_rng(number)
        Image.fromarray(random.integers(0, 256, (20 + number, 16, 3), np.uint8)).save(
            path
        )
        name = path.relative_to(folder).as_posix()
        rows[name] = {
            "image": zlib.crc32(path.read_bytes()),
            "label": label,
            "filename": name,
            "height": 20 + number,
        }
    return rows


def _table(path: Folder) -> dict[int, Row]:
    rows: dict[int, Row] = {}
    for number in range(200):
        rows[number] = {
            "id": number,
            "age": None if number % 3 == 0 else number % 50,
            "weight": None if number % 4 == 0 else number / 8,
            "note": None if number % 5 == 0 else f"note {number}",
            "animal": number % 3,
        }
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        for row in rows.values():
            writer.writerow(row | {"animal": ANIMALS[row["animal"]]})
    return rows


@pytest.fixture(scope="session")
def lines() -> Iterator[dict[str, Line]]:
    """The table of what opens, which is written where every test has passed."""
    found: dict[str, Line] = {}
    yield found
    write(found)
