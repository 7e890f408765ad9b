"""Serialised tf.train.Examples to dicts and Arrow batches.

| in the record         | without a schema | with one                               |
| --------------------- | ---------------- | -------------------------------------- |
| key absent            | left out         | None                                   |
| one value             | int, float,      | the type of the feature; a list where  |
|                       | bytes            | the feature has a shape                |
| several values, none  | a list of them   | a list, nested as the shape says       |
| another type or count | -                | an error                               |
| a key not in a schema | -                | left out                               |

Regular records are decoded with whole-array operations, whatever the schema.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from transforms.codec.typed import Coding, SchemaLike, coding_of
from transforms.core.example.decoder import decode_examples
from transforms.core.example.example_columns import read_columns
from transforms.core.example.messages import parse_example
from transforms.core.tfrecord.reader import PayloadBatch
from transforms.errors import ExampleError
from transforms.formats.tfrecord_files.columns import example, single_row
from transforms.formats.tfrecord_files.typed_rows import TypedRows

_FEW = 64


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
        class id, an image as the bytes of its file, a timestamp as a datetime in UTC,
        a raw tensor as an array, a tensor in a TensorProto as its bytes.

    Raises:
      SpecError: the schema is none.
      ExampleError: the bytes are no Example, or do not fit the schema.
    """
    coding = None if schema is None else coding_of(schema)
    if coding is not None and coding.plain is not None:
        try:
            absent = dict.fromkeys(coding.plain)
            row = single_row(example(data), coding.single, absent)
        except ExampleError:
            row = None
        if row is not None:
            return row
    return decode_rows([data], coding)[0]


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
        return _untyped_rows(payloads)
    if not coding.features:
        return [{} for _ in payloads]
    rows = decode_table(payloads, coding)
    return list(_typed_rows(coding).dicts(rows))


def _untyped_rows(payloads: Sequence[bytes]) -> list[dict[str, Any]]:
    """Returns the features that each record has; a list where not one value."""
    # Columns of a few values take longer than the records one by one.
    decoded = read_columns(PayloadBatch.of(payloads)) if len(payloads) >= _FEW else None
    if decoded is None or decoded.untyped or decoded.errors:
        return [_untyped(data, index) for index, data in enumerate(payloads)]
    rows: list[dict[str, Any]] = [{} for _ in payloads]
    for name, columns in decoded.features.items():
        for column in columns.values():
            values = column.values.to_pylist()
            if column.counts is not None:
                stops = np.cumsum(column.counts).tolist()
                lists = [values[a:b] for a, b in itertools.pairwise([0, *stops])]
                values = [cell[0] if len(cell) == 1 else cell for cell in lists]
            having = rows if column.rows is None else map(rows.__getitem__, column.rows)
            for row, value in zip(having, values, strict=True):
                row[name] = value
    return rows


def _untyped(data: bytes, index: int) -> dict[str, Any]:
    try:
        features = parse_example(data)
    except ExampleError as error:
        raise type(error)(f"example {index:,}: {error}") from error
    return {n: v[0] if len(v) == 1 else v for n, v in features.items()}


def decode_table(payloads: Sequence[bytes], coding: Coding | None) -> pa.RecordBatch:
    """Returns n Examples as an Arrow batch of n rows.

    Without a schema its columns are those of `decode_examples`; with one they are the
    schema's, of the types that `TypedRows` gives them.

    Raises:
      ExampleError: a payload is no Example, or does not fit; names the example.
    """
    if coding is None:
        return decode_examples(payloads)
    return _typed_rows(coding).batch(PayloadBatch.of(payloads), "")


def _typed_rows(coding: Coding) -> TypedRows:
    return TypedRows(tuple(coded.feature for coded in coding.features))
