"""Tests of `unit/core/tfrecord/test_tfrecord.py` with TensorFlow."""

import gzip
import pathlib

import apache_beam as beam
import pytest
from apache_beam.testing.util import assert_that, equal_to

from tests.support.tfrecords import RECORDS, write
from transforms.core.tfrecord.reader import TFRecordReader


@pytest.mark.parametrize("compression", ["none", "gzip", "zlib"])
def test_tensorflow_reads_what_we_write(
    tmp_path: pathlib.Path, compression: str
) -> None:
    """TFRecordDataset gives the same payloads if it is given the compression."""
    tensorflow = pytest.importorskip("tensorflow")
    path = tmp_path / "a.tfrecord"
    path.write_bytes(write(RECORDS, compression)[0])
    kind = "" if compression == "none" else compression.upper()
    dataset = tensorflow.data.TFRecordDataset(str(path), compression_type=kind)
    assert list(dataset.as_numpy_iterator()) == RECORDS


def test_readers_read_a_whole_gzip_file(tmp_path: pathlib.Path) -> None:
    """TensorFlow, Beam and gzip itself read to the last of many records."""
    tensorflow = pytest.importorskip("tensorflow")
    records = [bytes([k % 251]) * 1000 for k in range(1000)]
    path = tmp_path / "a.tfrecord.gz"
    path.write_bytes(write(records, "gzip")[0])
    dataset = tensorflow.data.TFRecordDataset(str(path), compression_type="GZIP")
    assert list(dataset.as_numpy_iterator()) == records
    with tensorflow.io.gfile.GFile(str(path), "rb") as file:
        assert gzip.decompress(file.read()) == write(records, "none")[0]
    with beam.Pipeline("BundleBasedDirectRunner") as pipeline:
        read = pipeline | beam.io.ReadFromTFRecord(str(path))
        assert_that(read, equal_to(records))


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
def test_we_read_what_tensorflow_writes(
    tmp_path: pathlib.Path, compression: str
) -> None:
    """Compression is detected."""
    tensorflow = pytest.importorskip("tensorflow")
    path = tmp_path / "a.tfrecord"
    with tensorflow.io.TFRecordWriter(str(path), compression) as writer:
        for record in RECORDS:
            writer.write(record)
    assert list(TFRecordReader(path)) == RECORDS
    assert TFRecordReader(path).verify().records == len(RECORDS)
