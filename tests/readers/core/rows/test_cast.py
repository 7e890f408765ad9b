"""Tests of `unit/core/rows/test_cast.py` with TensorFlow."""

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.support.casting import ANY, RAGGED, found, tensor
from transforms.core.model import Reason


@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint64", "float16", "float64"])
@pytest.mark.parametrize("shape", [(2, 3), (None, 3), (2, None), RAGGED])
def test_tensors_are_read_by_tensorflow(dtype: str, shape: Any) -> None:
    """Lists, flat lists, arrays, bytes and text give one and the same message."""
    tf = pytest.importorskip("tensorflow")
    array = np.arange(6).reshape(2, 3).astype(dtype)
    columns = [
        pa.array([array.tolist(), None]),
        pa.array([json.dumps(array.tolist()), None]),
        pa.FixedShapeTensorArray.from_numpy_ndarray(np.stack([array])),
    ]
    if shape != RAGGED:
        columns.append(pa.array([array.ravel().tolist(), None]))
        columns.append(pa.array([array.tobytes(), None]))
        columns.append(pa.array([array.tobytes()], pa.binary(array.nbytes)))
    for column in columns:
        message, *rest = found(column, tensor(dtype, shape, "proto"))
        parsed = tf.io.parse_tensor(message, dtype).numpy()
        assert np.array_equal(parsed, array)
        assert rest in ([], [None])
        (raw, *_) = found(column, tensor(dtype, shape))
        assert raw == (Reason.WRONG_SHAPE if shape == RAGGED else array.tobytes())


def test_single_numbers_are_tensors_without_dimensions() -> None:
    """tf.io.parse_tensor gives scalars; other shapes need lists."""
    tf = pytest.importorskip("tensorflow")
    message, missing = found([1.5, None], tensor("float64", (), "proto"))
    assert missing is None
    parsed = tf.io.parse_tensor(message, tf.float64)
    assert (parsed.shape, float(parsed)) == ((), 1.5)
    assert found([1.5], tensor("float64", ANY)) == [Reason.WRONG_SHAPE]
    (message,) = found(["3"], tensor("int8", (), "proto"))
    assert int(tf.io.parse_tensor(message, tf.int8)) == 3


def test_tensors_of_strings() -> None:
    """They have no raw form of one size, but TensorFlow reads the messages."""
    tf = pytest.importorskip("tensorflow")
    feature = tensor("string", (None, 2), "proto")
    rows = [[["a", "가"], ["", "b"]], [], None, [["a", None]]]
    first, empty, missing, bad = found(rows, feature)
    parsed = tf.io.parse_tensor(first, tf.string).numpy()
    assert parsed.tolist() == [[b"a", "가".encode()], [b"", b"b"]]
    assert tf.io.parse_tensor(empty, tf.string).shape == (0, 2)
    assert (missing, bad) == (None, Reason.MISSING_VALUE)
