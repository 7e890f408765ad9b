"""Python and NumPy values to columns of a feature, by the rules of tf.train.Example.

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
are flattened row by row. Where the feature has a shape, they must have it, by the rules
of `transforms.core.rows.nested`.

This module only checks the types, more strictly than for columns of a file: a file
cannot say what it means, a program can. `arrow_of` and `cast` do the rest, so that no
float becomes an integer, no finite number infinite, and no integer its neighbour.
"""

import dataclasses
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.core.reasons import Reason
from transforms.core.rows.arrow_of import arrow_of, of_one_type
from transforms.core.rows.column import FLOAT32_MAX, Column, complaint
from transforms.core.rows.conform import cast_nested
from transforms.core.rows.nested import UNKNOWN, Nested, fitted_each
from transforms.core.rows.python_kinds import OddValueError, family_of, plain_values
from transforms.core.rows.tensors import STRING, elements, tensors
from transforms.core.rows.typed_cells import exact_floats, scalars
from transforms.core.schema import BOX_SIDES, Feature, Kind, Schema, row_type
from transforms.errors import SHOWN_CHARS, EncodingError, bounded

Array = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]

_NUMBER = (("int", "float"), "a number is needed")
_SINGLE = {int, float, str, bytes, bool, type(None)}
PLAIN_TYPES: Mapping[Kind, type] = {
    Kind.INT64: int,
    Kind.FLOAT: float,
    Kind.BOOL: bool,
    Kind.TEXT: str,
    Kind.BYTES: bytes,
}
"""Values of exactly this type, and None, become a column of the kind in one call."""
# Families whose values `arrow_of` cannot always convert together.
_VARIED = ("int", "datetime", "datetime64")
TAKEN: Mapping[Kind, tuple[tuple[str, ...], str]] = {
    Kind.INT64: (("int", "bool"), "an integer is needed; round or cast it yourself"),
    Kind.FLOAT: _NUMBER,
    Kind.BOX: _NUMBER,
    Kind.BOOL: (("bool",), "True or False is needed"),
    Kind.TEXT: (("text", "bytes"), "text is needed"),
    Kind.LABEL: (("text", "bytes", "int", "bool"), "text is needed"),
    Kind.BYTES: (("text", "bytes"), "bytes or text are needed"),
    Kind.TIMESTAMP: (
        ("int", "bool", "text", "date", "datetime", "datetime64"),
        "an integer is needed; round or cast it yourself",
    ),
}
"""What each kind takes, as `python_kinds` names it, and how an error names it."""


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


def column_of(values: Sequence[Any] | Array, feature: Feature) -> pa.Array:
    """Returns n values as a column of the feature's kind.

    Args:
      values: n scalars, or n lists (then the column is one of lists), None for missing.
      feature: decides what is taken; errors contain its name.

    Raises:
      EncodingError: a value does not fit; names row (from 1), feature and value.
    """
    try:
        return fitted_column(values, feature)
    except OddValueError as error:
        raise EncodingError(
            f"row {error.index + 1}: {misfit(values, feature, error)}"
        ) from error


def misfit(
    values: Sequence[Any] | Array, feature: Feature, error: OddValueError
) -> str:
    """Returns the error of `fitted_column` in words: the feature and the value."""
    value = values[error.index]
    return (
        f"feature {feature.name!r} of kind {feature.kind} cannot hold "
        f"{bounded(repr(value), SHOWN_CHARS)} ({type(value).__name__}): {error}"
    )


def fitted_column(values: Sequence[Any] | Array, feature: Feature) -> pa.Array:
    """Returns what `column_of` does.

    Raises:
      OddValueError: a value does not fit; has its index.
    """
    is_nested = feature.is_list or feature.kind in (Kind.TENSOR, Kind.BOX)
    rows: Sequence[Any] | Array = values
    if feature.kind is Kind.TENSOR and feature.dtype != STRING:
        rows = [_as_array(value) for value in values]
    elif not isinstance(values, np.ndarray) or values.ndim > 1:
        is_nested = is_nested or _any_lists(values)
    return _lists(list(rows), feature) if is_nested else _items(rows, feature)


