"""JSON: dataclasses by the types of their fields, and a limit on nesting.

    dataclass          {field: value, ...}, of all fields that equality looks at
    tuple              [value, ...]
    mapping            {key: value, ...} if all keys are text, else [[key, value], ...]
    member of StrEnum  its text
    bytes              text, in base64

A field that is missing or unknown, or of another type, is an error: another version of
the program has written it.

The limit on nesting depth is the same for every source of values. Arrow stores columns
of up to 63 levels of lists and structs, and exports those of up to 62 levels to other
libraries. Deeper values fit into no column.
"""

import base64
import dataclasses
import functools
import json
import operator
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

_SCALARS = frozenset((types.NoneType, bool, int, float, str))
MAX_NESTING = 62
"""Levels of lists and objects in one value of a column."""
TOO_DEEP = f"values are nested more than {MAX_NESTING} levels deep"

# The arrays of places of a piece fit into a processor's cache.
_PIECE_BYTES = 1 << 18
# Setting this bit turns "[" into "{" and "]" into "}", and no other byte into a brace.
_FOLD = 0x20
_OPENS, _CLOSES, _QUOTE, _ESCAPE = b'{}"\\'
_Places = npt.NDArray[np.int64]


def to_json(value: Any) -> bytes:
    """Returns a dataclass, or a tuple of such values, as JSON.

        >>> from transforms.core.manifest import FileFacts
        >>> to_json(FileFacts("features.json", 812, 48879))
        b'{"file": "features.json", "bytes": 812, "crc32c": 48879}'

    Raises:
      TypeError: there is a value of a type that is not named above.
    """
    # NumPy's integers are no numbers to the encoder.
    return json.dumps(_json(value), default=operator.index).encode()


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


def _json(value: Any) -> Any:
    """Returns a value as `json` takes it: dataclasses as objects, bytes as base64."""
    kind = type(value)
    if kind is tuple or kind is list:
        return value if _SCALARS.issuperset(map(type, value)) else [*map(_json, value)]
    if dataclasses.is_dataclass(kind):
        fields = ((name, getattr(value, name)) for name in _readers(kind))
        # There may be thousands of dataclasses: no call for most of their fields.
        return {n: v if type(v) in _SCALARS else _json(v) for n, v in fields}
    if isinstance(value, Mapping):
        if all(type(key) is str for key in value):
            return {key: _json(item) for key, item in value.items()}
        return [*map(_json, value.items())]
    return base64.b64encode(value).decode() if kind is bytes else value


@functools.cache
def _readers(kind: Any) -> Mapping[str, Callable[[Any], Any]]:
    """Returns what makes the values of the fields of a dataclass, by their names."""
    hints, fields = typing.get_type_hints(kind), dataclasses.fields(kind)
    return {field.name: _reader(hints[field.name]) for field in fields if field.compare}


@functools.cache
def _reader(kind: Any) -> Callable[[Any], Any]:
    """Returns what makes a value of this type of its JSON."""
    outer, inner = typing.get_origin(kind), typing.get_args(kind)
    if kind in _SCALARS or (outer is types.UnionType and _SCALARS.issuperset(inner)):
        return functools.partial(_checked_scalar, inner or (kind,))
    if outer is types.UnionType:
        (read,) = [_reader(member) for member in inner if member is not types.NoneType]
        return lambda value: None if value is None else read(value)
    if dataclasses.is_dataclass(kind):
        return functools.partial(_read_dataclass, kind, _readers(kind))  # type: ignore[arg-type]
    if outer is Mapping:
        pairs = _reader(tuple[tuple[inner], ...])  # type: ignore[valid-type]
        return lambda it: dict(pairs(it.items() if isinstance(it, dict) else it))
    if outer is tuple and ... in inner:
        return lambda values: tuple(map(_reader(inner[0]), values))
    if outer is tuple:
        items = [*map(_reader, inner)]
        return lambda it: tuple(r(v) for r, v in zip(items, it, strict=True))
    return functools.partial(base64.b64decode, validate=True) if kind is bytes else kind


