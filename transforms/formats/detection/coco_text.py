"""The text of a COCO file: whether it is one, the items of its lists, their values.

The text is read in windows and parsed item by item, so that a file never is in memory
as a whole. Most of a file is outlines of objects, which are cut out of a window before
it is parsed: that takes half the time of parsing them. An item that states no box gets
its outline back, for the box around it; any other has the text of its outline where
outlines are asked for, to be parsed when its mask is drawn.
"""

import codecs
import heapq
import io
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

# COCO's lists of objects, which come in any order.
_OTHERS = frozenset(("annotations", "categories"))
_KEYS = frozenset((b"images", b"annotations", b"categories"))
# Strings, those that name a list with its bracket, and brackets of JSON. A string that
# is cut goes to the end: else each quote in it would be tried as a beginning.
_TOKEN = re.compile(
    rb'"((?:[^"\\]|\\.)*+)(?:"(\s*:\s*\[)?|\\?\Z)|[\[{]|[\]}]', re.DOTALL
)
# Of an item of a list that evaluation tools take.
_RESULT = re.compile(rb'\A\s*\[\s*\{[^{}]*"image_id"\s*:')
# How many JSON files are looked into, the largest: COCO keeps a dataset in one.
_LOOKED_AT = 64
# An outline, polygons or runs, and the mark in its place, with its number.
_OUTLINE = re.compile(
    r'("segmentation"\s*:\s*)(\[[\[\]0-9eE+\-.,\s]*\]|\{[^{}]*\})(?=\s*(?:[,}]|\Z))'
)
_CUT = "outline"
_MARK = re.compile(rf'\{{"{_CUT}":(\d+)\}}')
_SPACE = re.compile(r"[ \t\r\n]*")
_COMMA = re.compile(rf"{_SPACE.pattern},{_SPACE.pattern}")
# Bytes that are read at once.
_WINDOW = 4 << 20
# An error of the parser so near the end of a window may be due to the end.
_NEAR = 64
# Characters around an error that a message shows.
_AROUND = 20


class ItemText:
    """A JSON text, window by window, its outlines cut out.

    Args:
      file: the text.
      outlined: whether items have the texts of their outlines.
    """

    def __init__(self, file: io.BufferedReader, *, outlined: bool = False) -> None:
        self._outlined = outlined
        encoding = json.detect_encoding(file.peek(4)[:4])
        self._file = file
        self._to_text = codecs.getincrementaldecoder(encoding)("surrogatepass").decode
        self._decode = json.JSONDecoder().raw_decode
        # What is to be parsed, from `_at` on, and text behind it that may begin within
        # an outline.
        self._text, self._behind = "", ""
        # Where the last value begins.
        self._begin = self._at = 0
        self._ended = False
        self._cut: dict[int, str] = {}
        self._cuts = 0

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
            character = self._text[self._at : self._at + 1]
            if character and character not in " \t\r\n":
                return character
            space = _SPACE.match(self._text, self._at)
            self._at = space.end() if space else self._at
            if self._at == len(self._text):
                if self._ended:
                    return ""
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
        """Returns the value that begins here, and its text.

        A text has the outline as another text, where outlines are asked for, or null;
        but that of an item without a box has it as it is.
        """
        value = self._value()
        text = self._text[self._begin : self._at]
        mark = value.get("segmentation") if isinstance(value, dict) else None
        number = mark.get(_CUT) if isinstance(mark, dict) else None
        outline = self._cut.get(number) if isinstance(number, int) else None
        if outline is None:
            return value, text
        has_box = bool(value.get("bbox")) and isinstance(value["bbox"], list)
        if not has_box:
            value["segmentation"] = json.loads(outline)
        written = json.dumps(outline) if self._outlined else "null"
        mark_text = f'{{"{_CUT}":{number}}}'
        return value, text.replace(mark_text, written if has_box else outline)

    def _read_on(self) -> None:
        rest = self._text[self._at :]
        text, end = self._behind, 0
        while not end:
            # Twice as much, so that a long value is not begun over and over.
            data = self._file.read(max(_WINDOW, len(rest), len(text)))
            self._ended = not data
            text += self._to_text(data, self._ended)
            # No outline goes on behind a brace, but for the comma that follows it.
            end = len(text) if self._ended else text.rfind("}") + 1
            if self._ended:
                break
        first = _MARK.search(rest)
        least = int(first[1]) if first else self._cuts + 1
        self._cut = {n: cut for n, cut in self._cut.items() if n >= least}
        self._text = rest + _OUTLINE.sub(self._without, text[:end])
        self._behind = text[end:]
        self._at = 0

    def _without(self, found: re.Match[str]) -> str:
        """Returns the mark of an outline; one that is empty as it is."""
        if not found[2].strip("[]{} \t\r\n"):
            return found[0]
        self._cuts += 1
        self._cut[self._cuts] = found[2]
        return f'{found[1]}{{"{_CUT}":{self._cuts}}}'

    def _near(self) -> str:
        around = self._text[max(self._at - _AROUND, 0) : self._at + _AROUND]
        return f" near {around!r}" if around else ""


# Numbers in quotes, as some tools write them. Python's own words for them, such as
# 1_0 and infinity, are none.
_WHOLE = re.compile(r"\s*[+-]?[0-9]{1,20}\s*")
_NUMBER = re.compile(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*")


def integer_of(value: Any) -> int | None:
    """Returns an integer of 64 bits, which may be in quotes; None for others."""
    if value is None:
        return None
    if isinstance(value, str):
        # Of a large one float() would keep the first digits alone.
        digits = _WHOLE.fullmatch(value)
        value = int(value) if digits else number_of(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return int(value)
    return None


def number_of(value: Any) -> float | None:
    """Returns a number, which may be in quotes; None for others."""
    if type(value) is float:
        return value
    if isinstance(value, str):
        return float(value) if _NUMBER.fullmatch(value) else None
    if type(value) is not int:
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
    if type(value) is int:
        return str(value)
    number = integer_of(value)
    return None if number is None else str(number)


def box_around(outline: Any) -> list[float] | None:
    """Returns x, y, width and height of polygons, each of x, y, x, y ...; or None."""
    if not isinstance(outline, list):
        return None
    polygons = [outline] if outline and not isinstance(outline[0], list) else outline
    read = [numbers_of(polygon) or [math.nan] for polygon in polygons]
    points = [number for ring in read for number in ring]
    is_whole = all(map(math.isfinite, points)) and not any(len(p) % 2 for p in read)
    if not points or not is_whole:
        return None
    left, top = min(points[::2]), min(points[1::2])
    return [left, top, max(points[::2]) - left, max(points[1::2]) - top]


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
