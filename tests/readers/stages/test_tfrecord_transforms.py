"""TFRecord files of a pipeline, as TensorFlow reads them."""

import pathlib

import pytest

from tests.support.tfrecord_pipelines import RECORDS, write

Folder = pathlib.Path


def test_read_by_tensorflow(tmp_path: Folder) -> None:
    """tf.data finds every record, plain and gzip."""
    tf = pytest.importorskip("tensorflow")
    for suffix, kind in (("", ""), (".gz", "GZIP")):
        write(tmp_path / "x", num_shards=2, file_name_suffix=suffix)
        names = [str(tmp_path / f"x-0000{n}-of-00002{suffix}") for n in (0, 1)]
        dataset = tf.data.TFRecordDataset(names, compression_type=kind)
        assert sorted(dataset.as_numpy_iterator()) == sorted(RECORDS)
