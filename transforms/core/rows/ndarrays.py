"""Whole NumPy arrays to columns, without a look at each value in Python.

    array (n,)             -> n single values
    array (n, k, ...)      -> n lists or tensors of k * ... values
    n arrays of one dtype  -> the same, of sizes of their own

| kind      | dtypes (as `numpy.dtype.kind`)                        |
| --------- | ----------------------------------------------------- |
| int64     | integers, bools                                       |
| float     | floats, integers                                      |
| bool      | bools                                                 |
| text      | str, bytes                                            |
| bytes     | bytes, str                                            |
| label     | str, bytes, integers, bools                           |
| timestamp | datetime64 of D, s, ms, us, ns; NaT is missing        |
| tensor    | numbers, bools; of dtype string: str, bytes           |
| box       | floats, integers                                      |

Of masked arrays, what is masked is missing. Whatever else there is (objects, long
doubles, weeks) is for `values` to decide one by one, by the same rules.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.core.rows.cast import Cast, cast, cast_nested
from transforms.core.rows.coerce import Coerced, complaint
from transforms.core.rows.nested import Nested
from transforms.core.rows.tensor_proto import STRING
from transforms.core.rows.tensors import tensors
from transforms.core.schema import BOX_SIDES, Feature, Kind
from transforms.errors import EncodingError, bounded

__all__ = ["column_of_array", "column_of_arrays", "column_of_flat", "refusal"]

Array = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]

_SHOWN_CHARS = 60

_DTYPES: Mapping[Kind, str] = {
    Kind.INT64: "iub",
    Kind.FLOAT: "fiu",
    Kind.BOOL: "b",
    Kind.TEXT: "US",
    Kind.BYTES: "US",
    Kind.LABEL: "USiub",
    Kind.TIMESTAMP: "M",
    Kind.TENSOR: "biuf",
    Kind.BOX: "fiu",
}
_UNITS = ("D", "s", "ms", "us", "ns")


def refusal(number: int, feature: Feature, value: Any, why: str) -> EncodingError:
    """Returns the error for a value, of row `number` from 1 on, that does not fit."""
    shown = bounded(repr(value), _SHOWN_CHARS)
    return EncodingError(
        f"row {number}: feature {feature.name!r} of kind {feature.kind} cannot "
        f"hold {shown} ({type(value).__name__}): {why}"
    )


def column_of_array(array: Array, feature: Feature) -> pa.Array | None:
    """Returns an array of n rows as a column; None if its dtype is none of these.

    Raises:
      EncodingError: a value does not fit; names row (from 1), feature and value.
    """
    if array.ndim == 0 or not _is_taken(array.dtype, feature):
        return None
    flat = _flat(array)
    if flat is None:
        return None
    if array.ndim == 1 and not feature.is_list and feature.kind is not Kind.BOX:
        return _checked(cast(flat, feature), feature, array, 1)
    sizes = np.tile(np.array(array.shape[1:], np.int64), (len(array), 1))
    if array.ndim == 1 and len(array):
        raise refusal(1, feature, array[0], "a list is needed")
    return column_of_flat(flat, sizes, feature, values=array)


def column_of_arrays(values: Sequence[Any], feature: Feature) -> pa.Array | None:
    """Returns n arrays, None for missing, as a column of lists or tensors.

    None if they are not all of one dtype, of those above, and one number of dimensions.

    Raises:
      EncodingError: as `column_of_array`.
    """
    arrays = [value for value in values if value is not None]
    if not arrays or not all(type(array) is np.ndarray for array in arrays):
        return None
    dtype, ndim = arrays[0].dtype, arrays[0].ndim
    if ndim == 0 or not _is_taken(dtype, feature):
        return None
    if any(array.dtype != dtype or array.ndim != ndim for array in arrays):
        return None
    flat = _flat(np.concatenate([array.ravel() for array in arrays]))
    if flat is None:
        return None
    present = np.array([value is not None for value in values], np.bool_)
    sizes = np.zeros((len(values), ndim), np.int64)
    sizes[present] = [array.shape for array in arrays]
    return column_of_flat(flat, sizes, feature, values=values, present=present)


def _is_taken(dtype: np.dtype[Any], feature: Feature) -> bool:
    if feature.kind is Kind.TENSOR and feature.dtype == STRING:
        return dtype.kind in "US"
    if dtype.kind == "M" and np.datetime_data(dtype) not in [(u, 1) for u in _UNITS]:
        return False
    return dtype.kind in _DTYPES.get(feature.kind, "") and dtype.itemsize <= (
        8 if dtype.kind in "biufM" else dtype.itemsize
    )


def _flat(array: Array) -> pa.Array | None:
    """Returns all values in row-major order; None if Arrow has no such type."""
    mask = None
    if isinstance(array, np.ma.MaskedArray):
        mask = np.ma.getmaskarray(array).ravel()
        array = array.data
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    try:
        return pa.array(native.ravel(), mask=mask)
    except (pa.ArrowException, ValueError, TypeError):
        return None


def column_of_flat(
    flat: pa.Array,
    sizes: Ints,
    feature: Feature,
    *,
    values: Sequence[Any] | Array,
    present: npt.NDArray[np.bool_] | None = None,
    first_number: int = 1,
) -> pa.Array:
    """Returns n lists or tensors as a column.

    Args:
      flat: the items of all rows, in row-major order.
      sizes: int64 (n, d): the shape of each.
      feature: decides what is taken.
      values: the n rows as they were given, for errors.
      present: n bools, false where the row is missing; None where none is.
      first_number: of the first row, for errors.

    Raises:
      EncodingError: a value does not fit; names row (from 1), feature and value.
    """
    counts = sizes.prod(axis=1)
    if present is not None:
        counts = counts * present
    starts = np.concatenate(([0], np.cumsum(counts)))
    is_tensor = feature.kind is Kind.TENSOR
    if not (feature.shape or is_tensor or feature.kind is Kind.BOX):
        # Without a shape, a list of any length, row by row.
        feature = dataclasses.replace(feature, shape=(None,))
        sizes = counts[:, None]
    inner = outer = None
    if feature.is_ragged and sizes.shape[1] == 2:
        heights = sizes[:, 0]
        outer = np.concatenate(([0], np.cumsum(heights)))
        widths = np.repeat(sizes[:, 1], heights)
        inner = np.concatenate(([0], np.cumsum(widths)))
    found = Nested(flat, starts, sizes, present, None, inner, outer)
    if is_tensor:
        result = Cast.of(tensors(found, feature))
    else:
        if feature.kind is Kind.BOX:
            feature = dataclasses.replace(feature, shape=(None, len(BOX_SIDES)))
        result = cast_nested(found, feature)
    return _checked(result, feature, values, first_number)


def _checked(
    found: Coerced, feature: Feature, values: Sequence[Any] | Array, first_number: int
) -> pa.Array:
    if found.bad is None:
        return found.values
    row = int(np.argmax(found.bad))
    why = complaint(feature, found.reason_at(row))
    raise refusal(first_number + row, feature, values[row], why)
