"""Tests of `unit/core/example/test_encoder.py` with TensorFlow."""

import pathlib

import numpy as np
import pyarrow as pa
import pytest

from tests.support.examples import FLOAT_PAIR
from transforms.core.example.encoder import (
    ExampleEncoder,
)


def test_tensorflow_reads_and_parses_the_records(tmp_path: pathlib.Path) -> None:
    """TFRecordDataset and parse_example give back the values, defaults included."""
    tf = pytest.importorskip("tensorflow")
    batch = pa.record_batch(
        {
            "flag": pa.array([True, False, None, True]),
            "id": pa.array([-1, 0, 300, None], pa.int32()),
            "이름": pa.array(["고양이", "", "🐈" * 60, None]),
            "score": pa.array([1.5, -0.0, None, 1e-40], pa.float64()),
            "tags": pa.array([["a", "bc"], [], ["x"], None]),
            "vector": pa.array([[1, 2], [3, 4], [5, 6], [7, 8]], FLOAT_PAIR),
        }
    )
    path = tmp_path / "x.tfrecord"
    path.write_bytes(ExampleEncoder(batch.schema).encode_framed(batch).buffer)
    parsed = next(
        iter(
            tf.data.TFRecordDataset(str(path))
            .batch(4)
            .map(
                lambda data: tf.io.parse_example(
                    data,
                    {
                        "flag": tf.io.FixedLenFeature([], tf.int64, -9),
                        "id": tf.io.FixedLenFeature([], tf.int64, -9),
                        "이름": tf.io.FixedLenFeature([], tf.string, "none"),
                        "score": tf.io.FixedLenFeature([], tf.float32, -9.0),
                        "tags": tf.io.RaggedFeature(tf.string),
                        "vector": tf.io.FixedLenFeature([2], tf.float32),
                    },
                )
            )
        )
    )
    assert parsed["flag"].numpy().tolist() == [1, 0, -9, 1]
    assert parsed["id"].numpy().tolist() == [-1, 0, 300, -9]
    names = ["고양이", "", "🐈" * 60, "none"]
    assert parsed["이름"].numpy().tolist() == [name.encode() for name in names]
    scores = np.array([1.5, -0.0, -9, 1e-40], np.float32)
    assert parsed["score"].numpy().tobytes() == scores.tobytes()
    assert parsed["tags"].to_list() == [[b"a", b"bc"], [], [b"x"], []]
    assert parsed["vector"].numpy().tolist() == [[1, 2], [3, 4], [5, 6], [7, 8]]
