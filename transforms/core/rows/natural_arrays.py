"""Convert Python and NumPy values to an Arrow array of their natural type.

| values                                | array                                       |
| ------------------------------------- | ------------------------------------------- |
| bool, NumPy bools                     | bool                                        |
| int, NumPy integers of several widths | int64                                       |
| NumPy numbers of one width            | of that width                               |
| float, NumPy floats of several widths | float64                                     |
| int among float                       | float64, each int up to 2^53                |
| str; bytes, bytearray, memoryview     | string; binary, also for a mixture of both  |
| datetime, datetime64                  | timestamp; in UTC where it has a zone       |
| date, time, timedelta, Decimal        | date32, time64, duration, decimal           |
| Enum                                  | as its values                               |
| mapping                               | struct: the keys in order of appearance     |
| list, tuple, arrays of one dimension  | list; arrays of one length: fixed-size list |
| arrays of one shape, of 2 dimensions  | FixedShapeTensor                            |
| and more                              |                                             |

None, NaT and pandas' NA are null; NaN stays NaN. No conversion loses anything, and
values of different kinds are an error that names the first odd one.
"""

import functools
import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.core.arrays import list_of
from transforms.core.json_text import MAX_NESTING, TOO_DEEP, check_key
from transforms.core.rows.column import FLOAT64_EXACT
from transforms.core.rows.python_kinds import (
    OddValueError,
    family_of,
    plain_values,
    shown,
)

Array = npt.NDArray[Any]

# NumPy's units of time that Arrow lacks, and those that hold the same instants.
_UNITS = {"Y": "D", "M": "D", "W": "D", "h": "s", "m": "s"}
_ARROW_UNITS = ("D", "s", "ms", "us", "ns")
# Families whose values hold others.
_NESTED = frozenset(["array", "list", "mapping"])
# Cycles are looked for at this level only: few rows are as deep, and a list that holds
# itself has not grown large by then.
_CHECKED_LEVEL = 4
# Messages longer than this get no more keys: those of deep values name the innermost.
_LONG_CHARS = 400
# Values of exactly these types become a column at once.
_TYPES: dict[type[Any], pa.DataType] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
}


def arrow_of(values: Sequence[Any] | Array) -> pa.Array:
    """Returns n values, or an array of shape (n, ...), as an Arrow array.

    Raises:
      OddValueError: they are of several types or shapes, or beyond what Arrow holds.
    """
    if isinstance(values, np.ndarray):
        return _of_array(values)
    return _of_values(list(values))


def of_one_type(values: list[Any], *, apart: bool = True) -> pa.Array | None:
    """Returns Python values of one type as their Arrow array; None for others.

    Args:
      values: n of them, None where one is missing.
      apart: whether integers do not join floats.
    """
    kinds = set(map(type, values)) - {type(None)}
    if kinds == {int, float} and not apart:
        kinds = {float}
    if len(kinds) != 1:
        return None
    target = _TYPES.get(kinds.pop())
    if target is None:
        return None
    try:
        # Refuses integers that int64, or among floats float64, does not hold.
        array = pa.array(values, target)
    except (pa.ArrowException, ValueError, OverflowError):
        return None
    return array if isinstance(array, pa.Array) else None


def _of_values(values: list[Any], level: int = 0) -> pa.Array:
    """Returns n values that are inside `level` lists and mappings."""
    column = of_one_type(values)
    if column is not None:
        return column
    values = plain_values(values)
    types = set(map(type, values)) - {type(None)}
    families = {family_of(kind) for kind in types}
    if not families:
        return pa.nulls(len(values))
    if "" in families:
        index = next(
            i for i, v in enumerate(values) if v is not None and not family_of(type(v))
        )
        raise OddValueError(
            f"no feature holds what is of type {type(values[index]).__name__}", index
        )
    makers = [make for accepted, make in _MAKERS if families <= accepted]
    if not makers:
        first = family_of(type(next(v for v in values if v is not None)))
        why = f"is among values that are {first}"
        _refuse(values, lambda v: family_of(type(v)) != first, why)
    make = makers[0]
    if families & _NESTED:
        if level in (_CHECKED_LEVEL, MAX_NESTING):
            _check_nesting(values, level)
        make = functools.partial(make, level=level + 1)
    try:
        return make(values)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        if isinstance(error, OddValueError):
            raise
        raise _blamed(values, make, error) from error


def _check_nesting(values: list[Any], level: int) -> None:
    """Raises OddValueError where lists and mappings are too deep, or without end."""
    for index, value in enumerate(values):
        if family_of(type(value)) not in _NESTED:
            continue
        if level == MAX_NESTING:
            raise OddValueError(TOO_DEEP, index)
        try:
            # What is neither a list nor a dict, as an array, holds no cycle of these.
            json.dumps(value, skipkeys=True, default=lambda _: None)
        except RecursionError:
            pass  # it is too deep in any case
        except ValueError as error:
            if "Circular" in str(error):
                raise OddValueError("a list or mapping holds itself", index) from error


