"""The common Arrow type of values that came in several types or encodings.

    canonical_type  dictionary, run-end, view, large  -> what they hold
                    timestamp in any zone             -> in UTC
    wider_type      int8, int32      -> int64         null, x          -> x
                    float32, float64 -> float64       string, binary   -> binary
                    int64, float64   -> float64, as far as float32 holds the integers
                    list of 2, of 3  -> list          struct, struct   -> all fields

Equal values get equal types, so that a dataset does not hang on how they were kept.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.rows.arrow_of import FLOAT32_BITS
from transforms.core.rows.python_kinds import OddValueError

__all__ = ["as_type", "canonical_type", "decoded", "is_encoded", "wider_type"]

_INT64_DIGITS = 19
_INT64_MAX = 2**63 - 1
_MOST_DIGITS = 76
_UNITS = ("s", "ms", "us", "ns")


def canonical_type(kind: pa.DataType) -> pa.DataType:
    """Returns the one type for all ways of storing the same values."""
    types = pa.types
    if isinstance(kind, pa.FixedShapeTensorType):
        if list(kind.permutation or ()) == sorted(kind.permutation or ()):
            return pa.fixed_shape_tensor(kind.value_type, kind.shape)
        return kind
    if isinstance(kind, pa.BaseExtensionType):
        return canonical_type(kind.storage_type)
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return canonical_type(kind.value_type)
    if types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    if types.is_large_binary(kind) or types.is_binary_view(kind):
        return pa.binary()
    if types.is_fixed_size_list(kind):
        return pa.list_(canonical_type(kind.value_type), kind.list_size)
    if _is_list(kind):
        return pa.list_(canonical_type(kind.value_type))
    if types.is_struct(kind):
        return pa.struct([(f.name, canonical_type(f.type)) for f in kind])
    if types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, "UTC")
    return kind


def _is_list(kind: pa.DataType) -> bool:
    return (
        pa.types.is_list(kind)
        or pa.types.is_large_list(kind)
        or pa.types.is_list_view(kind)
        or pa.types.is_large_list_view(kind)
        or pa.types.is_fixed_size_list(kind)
    )


def wider_type(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """Returns the type that holds what both canonical types do; None where none is."""
    if a.equals(b) or pa.types.is_null(b):
        return a
    if pa.types.is_null(a):
        return b
    if isinstance(a, pa.BaseExtensionType) or isinstance(b, pa.BaseExtensionType):
        return None
    for wider in (_wider_number, _wider_bytes, _wider_time, _wider_nested):
        found = wider(a, b)
        if found is not None:
            return found
    return None


def _wider_number(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    types = pa.types
    if types.is_integer(a) and types.is_integer(b):
        unsigned = types.is_unsigned_integer(a) and types.is_unsigned_integer(b)
        return pa.uint64() if unsigned else pa.int64()
    numbers = [types.is_integer(k) or types.is_floating(k) for k in (a, b)]
    if all(numbers):
        return pa.float64()
    exact = [types.is_integer(k) or types.is_decimal(k) for k in (a, b)]
    if not all(exact):
        return None
    digits, scales = zip(*(_digits(kind) for kind in (a, b)), strict=True)
    scale = max(scales)
    precision = max(digits) + scale
    return pa.decimal256(precision, scale) if precision <= _MOST_DIGITS else None


def _digits(kind: pa.DataType) -> tuple[int, int]:
    """Returns the digits before and after the point."""
    if pa.types.is_integer(kind):
        return _INT64_DIGITS + 1, 0
    return kind.precision - kind.scale, kind.scale


def _wider_bytes(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    known = (pa.string(), pa.binary())
    return pa.binary() if a in known and b in known else None


def _wider_time(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    types = pa.types
    if types.is_timestamp(a) and types.is_timestamp(b) and a.tz == b.tz:
        return pa.timestamp(max(a.unit, b.unit, key=_UNITS.index), a.tz)
    if types.is_duration(a) and types.is_duration(b):
        return pa.duration(max(a.unit, b.unit, key=_UNITS.index))
    return None


def _wider_nested(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    if _is_list(a) and _is_list(b):
        inner = wider_type(a.value_type, b.value_type)
        if inner is None:
            return None
        fixed = pa.types.is_fixed_size_list(a) and pa.types.is_fixed_size_list(b)
        if fixed and a.list_size == b.list_size:
            return pa.list_(inner, a.list_size)
        return pa.list_(inner)
    if not (pa.types.is_struct(a) and pa.types.is_struct(b)):
        return None
    fields = {field.name: field.type for field in a}
    for field in b:
        inner = wider_type(fields.get(field.name, pa.null()), field.type)
        if inner is None:
            return None
        fields[field.name] = inner
    return pa.struct(list(fields.items()))


def as_type(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Returns n values as their canonical type, or as a wider one.

    Raises:
      OddValueError: the type cannot hold a value exactly; has its index.
      ArrowException: the types do not go together.
    """
    if array.type.equals(kind):
        return array
    if isinstance(array, pa.ExtensionArray):
        if canonical_type(array.type).equals(kind):
            storage = as_type(array.storage, getattr(kind, "storage_type", kind))
            return _rewrapped(storage, kind)
        return as_type(array.storage, kind)
    if is_encoded(array.type):
        return as_type(decoded(array), kind)
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), kind)
    if pa.types.is_integer(array.type) and not pa.types.is_decimal(kind):
        return _integers_as(array, kind)
    if pa.types.is_struct(array.type) and pa.types.is_struct(kind):
        return _structs_as(array, kind)
    if _is_list(array.type) and _is_list(kind):
        return _lists_as(array, kind)
    return array.cast(kind)


