"""Nested lists, arrays and raw bytes to the tensors of a feature.

    elements -> dtype, without loss -> row-major, little-endian bytes ("raw")
                                    -> the same in a TensorProto      ("proto")

| dtype           | elements                                                          |
| --------------- | ----------------------------------------------------------------- |
| int8 to uint64  | integers and bools inside it; never floats                        |
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

import decimal
import re
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import numpy_mask, numpy_type, offsets_of, raw_values
from transforms.core.example.varint import varint
from transforms.core.reasons import Reason
from transforms.core.rows.coerce import (
    INTEGER,
    coerce,
    exact_float,
    trimmed,
    without_missing,
)
from transforms.core.rows.column import (
    Column,
    Faults,
    Mask,
    decoded,
    fault,
    first_fault,
    nothing_fits,
    present_faults,
    rows_with_faults,
    without,
)
from transforms.core.rows.nested import Nested, fitted
from transforms.core.rows.scalars import exact_floats, scalars
from transforms.core.schema import Feature, Kind

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
PROTO = "proto"

_UINT64 = range(2**64)
# Characters of the largest uint64, with a sign.
_UINT64_CHARS = 21

Ints = npt.NDArray[np.int64]
Elements = npt.NDArray[np.generic]


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


def elements(values: pa.Array, dtype: str) -> tuple[Elements, Faults | None]:
    """Returns m values as elements of a numeric dtype or bool, and which do not fit.

    Missing values do not fit. Elements that do not fit are undefined.
    """
    values = decoded(values)
    if dtype == "bool":
        cells = scalars(values, Feature("", Kind.BOOL))
    elif pa.types.is_null(values.type):
        cells = Column(values.cast(pa.from_numpy_dtype(np.dtype(dtype))))
    else:
        target = pa.from_numpy_dtype(np.dtype(dtype))
        is_float = np.dtype(dtype).kind == "f"
        cells = (_floats if is_float else _integers)(values, target)
    missing = fault(numpy_mask(cells.values.is_null()), Reason.MISSING_VALUE)
    faults = first_fault(cells.faults, missing)
    if dtype == "bool":
        return numpy_mask(cells.values), faults
    return raw_values(cells.values), faults


def _integers(values: pa.Array, target: pa.DataType) -> Column:
    kind = values.type
    faults = None
    if pa.types.is_string(kind) and pa.types.is_uint64(target):
        values, faults = _unsigned_texts(values)
    elif pa.types.is_boolean(kind):
        values = values.cast(pa.uint8())
    elif not (pa.types.is_integer(kind) or _is_whole(kind)):
        cells = scalars(values, Feature("", Kind.INT64))
        values, faults = cells.values, cells.faults
    try:
        return Column(values.cast(target), faults)
    except pa.ArrowInvalid:
        fits = _inside(values, target)
    kept = pc.if_else(fits, values, pa.scalar(None, values.type))
    beyond = fault(numpy_mask(pc.invert(fits)), Reason.OUT_OF_RANGE)
    return Column(kept.cast(target), first_fault(faults, beyond))


def _is_whole(kind: pa.DataType) -> bool:
    return pa.types.is_decimal(kind) and kind.scale == 0


def _inside(values: pa.Array, target: pa.DataType) -> pa.Array:
    limits = np.iinfo(numpy_type(target))
    low, high = int(limits.min), int(limits.max)
    kind = values.type
    if pa.types.is_decimal(kind):
        kind = pa.decimal256(76, 0)
        values = values.cast(kind)
        least = pa.scalar(decimal.Decimal(low), kind)
        most = pa.scalar(decimal.Decimal(high), kind)
    else:
        # Arrow cannot hold a limit outside the column's own type, which needs none.
        own = np.iinfo(numpy_type(kind))
        least = pa.scalar(max(low, int(own.min)), kind)
        most = pa.scalar(min(high, int(own.max)), kind)
    return pc.and_(pc.greater_equal(values, least), pc.less_equal(values, most))


def _unsigned_texts(texts: pa.StringArray) -> tuple[pa.Array, Faults | None]:
    """Returns texts as uint64, or as int64 where that holds all that fit."""
    cells = coerce(texts, Feature("", Kind.INT64))
    if cells.faults is None:
        return cells.values, None
    # One by one: numbers beyond int64 are rare.
    faults = cells.faults.copy()
    large: dict[int, int] = {}
    for row in np.flatnonzero(faults).tolist():
        text = texts[row].as_py().strip(" \t")
        small = len(text) <= _UINT64_CHARS and re.fullmatch(INTEGER, text, re.ASCII)
        if small and int(text) in _UINT64:
            large[row], faults[row] = int(text), 0
    rest = faults if faults.any() else None
    if not large:
        return cells.values, rest
    below = numpy_mask(pc.less(cells.values, 0))
    numbers = without(cells.values, below, Reason.OUT_OF_RANGE)
    whole = numbers.values.to_pylist()
    for row, number in large.items():
        whole[row] = number
    return pa.array(whole, pa.uint64()), first_fault(rest, numbers.faults)


def _floats(values: pa.Array, target: pa.DataType) -> Column:
    kind = values.type
    if pa.types.is_float32(target) and not pa.types.is_floating(kind):
        return scalars(values, Feature("", Kind.FLOAT))
    if pa.types.is_integer(kind):
        return exact_floats(values, target)
    if pa.types.is_boolean(kind):
        return nothing_fits(values, target, Reason.NOT_A_NUMBER)
    faults = None
    if pa.types.is_decimal(kind):
        values = values.cast(pa.string())
    if pa.types.is_string(values.type):
        # float16 is rounded from float64, as NumPy does it.
        cells = exact_float(trimmed(without_missing(values)), pa.float64())
        values, faults = cells.values, cells.faults
    if not pa.types.is_floating(values.type):
        return nothing_fits(values, target, Reason.WRONG_TYPE)
    cast = values.cast(target)
    infinite = np.isinf(raw_values(cast))
    if infinite.any():
        infinite &= np.isfinite(raw_values(values)) & numpy_mask(values.is_valid())
    return Column(cast, first_fault(faults, fault(infinite, Reason.OUT_OF_RANGE)))


def tensors(found: Nested, feature: Feature) -> Column:
    """Returns n rows of nested lists as the tensors of a feature."""
    sizes, misshapen = fitted(found, feature.shape)
    if feature.encoding != PROTO and feature.shape.count(None) > 1:
        # A reader could not restore two open sizes from the number of bytes.
        misshapen[:] = True
    if feature.dtype == STRING:
        cells = scalars(found.values, Feature("", Kind.BYTES))
        missing = fault(numpy_mask(cells.values.is_null()), Reason.MISSING_VALUE)
        items_faults = first_fault(cells.faults, missing)
        contents = string_values(pc.fill_null(cells.values, b""), found.starts)
    else:
        items, items_faults = elements(found.values, feature.dtype)
        contents = _contents(items, found.starts)
    faults = first_fault(
        found.faults,
        fault(misshapen, Reason.WRONG_SHAPE),
        rows_with_faults(items_faults, found.starts),
    )
    return _encoded(contents, sizes, faults, found.present, feature)


def _contents(items: Elements, starts: Ints) -> pa.LargeBinaryArray:
    data = np.ascontiguousarray(items, items.dtype.newbyteorder("<"))
    offsets = pa.py_buffer(starts * data.itemsize)
    buffers = [None, offsets, pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_binary(), len(starts) - 1, buffers, 0)


def _encoded(
    contents: pa.LargeBinaryArray,
    sizes: Ints,
    faults: Faults | None,
    present: Mask | None,
    feature: Feature,
) -> Column:
    rows = contents
    if feature.encoding == PROTO:
        rows = tensor_protos(contents, sizes, feature.dtype)
    absent = np.zeros(len(rows), np.bool_) if present is None else ~present
    faults = present_faults(faults, absent)
    if faults is not None:
        absent = absent | (faults > 0)
    if absent.any():
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
    starts = np.concatenate(([0], np.cumsum(counts)))
    flat = Nested(pa.nulls(0), starts, counts[:, None], present)
    dims, misshapen = fitted(flat, feature.shape)
    faults = fault(misshapen | (rest != 0), Reason.WRONG_SHAPE)
    return _encoded(contents, dims, faults, present, feature)
