"""Dataclasses to and from JSON, by the types of their fields.

    dataclass          {field: value, ...}, of all fields that equality looks at
    tuple              [value, ...]
    mapping            {key: value, ...} if all keys are text, else [[key, value], ...]
    member of StrEnum  its text
    bytes              text, in base64

A field that is missing or unknown, or of another type, is an error: another version of
the program has written it.
"""

import base64
import dataclasses
import functools
import json
import operator
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

_SCALARS = frozenset((types.NoneType, bool, int, float, str))


def to_json(value: Any) -> bytes:
    """Returns a dataclass, or a tuple of such values, as JSON.

        >>> from transforms.core.manifest import FileFacts
        >>> to_json(FileFacts("features.json", 812, 48879))
        b'{"file": "features.json", "bytes": 812, "crc32c": 48879}'

    Raises:
      TypeError: there is a value of a type that is not named above.
    """
    # NumPy's integers are no numbers to the encoder.
    return json.dumps(_plain(value), default=operator.index).encode()


def from_json(kind: Any, data: bytes) -> Any:
    """Inverse of `to_json`.

    Args:
      kind: the type of the value, such as `tuple[Segment, ...]`.
      data: what `to_json` gave.

    Raises:
      ValueError: it is something else, or of another version.
    """
    try:
        return _reader(kind)(json.loads(data))
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ValueError(f"not of this version: {error}") from error


def _plain(value: Any) -> Any:
    kind = type(value)
    if kind is tuple or kind is list:
        return value if _SCALARS.issuperset(map(type, value)) else [*map(_plain, value)]
    if dataclasses.is_dataclass(kind):
        fields = ((name, getattr(value, name)) for name in _readers(kind))
        # There may be thousands of dataclasses: no call for most of their fields.
        return {n: v if type(v) in _SCALARS else _plain(v) for n, v in fields}
    if isinstance(value, Mapping):
        if all(type(key) is str for key in value):
            return {key: _plain(item) for key, item in value.items()}
        return [*map(_plain, value.items())]
    return base64.b64encode(value).decode() if kind is bytes else value


@functools.cache
def _readers(kind: Any) -> Mapping[str, Callable[[Any], Any]]:
    """Returns what makes the values of the fields of a dataclass, by their names."""
    hints, fields = typing.get_type_hints(kind), dataclasses.fields(kind)
    return {each.name: _reader(hints[each.name]) for each in fields if each.compare}


@functools.cache
def _reader(kind: Any) -> Callable[[Any], Any]:
    """Returns what makes a value of this type of its JSON."""
    outer, inner = typing.get_origin(kind), typing.get_args(kind)
    if kind in _SCALARS or (outer is types.UnionType and _SCALARS.issuperset(inner)):
        return functools.partial(_scalar, inner or (kind,))
    if outer is types.UnionType:
        (read,) = [_reader(each) for each in inner if each is not types.NoneType]
        return lambda value: None if value is None else read(value)
    if dataclasses.is_dataclass(kind):
        return functools.partial(_dataclass, kind, _readers(kind))  # type: ignore[arg-type]
    if outer is Mapping:
        pairs = _reader(tuple[tuple[inner], ...])  # type: ignore[valid-type]
        return lambda it: dict(pairs(it.items() if isinstance(it, dict) else it))
    if outer is tuple and ... in inner:
        return lambda values: tuple(map(_reader(inner[0]), values))
    if outer is tuple:
        items = [*map(_reader, inner)]
        return lambda it: tuple(r(v) for r, v in zip(items, it, strict=True))
    return functools.partial(base64.b64decode, validate=True) if kind is bytes else kind


def _scalar(kinds: tuple[type, ...], value: Any) -> Any:
    if type(value) not in kinds:
        raise ValueError(f"{type(value)} must be one of {kinds}")
    return value


def _dataclass(kind: Any, readers: Mapping[str, Any], values: Any) -> Any:
    if values.keys() != readers.keys():
        raise ValueError(f"{kind.__name__} has the fields {', '.join(values)}")
    return kind(**{name: read(values[name]) for name, read in readers.items()})
