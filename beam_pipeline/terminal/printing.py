"""Print text, so that it cannot steer a terminal; control characters are escaped.

All that the program prints passes `printable`: in `print_text` and `json_text` on
stdout, in `say` on stderr, and in `terminal.console`. File names,
columns, classes and values are other people's, and so are the messages that repeat
them. Lines are wrapped between words on a terminal, and nowhere else. A broken stderr
never fails a run.
"""

import contextlib
import json
import os
import sys
import textwrap
import unicodedata
from typing import Any, ClassVar, TextIO

from transforms.storage.retry import naming

STDOUT = "standard output"
"""In messages, where a path would be."""

# Of a terminal that does not say how wide it is.
_COLUMNS = 80


def printable(text: str, *, keep: str = "") -> str:
    """Returns text that cannot move a terminal's cursor, nor reorder what it shows.

    Args:
      text: of any origin.
      keep: characters that stay as they are: the line ends of several lines.
    """
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in keep else c.encode("unicode_escape").decode()
        for c in text
    )


def text_width(text: str) -> int:
    """Returns how many columns of a terminal printable text takes."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    # Accents, and other marks on the letter before.
    marks = sum(unicodedata.combining(character) > 0 for character in text)
    return len(text) + wide - marks


def json_text(value: Any) -> str:
    """Returns a value as JSON on one line, readable where its characters are."""
    text = json.dumps(value, ensure_ascii=False)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def print_text(text: str, end: str = "\n") -> None:
    """Prints one line or several on standard output."""
    with naming(STDOUT):
        print(printable(text, keep="\n"), end=end)  # noqa: T201


def fitted(text: str, stream: TextIO) -> str:
    """Returns text whose lines fit the terminal of a stream, as far as words allow.

    What is no terminal gets the text as it is. A word that is too long, such as a path,
    stays whole, so that it can be copied.
    """
    if not (columns := _columns(stream)):
        return text
    wrapper = textwrap.TextWrapper(
        columns,
        break_long_words=False,
        break_on_hyphens=False,
        expand_tabs=False,
        replace_whitespace=False,
    )
    return "\n".join(
        piece for line in text.split("\n") for piece in wrapper.wrap(line) or [""]
    )


def _columns(stream: TextIO) -> int:
    """Returns the columns of a terminal; 0 for a stream that is none."""
    try:
        if not stream.isatty():
            return 0
        given = os.environ.get("COLUMNS", "")
        return (
            int(given)
            if given.isdecimal()
            else os.get_terminal_size(stream.fileno()).columns
        )
    except (OSError, ValueError):
        return 0


class Line:
    """A line on a terminal that is drawn again; nothing where there is no terminal.

    `say` takes it away first, so that its own line is whole.
    """

    drawn: ClassVar["Line | None"] = None

    def __init__(self, *, quiet: bool = False) -> None:
        # A dumb terminal only appends.
        is_terminal = sys.stderr is not None and sys.stderr.isatty()
        can_redraw = is_terminal and os.environ.get("TERM") != "dumb"
        self._terminal: TextIO | None = sys.stderr if can_redraw and not quiet else None
        self._shown = ""

    def __bool__(self) -> bool:
        return self._terminal is not None

    def show(self, text: str) -> None:
        """Shows another text, as much of it as fits the terminal."""
        if self._terminal is None:
            return
        text = text[: (_columns(self._terminal) or _COLUMNS) - 1]
        # A broken stderr must not stop the run.
        with contextlib.suppress(OSError, ValueError):
            if text != self._shown:
                self._terminal.write(f"\r{text.ljust(len(self._shown))}")
                self._terminal.flush()
        self._shown = text
        Line.drawn = self

    def clear(self) -> None:
        """Leaves the line empty."""
        if self._shown:
            self.show("")
            assert self._terminal is not None, "something was shown"
            with contextlib.suppress(OSError, ValueError):
                self._terminal.write("\r")
                self._terminal.flush()


def say(text: str) -> None:
    """Prints a line on standard error, or drops it where that is broken or full."""
    if sys.stderr is None:
        return
    if Line.drawn is not None:
        Line.drawn.clear()
    try:
        line = fitted(printable(text, keep="\n"), sys.stderr)
        print(line, file=sys.stderr, flush=True)  # noqa: T201
    except OSError:
        silence(sys.stderr)


def silence(stream: TextIO) -> None:
    """Drops all that a broken stream still gets: its buffer is written at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def open_all() -> None:
    """Opens standard streams that the caller has closed, to /dev/null.

    Otherwise the next files opened, shards among them, would get the numbers 0 to 2,
    and what a library prints would go into them.
    """
    if None not in (sys.stdin, sys.stdout, sys.stderr):
        return
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # Stays open as long as the program runs.
            stream = open(os.devnull, mode, encoding="utf-8")  # noqa: SIM115
            setattr(sys, name, stream)
