"""Serialised tf.train.Examples to Arrow columns.

protobuf decides what is an Example and what it holds. It also reads what few writers
produce: unpacked lists, keys that occur twice (the last wins), unknown fields.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.core.arrays import is_bytes, is_list
from transforms.core.example.example_columns import (
    ExampleColumns,
    FeatureColumn,
    read_columns,
)
from transforms.core.example.messages import message
from transforms.core.tfrecord.reader import PayloadBatch
from transforms.errors import ExampleError, SpecError

_ARROW_TYPES = {
    "int64_list": pa.int64(),
    "float_list": pa.float32(),
    "bytes_list": pa.large_binary(),
}


def decode_examples(
    payloads: Sequence[bytes] | PayloadBatch, *, schema: pa.Schema | None = None
) -> pa.RecordBatch:
    r"""Returns n examples as n rows, a column for each feature.

        >>> one = b"\n\r\n\x0b\n\x02id\x12\x05\x1a\x03\n\x01\x02"
        >>> decode_examples([one, b""]).to_pylist()
        [{'id': 2}, {'id': None}]

    Args:
      payloads: n serialised Examples.
      schema: the columns to return: int64, float32, binary or string types, or lists
        of them, also of a fixed size; other features are left out. None: all
        features, in the order of their names; one that has exactly one value
        wherever it is present becomes a plain column (int64, float32, large_binary),
        any other a list column.

    Returns:
      A record batch; a feature that is absent or has no type is null.

    Raises:
      ExampleError: a payload is no Example, a feature has two types, or does not fit
        the schema. The message names the example by its 0-based index.
    """
    batch = (
        payloads if isinstance(payloads, PayloadBatch) else PayloadBatch.of(payloads)
    )
    found = read_columns(batch, wanted=None if schema is None else schema.names)
    whole = None
    if len(found.odd) < len(batch):
        whole = _joined(batch, found, schema)
    # The error about an example that does not fit must name the first one.
    return _decode_each(batch, schema) if whole is None else whole


def _joined(
    payloads: PayloadBatch, found: ExampleColumns, schema: pa.Schema | None
) -> pa.RecordBatch | None:
    """Returns regular and odd examples as rows; None if one does not fit."""
    odd = found.odd
    try:
        others = _collect(list(map(payloads.payload, odd)))
    except ExampleError:
        return None
    names = (
        schema.names if schema else sorted({*found.features, *found.untyped, *others})
    )
    fields, arrays = [], []
    for name in names:
        column, other = found.features.get(name), others.get(name)
        if other is not None and not other.kind:
            other = None
        if schema is None:
            field = _common_field(name, column, other)
        else:
            field = schema.field(name)
        if field is None or not _fits(field, column, other):
            return None
        fields.append(field)
        arrays.append(_cast(_merged(payloads, field, column, other, odd), field))
    return _record_batch(arrays, schema or pa.schema(fields), len(payloads))


def _common_field(
    name: str, column: FeatureColumn | None, other: "_Column | None"
) -> pa.Field | None:
    """Returns the field of a feature; None if it has two types."""
    kinds = {each.kind for each in (column, other) if each is not None}
    if not kinds:
        return pa.field(name, pa.null())
    if len(kinds) > 1:
        return None
    value = _ARROW_TYPES[kinds.pop()]
    plain = column is None or column.counts is None
    if other is not None:
        plain = plain and all(len(values) == 1 for values in other.lists)
    return pa.field(name, value if plain else pa.large_list(value))


def _fits(
    field: pa.Field, column: FeatureColumn | None, other: "_Column | None"
) -> bool:
    """Tells whether a feature has the type and the numbers of values of a field."""
    kind, wanted = _kind(field.name, _value_type(field.type)), _count(field.type)
    if any(each is not None and each.kind != kind for each in (column, other)):
        return False
    if wanted is None:
        return True
    if other is not None and any(len(values) != wanted for values in other.lists):
        return False
    if column is None:
        return True
    return (
        wanted == 1 if column.counts is None else bool((column.counts == wanted).all())
    )


def _merged(
    payloads: PayloadBatch,
    field: pa.Field,
    column: FeatureColumn | None,
    other: "_Column | None",
    odd: npt.NDArray[np.int64],
) -> pa.Array:
    """Returns a feature of regular and odd examples, in the stored type."""
    count = len(payloads)
    if column is None and other is None:
        return pa.nulls(count, field.type)
    stored = _stored_type(field)
    if column is None:
        array = pa.nulls(count, stored)
    elif is_list(field.type):
        array = column.lists(payloads.data, count)
    else:
        array = column.single(payloads.data, count)
    if not len(odd):
        return array
    places = np.arange(count)
    places[odd] = count + np.arange(len(odd))
    behind = pa.nulls(len(odd), stored)
    if other is not None:
        behind = _stored(other, field, len(odd))
    return pa.concat_arrays([array, behind]).take(pa.array(places))


def _decode_each(payloads: PayloadBatch, schema: pa.Schema | None) -> pa.RecordBatch:
    """Returns the rows, decoded one by one with protobuf."""
    columns = _collect(payloads.to_list() if len(payloads) else [])
    if schema is None:
        schema = pa.schema([_field(columns[name]) for name in sorted(columns)])
    arrays = [_array(columns.get(field.name), field, len(payloads)) for field in schema]
    return _record_batch(arrays, schema, len(payloads))


def _record_batch(
    arrays: list[pa.Array], schema: pa.Schema, rows: int
) -> pa.RecordBatch:
    if arrays:
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
    # A record batch without columns has no rows; a struct array without fields may.
    none = pa.Array.from_buffers(pa.struct([]), rows, [None], children=[])
    return pa.RecordBatch.from_struct_array(none)


@dataclasses.dataclass(slots=True)
class _Column:
    """The values of one feature.

    Attributes:
      name: the feature.
      kind: the list's field in the message; "" while only untyped ones were seen.
      first: index of the first example that has it with a type.
      rows: indices of the examples that have it.
      lists: their values.
    """

    name: str
    kind: str = ""
    first: int = -1
    rows: list[int] = dataclasses.field(default_factory=list)
    lists: list[list[Any]] = dataclasses.field(default_factory=list)


def _collect(payloads: Sequence[bytes]) -> dict[str, _Column]:
    columns: dict[str, _Column] = {}
    for index, data in enumerate(payloads):
        try:
            features = message(data).features.feature
        except ExampleError as error:
            raise type(error)(f"example {index:,}: {error}") from error
        for name, feature in features.items():
            column = columns.get(name) or columns.setdefault(name, _Column(name))
            kind = feature.WhichOneof("kind")
            if kind is None:
                continue
            if kind != column.kind:
                if column.kind:
                    raise ExampleError(
                        f"feature {name!r} must have one type; found a "
                        f"{column.kind} in example {column.first:,} and a {kind} in "
                        f"example {index:,}"
                    )
                column.kind, column.first = kind, index
            column.rows.append(index)
            column.lists.append(getattr(feature, kind).value[:])
    return columns


def _field(column: _Column) -> pa.Field:
    if not column.kind:
        return pa.field(column.name, pa.null())
    value = _ARROW_TYPES[column.kind]
    plain = all(len(values) == 1 for values in column.lists)
    return pa.field(column.name, value if plain else pa.large_list(value))


def _array(column: _Column | None, field: pa.Field, rows: int) -> pa.Array:
    """Returns the feature's values in `rows` examples, in the field's type.

    Raises:
      ExampleError: an example does not fit the field.
    """
    kind = _kind(field.name, _value_type(field.type))
    if column is None or not column.kind:
        return pa.nulls(rows, field.type)
    if kind != column.kind:
        raise ExampleError(
            f"feature {field.name!r} must be a {kind or 'feature without type'}; found "
            f"a {column.kind} in example {column.first:,}"
        )
    wanted = _count(field.type)
    count = "1 value" if wanted == 1 else f"{wanted} values"
    for row, items in zip(column.rows, column.lists, strict=True):
        if wanted is not None and len(items) != wanted:
            raise ExampleError(
                f"feature {field.name!r} must have {count}; found {len(items):,} in "
                f"example {row:,}"
            )
    return _cast(_stored(column, field, rows), field)


def _stored(column: _Column, field: pa.Field, rows: int) -> pa.Array:
    """Returns the feature's values in `rows` examples, as they are stored."""
    listed = is_list(field.type)
    values: list[Any] = [None] * rows
    for row, items in zip(column.rows, column.lists, strict=True):
        values[row] = items if listed else items[0]
    return pa.array(values, _stored_type(field))


def _stored_type(field: pa.Field) -> pa.DataType:
    """Returns the type in which examples hold a field's values."""
    stored = _ARROW_TYPES[_kind(field.name, _value_type(field.type))]
    return pa.large_list(stored) if is_list(field.type) else stored


def _value_type(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if is_list(kind) else kind


def _cast(array: pa.Array, field: pa.Field) -> pa.Array:
    try:
        return array.cast(field.type)
    except pa.ArrowInvalid as error:
        raise ExampleError(
            f"feature {field.name!r} does not fit {field.type}: {error}"
        ) from error


def _count(kind: pa.DataType) -> int | None:
    """Returns how many values a column of that type has in a row; None: any number."""
    if pa.types.is_fixed_size_list(kind):
        return int(kind.list_size)
    return None if is_list(kind) else 1


def _kind(name: str, value_type: pa.DataType) -> str:
    """Returns the message's list for an Arrow type; "" for null."""
    if value_type == pa.int64():
        return "int64_list"
    if value_type == pa.float32():
        return "float_list"
    if is_bytes(value_type):
        return "bytes_list"
    if value_type == pa.null():
        return ""
    raise SpecError(
        f"column {name!r} must be of int64, float32, binary or string, or a list of "
        f"them; found {value_type}"
    )
