"""Python and NumPy values to typed columns, by the rules of tf.train.Example.

| kind  | takes                                            | stored as             |
| ----- | ------------------------------------------------ | --------------------- |
| int64 | int, bool, integer Enum, NumPy integers and bools | Int64List            |
| float | float, int, NumPy floats and integers            | FloatList             |
| bool  | bool, NumPy bools                                | Int64List of 0 and 1  |
| text  | str, bytes that are UTF-8                        | BytesList             |
| bytes | bytes, bytearray, memoryview, str                | BytesList             |

A value is a scalar, or a list, tuple or array of them (flattened row by row); None is a
missing value. Nothing is lost in silence: a float is never an integer, a uint64 above
2**63 - 1 is never wrapped, a finite number never becomes infinite, an integer that
float32 cannot hold never becomes its neighbour.
"""

import enum
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from transforms.core.schema import Feature, Kind, Schema, row_type
from transforms.errors import EncodingError, bounded

__all__ = ["column_of", "rows_of"]

_INT64 = range(-(2**63), 2**63)
_FLOAT32_MAX = float(np.finfo(np.float32).max)
_SHOWN_CHARS = 60


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

    Args:
      values: n scalars, or n lists (then the column is one of lists), None for missing.
      feature: decides what is taken; its name stands in errors.

    Raises:
      EncodingError: a value does not fit; names row (from 1), feature and value.
    """
    check = _CHECKS.get(feature.kind)
    if check is None:
        raise EncodingError(
            f"feature {feature.name!r} is of kind {feature.kind}, which is not made of "
            f"plain values; give {', '.join(_CHECKS)}"
        )
    lists = any(_is_list(value) for value in values)
    out: list[Any] = []
    for number, value in enumerate(values, start=1):
        try:
            if value is None:
                out.append(None)
            elif not lists:
                out.append(check(value))
            elif _is_list(value):
                out.append([check(item) for item in _flat(value)])
            else:
                raise ValueError("other rows hold lists, this one a single value")
        except (TypeError, ValueError) as error:
            shown = bounded(repr(value), _SHOWN_CHARS)
            raise EncodingError(
                f"row {number}: feature {feature.name!r} of kind {feature.kind} cannot "
                f"hold {shown} ({type(value).__name__}): {error}"
            ) from error
    kind = row_type(feature)
    return pa.array(out, pa.list_(kind) if lists else kind)


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


_CHECKS: Mapping[Kind, Callable[[Any], Any]] = {
    Kind.INT64: _int64,
    Kind.FLOAT: _float,
    Kind.BOOL: _bool,
    Kind.TEXT: _text,
    Kind.BYTES: _bytes,
}
