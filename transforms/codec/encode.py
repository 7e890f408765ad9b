"""Mappings to serialised tf.train.Examples, by their types or by a schema.

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

An empty array has a type, and becomes an empty list of it. Rows that become the same
columns are encoded together.
"""

import struct
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
from google.protobuf.message import EncodeError

from transforms.codec.schemas import (
    NOTHING,
    Coding,
    Row,
    RowError,
    SchemaLike,
    coding_of,
)
from transforms.codec.typed import encode_typed
from transforms.core.example.encoder import encode_examples
from transforms.core.example.messages import OrderedExample
from transforms.core.example.payload import MAX_EXAMPLE_BYTES
from transforms.core.nesting import check_key
from transforms.core.rows.python_kinds import OddValueError, family_of, plain_values
from transforms.core.rows.values import fitted_column, misfit
from transforms.core.schema import Feature, Kind
from transforms.errors import SHOWN_CHARS, EncodingError, bounded

_SHOWN_ROW_CHARS = 200
_LISTS = {
    bool: "int64_list",
    int: "int64_list",
    float: "float_list",
    str: "bytes_list",
    bytes: "bytes_list",
}


# Columns of one of these, and of None, need no look at each value.
_OF_TYPE = {
    int: Kind.INT64,
    bool: Kind.BOOL,
    float: Kind.FLOAT,
    str: Kind.TEXT,
    bytes: Kind.BYTES,
}
_OF_FAMILIES: Mapping[frozenset[str], Kind] = {
    **dict.fromkeys(map(frozenset, (["int"], ["bool"], ["int", "bool"])), Kind.INT64),
    **dict.fromkeys(map(frozenset, (["float"], ["int", "float"])), Kind.FLOAT),
    **dict.fromkeys(
        map(frozenset, (["text"], ["bytes"], ["text", "bytes"])), Kind.BYTES
    ),
}
# What a column holds: its kind, and whether it holds lists.
_Form = tuple[Kind, bool]


def encode_example(mapping: Row, schema: SchemaLike | None = None) -> bytes:
    r"""Returns one row as a serialised tf.train.Example.

        >>> encode_example({"name": None, "id": 2})
        b'\n\r\n\x0b\n\x02id\x12\x05\x1a\x03\n\x01\x02'

    The order of the keys means nothing; a key whose value is None is left out. Many
    rows are encoded faster together: with `EncodeExamples` in a pipeline, with
    `encode_examples` from Arrow.

    Args:
      mapping: names to values.
      schema: the features: a `Schema`, a `pa.Schema`, a list of `Feature`, or a dict in
        the words of a spec, as in {"id": "int64", "points": {"kind": "float", "shape":
        [None, 2]}}. None: each value by its own Python type: integers and bools become
        an Int64List, floats a FloatList of float32, texts and bytes a BytesList, lists
        and arrays of these the same; nested ones are flattened, row by row.
        With a schema a label is its class id, or a name in its vocabulary; an image is
        the bytes of its file.

    Raises:
      SpecError: the schema is none.
      EncodingError: a value does not fit its feature, no feature can hold it, or the
        schema lacks its key; names row, feature and value.
    """
    coding = None if schema is None else coding_of(schema)
    plain = None
    if coding is None or coding.plain is not None:
        plain = plain_example(mapping, None if coding is None else coding.plain)
    return encode_rows([mapping], coding)[0] if plain is None else plain


def encode_rows(rows: Sequence[Row], coding: Coding | None) -> list[bytes]:
    """Returns n rows as n Examples; each is what `encode_example` gives.

    Raises:
      EncodingError: as `encode_example`; the row is numbered from 1.
    """
    if not rows:
        return []
    names = set().union(*rows)
    try:
        if coding is None:
            return encode_untyped(rows, _checked_names(names))
        odd = sorted(map(str, names - coding.names))
        if odd:
            _refuse_name(rows, odd[0])
        return encode_typed(rows, coding)
    except RowError as error:
        raise EncodingError(
            bounded(f"row {error.index + 1} ({_shown(rows[error.index])}): {error}")
        ) from error


def _shown(row: Row) -> str:
    return bounded(repr(row), _SHOWN_ROW_CHARS)


def _checked_names(names: set[str]) -> list[str]:
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


def _refuse_name(rows: Sequence[Row], name: str) -> NoReturn:
    index = next(i for i, row in enumerate(rows) if name in map(str, row))
    raise RowError(
        f"the schema has no feature {name!r}; leave the key out, or add the feature",
        index,
    )


def plain_example(
    row: Mapping[str, Any], types: Mapping[str, type] | None
) -> bytes | None:
    """Returns the Example of a row; None where other rules must decide.

    Args:
      row: names to values.
      types: the type that each value must have, and None may have; None for any.
    """
    example = OrderedExample()
    # An Example without features is `0a 00`, not nothing.
    example.features.SetInParent()
    features = example.features.feature
    try:
        # Texts sort as their UTF-8 does.
        for name in sorted(row):
            value = row[name]
            kind = type(value)
            if types is not None and name not in types:
                return None
            if value is None:
                continue
            if type(name) is not str or (types is not None and types[name] is not kind):
                return None
            if kind is list or kind is tuple:
                (kind,) = {*map(type, value)}
            else:
                value = (value,)
            if kind is float:
                # protobuf makes an infinity of a value that is beyond float32.
                struct.pack(f"<{len(value)}f", *value)
            elif kind is str:
                value = [text.encode() for text in value]
            elif kind is bool:
                value = [int(item) for item in value]
            entry = features.add()
            entry.key = name
            getattr(entry.value, _LISTS[kind]).value.extend(value)
        data: bytes = example.SerializeToString()
    except (TypeError, ValueError, KeyError, OverflowError, EncodeError):
        return None
    return data if len(data) <= MAX_EXAMPLE_BYTES else None