def _refuse(values: list[Any], is_odd: Callable[[Any], bool], why: str) -> None:
    """Raises OddValueError for the first odd value, if there is one; with its index."""
    for index, value in enumerate(values):
        if value is not None and is_odd(value):
            raise OddValueError(f"{shown(value)} {why}", index)


def _blamed(
    values: list[Any], make: Callable[[list[Any]], pa.Array], error: Exception
) -> OddValueError:
    """Returns an error that names the first value that cannot be converted alone."""
    for index, value in enumerate(values):
        try:
            make([value])
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as own:
            return OddValueError(f"{shown(value)} cannot be held: {own}", index)
    return OddValueError(str(error))


def _numpy_type(values: list[Any]) -> pa.DataType | None:
    """Returns the Arrow type of scalars of one NumPy type; None for others."""
    types = {type(value) for value in values if value is not None}
    kind = types.pop()
    if types or not issubclass(kind, np.generic):
        return None
    return pa.from_numpy_dtype(np.dtype(kind))


def _ints(values: list[Any]) -> pa.Array:
    """Returns integers as the NumPy type that all have, or else as int64."""
    kind = _numpy_type(values)
    if kind is None:
        _refuse(values, lambda v: not -(2**63) <= v < 2**63, "is outside int64")
        values = [None if value is None else int(value) for value in values]
    return pa.array(values, kind or pa.int64())


def _floats(values: list[Any]) -> pa.Array:
    """Returns floats as the NumPy type that all have, or else as float64.

    Integers among them only where nothing is lost.
    """
    _refuse(
        values,
        lambda v: family_of(type(v)) == "int" and abs(int(v)) > FLOAT64_EXACT,
        "is among floats, and beyond 2^53",
    )
    _refuse(
        values,
        lambda v: isinstance(v, np.longdouble) and v.itemsize > 8,
        "is wider than float64",
    )
    kind = _numpy_type(values)
    if kind is None:
        values = [None if value is None else float(value) for value in values]
    return pa.array(values, kind or pa.float64())


def _all_bytes(values: list[Any]) -> pa.Array:
    """Returns Python texts and bytes as an Arrow array: of texts their UTF-8."""
    return pa.array(
        [v.encode() if isinstance(v, str) else v for v in values], pa.binary()
    )


def _datetimes(values: list[Any]) -> pa.Array:
    """Returns datetimes as timestamps in us, or in ns where pandas has them."""
    zoned = next(v for v in values if v is not None).tzinfo is not None
    why = "differs from those before in having a time zone or not"
    _refuse(values, lambda v: (v.tzinfo is not None) != zoned, why)
    unit = "ns" if any(getattr(v, "nanosecond", 0) for v in values) else "us"
    return pa.array(values, pa.timestamp(unit, "UTC" if zoned else None))


def _instants(values: list[Any]) -> pa.Array:
    """Returns NumPy's datetimes or durations, which must be of one unit."""
    kind = next(value for value in values if value is not None).dtype
    _refuse(values, lambda value: value.dtype != kind, "is of another unit")
    nat = np.array("NaT", kind)
    return _of_times(np.array([nat if v is None else v for v in values], kind))


def _structs(values: list[Any], level: int) -> pa.Array:
    """Returns mappings as structs with all their keys, in the order of occurrence."""
    keys = dict.fromkeys(key for value in values if value is not None for key in value)
    if not keys or any(not isinstance(key, str) for key in keys):
        raise OddValueError("a mapping must have keys, all of them text")
    for key in keys:
        try:
            check_key(key)
        except ValueError as error:
            index = next(i for i, v in enumerate(values) if v is not None and key in v)
            raise OddValueError(str(error), index) from error
    fields = []
    for key in keys:
        try:
            fields.append(
                _of_values([None if v is None else v.get(key) for v in values], level)
            )
        except OddValueError as error:
            path = f"in {key!r}, " if len(str(error)) < _LONG_CHARS else ""
            raise OddValueError(f"{path}{error}", error.index) from error
    return pa.StructArray.from_arrays(fields, list(keys), mask=_absent(values))


def _absent(values: list[Any]) -> pa.BooleanArray:
    """Returns an Arrow array of n bools: which of n Python values are None."""
    return pa.array([value is None for value in values], pa.bool_())


def _lists(values: list[Any], level: int) -> pa.Array:
    """Returns sequences as lists; an odd item blames its row."""
    parts = [() if value is None else _items(value) for value in values]
    starts = np.concatenate(([0], np.cumsum([len(sequence) for sequence in parts])))
    try:
        items = _of_values([item for sequence in parts for item in sequence], level)
    except OddValueError as error:
        index = int(np.searchsorted(starts, error.index, side="right")) - 1
        raise OddValueError(str(error), index) from error
    return list_of(items, np.diff(starts), _absent(values))


def _items(value: Any) -> Sequence[Any]:
    """Returns the items of a list; arrays of two dimensions and more as lists."""
    if isinstance(value, np.ndarray):
        return list(value) if value.ndim == 1 else value.tolist()
    return [
        item.tolist() if isinstance(item, np.ndarray) and item.ndim > 1 else item
        for item in value
    ]


