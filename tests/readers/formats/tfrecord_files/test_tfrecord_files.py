"""Tests of `unit/formats/tfrecord_files/test_tfrecord_files.py` with TensorFlow."""

import pathlib
from typing import Any

import pytest

from tests.support.sequences import sequence
from tests.support.table_reading import read_all, rows_of
from tests.support.tfrecords import write
from transforms.formats.tfrecord_files.reader import TFRecordFiles


def test_lists_of_steps_as_tensorflow_parses_them(tmp_path: pathlib.Path) -> None:
    """The values of SequenceExamples are those that TensorFlow reads, step by step."""
    tf = pytest.importorskip("tensorflow")

    rows: list[dict[str, list[Any]]] = [
        {
            "lists/word": [b"w%d" % j for j in range(i % 5)],
            "lists/vector": [[i / 2, float(j), -1.5] for j in range(i % 3)],
            "lists/any": [[j] * j for j in range(i % 4)],
        }
        for i in range(60)
    ]
    records = [
        sequence(
            {"id": [i]},
            {
                name.removeprefix("lists/"): [
                    step if isinstance(step, list) else [step] for step in steps
                ]
                for name, steps in row.items()
            },
        )
        for i, row in enumerate(rows)
    ]
    (tmp_path / "a.tfrecord").write_bytes(write(records)[0])
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
