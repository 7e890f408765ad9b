"""Mappings to serialised tf.train.Examples, by their types or by a schema, and back.

Without a schema, the type of each value says what it becomes, whatever the other rows
hold:

| value                                        | becomes                          |
| -------------------------------------------- | -------------------------------- |
| int, bool, NumPy integers and bools          | Int64List                        |
| float, NumPy floats                          | FloatList, rounded to float32    |
| str, bytes, bytearray, paths, UUID           | BytesList                        |
| an Enum                                      | as its value                     |
| list, tuple, range, array of one of these    | the same list, row by row; of    |
|                                              | floats, integers may be among it |
| None, NaT, pandas' NA, an empty list         | nothing: the key is left out     |

An empty array has a type, and becomes an empty list of it. Columns that hold single
values of one Python type are encoded together, other rows one by one.

| in the record         | decoded without a schema | with one                       |
| --------------------- | ------------------------ | ------------------------------ |
| key absent            | left out                 | None                           |
| one value             | int, float, bytes        | the type of the feature; a     |
|                       |                          | list where it has a shape      |
| several values, none  | a list of them           | a list, nested as the shape    |
|                       |                          | says                           |
| another type or count | -                        | an error                       |
| a key not in a schema | -                        | left out                       |

Regular records are decoded with whole-array operations, whatever the schema.
"""

import itertools
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from google.protobuf.message import EncodeError

from transforms.codec.typed import (
    Coding,
    Row,
    SchemaLike,
    coding_of,
    encode_typed,
)
from transforms.core.example.decoder import decode_examples, read_columns
from transforms.core.example.encoder import encode_examples
from transforms.core.example.messages import OrderedExample, parse_example
from transforms.core.example.payload import MAX_EXAMPLE_BYTES
from transforms.core.example.wire import varint
from transforms.core.json_text import check_key
from transforms.core.rows.feature_values import PLAIN_TYPES, fitted_column
from transforms.core.rows.python_kinds import (
    OddValueError,
    family_of,
    plain_values,
    shown,
)
from transforms.core.schema import Feature
from transforms.core.tfrecord.reader import PayloadBatch
from transforms.errors import SHOWN_CHARS, EncodingError, ExampleError, bounded
from transforms.formats.tfrecord_files.stored_features import example
from transforms.formats.tfrecord_files.typed_rows import TypedRows, single_row

# Fewer rows take longer as columns than one by one.
_FEW = 16
# Columns of one of these, and of None, need no look at each value.
_OF_TYPE = {kind: name for name, kind in PLAIN_TYPES.items()}
# Family of values -> the list of the message, and what makes an item of one.
_STORED: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "int": ("int64_list", int),
    "bool": ("int64_list", int),
    "float": ("float_list", float),
    "text": ("bytes_list", str.encode),
    "bytes": ("bytes_list", bytes),
}
_FLOAT32 = struct.Struct("<f").pack


def _as_float32(value: float) -> float:
    """Returns a float that float32 can hold; raises OverflowError for another one."""
    _FLOAT32(value)
    return value


_PLAIN = {kind: _STORED[family_of(kind)] for kind in _OF_TYPE}
_PLAIN[float] = ("float_list", _as_float32)
_OUTSIDE = {
    "int64_list": "outside int64, -2^63 to 2^63-1",
    "float_list": "outside float32, which holds integers only where it is exact",
    "bytes_list": "a text must have no surrogates",
}
_LISTS = (list, tuple, range, np.ndarray)
_NO_RULE = (
    "a value must be a number, text or bytes, and those of a list of one of these "
    "kinds; convert it, or give a schema that says its kind and, of nested lists, the "
    "shape"
)