def _any_lists(values: Sequence[Any] | Array) -> bool:
    # Most columns are of plain types, which need no look at each value.
    return not _SINGLE.issuperset(map(type, values)) and any(map(_is_list, values))


def _as_array(value: Any) -> Any:
    """Returns images and tensors of other libraries as arrays, also inside lists."""
    if isinstance(value, list | tuple):
        return [_as_array(item) for item in value]
    is_buffer = isinstance(value, bytearray | memoryview | range)
    is_known = value is None or family_of(type(value))
    return np.asarray(value) if is_buffer or not is_known else value


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple) or (
        isinstance(value, np.ndarray) and value.ndim > 0
    )


def _lists(rows: Sequence[Any], feature: Feature) -> pa.Array:
    """Returns n lists or tensors as a column."""
    is_tensor = feature.kind is Kind.TENSOR
    if feature.kind is Kind.BOX:
        feature = dataclasses.replace(feature, shape=(None, len(BOX_SIDES)))
    if is_tensor and feature.dtype != STRING:
        _check_rows([not _is_mixed(row) for row in rows], "bools and numbers are mixed")
    elif not is_tensor:
        others = "other rows hold lists, this one a single value"
        why = "a list is needed" if feature.shape else others
        _check_rows([row is None or _is_list(row) for row in rows], why)
    wrong_shape = complaint(feature, Reason.WRONG_SHAPE)
    if feature.is_ragged:
        _check_rows(map(_has_two_levels, rows), wrong_shape)
        is_whole = [row is None or all(p is not None for p in row) for row in rows]
        _check_rows(is_whole, complaint(feature, Reason.MISSING_VALUE))
    flat, counts = _flat(rows)
    starts = _starts(counts)
    present = np.array([row is not None for row in rows], np.bool_)
    sizes = np.diff(starts)[:, None]
    inner = outer = None
    if feature.is_ragged:
        inner = _starts(
            len(sublist) for row in rows if row is not None for sublist in row
        )
        outer = _starts(0 if row is None else len(row) for row in rows)
    elif feature.shape or is_tensor:
        measured = [_size_of(row, len(feature.shape)) for row in rows]
        row_sizes = [size or [] for size in measured]
        sizes, bad = fitted_each(row_sizes, np.diff(starts), feature.shape)
        bad |= np.array([size is None for size in measured], np.bool_)
        _check_rows(~(bad & present), wrong_shape)
    try:
        items = _items(flat, feature)
    except OddValueError as error:
        index = int(np.searchsorted(starts, error.index, side="right")) - 1
        raise OddValueError(str(error), index) from error
    nested = Nested(items, starts, sizes, present, None, inner, outer)
    if is_tensor:
        result = tensors(nested, feature)
    else:
        feature = dataclasses.replace(feature, shape=feature.shape or (None,))
        result = cast_nested(nested, feature)
    if result.bad is not None:
        index = int(np.argmax(result.bad))
        raise OddValueError(complaint(feature, result.reason_at(index)), index)
    return result.values


def _check_rows(fits: Iterable[bool], why: str) -> None:
    for index, does_fit in enumerate(fits):
        if not does_fit:
            raise OddValueError(why, index)


def _is_mixed(row: Any) -> bool:
    """Whether a list holds bools among numbers: NumPy would make numbers of them."""
    return (
        isinstance(row, list)
        and len({isinstance(item, bool | np.bool_) for item in _leaves(row)}) > 1
    )


def _has_two_levels(row: Any) -> bool:
    return row is None or all(
        sublist is None or (_is_list(sublist) and not any(map(_is_list, sublist)))
        for sublist in row
    )


def _starts(lengths: Iterable[int]) -> Ints:
    return np.cumsum([0, *lengths], dtype=np.int64)


