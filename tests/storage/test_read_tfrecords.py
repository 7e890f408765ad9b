"""`ReadTFRecords` and `ReadAllTFRecords` from buckets: as from a disk."""

import pathlib
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.testing.util import assert_that, equal_to

from beam_tfrecord import ReadAllTFRecords, ReadTFRecords, SourceError, TFRecordError
from tests.storage.conftest import MEASURES, Server
from tests.storage.program import Program
from tests.support.tfrecord_pipelines import RECORDS, given_by, pipeline, write

Folder = pathlib.Path


def read(pattern: str, **options: Any) -> list[bytes]:
    """Returns the records in sorted order."""
    return sorted(given_by(ReadTFRecords(pattern, **options)))


def read_all(patterns: list[str], **options: Any) -> list[Any]:
    """Returns what the elements' files hold, in sorted order."""
    return sorted(given_by(beam.Create(patterns), ReadAllTFRecords(**options)))


@pytest.fixture
def written(server: Server, tmp_path: Folder) -> Server:
    """A bucket with three shards, one of them packed and one empty."""
    write(tmp_path / "some" / "x", RECORDS[:200], num_shards=1)
    write(tmp_path / "some" / "y", RECORDS[200:], num_shards=1, file_name_suffix=".gz")
    write(tmp_path / "some" / "deep" / "z", [], num_shards=1)
    server.write_tree("some", tmp_path / "some")
    return server


def test_names_and_patterns(written: Server) -> None:
    """A name, signs within a name, folders below, several patterns, none."""
    x = f"{written.url}/some/x-00000-of-00001"
    assert read(written.place("some/x-00000-of-00001")) == sorted(RECORDS[:200])
    assert read(f"{written.url}/some/?-*") == sorted(RECORDS)
    assert read(f"{written.url}/some/[x]-*") == sorted(RECORDS[:200])
    assert read(f"{written.url}/some/**") == sorted(RECORDS)
    assert read(f"{written.url}/some/deep/*") == []
    pairs = read_all([x, f"{written.url}/some/y*"], with_filename=True)
    assert pairs == sorted(
        [(x, record) for record in RECORDS[:200]]
        + [(f"{written.url}/some/y-00000-of-00001.gz", each) for each in RECORDS[200:]]
    )
    assert read(f"{written.url}/none/*", validate=False) == []
    with pytest.raises(SourceError, match="names none"):
        read(f"{written.url}/none/*")
    with pytest.raises(SourceError, match="names none"):
        read_all([f"{written.url}/some/x"])
    with pytest.raises(SourceError, match="is a folder without"):
        read(f"{written.url}/some")


def test_a_dataset(
    server: Server, measures: Folder, local_measures: Folder, tmp_path: Folder
) -> None:
    """All of its shards, each as its manifest states it."""
    target = f"{server.url}/out/measures"
    Program(server, tmp_path).run("convert", measures, target, *MEASURES)
    expected = read(str(local_measures))
    assert len(expected) == 2000
    assert read(server.place("out/measures")) == expected
    assert read_all([target]) == expected
    shards = [key for key in server.keys("out/measures") if "-train.tfrecord" in key]
    key = next(key for key in shards if "/index/" not in key)
    server.write(key, server.read(key)[:-1])
    with pytest.raises(TFRecordError, match="the file ends inside a record"):
        read(target)


def test_parameters_of_a_bucket_travel(written: Server) -> None:
    """Workers in other processes have them from the graph; what is shown lacks them."""
    step = ReadTFRecords(written.place("some/*"))
    assert written.endpoint.partition("://")[2] not in repr(step)
    with pipeline(
        "--direct_num_workers=2", "--direct_running_mode=multi_processing"
    ) as p:
        every = p | step | beam.combiners.Count.Globally()
        assert_that(every, equal_to([len(RECORDS)]), label="Of a pattern")
        pairs = p | beam.Create([written.place("some/x*")]) | ReadAllTFRecords()
        counted = pairs | "Count" >> beam.combiners.Count.Globally()
        assert_that(counted, equal_to([200]), label="Of elements")