def encode_example(mapping: Row, schema: SchemaLike | None = None) -> bytes:
    r"""Returns one row as a serialised tf.train.Example.

        >>> encode_example({"name": None, "id": 2})
        b'\n\r\n\x0b\n\x02id\x12\x05\x1a\x03\n\x01\x02'

    The order of the keys means nothing; a key whose value is None is left out. Many
    rows are encoded faster together: with `EncodeExamples` in a pipeline, with
    `encode_examples` from Arrow.

    Args:
      mapping: names to values.
      schema: the features: a `Schema`, a list of `Feature`, or a dict in the words of a
        spec, as in {"id": "int64", "points": {"kind": "float", "shape": [None, 2]}}.
        None: each value by its own Python type: integers and bools become an Int64List,
        floats a FloatList of float32, texts and bytes a BytesList, lists and arrays of
        these the same. Arrays of several dimensions are stored row by row; nested lists
        need a schema.
        With a schema a label is its class id, or a name in its vocabulary; an image is
        the bytes of its file.

    Raises:
      SpecError: the schema is none.
      EncodingError: a value does not fit its feature, no feature can hold it, or the
        schema lacks its key; names row, feature and value.
    """
    coding = None if schema is None else coding_of(schema)
    if coding is None or coding.plain is not None:
        plain = plain_example(mapping, None if coding is None else coding.plain)
        if plain is not None:
            return plain
    return encode_rows([mapping], coding)[0]


def encode_rows(rows: Sequence[Row], coding: Coding | None) -> list[bytes]:
    """Returns n rows as n Examples; each is what `encode_example` gives.

    Raises:
      EncodingError: as `encode_example`; the row is numbered from 1.
    """
    names = set().union(*rows)
    try:
        if coding is None:
            return encode_untyped(rows, _checked_names(names))
        odd = sorted(map(str, names - coding.names))
        if odd:
            index = next(i for i, row in enumerate(rows) if odd[0] in map(str, row))
            raise OddValueError(
                f"the schema has no feature {odd[0]!r}; leave the key out, or add the "
                f"feature",
                index,
            )
        return encode_typed(rows, coding)
    except OddValueError as error:
        raise EncodingError(
            bounded(f"row {error.index + 1} ({shown(rows[error.index])}): {error}")
        ) from error


def _checked_names(names: set[str]) -> list[str]:
    """Returns keys of rows, sorted; EncodingError for one that no record can have."""
    for name in names:
        if not isinstance(name, str):
            raise EncodingError(
                f"Every feature must have a name that is text; found "
                f"{bounded(repr(name), SHOWN_CHARS)}. Rename it."
            )
        try:
            check_key(name)
        except ValueError as error:
            raise EncodingError(f"{bounded(str(error), 400)}. Rename it.") from error
    return sorted(names)


def plain_example(row: Row, types: Mapping[str, type] | None) -> bytes | None:
    """Returns the Example of a row; None where other rules must decide.

    Args:
      row: names to values.
      types: the type that each value must have, and None may have; None for any.
    """
    if types is not None and not (
        row.keys() <= types.keys()
        and all(v is None or type(v) is types[name] for name, v in row.items())
    ):
        return None
    if not {*map(type, row)} <= {str}:
        return None
    try:
        return _example(row)
    except OddValueError:
        return None


def encode_untyped(rows: Sequence[Row], names: Sequence[str]) -> list[bytes]:
    """Returns n rows as n Examples.

    Args:
      rows: of any values.
      names: all of their keys.

    Raises:
      OddValueError: no rule stores a value.
    """
    if len(rows) >= _FEW and (columns := _columns(rows, names)):
        return encode_examples(pa.record_batch(columns))
    out = []
    for index, row in enumerate(rows):
        try:
            out.append(_example(row))
        except OddValueError as error:
            raise OddValueError(str(error), index) from error
    return out


def _columns(rows: Sequence[Row], names: Sequence[str]) -> dict[str, pa.Array]:
    """Returns rows as columns; none where one has values of several types, or odd."""
    columns = {}
    for name in names:
        values = [row.get(name) for row in rows]
        kinds = set(map(type, values)) - {type(None)}
        if len(kinds) > 1 or not kinds <= _OF_TYPE.keys():
            return {}
        for kind in kinds:
            try:
                columns[name] = fitted_column(values, Feature(name, _OF_TYPE[kind]))
            except OddValueError:
                return {}
    return columns


