"""Nested lists, arrays and raw bytes to the tensors of a feature.

    elements -> dtype, without loss -> row-major, little-endian bytes ("raw")
                                    -> the same in a TensorProto      ("proto")

| dtype           | elements                                                          |
| --------------- | ----------------------------------------------------------------- |
| int8 to uint64  | integers and bools inside it; floats that are whole               |
| float16, 32, 64 | floats: finite stays finite; integers: only those it holds exactly |
| bool            | bools                                                             |
| string          | text and bytes; "proto" only                                      |

A column of bytes holds the elements themselves, row-major and little-endian. Their
number must fit the shape, which may leave one size open.

"proto" is a serialised `TensorProto` message, as `tf.io.serialize_tensor` writes it:

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

import math
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import (
    binary_values,
    is_bytes,
    is_number,
    numpy_mask,
    offsets_of,
    raw_values,
)
from transforms.core.example.wire import varint
from transforms.core.reasons import Reason
from transforms.core.rows.column import (
    Column,
    Faults,
    Mask,
    fault,
    first_fault,
    nothing_fits,
    present_faults,
)
from transforms.core.rows.nested import Ints, Nested, faults_of, fitted, nested_of
from transforms.core.rows.text_cells import exact_float, without_missing
from transforms.core.rows.typed_cells import (
    decimal_text,
    exact_floats,
    integers,
    narrow_floats,
    scalars,
)
from transforms.core.schema import Feature, Kind
from transforms.errors import SpecError, bounded, nearest

_CONTENT = b"\x22"
_STRING_VAL = b"\x42"

# A record's list or tensor of more values than that cannot be written.
_MAX_VALUES = 2**28
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
PROTO = "proto"


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
    return _joined_pairs(fronts, contents)


def _head(key: list[int], dtype: str) -> bytes:
    """Returns the bytes before the elements; `key` is the shape and their size."""
    *shape, size = key
    dim = b"".join(_tagged(b"\x12", b"\x08" + varint(n) if n else b"") for n in shape)
    head = b"\x08" + varint(DATA_TYPES[dtype]) + _tagged(b"\x12", dim)
    return head + _CONTENT + varint(size) if size else head


def _tagged(tag: bytes, value: bytes) -> bytes:
    """Returns a protobuf field: its tag, the size as a varint, the bytes."""
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
    fields = pa.LargeListArray.from_arrays(starts, _joined_pairs(fronts, values))
    return pc.binary_join(fields, pa.scalar(b"", pa.large_binary()))


def _joined_pairs(first: pa.Array, second: pa.Array) -> pa.LargeBinaryArray:
    """Returns the bytes of each row: those of `first`, then of `second`."""
    return pc.binary_join_element_wise(first, second, pa.scalar(b"", pa.large_binary()))


def _elements(values: pa.Array, dtype: str) -> Column:
    """Returns m values as elements of a numeric dtype or bool."""
    target = pa.from_numpy_dtype(np.dtype(dtype))
    if pa.types.is_null(values.type):
        return Column(values.cast(target))
    if pa.types.is_boolean(target):
        return scalars(values, Feature("", Kind.BOOL))
    if pa.types.is_floating(target):
        return _float_elements(values, target)
    return integers(values, target)


def _float_elements(values: pa.Array, target: pa.DataType) -> Column:
    """Returns values as floats of the tensor's own width; bools do not fit."""
    kind = values.type
    if pa.types.is_integer(kind):
        return exact_floats(values, target)
    if pa.types.is_float32(target) and not pa.types.is_floating(kind):
        return scalars(values, Feature("", Kind.FLOAT))
    if pa.types.is_boolean(kind):
        return nothing_fits(values, target, Reason.NOT_A_NUMBER)
    cells = Column(values)
    if pa.types.is_decimal(kind):
        values = decimal_text(values)
    if pa.types.is_string(values.type):
        # float16 is rounded from float64, as NumPy does it.
        cells = exact_float(without_missing(values), pa.float64())
    if not pa.types.is_floating(cells.values.type):
        return nothing_fits(values, target, Reason.WRONG_TYPE)
    narrowed = narrow_floats(cells.values, target)
    return Column(narrowed.values, first_fault(cells.faults, narrowed.faults))


