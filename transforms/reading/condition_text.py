"""The text of a condition: parsed by Python, with names in backticks.

Before Python parses the text, a name in backticks becomes an identifier of as many
bytes, and space of any kind as many blanks. So each node of the result has the place of
its own bytes in the text. Two backticks in such a name are one, as in SQL.
"""

import ast
import re
from typing import NoReturn

from transforms.errors import SpecError, bounded, shortened

_MAX_BYTES = 1 << 20
_BACKTICKED = re.compile("`(?:[^`]|``)*+`")


class ConditionText:
    """A condition as the user wrote it.

    Raises:
      SpecError: it is no text, or too long.
    """

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            kind = type(text).__name__
            raise SpecError(f"a condition must be a text; found a {kind}")
        self._text = text
        try:
            self._bytes = text.encode()
        except UnicodeEncodeError as error:
            raise self.error(error.start, "a surrogate is no character") from None
        if len(self._bytes) > _MAX_BYTES:
            raise self.error(0, f"it must have at most {_MAX_BYTES:,} bytes")
        # Python takes an expression that begins with a space for indented.
        self._lead = len(self._bytes) - len(text.lstrip().encode())

    def parsed(self) -> ast.expr:
        """Returns the expression, which is not evaluated.

        Raises:
          SpecError: it is none.
        """
        source = self._python_source()[self._lead :]
        try:
            return ast.parse(source, mode="eval").body
        except SyntaxError as error:
            before = source[: max((error.offset or 1) - 1, 0)].encode()
            at = self._place(self._lead + len(before))
            what = f"Python cannot parse it ({error.msg}); write as in label == 'dog'"
            raise self.error(at, what) from None
        except (ValueError, MemoryError) as error:
            what = f"Python cannot parse it ({error or 'too deep'})"
            raise self.error(0, what) from None

    def name(self, node: ast.Name) -> str:
        """Returns the name at a node as it was written: Python normalises names."""
        start, stop = self._span(node)
        written = self._bytes[start:stop].decode()
        if not written.startswith("`"):
            return written
        return written[1:-1].replace("``", "`")

    def place_of(self, node: ast.expr) -> int:
        """Returns the number of characters before a node."""
        return self._place(self._span(node)[0])

    def error(self, place: int, what: str) -> SpecError:
        """Returns an error about the character at a place, counted from 0."""
        shown = shortened(
            self._text[max(place - 20, 0) :].strip() or self._text.strip()
        )
        return SpecError(
            bounded(f"condition, character {place + 1:,} (at {shown!r}): {what}")
        )

    def _python_source(self) -> str:
        """Returns the text with names in backticks as identifiers of the same bytes."""
        out: list[str] = []
        text, place = self._text, 0
        while place < len(text):
            mark = text[place]
            end = place + 1
            if mark in "'\"":
                end = _string_end(text, place)
            elif mark == "`":
                found = _BACKTICKED.match(text, place)
                if found is None:
                    self._refuse(place, "a name in backticks must end with a backtick")
                end = found.end()
            elif mark == "#":
                self._refuse(place, "a comment cannot be part of it")
            part = text[place:end]
            if mark == "`":
                part = "_" * len(part.encode())
            elif mark.isspace():
                part = " " * len(mark.encode())
            out.append(part)
            place = end
        return "".join(out)

    def _span(self, node: ast.expr) -> tuple[int, int]:
        """Returns the bytes of the text that a node was parsed from."""
        stop = node.end_col_offset or node.col_offset
        return self._lead + node.col_offset, self._lead + stop

    def _place(self, before: int) -> int:
        """Returns how many characters are in the first bytes of the text."""
        return len(self._bytes[:before].decode(errors="ignore"))

    def _refuse(self, place: int, what: str) -> NoReturn:
        raise self.error(place, what)


def quoted(name: str) -> str:
    """Returns the name of a feature as a condition has it.

    >>> quoted("height"), quoted("image/height"), quoted("a`b")
    ('height', '`image/height`', '`a``b`')
    """
    if name.isidentifier():
        return name
    doubled = name.replace("`", "``")
    return f"`{doubled}`"


def _string_end(text: str, place: int) -> int:
    """Returns where a text in quotes ends; Python reports one that does not."""
    mark, place = text[place], place + 1
    while place < len(text):
        if text[place] == "\\":
            place += 1
        elif text[place] == mark:
            return place + 1
        place += 1
    return len(text)
