"""Tests of `unit/core/tfrecord/test_tfrecord.py` with TensorFlow."""

import pathlib

import pytest

from tests.support.tfrecords import RECORDS, write
from transforms.core.tfrecord import (
    TFRecordReader,
    verify_file,
)


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
    assert verify_file(path).records == len(RECORDS)
