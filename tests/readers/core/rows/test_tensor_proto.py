"""Values and TensorProtos that are written, as TensorFlow reads them."""

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.casting import RAGGED, found, tensor
from transforms.core.reasons import Reason
from transforms.core.rows.feature_values import column_of
from transforms.core.rows.tensors import DATA_TYPES, string_values, tensor_protos
from transforms.core.schema import Feature, Kind

NUMERIC = sorted(set(DATA_TYPES) - {"string"})


def protos(arrays: list[np.ndarray], dtype: str) -> list[bytes]:
    """Returns arrays of one number of dimensions as messages."""
    contents = pa.array([a.tobytes() for a in arrays], pa.large_binary())
    dims = np.array([a.shape for a in arrays], np.int64)
    dims = dims.reshape(len(arrays), arrays[0].ndim)
    return tensor_protos(contents, dims, dtype).to_pylist()


def test_a_message_byte_by_byte() -> None:
    """Type, shape and content, each with its tag; from tf.io.serialize_tensor."""
    (found,) = protos([np.arange(3, dtype=np.int32)], "int32")
    content = b"\x00\x00\x00\x00\x01\x00\x00\x00\x02\x00\x00\x00"
    assert found == b"\x08\x03\x12\x04\x12\x02\x08\x03\x22\x0c" + content


def test_zeros_are_left_out() -> None:
    """A size of 0 is an empty Dim, and an empty tensor has no content."""
    (found,) = protos([np.zeros((2, 0))], "float64")
    assert found == b"\x08\x02\x12\x06\x12\x02\x08\x02\x12\x00"


def test_strings_byte_by_byte() -> None:
    """Strings are stored one by one, also empty ones; tensors may differ in length."""
    values = pa.array([b"a", b"bcd", b""])
    contents = string_values(values, np.array([0, 2, 3, 3], np.int64))
    assert contents.to_pylist() == [b"\x42\x01a\x42\x03bcd", b"\x42\x00", b""]
    found = tensor_protos(contents, np.array([[2], [1], [0]], np.int64), "string")
    assert found.to_pylist() == [
        b"\x08\x07\x12\x04\x12\x02\x08\x02\x42\x01a\x42\x03bcd",
        b"\x08\x07\x12\x04\x12\x02\x08\x01\x42\x00",
        b"\x08\x07\x12\x02\x12\x00",
    ]


@pytest.mark.parametrize("dtype", NUMERIC)
@pytest.mark.parametrize("ndim", [0, 1, 2, 3])
def test_messages_are_those_of_tensorflow(dtype: str, ndim: int) -> None:
    """Every dtype at every rank, with sizes that need one byte, two, and none."""
    tf = pytest.importorskip("tensorflow")
    shapes = [(2, 1, 3)[:ndim], (130, 2, 1)[:ndim], (0, 5, 1)[:ndim]]
    rng = np.random.default_rng(7)
    arrays = [rng.integers(0, 2, shape).astype(dtype) for shape in shapes]
    wanted = [tf.io.serialize_tensor(tf.constant(a, dtype)).numpy() for a in arrays]
    assert protos(arrays, dtype) == wanted


@given(st.lists(st.lists(st.binary(max_size=200), max_size=4), min_size=1, max_size=4))
def test_tensorflow_parses_strings(rows: list[list[bytes]]) -> None:
    """The messages equal TensorFlow's own, with zero bytes at the end too."""
    tf = pytest.importorskip("tensorflow")
    counts = np.array([len(row) for row in rows], np.int64)
    starts = np.concatenate(([0], np.cumsum(counts)))
    values = pa.array([value for row in rows for value in row], pa.binary())
    found = tensor_protos(string_values(values, starts), counts[:, None], "string")
    for row, message in zip(rows, found.to_pylist(), strict=True):
        assert message == tf.io.serialize_tensor(tf.constant(row, tf.string)).numpy()


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
