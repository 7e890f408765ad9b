"""Serialised tf.train.Examples to Arrow columns.

protobuf decides what is an Example and what it holds. It also reads what few writers
produce: unpacked lists, keys that occur twice (the last wins), unknown fields.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from transforms.core.arrays import is_bytes, is_list
from transforms.core.example.example_columns import (
    VALUE_TYPES,
    ExampleColumns,
    FeatureColumn,
    read_columns,
)
from transforms.core.tfrecord.reader import PayloadBatch
from transforms.errors import ExampleError, SpecError


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
    if not isinstance(payloads, PayloadBatch):
        payloads = PayloadBatch.of(payloads)
    wanted = None if schema is None else schema.names
    decoded = read_columns(payloads, wanted=wanted)
    _check(decoded)
    if schema is None:
        names = sorted({*decoded.features, *decoded.untyped})
        schema = pa.schema([_field(name, decoded.features.get(name)) for name in names])
    arrays = [
        _array(decoded.features.get(field.name, {}), field, len(payloads))
        for field in schema
    ]
    if arrays:
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
    # A record batch without columns has no rows; a struct array without fields may.
    none = pa.Array.from_buffers(pa.struct([]), len(payloads), [None], children=[])
    return pa.RecordBatch.from_struct_array(none)


def _check(found: ExampleColumns) -> None:
    """Raises the error of the first record that is no Example, or of another type."""
    faults: dict[int, ExampleError] = {}
    for name, columns in found.features.items():
        if len(columns) > 1:
            (first, kind), (row, other), *_ = sorted(
                (column.first, kind) for kind, column in columns.items()
            )
            faults[row] = ExampleError(
                f"feature {name!r} must have one type; found a {kind} in example "
                f"{first:,} and a {other} in example {row:,}"
            )
    for row, error in found.errors.items():
        faults[row] = type(error)(f"example {row:,}: {error}")
        faults[row].__cause__ = error
        break
    if faults:
        raise faults[min(faults)]


def _field(name: str, columns: Mapping[str, FeatureColumn] | None) -> pa.Field:
    """Returns the Arrow field of a feature: a list unless each has one value."""
    for kind, column in (columns or {}).items():
        value = VALUE_TYPES[kind]
        return pa.field(name, value if column.counts is None else pa.large_list(value))
    return pa.field(name, pa.null())


def _array(
    columns: Mapping[str, FeatureColumn], field: pa.Field, count: int
) -> pa.Array:
    """Returns a feature's values in n examples, in the field's type.

    Raises:
      ExampleError: an example does not fit the field.
    """
    needed = _kind(field.name, field.type)
    for kind, column in columns.items():
        if kind != needed:
            raise ExampleError(
                f"feature {field.name!r} must be a {needed or 'feature without type'}; "
                f"found a {kind} in example {column.first:,}"
            )
        _check_counts(column, field)
        many = is_list(field.type)
        array = column.lists(count) if many else column.single(count)
        try:
            return array.cast(field.type)
        except pa.ArrowInvalid as error:
            raise ExampleError(
                f"feature {field.name!r} does not fit {field.type}: {error}"
            ) from error
    return pa.nulls(count, field.type)


def _check_counts(column: FeatureColumn, field: pa.Field) -> None:
    """Raises ExampleError where a record has not as many values as its type has."""
    number = 1
    if pa.types.is_fixed_size_list(field.type):
        number = int(field.type.list_size)
    elif is_list(field.type):
        return
    counts = np.ones(1, np.int64) if column.counts is None else column.counts
    wrong = np.flatnonzero(counts != number)
    if len(wrong):
        position = int(wrong[0])
        row = position if column.rows is None else column.rows[position]
        raise ExampleError(
            f"feature {field.name!r} must have {number} "
            f"value{'' if number == 1 else 's'}; found {int(counts[position]):,} in "
            f"example {int(row):,}"
        )


def _kind(name: str, kind: pa.DataType) -> str:
    """Returns the message's list for an Arrow type; "" for null."""
    values = kind.value_type if is_list(kind) else kind
    if values == pa.null():
        return ""
    value_types = VALUE_TYPES if not is_bytes(values) else {"bytes_list": values}
    for name_of_list, stored in value_types.items():
        if values == stored:
            return name_of_list
    raise SpecError(
        f"column {name!r} must be of int64, float32, binary or string, or a list of "
        f"them; found {values}"
    )
