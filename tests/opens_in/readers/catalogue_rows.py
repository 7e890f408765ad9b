"""Rows of the catalogue as those of the dataset."""

import glob
from collections.abc import Mapping
from typing import Any

from tests.opens_in.report import ANIMALS
from transforms.core.example.messages import parse_example

__all__ = ["parts", "row_of"]


def parts(folder: str) -> list[str]:
    """Returns the paths of the catalogue of the split train."""
    return sorted(glob.glob(f"{folder}/catalogue/train-*.pq"))


def row_of(
    folder: str, found: Mapping[str, Any], names: tuple[str, ...]
) -> dict[str, Any]:
    """Returns the row of a record: labels as ids; texts and images from the shard."""
    row = {name: found.get(name) for name in names}
    for name in {"label", "animal"} & row.keys():
        row[name] = ANIMALS.index(row[name])
    shards = sorted(glob.glob(f"{folder}/*-train.tfrecord-*"))
    with open(shards[found["_shard"]], "rb") as file:
        # Behind the length and its checksum.
        file.seek(found["_offset"] + 12)
        record = parse_example(file.read(found["_size"]))
    for name in row.keys() - found.keys():
        for value in record.get(name, ()):
            row[name] = value if name == "image" else value.decode()
    return row
