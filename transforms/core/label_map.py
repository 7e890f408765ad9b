"""Label maps of the TensorFlow Object Detection API: `label_map.pbtxt`.

    item {
      id: 3
      name: 'car'
    }

The text form of the message StringIntLabelMap: one item a class, by id from 1 (0 is
the background).

Sources: `object_detection/protos/string_int_label_map.proto` of tensorflow/models;
https://protobuf.dev/reference/protobuf/textformat-spec/
"""

import re
from collections.abc import Iterator, Mapping

from transforms.core.proto_text import quoted
from transforms.errors import SpecError

__all__ = ["LABEL_MAP_NAME", "parse_label_map", "render_label_map"]

LABEL_MAP_NAME = "label_map.pbtxt"
# The proto's id is an int32.
_MAX_ID = 2**31 - 1
_TOKEN = re.compile(
    r"""(?:\s|\#[^\n]*)+
      |(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
      |(?P<word>[A-Za-z0-9_.+-]+)
      |(?P<mark>[{}<>\[\]:;,])""",
    re.VERBOSE,
)
_ESCAPE = re.compile(
    rb"\\(?:(?P<octal>[0-7]{1,3})|[xX](?P<hex>[0-9a-fA-F]{1,2})"
    rb"|u(?P<short>[0-9a-fA-F]{4})|U(?P<long>[0-9a-fA-F]{8})|(?P<char>.))"
)
_CHARS = {
    b"a": b"\a",
    b"b": b"\b",
    b"f": b"\f",
    b"n": b"\n",
    b"r": b"\r",
    b"t": b"\t",
    b"v": b"\v",
}
_QUOTED = b"\\'\"?"


def render_label_map(names: Mapping[int, str]) -> bytes:
    """Returns the file's content.

    Args:
      names: class id -> class name.

    Raises:
      SpecError: an id outside 1 to 2^31 - 1, or two ids of one name.
    """
    if wrong := [number for number in names if not 1 <= number <= _MAX_ID]:
        raise SpecError(
            f"Ids of a label map count from 1 to {_MAX_ID}; found {min(wrong)} for "
            f"{names[min(wrong)]!r}. Renumber the classes."
        )
    _check_names(names)
    return "".join(
        f"item {{\n  id: {number}\n  name: {quoted(names[number])}\n}}\n"
        for number in sorted(names)
    ).encode()


def parse_label_map(data: bytes) -> dict[int, str]:
    """Returns class id -> class name, in the file's order.

    Only `id` and `name` of the items are read; other fields are skipped.

    Raises:
      SpecError: it is no label map, or ids or names repeat.
    """
    try:
        tokens = list(_tokens(data.decode("utf-8-sig")))
        items = list(_items(tokens))
    except (UnicodeDecodeError, ValueError, IndexError) as error:
        raise SpecError(
            f"A label map is text like: item {{ id: 1 name: 'cat' }}. Found: "
            f"{error or 'its end inside of an item'}."
        ) from error
    names: dict[int, str] = {}
    for number, name in items:
        if number in names:
            raise SpecError(
                f"Ids of a label map must differ; {number} is both "
                f"{names[number]!r} and {name!r}."
            )
        names[number] = name
    _check_names(names)
    return names


def _check_names(names: Mapping[int, str]) -> None:
    ids: dict[str, int] = {}
    for number, name in names.items():
        if name in ids:
            raise SpecError(
                f"Names of a label map must differ; {ids[name]} and {number} are both "
                f"{name!r}. Rename one."
            )
        ids[name] = number


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    """Yields (kind, token); raises ValueError."""
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            line = text.count("\n", 0, at) + 1
            raise ValueError(f"{text[at : at + 20]!r} on line {line}")
        if match.lastgroup is not None:
            yield match.lastgroup, match[match.lastgroup]
        at = match.end()
    yield "end", ""


def _items(tokens: list[tuple[str, str]]) -> Iterator[tuple[int, str]]:
    at = 0
    while tokens[at][0] != "end":
        if tokens[at][1] in (",", ";"):
            at += 1
            continue
        if tokens[at] != ("word", "item"):
            raise ValueError(f"{tokens[at][1]!r} instead of item")
        at += 2 if tokens[at + 1][1] == ":" else 1
        fields, at = _fields(tokens, at)
        if "id" not in fields or "name" not in fields:
            raise ValueError("an item without id or name")
        yield int(fields["id"]), fields["name"]


def _fields(tokens: list[tuple[str, str]], at: int) -> tuple[dict[str, str], int]:
    """Returns the plain fields of a message in braces, and where it ends."""
    close = {"{": "}", "<": ">"}.get(tokens[at][1])
    if close is None:
        raise ValueError(f"{tokens[at][1]!r} instead of {{")
    at += 1
    fields: dict[str, str] = {}
    while tokens[at][1] != close or tokens[at][0] != "mark":
        kind, name = tokens[at]
        if name in (",", ";"):
            at += 1
            continue
        if kind != "word":
            raise ValueError(f"{name!r} instead of a field")
        at += 1
        colon = tokens[at] == ("mark", ":")
        at += colon
        if tokens[at] in (("mark", "{"), ("mark", "<")):
            _, at = _fields(tokens, at)
            continue
        if not colon:
            raise ValueError(f"{name!r} without a value")
        fields[name], at = _value(tokens, at)
    return fields, at + 1


def _value(tokens: list[tuple[str, str]], at: int) -> tuple[str, int]:
    kind, value = tokens[at]
    if kind == "word":
        return value, at + 1
    parts = []
    while tokens[at][0] == "text":
        parts.append(_unescaped(tokens[at][1]))
        at += 1
    if not parts:
        raise ValueError(f"{value!r} instead of a value")
    return b"".join(parts).decode(), at


def _unescaped(quoted: str) -> bytes:
    def plain(match: re.Match[bytes]) -> bytes:
        if match["octal"]:
            return bytes([int(match["octal"], 8) & 255])
        if match["hex"]:
            return bytes([int(match["hex"], 16)])
        if code := match["short"] or match["long"]:
            return chr(int(code, 16)).encode()
        char = match["char"]
        if char in _CHARS or char in _QUOTED:
            return _CHARS.get(char, char)
        raise ValueError(f"the escape {match[0].decode()!r}")

    return _ESCAPE.sub(plain, quoted[1:-1].encode())
