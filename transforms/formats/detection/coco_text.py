"""The text of a COCO file: whether it is one, the items of its lists, their values.

The text is read in windows and parsed item by item, so that a file never is in memory
as a whole. Most of it is polygons; they are put into quotes before their item is
parsed, which takes half the time of parsing them.
"""

import codecs
import heapq
import io
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

# Bytes that are read at once.
_WINDOW = 4 << 20
# An error of the parser so near the end of a window may be due to the end.
_NEAR = 64
# Characters around an error that a message shows.
_AROUND = 20
# COCO's lists of objects, which come in any order.
_OTHERS = frozenset(("annotations", "categories"))
# Polygons with a number.
_POLYGONS = re.compile(
    r'"segmentation"\s*:\s*(\[[\[\s]*-?[0-9][\[\]0-9eE+\-.,\s]*\])(?=\s*[,}])'
)
_SPACE = re.compile(r"[ \t\r\n]*")
_COMMA = re.compile(rf"{_SPACE.pattern},{_SPACE.pattern}")
# How many JSON files are looked into, the largest: COCO keeps a dataset in one.
_LOOKED_AT = 64
_KEYS = frozenset((b"images", b"annotations", b"categories"))
# Strings, those that name a list with its bracket, and brackets of JSON. A string that
# is cut goes to the end: else each quote in it would be tried as a beginning.
_TOKEN = re.compile(
    rb'"((?:[^"\\]|\\.)*+)(?:"(\s*:\s*\[)?|\\?\Z)|[\[{]|[\]}]', re.DOTALL
)
# Of an item of a list that evaluation tools take.
_RESULT = re.compile(rb'\A\s*\[\s*\{[^{}]*"image_id"\s*:')


class JsonLists:
    """The lists at the top of a JSON object, read window by window."""

    def __init__(self, file: io.BufferedReader) -> None:
        encoding = json.detect_encoding(file.peek(4)[:4])
        self._file = file
        self._to_text = codecs.getincrementaldecoder(encoding)("surrogatepass").decode
        # Polygons in quotes may have line ends among them.
        self._decode = json.JSONDecoder(strict=False).raw_decode
        # What is to be parsed, from `_at` on, and text behind it that may begin within
        # polygons.
        self._text, self._behind = "", ""
        # Where the last value begins.
        self._begin = self._at = 0
        self._ended = False

    def lists(self) -> Iterator[tuple[str, Iterator[tuple[Any, str]]]]:
        """Yields the lists of the object: their names, and items with their texts."""
        if self._next() == "[":
            self._at += 1
            first = self._value() if self._next() != "]" else None
            if isinstance(first, dict) and "image_id" in first:
                raise ValueError(
                    "results, a list without the images and classes they are of"
                )
        elif self._next() != "{":
            self._value()
        if self._text[self._at : self._at + 1] != "{":
            raise ValueError("no object with a list of images")
        for _ in self._members("}"):
            if self._next() != '"':
                raise ValueError(f"Expecting property name{self._near()}")
            key = self._value()
            self._take(":")
            if self._next() == "[":
                items = (self._item() for _ in self._members("]"))
                yield key, items
                for _ in items:
                    """Pass over what nobody has taken."""
            elif self._value() and key in _OTHERS:
                raise ValueError(f"{key} is no list")
        if self._next():
            raise ValueError(f"Extra data{self._near()}")

    def _members(self, end: str) -> Iterator[None]:
        """Yields before each member of an object or a list, from its bracket on."""
        self._at += 1
        if self._next() != end:
            yield
            while True:
                comma = _COMMA.match(self._text, self._at)
                if comma is not None and comma.end() < len(self._text):
                    self._at = comma.end()
                elif self._next() == end:
                    break
                else:
                    self._take(",")
                    self._next()
                yield
        self._at += 1

    def _take(self, character: str) -> None:
        if self._next() != character:
            raise ValueError(f"Expecting {character!r}{self._near()}")
        self._at += 1

    def _next(self) -> str:
        """Returns the next character that is no space; nothing at the end."""
        while True:
            space = _SPACE.match(self._text, self._at)
            self._at = space.end() if space else self._at
            if self._at < len(self._text) or self._ended:
                return self._text[self._at : self._at + 1]
            self._read_on()

    def _value(self) -> Any:
        """Returns the value that begins here."""
        while True:
            size = len(self._text)
            try:
                value, end = self._decode(self._text, self._at)
            except json.JSONDecodeError as error:
                is_cut = error.pos > size - _NEAR or "Unterminated" in error.msg
                if self._ended or not is_cut:
                    self._at = error.pos
                    raise ValueError(f"{error.msg}{self._near()}") from error
            else:
                # A number may go on in the next window.
                if end < size or self._ended:
                    self._begin, self._at = self._at, end
                    return value
            self._read_on()

    def _item(self) -> tuple[Any, str]:
        """Returns the value that begins here, and its text."""
        value = self._value()
        return value, self._text[self._begin : self._at]

    def _read_on(self) -> None:
        rest = self._text[self._at :]
        text, end = self._behind, 0
        while not (end or self._ended):
            # Twice as much, so that a long value is not begun over and over.
            data = self._file.read(max(_WINDOW, len(rest), len(text)))
            self._ended = not data
            text += self._to_text(data, self._ended)
            # No polygon goes on behind a brace.
            end = len(text) if self._ended else text.rfind("}") + 1
        pieces = _POLYGONS.split(text[:end])
        pieces[1::2] = [f'"segmentation":"{it}"' for it in pieces[1::2]]
        self._text = "".join([rest, *pieces])
        self._behind = text[end:]
        self._at = 0

    def _near(self) -> str:
        around = self._text[max(self._at - _AROUND, 0) : self._at + _AROUND]
        return f" near {around!r}" if around else ""


