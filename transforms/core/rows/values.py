"""Python and NumPy values to typed columns, by the rules of tf.train.Example.

| kind      | takes                                             | stored as           |
| --------- | ------------------------------------------------- | ------------------- |
| int64     | int, bool, integer Enum, NumPy integers and bools | Int64List           |
| float     | float, int, NumPy floats and integers             | FloatList           |
| bool      | bool, NumPy bools                                 | Int64List of 0 and 1 |
| text      | str, bytes that are UTF-8                         | BytesList           |
| bytes     | bytes, bytearray, memoryview, str                 | BytesList           |
| label     | as text; int and bool by their name               | Int64List           |
| timestamp | datetime, date, datetime64, ISO 8601, int (count) | Int64List           |
| image     | inline: bytes; else a path; or a dict of both     | BytesList           |
| tensor    | array, nested lists, a number                     | BytesList           |
| box       | array (k, 4), k lists of four numbers             | four FloatLists     |

A value is a scalar, or a list, tuple or array of them; None is a missing value. Lists
are flattened row by row; where the feature has a shape, they must have it, as
`transforms.core.rows.nested` tells. Nothing is lost in silence: a float is never an
integer, a uint64 above 2**63 - 1 is never wrapped, a finite number never becomes
infinite, an integer that float32 cannot hold never becomes its neighbour. A datetime
without a zone is UTC.
"""

import datetime
import enum
import functools
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from transforms.core.rows.ndarrays import (
    column_of_array,
    column_of_arrays,
    column_of_flat,
    refusal,
)
from transforms.core.rows.tensor_proto import STRING
from transforms.core.rows.timestamps import instant
from transforms.core.schema import BOX_SIDES, Feature, Kind, Schema, row_type

__all__ = ["column_of", "rows_of"]

_INT64 = range(-(2**63), 2**63)
_FLOAT32_MAX = float(np.finfo(np.float32).max)


def rows_of(rows: Sequence[Mapping[str, Any]], schema: Schema) -> pa.RecordBatch:
    """Returns rows given as mappings as one record batch; absent keys are missing.

    Raises:
      EncodingError: a value does not fit its feature; names row, feature and value.
    """
    columns = [
        column_of([row.get(feature.name) for row in rows], feature)
        for feature in schema.features
    ]
    return pa.record_batch(columns, names=list(schema.names))


def column_of(values: Sequence[Any] | np.ndarray, feature: Feature) -> pa.Array:
    """Returns n values as a column of the feature's kind.

    Whole arrays, and rows that are arrays of one dtype, are converted as such;
    everything else one by one, as Python's values can be anything.

    Args:
      values: n scalars, or n lists (then the column is one of lists), None for missing.
      feature: decides what is taken; its name is in errors.

    Raises:
      EncodingError: a value does not fit; names row (from 1), feature and value.
    """
    if isinstance(values, np.ndarray):
        column = column_of_array(values, feature)
    else:
        column = column_of_arrays(values, feature)
    if column is not None:
        return column
    if feature.kind is Kind.TENSOR:
        return _tensors(values, feature)
    check = _check_of(feature)
    needed = feature.is_list or feature.kind is Kind.BOX
    lists = needed or any(_is_list(value) for value in values)
    out: list[Any] = []
    for number, value in enumerate(values, start=1):
        try:
            if value is None:
                out.append(None)
            elif not lists:
                out.append(check(value))
            elif _is_list(value):
                out.append(_items(value, check, feature))
            elif needed:
                raise ValueError("a list is needed")
            else:
                raise ValueError("other rows hold lists, this one a single value")
        except (TypeError, ValueError, OverflowError) as error:
            raise refusal(number, feature, value, str(error)) from error
    kind = row_type(feature)
    return pa.array(out, pa.list_(kind) if lists and not needed else kind)