def _example(row: Row) -> bytes:
    """Returns a row as an Example.

    Raises:
      OddValueError: no rule stores a value; names feature and value.
    """
    example = OrderedExample()
    # An Example without features is `0a 00`, not nothing.
    example.features.SetInParent()
    add = example.features.feature.add
    # Texts sort as their UTF-8 does.
    for name in sorted(row):
        value = row[name]
        stored = ""
        try:
            rule = _PLAIN.get(type(value))
            if rule is not None:
                stored = rule[0]
                items: Any = (rule[1](value),)
            else:
                stored, items = _items_of(value)
            if not stored:
                continue
            entry = add()
            entry.key = name
            target = getattr(entry.value, stored)
            if type(items) is bytes:
                target.MergeFromString(b"\x0a" + varint(len(items)) + items)
            elif items:
                target.value.extend(items)
            else:
                target.SetInParent()
        except (TypeError, ValueError, OverflowError) as error:
            why = error if isinstance(error, OddValueError) else _OUTSIDE[stored]
            raise OddValueError(
                f"feature {name!r} cannot hold {shown(value)}: {why}"
            ) from error
    try:
        data: bytes = example.SerializeToString()
    except EncodeError:  # of 2 GiB and more
        data = b""
    if not 0 < len(data) <= MAX_EXAMPLE_BYTES:
        raise OddValueError(f"an Example must not exceed {MAX_EXAMPLE_BYTES} bytes")
    return data


def _items_of(value: Any) -> tuple[str, Any]:
    """Returns the list of the message that a value becomes, and its items.

    "" for one that is missing, and for an empty list.
    """
    (value,) = plain_values([value])
    if value is None:
        return "", []
    if type(value) is np.ndarray and value.dtype.kind in "biuf":
        flat = value.ravel()
        if value.dtype.kind == "f":
            return "float_list", _packed(flat)
        return "int64_list", [*map(int, flat.tolist())]
    items: list[Any] = [value]
    if isinstance(value, _LISTS):
        flat_list = value.ravel().tolist() if isinstance(value, np.ndarray) else value
        items = plain_values([*flat_list])
        if not items:
            return "", items
    families = {family_of(kind) for kind in set(map(type, items))}
    if not families <= _STORED.keys():
        raise OddValueError(_NO_RULE)
    if len(families) == 1:
        stored, make = _STORED[families.pop()]
        return stored, list(map(make, items)) if make is not float else _packed(items)
    if families == {"int", "float"}:
        integers = [v for v in items if family_of(type(v)) == "int"]
        if any(float(np.float32(v)) != v for v in integers):
            raise OddValueError(_OUTSIDE["float_list"])
        return "float_list", _packed(items)
    names = {_STORED[family][0] for family in families}
    if len(names) > 1:
        raise OddValueError(_NO_RULE)
    return names.pop(), [_STORED[family_of(type(v))][1](v) for v in items]


def _packed(floats: Sequence[float] | npt.NDArray[np.floating]) -> bytes:
    """Returns floats as float32; raises OddValueError for what it cannot hold."""
    try:
        if not isinstance(floats, np.ndarray):
            return struct.pack(f"<{len(floats)}f", *floats)
        with np.errstate(over="raise"):
            return floats.astype("<f4").tobytes()
    except (OverflowError, FloatingPointError) as error:
        raise OddValueError(_OUTSIDE["float_list"]) from error


_FEW_RECORDS = 64


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
    if coding is None:
        return _untyped_rows(payloads)
    rows = decode_table(payloads, coding)
    return list(_typed_rows(coding).dicts(rows))


def _untyped_rows(payloads: Sequence[bytes]) -> list[dict[str, Any]]:
    """Returns the features that each record has; a list where not one value."""
    # Columns of a few values take longer than the records one by one.
    decoded = (
        read_columns(PayloadBatch.of(payloads))
        if len(payloads) >= _FEW_RECORDS
        else None
    )
    if decoded is None or decoded.untyped or decoded.errors:
        return [_decode_untyped(data, index) for index, data in enumerate(payloads)]
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


def _decode_untyped(data: bytes, index: int) -> dict[str, Any]:
    """Returns the features of one Example; a list of one value as that value."""
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
    """Returns what turns records into rows under a coding: into dicts, or a batch."""
    return TypedRows(tuple(coded.feature for coded in coding.features))
