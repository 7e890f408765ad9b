"""Tests of `unit/formats/tfrecord_files/test_tfrecord_files.py` with TensorFlow."""

import pathlib
from typing import Any

import pytest

from tests.support.table_reading import read_all, rows_of
from transforms.formats.tfrecord_files.reader import TFRecordFiles


def test_lists_of_steps_as_tensorflow_parses_them(tmp_path: pathlib.Path) -> None:
    """The values of SequenceExamples that TensorFlow wrote, step by step."""
    tf = pytest.importorskip("tensorflow")

    def feature(values: list[Any]) -> Any:
        if values and isinstance(values[0], bytes):
            return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
        if values and isinstance(values[0], float):
            return tf.train.Feature(float_list=tf.train.FloatList(value=values))
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))

    rows: list[dict[str, list[Any]]] = [
        {
            "lists/word": [b"w%d" % j for j in range(i % 5)],
            "lists/vector": [[i / 2, float(j), -1.5] for j in range(i % 3)],
            "lists/any": [[j] * j for j in range(i % 4)],
        }
        for i in range(60)
    ]
    records = []
    for i, row in enumerate(rows):
        lists = {
            name.removeprefix("lists/"): tf.train.FeatureList(
                feature=[feature(s if isinstance(s, list) else [s]) for s in steps]
            )
            for name, steps in row.items()
        }
        record = tf.train.SequenceExample(
            context=tf.train.Features(feature={"id": feature([i])}),
            feature_lists=tf.train.FeatureLists(feature_list=lists),
        )
        records.append(record.SerializeToString())
    with tf.io.TFRecordWriter(str(tmp_path / "a.tfrecord")) as writer:
        for data in records:
            writer.write(data)
    read = read_all(TFRecordFiles(), tmp_path, ["a.tfrecord"])
    assert rows_of(read) == [{"id": i} | row for i, row in enumerate(rows)]
    for data, found in zip(records, rows_of(read), strict=True):
        context, lists = tf.io.parse_single_sequence_example(
            data,
            {"id": tf.io.FixedLenFeature([], tf.int64)},
            {
                "word": tf.io.FixedLenSequenceFeature([], tf.string),
                "vector": tf.io.FixedLenSequenceFeature([3], tf.float32),
                "any": tf.io.RaggedFeature(tf.int64),
            },
        )
        assert context["id"].numpy() == found["id"]
        assert lists["word"].numpy().tolist() == found["lists/word"]
        assert lists["vector"].numpy().tolist() == found["lists/vector"]
        assert lists["any"].to_list() == found["lists/any"]
