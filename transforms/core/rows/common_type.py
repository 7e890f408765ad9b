"""Convert values to the plain type of their column, or to a wider common type.

The types are those of the lattice in `transforms.core.arrow_types`. Equal values get
equal types, so that a dataset does not depend on how its source stored them.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import lists_like
from transforms.core.arrow_types import PYTHON, is_any_list, plain_type
from transforms.core.rows.arrow_of import FLOAT32_BITS
from transforms.core.rows.python_kinds import OddValueError

_INT64_MAX = 2**63 - 1


def as_type(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Returns n values as their canonical type, or as a wider one.

    Raises:
      OddValueError: the type cannot hold a value exactly; has its index.
      ArrowException: Arrow has no such conversion.
    """
    if array.type.equals(kind):
        return array
    if isinstance(array, pa.ExtensionArray):
        if plain_type(array.type, PYTHON).equals(kind):
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
    if is_any_list(array.type) and is_any_list(kind):
        return _lists_as(array, kind)
    return array.cast(kind)


def is_encoded(kind: pa.DataType) -> bool:
    """Tells whether values are stored as a dictionary or as runs."""
    return bool(pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind))


def decoded(array: pa.Array) -> pa.Array:
    """Returns the n values of a dictionary or of runs; texts and bytes as large types.

    Arrow has no kernel for dictionaries and runs of views.
    """
    if pa.types.is_dictionary(array.type):
        values, indices = array.dictionary, array.indices
    else:
        values = array.values
        ends = np.asarray(array.run_ends).astype(np.int64) - array.offset
        sizes = np.diff(ends.clip(0, len(array)), prepend=0)
        indices = pa.array(np.repeat(np.arange(len(values)), sizes))
    kind = plain_type(values.type, PYTHON)
    # `take` silently wraps the 32-bit offsets of results over 2 GiB.
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
        why = "is among floats, and float32 cannot hold it"
    else:
        is_wide = pa.types.is_uint64(array.type) and not pa.types.is_uint64(kind)
        lost = (numbers > _INT64_MAX) if is_wide else ~present & present
        why = "is outside int64"
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
    return lists_like(array, items)
