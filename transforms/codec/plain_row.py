"""One row of plain values to an Example, without Arrow.

An Arrow column of one value takes as long as one of a hundred: for a single row Python
alone takes a twentieth of the time. What is not of the types below, or does not fit, is
left to `transforms.codec.encode`, which finds the error, and whose bytes these are.

    int, bool -> varint    float -> 4 bytes    str, bytes -> their bytes
    a list or tuple of one of these types -> the same, one behind the other
"""

import functools
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from transforms.core.example.encoder import MAX_EXAMPLE_BYTES
from transforms.core.example.entry import Entry, Form, Kind
from transforms.core.example.varint import varint

_FLOAT = struct.Struct("<f").pack
_WORD = 2**64 - 1


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
