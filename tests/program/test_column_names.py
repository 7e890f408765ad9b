"""Columns of any name are features: what the stages keep beside rows takes none."""

import json
import pathlib
from typing import Any

import pytest

from beam_tfrecord import convert
from tests.support.outputs import rows
from tests.support.own_pipelines import write_rows

Folder = pathlib.Path

NAMES = ["__row", "__origin", "__stamp", "__key", "__hash", "__count", "row", "key"]
ROWS = [dict.fromkeys(NAMES, n) for n in range(3)]


def as_csv(path: Folder) -> None:
    lines = [NAMES, *([str(n)] * len(NAMES) for n in range(3))]
    path.write_text("".join(",".join(line) + "\n" for line in lines))


def as_json(path: Folder) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))


@pytest.mark.parametrize("settings", [{}, {"key_column": "__key"}])
@pytest.mark.parametrize("write", [as_csv, as_json])
def test_files(write: Any, settings: dict[str, Any], tmp_path: Folder) -> None:
    """Of text, and of JSON; with keys there is one more column beside the rows."""
    suffix = {as_csv: "csv", as_json: "jsonl"}[write]
    source = tmp_path / f"table.{suffix}"
    write(source)
    convert(source, tmp_path / "out", **settings)
    assert sorted(rows(tmp_path / "out"), key=lambda row: row["__row"]) == ROWS


def test_rows_of_pipelines(tmp_path: Folder) -> None:
    """Equal rows are counted, and rows with keys have them beside the values."""
    write_rows([*ROWS, *ROWS], tmp_path / "out")
    found = sorted(rows(tmp_path / "out"), key=lambda row: row["__row"])
    assert found == [row for row in ROWS for _ in range(2)]
    write_rows(ROWS, tmp_path / "keyed", key="__key")
    assert sorted(rows(tmp_path / "keyed"), key=lambda row: row["__row"]) == ROWS
