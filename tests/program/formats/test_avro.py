"""Avro end to end: sharded stems, archives, and what other programs have written."""

import pathlib

import fastavro
import pytest

from tests.support.avro_sources import avro
from tests.support.outputs import rows as rows_of_dataset
from tests.support.runs import convert, refused

Folder = pathlib.Path


@pytest.mark.parametrize("count", [1, 10, 1_000])
@pytest.mark.parametrize("columns", [1, 100])
def test_sizes(tmp_path: Folder, count: int, columns: int) -> None:
    """Three decades of rows, and of columns."""
    names = [f"c{index}" for index in range(columns)]
    fields = [{"name": name, "type": "int"} for name in names]
    schema = {"type": "record", "name": "Row", "fields": fields}
    with (tmp_path / "a.avro").open("wb") as out:
        rows = [dict.fromkeys(names, n) for n in range(count)]
        fastavro.writer(out, schema, rows)
    convert(tmp_path / "a.avro", tmp_path / "out", "--no-shuffle")
    found = rows_of_dataset(tmp_path / "out")
    assert [found[0]["c0"], found[-1][names[-1]]] == [0, count - 1]
    assert len(found) == count
    assert len(found[0]) == columns


def test_a_damaged_file_ends_with_a_sentence(tmp_path: Folder) -> None:
    """With its name, the byte and what to do; nothing is written."""
    (tmp_path / "a.avro").write_bytes(avro(0, 90)[:-20])
    said = refused(4, tmp_path / "a.avro", tmp_path / "out")
    assert "a.avro cannot be read as Avro: the block at byte" in said
    assert "Fetch or write it again." in said
    assert not (tmp_path / "out").exists()
