"""Serialised TensorProtos equal those of TensorFlow, byte for byte."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms.core.rows.tensors import DATA_TYPES, string_values, tensor_protos

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