def encode_untyped(rows: Sequence[Row], names: Sequence[str]) -> list[bytes]:
    """Returns n rows as n Examples.

    Args:
      rows: of any values.
      names: all of their keys.

    Raises:
      RowError: no rule stores a value.
    """
    columns: dict[str, list[Any]] = {}
    forms: dict[str, _Form] = {}
    mixed: dict[str, list[_Form | None]] = {}
    for name in names:
        values = [row.get(name) for row in rows]
        kinds = {_OF_TYPE.get(kind) for kind in set(map(type, values)) - {type(None)}}
        if len(kinds) == 1 and None not in kinds:
            (kind,) = kinds
            assert kind is not None
            forms[name] = kind, False
        elif kinds:
            values, found = _formed(name, values)
            distinct = {form for form in found if form is not None}
            if len(distinct) > 1:
                mixed[name] = found
            elif distinct:
                (forms[name],) = distinct
            else:
                continue
        else:
            continue
        columns[name] = values
    parts: dict[tuple[_Form | None, ...], list[int]] = {}
    if not mixed:
        return _encoded(columns, forms, range(len(rows)))
    # Rows of one form each: what a row becomes must not depend on the others.
    for index, key in enumerate(zip(*mixed.values(), strict=True)):
        parts.setdefault(key, []).append(index)
    out = [b""] * len(rows)
    for key, places in parts.items():
        own = dict(zip(mixed, key, strict=True))
        kept = {name: form for name, form in own.items() if form is not None}
        part = {
            name: [values[index] for index in places]
            for name, values in columns.items()
            if name in forms or name in kept
        }
        records = _encoded(part, forms | kept, places)
        for index, record in zip(places, records, strict=True):
            out[index] = record
    return out


def _formed(name: str, values: list[Any]) -> tuple[list[Any], list[_Form | None]]:
    """Returns values in types that a column takes, and what each of them holds."""
    values = [
        list(value) if type(value) is range else value for value in plain_values(values)
    ]
    forms: list[_Form | None] = []
    for index, value in enumerate(values):
        try:
            form = _form(value)
        except OddValueError as error:
            raise RowError(
                f"feature {name!r} cannot hold {bounded(repr(value), SHOWN_CHARS)} "
                f"({type(value).__name__}): {error}",
                index,
            ) from error
        forms.append(form)
        if form is None:
            values[index] = None
    return values, forms


def _form(value: Any) -> _Form | None:
    """Returns the form of a value; None for one that is missing, and an empty list."""
    if value is None:
        return None
    families: set[str]
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        return (Kind.FLOAT if value.dtype.kind == "f" else Kind.INT64), True
    many = isinstance(value, list | tuple | np.ndarray)
    if many:
        items: list[Any] = []
        _add_items(value, items)
        families = {family_of(type(v)) for v in plain_values(items) if v is not None}
        if not items:
            return None
    else:
        families = {family_of(type(value))}
    kind = _OF_FAMILIES.get(frozenset(families))
    if kind is None and many:
        raise OddValueError(
            "the values of a list must be numbers, or texts and bytes; it has "
            f"{', '.join(sorted(f or 'others' for f in families)) or 'nothing'}; "
            f"convert them, or give a schema"
        )
    if kind is None:
        raise OddValueError(
            "no rule says how such a value is stored; convert it, or give a schema "
            "that says its kind"
        )
    return kind, many


def _add_items(value: Any, items: list[Any]) -> tuple[int, ...]:
    """Adds the single values of nested lists, row by row; returns the lists' shape."""
    if isinstance(value, np.ndarray) and value.ndim:
        items += value.ravel().tolist()
        return tuple(value.shape)
    if not isinstance(value, list | tuple):
        items.append(value)
        return ()
    try:
        shapes = {_add_items(part, items) for part in value}
    except RecursionError as error:
        raise OddValueError("it is nested too deeply") from error
    if len(shapes) > 1:
        raise OddValueError(
            "its lists differ in length, which an Example does not keep; give a schema "
            "with the shape [None, None]"
        )
    return (len(value), *(shapes.pop() if shapes else ()))


def _encoded(
    columns: Mapping[str, list[Any]],
    forms: Mapping[str, _Form],
    places: Sequence[int],
) -> list[bytes]:
    """Returns rows of one form each as Examples.

    Args:
      columns: by name, n values each.
      forms: of each column.
      places: which rows they are; n of them.
    """
    if not columns:
        return [NOTHING] * len(places)
    arrays = {}
    for name, values in columns.items():
        feature = Feature(name, forms[name][0])
        try:
            arrays[name] = fitted_column(values, feature)
        except OddValueError as error:
            raise RowError(
                misfit(values, feature, error), places[max(error.index, 0)]
            ) from error
    return encode_examples(pa.record_batch(arrays))
