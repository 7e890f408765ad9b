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

A feature without a shape takes single values, one with a shape lists and arrays; see
`transforms.core.rows.nested`. None is a missing value.

Values become Arrow's natural type first (`arrow_of`), and then the feature's (`cast`).
This module checks the natural type, more strictly than for columns of a file: a file
cannot say what it means, a program can. So no float becomes an integer, no text a
number, and no integer its neighbour.
"""

import dataclasses
import datetime
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.core.arrays import is_list
from transforms.core.reasons import Reason
from transforms.core.rows.column import complaint
from transforms.core.rows.common_type import plain_array
from transforms.core.rows.conform import cast
from transforms.core.rows.natural_arrays import arrow_of, of_one_type
from transforms.core.rows.python_kinds import (
    OddValueError,
    family_of,
    family_of_column,
    native_values,
    plain_values,
    shown,
)
from transforms.core.rows.tensors import PROTO, STRING
from transforms.core.schema import BOX_SIDES, Feature, InexactIntegers, Kind, Schema
from transforms.errors import EncodingError

Array = npt.NDArray[Any]

_NUMBER = (("int", "float"), "a number is needed")
_WHOLE = "an integer is needed; round or cast it yourself"
PLAIN_TYPES: Mapping[Kind, type] = {
    Kind.INT64: int,
    Kind.FLOAT: float,
    Kind.BOOL: bool,
    Kind.TEXT: str,
    Kind.BYTES: bytes,
}
"""Values of exactly this type, and None, become a column of the kind in one call."""
_TAKEN: Mapping[Kind, tuple[tuple[str, ...], str]] = {
    Kind.INT64: (("int", "bool"), _WHOLE),
    Kind.FLOAT: _NUMBER,
    Kind.BOX: _NUMBER,
    Kind.BOOL: (("bool",), "True or False is needed"),
    Kind.TEXT: (("text", "bytes"), "text is needed"),
    Kind.LABEL: (("text", "bytes", "int", "bool"), "text is needed"),
    Kind.BYTES: (("text", "bytes"), "bytes or text are needed"),
    Kind.TIMESTAMP: (("int", "text", "date", "datetime"), _WHOLE),
}


def rows_of(rows: Sequence[Mapping[str, Any]], schema: Schema) -> pa.RecordBatch:
    """Returns rows given as mappings as one record batch of the schema's features.

    Absent keys are missing.

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
      values: n values, lists where the feature has a shape; None for missing.
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
    """Returns the message about a value that `fitted_column` refuses."""
    value = values[error.index]
    return (
        f"feature {feature.name!r} of kind {feature.kind} cannot hold {shown(value)}: "
        f"{error}"
    )


def fitted_column(values: Sequence[Any] | Array, feature: Feature) -> pa.Array:
    """Returns what `column_of` does.

    Raises:
      OddValueError: a value does not fit; has its index.
    """
    try:
        return strict_cast(_column_for(values, feature), feature)
    except OddValueError as error:
        if len(values) == 1:
            raise OddValueError(str(error), 0) from error
    # Values of several types become columns by themselves: what becomes of one must not
    # depend on those beside it.
    columns: list[pa.Array] = []
    errors: list[tuple[int, str]] = []
    parts = _indices_by_type(values)
    for part in parts:
        if errors and part[0] > min(errors)[0]:
            break
        some: Sequence[Any] | Array = [values[index] for index in part]
        if isinstance(values, np.ndarray):
            some = values[part]
        try:
            columns.append(fitted_column(some, feature))
        except OddValueError as error:
            errors.append((int(part[error.index]), str(error)))
    if errors:
        index, why = min(errors)
        raise OddValueError(why, index)
    order = np.argsort(np.concatenate(parts))
    return pa.concat_arrays(columns).take(pa.array(order))


