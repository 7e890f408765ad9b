"""Serialised `TensorProto` messages, as `tf.io.serialize_tensor` writes them.

    message TensorProto      { DataType dtype = 1;
                               TensorShapeProto tensor_shape = 2;
                               bytes tensor_content = 4;
                               repeated bytes string_val = 8; }
    message TensorShapeProto { repeated Dim dim = 2; }
    message Dim              { int64 size = 1; }

    08 <dtype>  12 <size> (12 <size> [08 <n>])*  [22 <size> <elements>]
                                                 (42 <size> <string>)*

`tensor_content` holds the elements in row-major order, little-endian; strings are one
by one in `string_val`. Zeros and empty bytes are left out, as proto3 has it: an empty
tensor has no content. `tf.io.parse_tensor` reads all of it.

Source: TensorFlow 2.21, `tensorflow/core/framework/tensor.proto`,
`tensor_shape.proto`, `types.proto`.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.example.varint import varint

Ints = npt.NDArray[np.int64]

_CONTENT = b"\x22"
_STRING_VAL = b"\x42"

STRING = "string"
DATA_TYPES: Mapping[str, int] = {
    "float32": 1,
    "float64": 2,
    "int32": 3,
    "uint8": 4,
    "int16": 5,
    "int8": 6,
    STRING: 7,
    "int64": 9,
    "bool": 10,
    "uint16": 17,
    "float16": 19,
    "uint32": 22,
    "uint64": 23,
}
"""Names of dtypes to the numbers of `DataType`."""


def tensor_protos(
    contents: pa.LargeBinaryArray, dims: Ints, dtype: str
) -> pa.LargeBinaryArray:
    """Returns n tensors as serialised messages.

    Args:
      contents: of each tensor: its elements in row-major order, little-endian; of
        strings, what `string_values` makes of them. No nulls.
      dims: int64 (n, d): the size along each dimension.
      dtype: a key of `DATA_TYPES`.
    """
    # The bytes before the elements depend on the shape and the size alone, and most
    # columns have one of each: encode each distinct head once.
    sizes = pc.binary_length(contents).to_numpy()
    keys = np.column_stack((dims, np.zeros_like(sizes) if dtype == STRING else sizes))
    width = keys.itemsize * keys.shape[1]
    packed = pa.Array.from_buffers(
        pa.binary(width), len(keys), [None, pa.py_buffer(np.ascontiguousarray(keys))]
    ).dictionary_encode()
    distinct = [np.frombuffer(key, np.int64) for key in packed.dictionary.to_pylist()]
    heads = [_head(key.tolist(), dtype) for key in distinct]
    fronts = pa.array(heads, pa.large_binary()).take(packed.indices)
    return _joined(fronts, contents)


def _head(key: list[int], dtype: str) -> bytes:
    """Returns the bytes before the elements; `key` is the shape and their size."""
    *shape, size = key
    dim = b"".join(_field(b"\x12", b"\x08" + varint(n) if n else b"") for n in shape)
    head = b"\x08" + varint(DATA_TYPES[dtype]) + _field(b"\x12", dim)
    return head + _CONTENT + varint(size) if size else head


def _field(tag: bytes, value: bytes) -> bytes:
    return tag + varint(len(value)) + value


def string_values(values: pa.Array, starts: Ints) -> pa.LargeBinaryArray:
    """Returns the `string_val` fields of n tensors of strings.

    Args:
      values: texts or bytes of all tensors, one after another. No nulls.
      starts: int64, n + 1: tensor i has the values from starts[i] to starts[i + 1].
    """
    values = values.cast(pa.large_binary())
    lengths = pc.dictionary_encode(pc.binary_length(values))
    heads = [_STRING_VAL + varint(n) for n in lengths.dictionary.to_pylist()]
    fronts = pa.array(heads, pa.large_binary()).take(lengths.indices)
    fields = pa.LargeListArray.from_arrays(starts, _joined(fronts, values))
    return pc.binary_join(fields, pa.scalar(b"", pa.large_binary()))


def _joined(first: pa.Array, second: pa.Array) -> pa.LargeBinaryArray:
    return pc.binary_join_element_wise(first, second, pa.scalar(b"", pa.large_binary()))
