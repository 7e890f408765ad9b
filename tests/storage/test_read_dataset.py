"""ReadDataset from a bucket: the rows of the dataset there, and of no other."""

import pathlib
from typing import Any

import apache_beam as beam
import pytest

from beam_tfrecord import InputError, ReadDataset
from tests.storage.conftest import MEASURES, Server
from tests.storage.program import Program
from tests.support.tfrecord_pipelines import pipeline

Folder = pathlib.Path

COLLECTED: list[Any] = []


def collect(row: Any) -> None:
    # The runner is in this process, so this reaches the test.
    COLLECTED.append(row)


def rows_of(path: Folder | str, *arguments: Any, **options: Any) -> list[Any]:
    COLLECTED.clear()
    with pipeline() as p:
        p | ReadDataset(path, *arguments, **options) | beam.Map(collect)
    return sorted(COLLECTED, key=lambda row: row["id"])


def test_a_dataset_in_a_bucket(
    server: Server, measures: Folder, local_measures: Folder, tmp_path: Folder
) -> None:
    """As on a disk; also after it was replaced, and not while it is."""
    target = f"{server.url}/out/measures"
    program = Program(server, tmp_path)
    program.run("convert", measures, target, *MEASURES)
    place = server.place("out/measures")
    expected = rows_of(local_measures)
    assert rows_of(place) == expected
    assert rows_of(place, "test", ["id"]) == rows_of(local_measures, "test", ["id"])
    waiting = pipeline()
    waiting | ReadDataset(place) | beam.Map(collect)
    program.run("convert", measures, target, *MEASURES, "--seed", "7", "--overwrite")
    with pytest.raises(InputError, match="was replaced while open: its digest was"):
        waiting.run().wait_until_finish()
    assert rows_of(place) == expected


def test_bare_files_in_a_bucket(
    server: Server, local_measures: Folder, tmp_path: Folder
) -> None:
    """A folder and a pattern, without a manifest."""
    for path in local_measures.glob("*.tfrecord*"):
        server.write(f"bare/{path.name}", path.read_bytes())
    features = {"id": "int64", "animal": "int64"}
    expected = rows_of(local_measures, columns=["id", "animal"], labels="ids")
    assert rows_of(server.place("bare"), features=features) == expected
    pattern = server.place("bare/*-train*")
    assert len(rows_of(pattern, features=features)) < len(expected)
