"""The limit on nesting depth, the same for every source of values.

Arrow stores columns of up to 63 levels of lists and structs, and exports those of up to
62 levels to other libraries. Deeper values fit into no column.
"""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

MAX_NESTING = 62
"""Levels of lists and objects in one value of a column."""
TOO_DEEP = f"values are nested more than {MAX_NESTING} levels deep"

_PIECE_BYTES = 1 << 20
# Intervals of months, and of days and milliseconds.
_WITHOUT_ARRAYS = (pa.lib.Type_INTERVAL_MONTHS, pa.lib.Type_INTERVAL_DAY_TIME)
# Setting this bit turns "[" into "{" and "]" into "}", and no other byte into a brace.
_FOLD = 0x20
_OPENS, _CLOSES, _QUOTE = b'{}"'


def json_nesting(data: bytes) -> int:
    """Returns how many levels of lists and objects JSON in UTF-8 opens at once.

    The text is not parsed. The result is exact up to its first error, if any.
    """
    deepest = level = 0
    in_text = False
    start = 0
    while start < len(data):
        stop = start + _PIECE_BYTES
        piece = data[start:stop]
        if b"\\" in piece:
            # Keep a backslash and the character that it escapes in one piece.
            slashes = len(piece) - len(piece.rstrip(b"\\"))
            if slashes % 2:
                stop += 1
                piece += data[stop - 1 : stop]
            piece = piece.replace(rb"\\", b"").replace(rb"\"", b"")
        start = stop
        octets = np.frombuffer(piece, np.uint8)
        folded = octets | _FOLD
        marks = octets[(folded == _OPENS) | (folded == _CLOSES) | (octets == _QUOTE)]
        if not len(marks):
            continue
        quotes = marks == _QUOTE
        # Only the parity of the count of quotes matters, so a uint8 may wrap.
        inside = (np.cumsum(quotes, dtype=np.uint8) + np.uint8(in_text)) & 1 == 1
        steps = np.where(marks | _FOLD == _OPENS, np.int8(1), np.int8(-1))
        steps[quotes | inside] = 0
        levels = np.cumsum(steps, dtype=np.int64) + level
        deepest = max(deepest, int(levels.max()))
        level, in_text = int(levels[-1]), bool(inside[-1])
    return deepest


def openings(octets: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    """Returns which bytes of a JSON text are `[` or `{`, also inside its strings."""
    found: npt.NDArray[np.bool_] = octets | _FOLD == _OPENS
    return found


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


def type_nesting(kind: pa.DataType) -> int:
    """Returns how many levels of lists and structs a type has."""
    deepest = 0
    inside: list[tuple[pa.DataType, int]] = [(kind, 0)]
    while inside:
        each, level = inside.pop()
        children = _children(each)
        if children and not isinstance(each, pa.BaseExtensionType | pa.DictionaryType):
            level += 1
        deepest = max(deepest, level)
        inside += [(child, level) for child in children]
    return deepest


def has_arrays(kind: pa.DataType) -> bool:
    """Whether pyarrow has a class for arrays of a type; it lacks those of intervals."""
    inside = [kind]
    while inside:
        each = inside.pop()
        if each.id in _WITHOUT_ARRAYS:
            return False
        inside += _children(each)
    return True


def _children(kind: pa.DataType) -> Sequence[pa.DataType]:
    if isinstance(kind, pa.BaseExtensionType):
        return [kind.storage_type]
    if isinstance(kind, pa.DictionaryType):
        return [kind.value_type]
    return [kind.field(index).type for index in range(kind.num_fields)]