# Numbers in quotes, as some tools write them. Python's own words for them, such as
# 1_0 and infinity, are none. Of a large whole one float() would keep the first digits.
_WHOLE = re.compile(r"\s*[+-]?[0-9]{1,20}\s*")
_NUMBER = re.compile(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*")


def _unquoted(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if _WHOLE.fullmatch(value):
        return int(value)
    return float(value) if _NUMBER.fullmatch(value) else None


def integer_of(value: Any) -> int | None:
    """Returns an integer of 64 bits, which may be in quotes; None for others."""
    value = _unquoted(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return int(value)
    return None


def number_of(value: Any) -> float | None:
    """Returns a number, which may be in quotes; None for others."""
    value = _unquoted(value)
    if type(value) not in (int, float):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf


def numbers_of(value: Any) -> list[float] | None:
    """Returns the numbers of a list, NaN for what is none; None for no list."""
    if not isinstance(value, list):
        return None
    if {*map(type, value)} == {float}:
        return value
    read = map(number_of, value)
    return [math.nan if number is None else number for number in read]


def text_of(value: Any) -> str | None:
    """Returns a text that is UTF-8; None for others."""
    if not isinstance(value, str):
        return None
    try:
        value.encode()
    except UnicodeEncodeError:
        return None
    return value


def id_of(value: Any) -> str | None:
    """Returns an id as text, which may be an integer; None for others."""
    if isinstance(value, str):
        return text_of(value)
    number = value if type(value) is int else integer_of(value)
    return None if number is None else str(number)


def recognise(
    files: Iterable[tuple[str, int]], head: Callable[[str], bytes]
) -> tuple[str, ...] | None:
    """Returns files that begin like COCO's, None if none do; raises OSError."""
    named = [each for each in files if each[0].lower().endswith(".json")]
    looked_at = heapq.nlargest(_LOOKED_AT, named, key=lambda each: each[1])
    matches = [path for path, _ in looked_at if _is_coco(head(path))]
    return tuple(matches) or None


def _is_coco(start: bytes) -> bool:
    """Whether JSON has one of COCO's lists at its top, or is a list of results."""
    depth = 0
    for token in _TOKEN.finditer(start):
        if token[0] in (b"[", b"{"):
            depth += 1
        elif token[0] in (b"]", b"}"):
            depth -= 1
        elif token[2]:
            if depth == 1 and token[1] in _KEYS:
                return True
            depth += 1
    return _RESULT.match(start) is not None
