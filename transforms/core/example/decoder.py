"""Serialised tf.train.Examples to Python values and to Arrow columns.

protobuf decides what is an Example and what it holds. It also reads what few writers
produce: unpacked lists, keys that occur twice (the last wins), unknown fields.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from google.protobuf.message import DecodeError

from transforms.core.arrays import is_bytes, is_list
from transforms.core.example.example_layout import LayoutReader, learn_layout
from transforms.core.example.messages import Example
from transforms.core.tfrecord.reader import PayloadBatch
from transforms.errors import ExampleError, SpecError

__all__ = [
    "decode_examples",
    "decode_one_layout",
    "gathered",
    "message",
    "parse_example",
]

_Longs = npt.NDArray[np.int64]

_ARROW_TYPES = {
    "int64_list": pa.int64(),
    "float_list": pa.float32(),
    "bytes_list": pa.large_binary(),
}


def message(data: bytes) -> Any:
    """Returns the Example that `data` serialises.

    Raises:
      ExampleError: protobuf does not parse it.
    """
    try:
        return Example.FromString(data)
    except DecodeError as error:
        raise ExampleError(
            f"{len(data):,} bytes are not a tf.train.Example ({error})"
        ) from error


def parse_example(data: bytes) -> dict[str, list[Any]]:
    """Returns the features of one Example, by name, in the names' order.

    Int64List becomes ints, FloatList floats, BytesList bytes. A feature without a type
    becomes an empty list.

    Raises:
      ExampleError: protobuf does not parse it.
    """
    features = message(data).features.feature
    return {name: _values(features[name]) for name in sorted(features)}


def _values(feature: Any) -> list[Any]:
    kind = feature.WhichOneof("kind")
    # A slice of a repeated field is a list; `list` takes three times as long.
    return [] if kind is None else getattr(feature, kind).value[:]


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
    batch = decode_one_layout(payloads)
    if batch is None:
        return _decode_each(payloads, schema)
    if schema is None or schema == batch.schema:
        return batch
    if any(is_list(field.type) for field in schema):
        return _decode_each(payloads, schema)
    arrays = []
    for field in schema:
        stored = _ARROW_TYPES.get(_kind(field.name, field.type))
        if field.name not in batch.schema.names:
            arrays.append(pa.nulls(batch.num_rows, field.type))
        elif stored == batch.schema.field(field.name).type:
            arrays.append(_cast(batch.column(field.name), field))
        else:
            # The error about a wrong type must name the example.
            return _decode_each(payloads, schema)
    return _record_batch(arrays, schema, batch.num_rows)


def decode_one_layout(
    payloads: Sequence[bytes] | PayloadBatch,
) -> pa.RecordBatch | None:
    """Returns the rows if all have the first one's layout, otherwise None."""
    if not len(payloads):
        return None
    if isinstance(payloads, PayloadBatch):
        data, starts, lengths = payloads.data, payloads.starts, payloads.lengths
        first = data[int(starts[0]) : int(starts[0] + lengths[0])]
    else:
        data, first = b"".join(payloads), payloads[0]
        lengths = np.fromiter(map(len, payloads), np.int64, len(payloads))
        starts = np.cumsum(lengths) - lengths
    try:
        message(first)
    except ExampleError:
        # Decoding one by one raises the error that names the example.
        return None
    layout = learn_layout(first)
    if layout is None:
        return None
    reader = LayoutReader(data, starts, lengths, layout)
    if not reader.matches.all():
        return None
    kinds = layout.kinds
    names = sorted(kinds)
    arrays = [
        gathered(data, *reader.columns[name])
        if kinds[name] == "bytes_list"
        else pa.array(reader.columns[name])
        for name in names
    ]
    return pa.RecordBatch.from_arrays(arrays, names=names)


def gathered(data: bytes, starts: _Longs, stops: _Longs) -> pa.LargeBinaryArray:
    """Returns the n pieces [start, stop) of `data` as one array.

    They ascend and do not overlap, as the values of records do.
    """
    # Pieces and the gaps between them are the items of one array over the same bytes.
    # Taking every second item copies each piece once.
    bounds = np.empty(2 * len(starts), np.int64)
    bounds[0::2] = starts
    bounds[1::2] = stops
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    both = pa.Array.from_buffers(pa.large_binary(), len(bounds) - 1, buffers)
    return both.take(pa.array(np.arange(0, len(bounds), 2)))


def _decode_each(
    payloads: Sequence[bytes] | PayloadBatch, schema: pa.Schema | None
) -> pa.RecordBatch:
    """Returns the rows, decoded one by one with protobuf."""
    if isinstance(payloads, PayloadBatch):
        payloads = payloads.to_list()
    columns = _collect(payloads)
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
            raise ExampleError(f"example {index:,}: {error}") from error
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
    """Returns the feature's values in `rows` examples, in the field's type."""
    listed = is_list(field.type)
    value_type = field.type.value_type if listed else field.type
    kind = _kind(field.name, value_type)
    if column is None or not column.kind:
        return pa.nulls(rows, field.type)
    if kind != column.kind:
        raise ExampleError(
            f"feature {field.name!r} must be a {kind or 'feature without type'}; found "
            f"a {column.kind} in example {column.first:,}"
        )
    wanted = _count(field.type)
    count = "1 value" if wanted == 1 else f"{wanted} values"
    values: list[Any] = [None] * rows
    for row, items in zip(column.rows, column.lists, strict=True):
        if wanted is not None and len(items) != wanted:
            raise ExampleError(
                f"feature {field.name!r} must have {count}; found {len(items):,} in "
                f"example {row:,}"
            )
        values[row] = items if listed else items[0]
    stored = _ARROW_TYPES[kind]
    array = pa.array(values, pa.large_list(stored) if listed else stored)
    return _cast(array, field)


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
