"""JSON in pieces: long lists at a time, and indented text without a call a value.

`json.dumps` keeps a text for each value until the end: 100 bytes and more for each of a
million class names. Indented text it makes value by value in Python; here it makes the
objects of a list by one call of its C encoder, with line ends between all entries:

    [{"name": "a",          `json.dumps` with these separators: a line end is
        "size": 1},         never part of a text, so these are the only ones
        {"name": "b",
        "size": 2}]
"""

import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from transforms.core.names import Names, in_groups

_SHORT = 1 << 12
_SCALARS = frozenset((str, int, float, bool, type(None)))


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
    if not (_is_deep(value) if pretty else _is_long(value)):
        yield _text(value, pretty)
        return
    start = "\n" + " " * (level + 1) if pretty else ""
    stop = "\n" + " " * level if pretty else ""
    if isinstance(value, dict):
        lead, between, end = "{" + start, "," + start, stop + "}"
        for key in value if pretty else sorted(value):
            # As a key: a number becomes a text. Without its value and the braces.
            yield lead + _text({key: 0}, pretty)[1 : -len("0}")]
            yield from _pieces(value[key], pretty, level + 1)
            lead = between
        yield end
        return
    if not value:
        yield "[]"
        return
    lead, between, end = "[" + start, "," + start, stop + "]"
    for group in in_groups(value):
        if _has_scalars(group):
            separators = between, ":"
            text = json.dumps(group, ensure_ascii=not pretty, separators=separators)
            yield lead + text[1:-1]
            lead = between
            continue
        if not pretty and not any(map(_is_long, group)):
            yield lead + _text(group, pretty)[1:-1]
            lead = between
            continue
        for is_flat, items in itertools.groupby(group, _is_flat):
            if pretty and is_flat:
                yield lead + _flat_text([*items], start)
                lead = between
                continue
            for item in items:
                yield lead
                yield from _pieces(item, pretty, level + 1)
                lead = between
    yield end


def _is_flat(value: Any) -> bool:
    """Whether a value is an object of scalars only, and not empty."""
    return isinstance(value, dict) and bool(value) and _has_scalars(value.values())


def _has_scalars(values: Iterable[Any]) -> bool:
    return _SCALARS.issuperset(map(type, values))


def _is_deep(value: Any) -> bool:
    """Whether a value takes several lines."""
    if isinstance(value, dict | list | tuple):
        return bool(value)
    return isinstance(value, Names)


def _is_long(value: Any) -> bool:
    """Whether a value is, or holds, a list that is encoded in pieces."""
    if isinstance(value, dict):
        values = value.values()
        return not _has_scalars(values) and any(map(_is_long, values))
    if isinstance(value, list | tuple):
        return len(value) > _SHORT or any(map(_is_long, value))
    return isinstance(value, Names)


def _flat_text(objects: Sequence[dict[str, Any]], start: str) -> str:
    """Returns flat objects as items of a list; each has its own line, from `start`."""
    inner = start + " "
    separators = "," + inner, ": "
    text = json.dumps(objects, ensure_ascii=False, separators=separators)
    between = f"{start}}},{start}{{{inner}"
    entries = text[2:-2].replace(f"}},{inner}{{", between)
    return f"{{{inner}{entries}{start}}}"


def _text(value: Any, pretty: bool) -> str:
    """Returns the text of a value, which takes one line if it is to be pretty."""
    if pretty:
        return json.dumps(value, ensure_ascii=False)
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