def _items(value: Any, check: Callable[[Any], Any], feature: Feature) -> list[Any]:
    """Returns a list's values, flat or as lists of the feature's rows."""
    if feature.is_ragged:
        if not all(_is_list(part) for part in value):
            raise ValueError("a list of lists is needed")
        return [[_present(check(item)) for item in _one_level(part)] for part in value]
    flat = [_present(check(item)) for item in _flat(value)]
    sides = len(BOX_SIDES)
    is_box = feature.kind is Kind.BOX
    wanted = (None, sides) if is_box else feature.shape
    if wanted and not _fits(_shape_of(value), len(flat), wanted):
        shown = ", ".join("any" if n is None else str(n) for n in wanted)
        raise ValueError(f"the shape [{shown}] is needed")
    if is_box:
        return [flat[at : at + sides] for at in range(0, len(flat), sides)]
    return flat


def _present(value: Any) -> Any:
    if value is None:
        raise ValueError("a list has no room for a missing value")
    return value


def _one_level(part: Any) -> list[Any]:
    if any(_is_list(item) for item in part):
        raise ValueError("a list of lists is needed, not deeper ones")
    return list(part)


def _shape_of(value: Any) -> tuple[int, ...] | None:
    """Returns the shape of nested lists; None if their lengths differ."""
    if isinstance(value, np.ndarray):
        return value.shape
    if not _is_list(value):
        return ()
    inner = {_shape_of(part) for part in value}
    if not inner:
        return (0,)
    first = inner.pop()
    return None if inner or first is None else (len(value), *first)


def _fits(
    shape: tuple[int, ...] | None, count: int, wanted: tuple[int | None, ...]
) -> bool:
    """Tells whether lists fit a shape, as `transforms.core.rows.nested` has it."""
    if shape is None:
        return False
    if len(shape) == len(wanted):
        return all(n is None or n == m for m, n in zip(shape, wanted, strict=True))
    known = math.prod(n for n in wanted if n is not None)
    if count == 0 and shape[-1] == 0 and len(shape) < len(wanted):
        # No list on the levels below: their sizes cannot be told.
        return _fits(shape, 1, wanted[: len(shape)]) or (len(shape) == 1 and not known)
    if len(shape) != 1 or wanted.count(None) > 1:
        return False
    if None in wanted:
        return count % known == 0 if known else count == 0
    return count == known


def _tensors(values: Sequence[Any] | np.ndarray, feature: Feature) -> pa.Array:
    """Returns values that are not arrays of one dtype as tensors, one by one."""
    out: list[pa.Array] = []
    for number, value in enumerate(values, start=1):
        if value is None:
            out.append(pa.nulls(1, pa.binary()))
            continue
        try:
            flat, shape = _flat_tensor(value, feature)
        except (TypeError, ValueError, OverflowError, pa.ArrowException) as error:
            raise refusal(number, feature, value, str(error)) from error
        sizes = np.array(shape, np.int64).reshape(1, len(shape))
        out.append(
            column_of_flat(flat, sizes, feature, values=[value], first_number=number)
        )
    return pa.concat_arrays(out) if out else pa.array([], pa.binary())


def _flat_tensor(value: Any, feature: Feature) -> tuple[pa.Array, tuple[int, ...]]:
    if feature.dtype == STRING:
        shape = _shape_of(value)
        if shape is None:
            raise ValueError("the lists differ in length")
        # Not by way of NumPy, whose texts lose the zero bytes at their end.
        items = _flat(value) if _is_list(value) else [value]
        return pa.array([_bytes(item) for item in items], pa.binary()), shape
    array = _array(value)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"an array of {feature.dtype} is needed")
    return pa.array(array.astype(array.dtype.newbyteorder("=")).ravel()), array.shape