def _indices_by_type(values: Sequence[Any] | Array) -> list[npt.NDArray[np.intp]]:
    """Returns the numbers of a feature's values by their types; of one in halves."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    if not isinstance(values, np.ndarray) or values.dtype == object:
        for index, value in enumerate(values):
            groups.setdefault(_type_of(value), []).append(index)
    if len(groups) > 1:
        return [np.array(group) for group in groups.values()]
    return np.array_split(np.arange(len(values)), 2)


def _type_of(value: Any) -> tuple[Any, ...]:
    """Returns what values of a feature that become one column have in common."""
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape if value.ndim > 1 else value.ndim
    if isinstance(value, datetime.datetime):
        return type(value), value.tzinfo is None
    return (type(value),)


def _column_for(values: Sequence[Any] | Array, feature: Feature) -> pa.Array:
    """Returns values of a feature in Arrow's own type for them.

    Raises:
      OddValueError: it has none, or integers among floats are none of the feature's.
    """
    if isinstance(values, np.ndarray) and values.dtype != object:
        return arrow_of(values)
    values = list(values)
    column = of_one_type(values)
    if column is not None:
        return column
    values = plain_values(native_values(values, is_image=False))
    # Arrow has no type for arrays without items.
    empty = [isinstance(value, np.ndarray) and not value.size for value in values]
    if any(empty):
        values = [v.tolist() if e else v for v, e in zip(values, empty, strict=True)]
    column = arrow_of(values)
    is_float = family_of_column(column.type) == "float"
    narrow: Any = np.float32
    if feature.kind is Kind.TENSOR:
        # Tensors of integers take whole floats, which float64 holds.
        narrow = np.dtype(feature.dtype if "float" in feature.dtype else float).type
    if is_float and not all(_is_exact(value, narrow) for value in _leaves(values)):
        raise OddValueError(complaint(feature, Reason.OUT_OF_RANGE))
    return column


def _leaves(value: Any) -> Iterator[Any]:
    """Yields the single values of a feature's lists; arrays hold no mixtures."""
    if isinstance(value, list | tuple):
        for child in value:
            yield from _leaves(child)
    elif isinstance(value, np.ndarray) and value.dtype == object:
        yield from _leaves(value.tolist())
    elif not isinstance(value, np.ndarray):
        yield value


def _is_exact(value: Any, narrow: Any) -> bool:
    """Whether a feature's value is no integer, or one that a type of floats holds."""
    return family_of(type(value)) != "int" or bool(float(narrow(int(value))) == value)


def strict_cast(column: pa.Array, feature: Feature) -> pa.Array:
    """Returns values of a feature from a column, as strictly as Python values.

    Raises:
      OddValueError: its type is none that the feature takes, or a value does not fit;
        has the index of the value.
    """
    column = plain_array(column)
    family = family_of_column(column.type)
    families, why = _taken_by(feature)
    if family and family not in families:
        raise OddValueError(why, 0)
    takes_lists = feature.is_list or feature.kind is Kind.BOX
    are_lists = is_list(column.type) or isinstance(column.type, pa.BaseExtensionType)
    if feature.kind is Kind.TENSOR:
        # Of bytes each row has all elements of a tensor.
        are_elements = family == "bytes" and feature.dtype != STRING
        takes_lists = are_lists or bool(feature.shape and not are_elements)
    if takes_lists != are_lists and not pa.types.is_null(column.type):
        what = "list" if takes_lists else "single value"
        raise OddValueError(f"a {what} is needed", 0)
    if family == "int":
        # No Python integer becomes its neighbour, either.
        reject = InexactIntegers.REJECT
        feature = dataclasses.replace(feature, inexact_integers=reject)
    cells = cast(column, feature)
    if cells.bad is not None:
        index = int(np.argmax(cells.bad))
        reason = cells.reason_at(index)
        if feature.kind is Kind.BOX:
            feature = dataclasses.replace(feature, shape=(None, len(BOX_SIDES)))
        if reason is Reason.NOT_FLOAT32:
            reason = Reason.OUT_OF_RANGE
        raise OddValueError(complaint(feature, reason), index)
    return cells.values


def _taken_by(feature: Feature) -> tuple[tuple[str, ...], str]:
    """Returns what values a feature takes, as families, and what others lack."""
    if feature.kind is Kind.IMAGE and feature.inline:
        return ("bytes", "mapping"), "the bytes of an image file are needed"
    if feature.kind is Kind.IMAGE:
        return ("text", "mapping"), "the path of an image file is needed"
    if feature.kind is not Kind.TENSOR:
        return _TAKEN[feature.kind]
    families: tuple[str, ...] = ("int", "float", "bool")
    if feature.dtype == STRING:
        families = ("text", "bytes")
    elif feature.encoding != PROTO:
        families += ("bytes",)
    return families, f"an array of {feature.dtype} is needed"