def tensors(found: Nested, feature: Feature) -> Column:
    """Returns n rows of nested lists as the tensors of a feature."""
    sizes, misshapen = fitted(found.sizes, np.diff(found.starts), feature.shape)
    if feature.encoding != PROTO and feature.shape.count(None) > 1:
        # A reader could not restore two open sizes from the number of bytes.
        misshapen[:] = True
    if feature.dtype == STRING:
        cells = scalars(found.values, Feature("", Kind.BYTES))
        contents = string_values(pc.fill_null(cells.values, b""), found.starts)
    else:
        cells = _elements(found.values, feature.dtype)
        is_bool = pa.types.is_boolean(cells.values.type)
        items = numpy_mask(cells.values) if is_bool else raw_values(cells.values)
        data = np.ascontiguousarray(items, items.dtype.newbyteorder("<"))
        contents = binary_values(data, found.starts * data.itemsize)
    faults = faults_of(found, cells, misshapen)
    return _stored_tensors(contents, sizes, faults, found.present, feature)


def _stored_tensors(
    contents: pa.LargeBinaryArray,
    sizes: Ints,
    faults: Faults | None,
    present: Mask | None,
    feature: Feature,
) -> Column:
    """Returns tensors as bytes: raw or TensorProto; bad ones are null."""
    rows = contents
    if feature.encoding == PROTO:
        rows = tensor_protos(contents, sizes, feature.dtype)
    faults, absent = present_faults(faults, present)
    if absent is not None and absent.any():
        rows = pc.if_else(pa.array(absent), pa.scalar(None, rows.type), rows)
    return Column(rows.cast(pa.binary()), faults)


def tensors_of_bytes(column: pa.Array, feature: Feature) -> Column:
    """Returns n strings of raw elements as the tensors of a feature."""
    if feature.dtype == STRING:
        return nothing_fits(column, pa.binary(), Reason.WRONG_SHAPE)
    contents = column.cast(pa.large_binary())
    present = numpy_mask(contents.is_valid()) if contents.null_count else None
    if present is not None:
        contents = pc.fill_null(contents, b"")
    sizes = np.diff(offsets_of(contents))
    counts, rest = np.divmod(sizes, np.dtype(feature.dtype).itemsize)
    dims, misshapen = fitted(counts[:, None], counts, feature.shape)
    faults = fault(misshapen | (rest != 0), Reason.WRONG_SHAPE)
    return _stored_tensors(contents, dims, faults, present, feature)


def cast_tensors(column: pa.Array, feature: Feature) -> Column:
    """Returns values, lists, texts or raw bytes as the tensors of a feature."""
    kind = column.type
    is_text = pa.types.is_string(kind)
    is_single = is_text or is_number(kind) or pa.types.is_boolean(kind)
    if feature.shape == () and (is_single or feature.dtype == STRING):
        starts = np.arange(len(column) + 1, dtype=np.int64)
        sizes = np.zeros((len(column), 0), np.int64)
        present = numpy_mask(column.is_valid())
        return tensors(Nested(column, starts, sizes, present), feature)
    if not is_text and (is_bytes(kind) or pa.types.is_fixed_size_binary(kind)):
        return tensors_of_bytes(column, feature)
    nested = nested_of(column, feature)
    if nested is None:
        return nothing_fits(column, pa.binary(), Reason.WRONG_SHAPE)
    return tensors(nested, feature)


def check_shape(feature: Feature) -> None:
    """Raises SpecError if a feature's shape, or its tensor's dtype, is invalid."""
    kind, shape, is_tensor = feature.kind, feature.shape, feature.kind is Kind.TENSOR
    if not shape and not is_tensor:
        return
    shown, several_open = str(list(shape))[:60], shape.count(None) > 1
    is_raw = is_tensor and feature.encoding != PROTO
    is_unknown = is_tensor and feature.dtype not in DATA_TYPES
    dtype = bounded(repr(feature.dtype), 60)
    if is_unknown:
        dtype += nearest(str(feature.dtype)[:60], DATA_TYPES)
    faults = {
        "a box has no shape of its own; leave it out": shape and kind is Kind.BOX,
        f"several images are a list, of a shape like [null]; found {shown}": (
            len(shape) > 1 and kind is Kind.IMAGE
        ),
        "lists of lists have no separator; leave it out": (
            feature.separator and feature.is_ragged
        ),
        f"a shape must be of at most 2^28 values; found {shown}": (
            math.prod(length or 1 for length in shape) > _MAX_VALUES
        ),
        f"dtype must be one of {', '.join(DATA_TYPES)}; found {dtype}": is_unknown,
        "a tensor of strings needs encoding: proto": is_raw and feature.dtype == STRING,
        "a raw tensor needs its shape; or use encoding: proto": is_raw and not shape,
        "of a raw tensor one size at most may be open, or no reader could tell the "
        "shape; use encoding: proto": is_raw and several_open,
        f"of a list one size at most may be open, or both of two; found {shown}": (
            several_open and not is_tensor and not feature.is_ragged
        ),
    }
    for why, is_wrong in faults.items():
        if is_wrong:
            raise SpecError(f"Feature {feature.name!r}: {why}.")