def _arrays(values: list[Any], level: int) -> pa.Array:
    """Returns arrays of one shape as tensors, others of one dimension as lists."""
    present = [value for value in values if value is not None]
    if any(array.dtype.kind not in "biuf" for array in present):
        return _lists(values, level)
    dtype = _common_dtype(values, present)
    shape = present[0].shape
    if any(array.shape != shape for array in present):
        if any(array.ndim > 1 for array in present):
            why = f"is among arrays of shape {shape}"
            _refuse(values, lambda array: array.shape != shape, why)
        flat = _of_array(np.concatenate(present).astype(dtype, copy=False))
        sizes = [0 if value is None else len(value) for value in values]
        return list_of(flat, sizes, _absent(values))
    _check_masks(present)
    rows = np.zeros((len(values), *shape), dtype)
    for index, value in enumerate(values):
        if value is not None:
            rows[index] = value
    return _tensor_array(rows, _absent(values))


def _common_dtype(values: list[Any], known: list[Array]) -> np.dtype[Any]:
    """Returns the dtype that holds all arrays, which must be of one kind of number."""
    kind = known[0].dtype.kind
    why = f"is among arrays of {known[0].dtype}"
    _refuse(values, lambda array: array.dtype.kind != kind, why)
    return np.result_type(*{array.dtype for array in known})


_MAKERS: tuple[tuple[set[str], Callable[..., pa.Array]], ...] = (
    ({"bool"}, functools.partial(pa.array, type=pa.bool_())),
    ({"int"}, _ints),
    ({"int", "float"}, _floats),
    ({"text"}, functools.partial(pa.array, type=pa.string())),
    ({"text", "bytes"}, _all_bytes),
    ({"datetime"}, _datetimes),
    ({"datetime64"}, _instants),
    ({"timedelta64"}, _instants),
    ({"date"}, pa.array),
    ({"time"}, pa.array),
    ({"timedelta"}, pa.array),
    ({"decimal", "int"}, pa.array),
    ({"mapping"}, _structs),
    ({"array"}, _arrays),
    ({"array", "list"}, _lists),
)


def _of_array(array: Array) -> pa.Array:
    """Returns an array of shape (n, ...) as n values: tensors if it has more axes."""
    if array.ndim == 0:
        raise OddValueError("a single value is no column")
    if array.dtype.names is not None or array.dtype.kind in "cV":
        raise OddValueError(f"an array of {array.dtype} has no type in Arrow")
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        raise OddValueError(f"an array of {array.dtype} is wider than float64")
    if array.dtype.kind in "OSUT" or (array.ndim > 1 and array.dtype.kind in "mM"):
        return _of_values(list(array) if array.dtype.kind in "mM" else array.tolist())
    if array.ndim > 1:
        _check_masks([array])
        return _tensor_array(np.ascontiguousarray(array))
    if array.dtype.kind in "mM":
        return _of_times(array)
    return pa.array(_native(array))


def _native(array: Array) -> Array:
    """Returns an array in this machine's byte order, the only one that Arrow takes."""
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _of_times(array: Array) -> pa.Array:
    """Returns NumPy's times in the nearest unit of Arrow; OddValueError for a loss."""
    unit, step = np.datetime_data(array.dtype)
    target = _UNITS.get(unit, unit)
    if array.dtype.kind == "m":
        target = "s" if target == "D" and unit not in ("Y", "M") else target
    if step != 1 or target not in _ARROW_UNITS:
        raise OddValueError(f"{array.dtype} has no type in Arrow")
    wide = _native(array).astype(f"{array.dtype.kind}8[{target}]")
    # NumPy wraps what is beyond 64 bits.
    if not (np.isnat(array) | (wide.astype(array.dtype) == array)).all():
        raise OddValueError(f"{array.dtype} holds what is beyond {wide.dtype}")
    times = np.asarray(wide)
    return pa.array(times, mask=np.ma.getmaskarray(array) | np.isnat(times))


def _check_masks(arrays: Sequence[Array]) -> None:
    """Raises OddValueError for masked values in tensors, which cannot hold nulls."""
    for array in arrays:
        if isinstance(array, np.ma.MaskedArray) and np.ma.getmaskarray(array).any():
            raise OddValueError("an array of lists has no place for masked values")


def _tensor_array(rows: Array, absent: pa.BooleanArray | None = None) -> pa.Array:
    """Returns an array of shape (n, ...) as n fixed-size lists, or n tensors.

    Args:
      rows: numbers or bools, of two dimensions at least.
      absent: n bools, true where a row is missing; None if no row is.
    """
    shape = rows.shape[1:]
    flat = pa.array(_native(np.asarray(rows)).ravel())
    if not math.prod(shape):
        if len(shape) > 1:
            raise OddValueError(f"arrays of shape {shape} hold nothing")
        return list_of(flat, np.zeros(len(rows)), absent)
    lists = pa.FixedSizeListArray.from_arrays(flat, math.prod(shape), mask=absent)
    if len(shape) == 1:
        return lists
    kind = pa.fixed_shape_tensor(flat.type, list(shape))
    return pa.ExtensionArray.from_storage(kind, lists)
