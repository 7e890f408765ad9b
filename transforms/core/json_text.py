"""JSON whose long lists are encoded in pieces.

`json.dumps` keeps a text for each value until the end: 100 bytes and more for each of a
million class names.
"""

import json
from collections.abc import Iterator
from typing import Any

from transforms.core.names import Names, in_groups

__all__ = ["json_pieces"]

_SHORT = 1 << 12


def json_pieces(value: Any, *, pretty: bool) -> Iterator[str]:
    """Yields the pieces of a JSON text, in which `Names` are lists.

        >>> "".join(json_pieces({"b": 1, "a": Names(["x"])}, pretty=False))
        '{"a":["x"],"b":1}'

    Args:
      value: plain JSON, tuples and `Names`.
      pretty: one value a line and characters as they are, in the order of the
        mappings; else the canonical text: no spaces, ASCII, sorted keys.
    """
    return _pieces(value, pretty, 0)


def _pieces(value: Any, pretty: bool, level: int) -> Iterator[str]:
    if not _is_long(value):
        yield _text(value, pretty, level)
        return
    start = "\n" + " " * (level + 1) if pretty else ""
    stop = "\n" + " " * level if pretty else ""
    if isinstance(value, dict):
        lead, between, end = "{" + start, "," + start, stop + "}"
        for key in value if pretty else sorted(value):
            yield lead + _text(key, pretty, level) + (": " if pretty else ":")
            yield from _pieces(value[key], pretty, level + 1)
            lead = between
        yield end
        return
    if not value:
        yield "[]"
        return
    lead, between, end = "[" + start, "," + start, stop + "]"
    for group in in_groups(value):
        if set(map(type, group)) == {str}:
            separators = between, ":"
            text = json.dumps(group, ensure_ascii=not pretty, separators=separators)
            yield lead + text[1:-1]
            lead = between
        elif any(map(_is_long, group)):
            for item in group:
                yield lead
                yield from _pieces(item, pretty, level + 1)
                lead = between
        else:
            # Without the brackets, and what is between them and the items.
            text = _text(group, pretty, level)
            yield lead + text[len("[" + start) : -len(stop + "]")]
            lead = between
    yield end


def _is_long(value: Any) -> bool:
    """Whether a value is, or holds, a list that is encoded in pieces."""
    if isinstance(value, dict):
        return any(map(_is_long, value.values()))
    if isinstance(value, list | tuple):
        return len(value) > _SHORT or any(map(_is_long, value))
    return isinstance(value, Names)


def _text(value: Any, pretty: bool, level: int) -> str:
    if pretty:
        text = json.dumps(value, indent=1, ensure_ascii=False)
        return text.replace("\n", "\n" + " " * level)
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
