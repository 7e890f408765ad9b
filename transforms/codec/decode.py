"""Serialised tf.train.Examples to dicts and Arrow batches.

| in the record         | without a schema | with one                               |
| --------------------- | ---------------- | -------------------------------------- |
| key absent            | left out         | None                                   |
| one value             | int, float,      | the type of the feature; a list where  |
|                       | bytes            | the feature has a shape                |
| several values, none  | a list of them   | a list, nested as the shape says       |
| another type or count | -                | an error                               |
| a key not in a schema | -                | left out                               |

Records of one layout are decoded with whole-array operations, whatever the schema.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from transforms.codec.schemas import Coding, CodingFeature, SchemaLike, coding_of
from transforms.core.example.decoder import (
    decode_examples,
    decode_one_layout,
    parse_example,
)
from transforms.core.rows.cast import cast
from transforms.core.rows.coerce import complaint
from transforms.core.rows.tensors import PROTO
from transforms.core.schema import Feature, Kind
from transforms.core.tfrecord.reader import PayloadBatch
from transforms.errors import ExampleError, bounded
from transforms.formats.tfrecord_files.columns import decode, example
from transforms.formats.tfrecord_files.features import composed, record_types

__all__ = ["decode_example", "decode_rows", "decode_table"]

_FEW = 64
_LISTS = {
    int: "int64_list",
    bool: "int64_list",
    float: "float_list",
    str: "bytes_list",
    bytes: "bytes_list",
}


def decode_example(data: bytes, schema: SchemaLike | None = None) -> dict[str, Any]:
    r"""Returns one serialised tf.train.Example as a dict.

        >>> decode_example(b"\n\r\n\x0b\n\x02id\x12\x05\x1a\x03\n\x01\x02")
        {'id': 2}

    Many are decoded faster together: with `DecodeExamples` in a pipeline, with
    `decode_examples` to Arrow.

    Args:
      data: of the record.
      schema: as `encode_example` takes it. None: all features in the order of their
        names, of one value as int, float or bytes, of another number of values as a
        list of them. With a schema: its features, None where the record lacks one:
        int, float, bool, str, bytes; lists, nested as the shape says; a label as its
        class id, an image as the bytes of its file, a timestamp as its number of
        units, a raw tensor as an array, a tensor in a TensorProto as its bytes. Under
        a `pa.Schema` they are what Arrow gives for the types, datetimes for example.

    Raises:
      SpecError: the schema is none.
      ExampleError: the bytes are no Example, or do not fit the schema.
    """
    coding = None if schema is None else coding_of(schema)
    if coding is not None and coding.plain is not None and coding.types is None:
        row = _plain_row(data, coding.plain)
        if row is not None:
            return row
    return decode_rows([data], coding)[0]


def _plain_row(data: bytes, types: Mapping[str, type]) -> dict[str, Any] | None:
    """Returns the values of an Example without Arrow; None where one does not fit."""
    try:
        features = example(data).features.feature
    except ExampleError:
        return None
    row: dict[str, Any] = {}
    for name, kind in types.items():
        row[name] = None
        if name not in features:
            continue
        found = features[name].WhichOneof("kind")
        if found is None:
            continue
        values = getattr(features[name], found).value
        if found != _LISTS[kind] or len(values) > 1:
            return None
        for value in values:
            if kind is str:
                try:
                    value = value.decode()
                except UnicodeDecodeError:
                    return None
            elif kind is bool and value not in (0, 1):
                return None
            row[name] = kind(value)
    return row


def decode_rows(
    payloads: Sequence[bytes], coding: Coding | None
) -> list[dict[str, Any]]:
    """Returns n Examples as n dicts; each is what `decode_example` gives.

    Raises:
      ExampleError: as `decode_example`; the example is numbered from 0.
    """
    if not payloads:
        return []
    if coding is None:
        # Columns of a few values take longer than the records one by one.
        batch = decode_one_layout(payloads) if len(payloads) >= _FEW else None
        if batch is not None:
            return _dicts({n: batch.column(n).to_pylist() for n in batch.schema.names})
        return [_untyped(data, index) for index, data in enumerate(payloads)]
    if not coding.features:
        return [{} for _ in payloads]
    rows = decode_table(payloads, coding)
    return _dicts(
        {
            each.feature.name: _values(rows.column(index), each.feature)
            for index, each in enumerate(coding.features)
        }
    )


def _dicts(columns: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    rows = zip(*columns.values(), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def _untyped(data: bytes, index: int) -> dict[str, Any]:
    try:
        found = parse_example(data)
    except ExampleError as error:
        raise ExampleError(f"example {index:,}: {error}") from error
    return {n: v[0] if len(v) == 1 else v for n, v in found.items()}


def decode_table(payloads: Sequence[bytes], coding: Coding | None) -> pa.RecordBatch:
    """Returns n Examples as an Arrow batch of n rows.

    Without a schema its columns are those of `decode_examples`; with one they are the
    schema's, of the types of `transforms.core.schema.row_type`, or of the `pa.Schema`.

    Raises:
      ExampleError: a payload is no Example, or does not fit; names the example.
    """
    if coding is None:
        return decode_examples(payloads)
    types: dict[str, pa.DataType] = {}
    for each in coding.features:
        types |= record_types(each.feature)
    lengths = np.fromiter(map(len, payloads), np.int64, len(payloads))
    starts = np.cumsum(lengths) - lengths
    found = decode(PayloadBatch(b"".join(payloads), starts, lengths, 0, starts), types)
    if found.refused:
        index, _, message = min(found.refused)
        raise ExampleError(bounded(f"example {index:,}: {message}"))
    arrays = [_column(each, found.columns) for each in coding.features]
    names = [each.feature.name for each in coding.features]
    if coding.types is not None:
        pairs = zip(arrays, coding.features, coding.types, strict=True)
        arrays = [_as_given(array, each.feature, field) for array, each, field in pairs]
    return pa.RecordBatch.from_arrays(arrays, names=names)


def _column(each: CodingFeature, columns: Mapping[str, pa.Array]) -> pa.Array:
    feature = each.feature
    item = composed(feature, columns)
    if item.bad is not None:
        index = int(np.argmax(item.bad))
        raise ExampleError(bounded(f"example {index:,}: {item.message}"))
    if feature.kind is Kind.TENSOR and feature.encoding == PROTO:
        return item.column
    typed = cast(item.column, feature)
    if typed.bad is not None:
        index = int(np.argmax(typed.bad))
        why = complaint(feature, typed.reason_at(index))
        raise ExampleError(
            bounded(
                f"example {index:,}: feature {feature.name!r} of kind "
                f"{each.given.kind} does not fit: {why}"
            )
        )
    return typed.values


def _as_given(column: pa.Array, feature: Feature, field: pa.Field) -> pa.Array:
    """Returns a column of the feature in the type that the user gave."""
    try:
        if _is_flat(column, feature):
            return pa.array(_values(column, feature), field.type)
        return column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ExampleError(
            bounded(f"feature {field.name!r} does not fit {field.type}: {error}")
        ) from error


def _values(column: pa.Array, feature: Feature) -> list[Any]:
    """Returns n values of Python."""
    values: list[Any] = column.to_pylist()
    if feature.kind is Kind.TENSOR and feature.encoding != PROTO:
        shape = [-1 if size is None else size for size in feature.shape]
        dtype = np.dtype(feature.dtype).newbyteorder("<")
        return [
            None if v is None else np.frombuffer(v, dtype).reshape(shape)
            for v in values
        ]
    if _is_flat(column, feature):
        return [None if v is None else _nested(v, feature.shape) for v in values]
    return values


def _is_flat(column: pa.Array, feature: Feature) -> bool:
    """Whether lists of several dimensions are stored as one, row by row."""
    return (
        len(feature.shape) > 1
        and pa.types.is_list(column.type)
        and not pa.types.is_nested(column.type.value_type)
    )


def _nested(items: list[Any], shape: Sequence[int | None]) -> list[Any]:
    """Returns flat items, row by row, as nested lists of a shape."""
    known = math.prod(size for size in shape if size is not None)
    sizes = [len(items) // max(known, 1) if n is None else n for n in shape]
    for level in range(len(sizes) - 1, 0, -1):
        size, count = sizes[level], math.prod(sizes[:level])
        items = [items[index * size : (index + 1) * size] for index in range(count)]
    return items