def _flat(rows: Sequence[Any]) -> tuple[Sequence[Any] | Array, list[int]]:
    """Returns the items of all rows, row by row, and how many each row has."""
    arrays = [row for row in rows if row is not None]
    kinds = {(type(row), getattr(row, "dtype", None)) for row in arrays}
    if len(kinds) == 1 and type(arrays[0]) is np.ndarray:
        flat = np.concatenate([row.ravel() for row in arrays])
        return flat, [0 if row is None else row.size for row in rows]
    leaves = [[] if row is None else list(_leaves(row)) for row in rows]
    return [item for row in leaves for item in row], list(map(len, leaves))


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, np.ndarray):
        # One that is masked is missing.
        yield from (None if item is np.ma.masked else item for item in value.ravel())
    elif not _is_list(value):
        yield value
    else:
        for child in value:
            yield from _leaves(child)


def _size_of(row: Any, levels: int) -> list[int] | None:
    """Returns the length of a nested list, or its lengths at all levels; else None."""
    shape = _shape_of(row)
    if shape is None:
        return None
    if 1 < len(shape) < levels and not shape[-1]:
        # There are no lists on the levels below, so their sizes are unknown.
        shape += (UNKNOWN,) * (levels - len(shape))
    return list(shape) if len(shape) in (1, levels) else None


def _shape_of(value: Any) -> tuple[int, ...] | None:
    """Returns the shape of nested lists; None if their lengths differ."""
    if isinstance(value, np.ndarray):
        return value.shape
    if not _is_list(value):
        return ()
    inner = {_shape_of(child) for child in value}
    if not inner:
        return (0,)
    first = inner.pop()
    return None if inner or first is None else (len(value), *first)


def _items(values: Sequence[Any] | Array, feature: Feature) -> pa.Array:
    """Returns n single values, None where missing, as the feature's type."""
    kinds = {Kind.BOX: Kind.FLOAT}
    if feature.dtype == STRING:
        kinds[Kind.TENSOR] = Kind.BYTES
    of_item = kinds.get(feature.kind, feature.kind)
    feature = dataclasses.replace(feature, kind=of_item, shape=())
    is_whole = len(values) and feature.kind is not Kind.TIMESTAMP
    if is_whole and isinstance(values, np.ndarray) and values.dtype != object:
        _check_type(values.dtype.type, feature, 0)
        return _typed(values, feature, range(len(values)))
    alike = _alike(values, feature) if isinstance(values, list) else None
    if alike is not None:
        return alike
    if feature.kind is Kind.IMAGE:
        values = [_file_of(value, feature) for value in values]
    plain = [_plain(value, feature) for value in plain_values(list(values))]
    families: dict[type[Any], str] = {}
    # Values of one type are converted together.
    groups: dict[Hashable, list[int]] = {}
    for index, value in enumerate(plain):
        if value is None:
            continue
        kind = type(value)
        if kind not in families:
            families[kind] = _check_type(kind, feature, index)
        family = families[kind]
        key = _group_of(value, family, index) if family in _VARIED else family
        groups.setdefault(key, []).append(index)
    arrays = [
        _typed([plain[index] for index in group], feature, group)
        for group in groups.values()
    ]
    if not arrays:
        return pa.nulls(len(plain), row_type(feature))
    if len(arrays) == 1 and len(arrays[0]) == len(plain):
        return arrays[0]
    order = [index for group in groups.values() for index in group]
    places = np.full(len(plain), -1)
    places[order] = np.arange(len(order))
    return pa.concat_arrays(arrays).take(pa.array(places, mask=places < 0))


def _alike(values: list[Any], feature: Feature) -> pa.Array | None:
    """Returns single values of the kind's own Python type; None for others."""
    if not set(map(type, values)) <= {PLAIN_TYPES.get(feature.kind), type(None)}:
        return None
    array = of_one_type(values)
    if array is None:
        # The rules of `_items` find the value, and say why it does not fit.
        return None
    column = scalars(array, feature)
    return column.values if column.bad is None else None