def is_encoded(kind: pa.DataType) -> bool:
    """Whether values are stored once and pointed at: dictionaries, runs."""
    return bool(pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind))


def decoded(array: pa.Array) -> pa.Array:
    """Returns n values out of a dictionary or of runs; texts and bytes as large ones.

    Arrow has no kernel for dictionaries and runs of views.
    """
    if pa.types.is_dictionary(array.type):
        values, indices = array.dictionary, array.indices
    else:
        values = array.values
        ends = np.asarray(array.run_ends).astype(np.int64) - array.offset
        sizes = np.diff(ends.clip(0, len(array)), prepend=0)
        indices = pa.array(np.repeat(np.arange(len(values)), sizes))
    kind = canonical_type(values.type)
    # `take` wraps the offsets of results over 2 GiB without a word.
    large = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}.get(kind)
    values = values.cast(large) if large else as_type(values, kind)
    return values.take(indices)


def _rewrapped(storage: pa.Array, kind: pa.DataType) -> pa.Array:
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, storage)
    return storage


def _integers_as(array: pa.Array, kind: pa.DataType) -> pa.Array:
    present = np.asarray(array.is_valid())
    numbers = pc.fill_null(array, 0).to_numpy()
    if pa.types.is_floating(kind):
        sizes = np.where(numbers < 0, np.negative(numbers), numbers).astype(np.uint64)
        # What is left without the zeros at its end must fit the significand.
        lowest = np.maximum(sizes & (~sizes + np.uint64(1)), np.uint64(1))
        lost = sizes // lowest >= 1 << FLOAT32_BITS
        why = "stands among floats, and float32 cannot hold it"
    else:
        is_wide = pa.types.is_uint64(array.type) and not pa.types.is_uint64(kind)
        lost = (numbers > _INT64_MAX) if is_wide else ~present & present
        why = "lies outside int64"
    if lost.any():
        index = int(np.argmax(lost))
        raise OddValueError(f"{numbers[index]} {why}", index)
    return array.cast(kind, safe=False)


def _structs_as(array: pa.Array, kind: pa.DataType) -> pa.Array:
    names = [field.name for field in array.type]
    fields = []
    for field in kind:
        if field.name not in names:
            fields.append(pa.nulls(len(array), field.type))
            continue
        fields.append(as_type(pc.struct_field(array, field.name), field.type))
    mask = array.is_null()
    made = [pa.field(field.name, field.type) for field in kind]
    return pa.StructArray.from_arrays(fields, fields=made, mask=mask)


def _lists_as(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_fixed_size_list(kind):
        # Arrow's `flatten` leaves null lists out, where their items must be.
        start = array.offset * kind.list_size
        items = array.values.slice(start, len(array) * kind.list_size)
        mask = array.is_null() if array.null_count else None
        values = as_type(items, kind.value_type)
        return pa.FixedSizeListArray.from_arrays(values, kind.list_size, mask=mask)
    lengths = pc.fill_null(pc.list_value_length(array), 0)
    starts = np.concatenate(([0], np.cumsum(lengths.to_numpy(), dtype=np.int64)))
    try:
        items = as_type(array.flatten(), kind.value_type)
    except OddValueError as error:
        index = int(np.searchsorted(starts, error.index, side="right")) - 1
        raise OddValueError(str(error), index) from error
    mask = array.is_null() if array.null_count else None
    return pa.ListArray.from_arrays(pa.array(starts, pa.int32()), items, mask=mask)
