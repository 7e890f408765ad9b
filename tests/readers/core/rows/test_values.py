"""Tests of `unit/core/rows/test_values.py` with TensorFlow."""

import numpy as np
import pytest

from transforms.core.rows.values import column_of
from transforms.core.schema import Feature, Kind


def test_tensors_of_every_form() -> None:
    """Arrays of several dtypes and shapes, lists and numbers are the same message."""
    tf = pytest.importorskip("tensorflow")
    feature = Feature(
        "x", Kind.TENSOR, shape=(None, 2), dtype="int16", encoding="proto"
    )
    values = [
        np.array([[1, 2]], np.int8),
        [[1, 2]],
        [1, 2],
        None,
        np.array([[1, 2], [3, 4]], np.uint64),
    ]
    *same, missing, other = column_of(values, feature).to_pylist()
    assert missing is None
    assert {bytes(message) for message in same} == {
        tf.io.serialize_tensor(tf.constant([[1, 2]], tf.int16)).numpy()
    }
    assert tf.io.parse_tensor(other, tf.int16).numpy().tolist() == [[1, 2], [3, 4]]
    arrays = [np.ones((2, 2), np.int16), None, np.zeros((0, 2), np.int16)]
    column = column_of(arrays, feature)
    for array, message in zip(arrays, column.to_pylist(), strict=True):
        assert (array is None) == (message is None)
        if array is not None:
            assert np.array_equal(tf.io.parse_tensor(message, tf.int16), array)


def test_tensors_of_text_keep_zero_bytes() -> None:
    """NumPy's own texts would lose those at the end."""
    tf = pytest.importorskip("tensorflow")
    feature = Feature("x", Kind.TENSOR, shape=(2,), dtype="string", encoding="proto")
    (message,) = column_of([[b"a\0", "b"]], feature).to_pylist()
    assert tf.io.parse_tensor(message, tf.string).numpy().tolist() == [b"a\0", b"b"]
