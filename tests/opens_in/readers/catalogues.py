"""pandas, Polars and DuckDB, as LIBRARY says: `read_parquet` of the catalogue."""

import glob
import os
from collections.abc import Iterator, Mapping
from typing import Any

import duckdb
import pandas
import polars

from tests.opens_in.report import ANIMALS, report
from transforms.core.example.messages import parse_example

_LIBRARY = os.environ["LIBRARY"]


def rows(folder: str, names: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    parts = sorted(glob.glob(f"{folder}/catalogue/train-*.pq"))
    found: Any
    if _LIBRARY == "duckdb":
        read = duckdb.sql(f"select * from read_parquet({parts})")
        found = [dict(zip(read.columns, row, strict=True)) for row in read.fetchall()]
    elif _LIBRARY == "polars":
        found = polars.read_parquet(parts).to_dicts()
    else:
        tables = map(pandas.read_parquet, parts)
        found = [row for table in tables for row in table.to_dict("records")]
    for row in found:
        yield row_of(folder, row, names)


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


report(rows, _LIBRARY)
