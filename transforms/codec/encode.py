"""Mappings to serialised tf.train.Examples, by their types or by a schema."""

import struct
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from google.protobuf.message import EncodeError

from transforms.codec.schemas import Coding, Row, RowError, SchemaLike, coding_of
from transforms.codec.typed import encode_typed
from transforms.codec.untyped import encode_untyped
from transforms.core.example.messages import OrderedExample
from transforms.core.example.payload import MAX_EXAMPLE_BYTES
from transforms.core.nesting import check_key
from transforms.errors import SHOWN_CHARS, EncodingError, bounded

_SHOWN_ROW_CHARS = 200
_LISTS = {
    bool: "int64_list",
    int: "int64_list",
    float: "float_list",
    str: "bytes_list",
    bytes: "bytes_list",
}


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