def _file_of(value: Any, feature: Feature) -> Any:
    """Returns the field of an image's dict that the feature reads; else the value."""
    if not isinstance(value, Mapping):
        return value
    content = value.get("bytes" if feature.inline else "path")
    return value if content is None else content


def _plain(value: Any, feature: Feature) -> Any:
    """Returns a value as one that `arrow_of` and `cast` take for the kind."""
    family = family_of(type(value))
    if feature.kind is Kind.LABEL and family == "int":
        return str(int(value))
    if feature.kind is Kind.TIMESTAMP and family == "bool":
        return int(value)
    if family == "datetime64":
        unit, step = np.datetime_data(value.dtype)
        nanos = value.astype("M8[ns]")
        if (step != 1 or unit in ("ps", "fs", "as")) and nanos == value:
            return nanos
    return value


def _check_type(kind: type[Any], feature: Feature, index: int) -> str:
    """Returns the family of a type; OddValueError if the feature does not take it."""
    taken_families, why = TAKEN.get(feature.kind, ((), ""))
    if feature.kind is Kind.IMAGE and feature.inline:
        taken_families, why = ("bytes",), "the bytes of an image file are needed"
    elif feature.kind is Kind.IMAGE:
        taken_families, why = ("text",), "the path of an image file is needed"
    elif feature.kind is Kind.TENSOR:
        why = f"an array of {feature.dtype} is needed"
        taken_families = ("int", "float", "bool")
    family = family_of(kind)
    if family not in taken_families:
        raise OddValueError(why, index)
    return family


def _group_of(value: Any, family: str, index: int) -> Hashable:
    """Returns a key of the values that `arrow_of` converts together with this one."""
    if family == "int" and not -(2**63) <= value < 2**63:
        return family, index
    if family == "datetime":
        return family, value.tzinfo is None, bool(getattr(value, "nanosecond", 0))
    return family if family == "int" else (family, value.dtype)


def _typed(
    values: Sequence[Any] | Array, feature: Feature, places: Sequence[int]
) -> pa.Array:
    """Returns values that `arrow_of` converts together as the feature's type.

    Args:
      values: m of them.
      feature: says the type.
      places: the m indices that errors name.
    """
    try:
        array = _arrow_of(values, feature)
    except OddValueError as error:
        raise OddValueError(str(error), places[max(error.index, 0)]) from error
    if feature.kind is Kind.IMAGE:
        return array.cast(row_type(feature))
    if feature.kind is Kind.TENSOR:
        converted, faults = elements(array, feature.dtype)
        column = Column(pa.array(converted), faults)
    elif feature.kind is Kind.FLOAT and pa.types.is_integer(array.type):
        column = exact_floats(array, pa.float32())
    else:
        column = scalars(array, feature)
    if column.bad is not None:
        index = int(np.argmax(column.bad))
        why = complaint(feature, column.reason_at(index))
        raise OddValueError(why, places[index])
    return column.values


def _arrow_of(values: Sequence[Any] | Array, feature: Feature) -> pa.Array:
    """Converts values as `arrow_of` does; also a single integer beyond int64."""
    if isinstance(values, np.ndarray):
        return arrow_of(values)
    family = family_of(type(values[0]))
    beyond = OddValueError(complaint(feature, Reason.OUT_OF_RANGE), 0)
    if family == "datetime64":
        try:
            return arrow_of(values)
        except OddValueError as error:
            raise beyond from error
    if family != "int" or -(2**63) <= values[0] < 2**63:
        return arrow_of(values)
    try:
        if feature.kind is Kind.TENSOR:
            return pa.array([int(values[0])], pa.uint64())
        number = float(values[0])
        if feature.kind is Kind.FLOAT and abs(number) <= FLOAT32_MAX:
            rounded = pa.array([np.float32(number)])
            if int(rounded[0].as_py()) == int(values[0]):
                return rounded
    except (OverflowError, pa.ArrowInvalid) as error:
        raise beyond from error
    raise beyond