def _array(value: Any) -> np.ndarray:
    if isinstance(value, np.ndarray):
        if value.dtype != object:
            return value
        value = value.tolist()
    flat = [_plain(item) for item in (_flat(value) if _is_list(value) else [value])]
    types = {type(item) for item in flat}
    if bool in types and len(types) > 1:
        # NumPy would make numbers of them.
        raise TypeError("bools and numbers are mixed")
    if all(isinstance(item, int) for item in flat) and types:
        low, high = min(flat), max(flat)
        dtype = np.uint64 if low >= 0 and high > 2**63 - 1 else None
        return np.array(value, dtype or (bool if types == {bool} else np.int64))
    # Python's ints among floats: only those that stay what they are.
    if any(isinstance(item, int) and int(float(item)) != item for item in flat):
        raise ValueError("a float cannot hold one of its integers exactly")
    return np.array(value)


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple) or (
        isinstance(value, np.ndarray) and value.ndim > 0
    )


def _flat(value: Any) -> list[Any]:
    if isinstance(value, np.ndarray):
        return list(value.ravel())
    return [
        item for part in value for item in (_flat(part) if _is_list(part) else [part])
    ]


def _plain(value: Any) -> Any:
    """Returns the Python value of a NumPy scalar, a 0-d array or an Enum."""
    if isinstance(value, enum.Enum):
        value = value.value
    if isinstance(value, np.ndarray | np.generic):
        # `item` of a longdouble stays one; nothing here takes it.
        return value.item()
    return value


def _int64(value: Any) -> int:
    value = _plain(value)
    if not isinstance(value, int):
        raise TypeError("an integer is needed; round or cast it yourself")
    if value not in _INT64:
        raise ValueError("it is outside int64")
    return int(value)


def _float(value: Any) -> float:
    value = _plain(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError("a number is needed")
    if isinstance(value, int):
        if abs(value) > _FLOAT32_MAX or int(np.float32(value)) != value:
            raise ValueError("float32 cannot hold this integer exactly")
    elif math.isfinite(value) and _overflows(value):
        raise ValueError("it is beyond float32")
    return float(value)


def _overflows(value: float) -> bool:
    with np.errstate(over="ignore"):
        return bool(np.isinf(np.float32(value)))


def _bool(value: Any) -> bool:
    value = _plain(value)
    if not isinstance(value, bool):
        raise TypeError("True or False is needed")
    return value


def _text(value: Any) -> str:
    value = _plain(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode()
    if not isinstance(value, str):
        raise TypeError("text is needed")
    value.encode()
    return value


def _bytes(value: Any) -> bytes:
    value = _plain(value)
    if isinstance(value, str):
        return value.encode()
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError("bytes or text are needed")
    return bytes(value)


def _label(value: Any) -> str:
    value = _plain(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else _text(value)


def _image(value: Any, feature: Feature) -> Any:
    wanted = "bytes" if feature.inline else "path"
    if isinstance(value, Mapping):
        value = value.get(wanted)
    if feature.inline:
        if not isinstance(value, bytes | bytearray | memoryview):
            raise TypeError("the bytes of an image file are needed")
        return bytes(value)
    if not isinstance(value, str | os.PathLike):
        raise TypeError("the path of an image file is needed")
    return _text(os.fspath(value))


def _timestamp(value: Any, unit: str) -> int | None:
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, str | datetime.date | np.datetime64):
        return instant(value, unit)
    return _int64(value)


_CHECKS: Mapping[Kind, Callable[[Any], Any]] = {
    Kind.INT64: _int64,
    Kind.FLOAT: _float,
    Kind.BOX: _float,
    Kind.BOOL: _bool,
    Kind.TEXT: _text,
    Kind.LABEL: _label,
    Kind.BYTES: _bytes,
}


def _check_of(feature: Feature) -> Callable[[Any], Any]:
    if feature.kind is Kind.TIMESTAMP:
        return functools.partial(_timestamp, unit=feature.unit)
    if feature.kind is Kind.IMAGE:
        return functools.partial(_image, feature=feature)
    return _CHECKS[feature.kind]
