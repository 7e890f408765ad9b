"""Tests of `unit/formats/tfrecord_files/test_tfrecord_files.py` with TensorFlow."""

import pathlib

import pytest

from tests.support.table_reading import read_all, rows_of
from transforms.formats.tfrecord_files.reader import TFRecordFiles


def test_written_by_tensorflow(tmp_path: pathlib.Path) -> None:
    """TensorFlow's own writer and messages, plain and gzip."""
    tf = pytest.importorskip("tensorflow")
    for name, options in (("a.tfrecord", ""), ("b.tfrecord", "GZIP")):
        with tf.io.TFRecordWriter(str(tmp_path / name), options) as writer:
            for i in range(50):
                feature = {
                    "i": tf.train.Feature(int64_list=tf.train.Int64List(value=[i])),
                    "v": tf.train.Feature(
                        float_list=tf.train.FloatList(value=[i, 0.5])
                    ),
                    "b": tf.train.Feature(
                        bytes_list=tf.train.BytesList(value=[b"\xff%d" % i])
                    ),
                }
                message = tf.train.Example(features=tf.train.Features(feature=feature))
                writer.write(message.SerializeToString())
    read = read_all(TFRecordFiles(), tmp_path, ["a.tfrecord", "b.tfrecord"])
    assert (
        rows_of(read)
        == [{"b": b"\xff%d" % i, "i": i, "v": [float(i), 0.5]} for i in range(50)] * 2
    )