def _checked_scalar(kinds: tuple[type, ...], value: Any) -> Any:
    """Returns a number, text, bool or null as it is; ValueError for another type."""
    if type(value) not in kinds:
        raise ValueError(f"{type(value)} must be one of {kinds}")
    return value


def _read_dataclass(kind: Any, readers: Mapping[str, Any], values: Any) -> Any:
    """Returns a dataclass of its JSON object; ValueError where fields differ."""
    if values.keys() != readers.keys():
        raise ValueError(f"{kind.__name__} has the fields {', '.join(values)}")
    return kind(**{name: read(values[name]) for name, read in readers.items()})


def json_nesting(data: bytes) -> int:
    """Returns how many levels of lists and objects JSON in UTF-8 opens at once.

    The text is not parsed. The result is exact up to its first error, if any.
    """
    pieces = json_levels([data])
    return max((int(levels.max(initial=0)) for *_, levels in pieces), default=0)


def json_levels(
    pieces: Iterable[bytes], level: int = 0
) -> Iterator[tuple[bytes, _Places, _Places, _Places]]:
    """Yields JSON in UTF-8, piece by piece, with the levels of its lists and objects.

    Args:
      pieces: the text, in pieces of any size.
      level: how many lists and objects are open before the first.

    Yields:
      A piece; where its quotes are, as `outside` takes them; where lists and objects
      begin and end; and how many are open behind each of these places.
    """
    in_string = is_escaped = False
    size = _PIECE_BYTES
    for piece in (p[i : i + size] for p in pieces for i in range(0, len(p), size)):
        # The backslash is at the end of the last piece.
        plain = b"_" + piece[1:] if is_escaped else piece
        is_escaped = (len(plain) - len(plain.rstrip(b"\\"))) % 2 == 1
        octets = np.frombuffer(bytearray(plain), np.uint8)
        escapes = np.flatnonzero(octets[:-1] == _ESCAPE)
        if (np.diff(escapes) == 1).any():
            octets = np.frombuffer(bytearray(plain.replace(rb"\\", b"__")), np.uint8)
            escapes = np.flatnonzero(octets[:-1] == _ESCAPE)
        octets[escapes + 1] = 0
        quotes = np.flatnonzero(octets == _QUOTE)
        if in_string:
            quotes = np.concatenate(([-1], quotes))
        in_string = len(quotes) % 2 == 1
        folded = octets | _FOLD
        places = np.flatnonzero((folded == _OPENS) | (folded == _CLOSES))
        places = outside(places, quotes)
        levels = np.cumsum(np.where(folded[places] == _OPENS, 1, -1)) + level
        level = int(levels[-1]) if len(levels) else level
        yield piece, quotes, places, levels


def outside(places: _Places, quotes: _Places) -> _Places:
    """Returns the places that are in no string, by where all quotes are."""
    outer: _Places = places[np.searchsorted(quotes, places) % 2 == 0]
    return outer


def openings(octets: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    """Returns which bytes of a JSON text are `[` or `{`, also inside its strings."""
    is_opening: npt.NDArray[np.bool_] = octets | _FOLD == _OPENS
    return is_opening


def check_json_nesting(data: bytes, levels: int = MAX_NESTING) -> None:
    """Raises ValueError if JSON in UTF-8 is nested more than `levels` deep."""
    if data.count(b"[") + data.count(b"{") > levels and json_nesting(data) > levels:
        raise ValueError(TOO_DEEP)


def parse_json(data: bytes, **options: Any) -> Any:
    """Returns the value of a JSON text, in any encoding that `json` takes.

    Args:
      data: the text.
      options: of `json.loads`.

    Raises:
      ValueError: it is no JSON, or nested deeper than MAX_NESTING.
    """
    text = data.decode(json.detect_encoding(data), "surrogatepass")
    check_json_nesting(text.encode("utf-8", "surrogatepass"))
    return json.loads(text, **options)


def check_key(key: str) -> None:
    """Raises ValueError if a key is no text: it has half a surrogate pair."""
    if key.isascii():
        return
    try:
        key.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"the name {key[:60]!r} holds half a surrogate pair, which is no text"
        ) from error
