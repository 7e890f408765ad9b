"""The text of a COCO file: whether it is one, and the items of its lists.

The text is read in windows and parsed item by item, so that a file never is in memory
as a whole. Most of a file is outlines of objects, which are not read: they are cut out
of a window before it is parsed, which takes half the time of parsing them. An item that
states no box gets its outline back, for the box around it; any other has the text of
its outline where outlines are asked for, to be parsed when its mask is drawn.
"""

import array
import codecs
import heapq
import io
import json
import os
import re
import tempfile
import weakref
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
# An outline up to the next quote, and the name of a field if that follows; the mark in
# its place, with its number.
_OUTLINE = re.compile(r'("segmentation"\s*:\s*)(\[[^"]*)(?=("[^"\\]*"\s*:)?)')
_CUT = "outline"
_MARK = re.compile(rf'\{{"{_CUT}":(\d+)\}}')
# Bytes that are read at once, and items that become columns at once.
_WINDOW = 4 << 20
_ITEMS = 4096
# An error of the parser so near the end of a window may be due to the end.
_NEAR = 64
# Characters around an error that a message shows.
_AROUND = 20


class Outline(str):
    """The text of an outline, not parsed."""


class OutlineSpool:
    """The outlines of a file's annotations, in a temporary file without a name.

    Attributes:
      ends: where each ends; the first number is where the first one begins.
    """

    def __init__(self) -> None:
        self.ends = array.array("q", [0])
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the spool
        weakref.finalize(self, self._file.close)

    def clear(self) -> None:
        """Forgets all outlines."""
        del self.ends[1:]
        self._file.seek(0)

    def append(self, outline: Any) -> None:
        """Appends the outline of the next annotation; a false one is none."""
        text = outline if isinstance(outline, Outline) else json.dumps(outline)
        data = text.encode() if outline else b""
        self._file.write(data)
        self.ends.append(self.ends[-1] + len(data))

    def end(self) -> None:
        """Must be called once all are appended."""
        self._file.flush()

    def __getitem__(self, place: int) -> Any:
        """Returns an outline, None for none; raises ValueError, RecursionError."""
        start, stop = self.ends[place], self.ends[place + 1]
        data = os.pread(self._file.fileno(), stop - start, start)
        return json.loads(data) if data else None


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
        self._text = ""
        self._at = 0
        self._ended = False
        self._is_new = False
        self._cut: dict[int, str] = {}
        self._cuts = 0

    def lists(self) -> Iterator[tuple[str, list[Any] | None]]:
        """Yields the name of each list of the object, and its items, some at a time.

        A list begins with None for its items; what is no list is left out.
        """
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
        for key in self._names():
            self._take(":")
            if self._next() == "[":
                yield key, None
                for items in self._items():
                    yield key, items
            elif self._value() and key in _OTHERS:
                raise ValueError(f"{key} is no list")
        if self._next():
            raise ValueError(f"Extra data{self._near()}")

    def _names(self) -> Iterator[str]:
        """Yields the names of an object's fields, from its bracket on."""
        self._at += 1
        if self._next() != "}":
            while True:
                if self._next() != '"':
                    raise ValueError(f"Expecting property name{self._near()}")
                yield self._value()
                if self._next() == "}":
                    break
                self._take(",")
        self._at += 1

    def _items(self) -> Iterator[list[Any]]:
        """Yields the items of a list, from its bracket on, some at a time."""
        self._at += 1
        if self._next() != "]":
            items: list[Any] = []
            while True:
                items += self._run() or [self._value()]
                if len(items) >= _ITEMS:
                    yield items
                    items = []
                if self._next() == "]":
                    break
                self._take(",")
            yield items
        self._at += 1

    def _run(self) -> list[Any]:
        """Returns the items up to the end of a window; or none.

        Any text that is parsed as a whole list is items of one: so where to end may be
        a guess, which is made once a window.
        """
        end = self._text.rfind("}") + 1
        if not self._is_new or end <= self._at:
            return []
        self._is_new = False
        try:
            items = json.loads(f"[{self._text[self._at : end]}]")
        except (json.JSONDecodeError, RecursionError):
            return []
        self._at = end
        return list(map(self._with_outline, items))

    def _take(self, character: str) -> None:
        if self._next() != character:
            raise ValueError(f"Expecting {character!r}{self._near()}")
        self._at += 1

    def _next(self) -> str:
        """Returns the next character that is no space; nothing at the end."""
        while True:
            text, at = self._text, self._at
            while at < len(text) and text[at] in " \t\r\n":
                at += 1
            self._at = at
            if at < len(text) or self._ended:
                return text[at : at + 1]
            self._read_on()

    def _value(self) -> Any:
        self._next()
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
                    self._at = end
                    return self._with_outline(value)
            self._read_on()

    def _with_outline(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        has_box = bool(value.get("bbox")) and isinstance(value["bbox"], list)
        if self._outlined or not has_box:
            mark = value.get("segmentation")
            number = mark.get(_CUT) if isinstance(mark, dict) else None
            if isinstance(number, int) and number in self._cut:
                text = self._cut[number]
                value["segmentation"] = Outline(text) if has_box else json.loads(text)
        return value

    def _read_on(self) -> None:
        rest = self._text[self._at :]
        # Twice as much, so that a long value is not begun over and over.
        data = self._file.read(max(_WINDOW, len(rest)))
        self._ended = not data
        marks = map(int, _MARK.findall(rest))
        self._cut = {mark: self._cut[mark] for mark in marks if mark in self._cut}
        self._text = _OUTLINE.sub(
            self._without, rest + self._to_text(data, self._ended)
        )
        self._at = 0
        self._is_new = True

    def _without(self, found: re.Match[str]) -> str:
        """Returns the mark of an outline that is numbers; other text as it is."""
        outline, brace, _ = found[2].partition("}")
        stop = outline.rfind("]") + 1
        after = outline[stop:].strip()
        is_whole = not after if brace else after == "," and found[3] is not None
        if not is_whole or "{" in outline or not outline[:stop].strip("[] \t\r\n"):
            return found[0]
        self._cuts += 1
        self._cut[self._cuts] = outline[:stop]
        return f'{found[1]}{{"{_CUT}":{self._cuts}}}{found[2][stop:]}'

    def _near(self) -> str:
        around = self._text[max(self._at - _AROUND, 0) : self._at + _AROUND]
        return f" near {around!r}" if around else ""


def recognise(
    files: Iterable[tuple[str, int]], head: Callable[[str], bytes]
) -> tuple[str, ...] | None:
    """Returns files that begin like COCO's, None if none do; raises OSError."""
    named = [each for each in files if each[0].lower().endswith(".json")]
    looked_at = heapq.nlargest(_LOOKED_AT, named, key=lambda each: each[1])
    found = [path for path, _ in looked_at if _is_coco(head(path))]
    return tuple(found) or None


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
