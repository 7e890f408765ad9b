"""Mappings to serialised tf.train.Examples, by their types or by a schema."""

import functools
import struct
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from transforms.codec.schemas import Coding, Row, RowError, SchemaLike, coding_of
from transforms.codec.typed import encode_typed
from transforms.codec.untyped import encode_untyped
from transforms.core.example.entry import Entry, Form, Kind
from transforms.core.example.payload import MAX_EXAMPLE_BYTES
from transforms.core.example.varint import varint
from transforms.core.nesting import check_key
from transforms.errors import SHOWN_CHARS, EncodingError, bounded

_SHOWN_ROW_CHARS = 200
_FLOAT = struct.Struct("<f").pack
_WORD = 2**64 - 1


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
    parts = []
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
            if kind is int or kind is bool:
                if not -(2**63) <= value < 2**63:
                    return None
                payload = varint(int(value) & _WORD)
                parts.append(_prefix(name, Kind.INT64, len(payload)))
            elif kind is float:
                payload = _FLOAT(value)
                parts.append(_prefix(name, Kind.FLOAT, 4))
            elif kind is str or kind is bytes:
                payload = value.encode() if kind is str else value
                parts.append(_entry(name, Kind.BYTES).prefix(len(payload)))
            elif (kind is list or kind is tuple) and (listed := _listed(name, value)):
                prefix, payload = listed
                parts.append(prefix)
            else:
                return None
            parts.append(payload)
    except (TypeError, UnicodeEncodeError, OverflowError):
        return None
    body = b"".join(parts)
    example = b"\x0a" + varint(len(body)) + body
    return example if len(example) <= MAX_EXAMPLE_BYTES else None


def _listed(name: str, values: Sequence[Any]) -> tuple[bytes, bytes] | None:
    """Returns the prefix and the payload of a list; None for mixed and other types.

    Raises:
      OverflowError, UnicodeEncodeError: a value does not fit.
    """
    kinds = set(map(type, values))
    if kinds == {int} or kinds == {bool}:
        if min(values) < -(2**63) or max(values) >= 2**63:
            return None
        payload = b"".join([varint(int(value) & _WORD) for value in values])
        entry = _entry(name, Kind.INT64, Form.PACKED)
    elif kinds == {float}:
        payload = struct.pack(f"<{len(values)}f", *values)
        entry = _entry(name, Kind.FLOAT, Form.PACKED)
    elif kinds == {str} or kinds == {bytes}:
        texts = [value.encode() for value in values] if kinds == {str} else values
        payload = b"".join([b"\x0a" + varint(len(text)) + text for text in texts])
        entry = _entry(name, Kind.BYTES, Form.REPEATED)
    else:
        return None
    return entry.prefix(len(payload)), payload


@functools.lru_cache(maxsize=1 << 12)
def _entry(name: str, kind: Kind, form: Form = Form.SINGLE) -> Entry:
    return Entry(name, kind, form)


@functools.lru_cache(maxsize=1 << 14)
def _prefix(name: str, kind: Kind, size: int) -> bytes:
    return _entry(name, kind).prefix(size)
