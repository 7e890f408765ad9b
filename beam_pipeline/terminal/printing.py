"""Escape the control characters of printed text, so that it cannot steer a terminal.

All that the program prints passes `printable`: in `print_text`, `print_prose` and
`json_text` on stdout, in `standard_error.say`, and in `terminal.Console`. File names,
columns, classes and values are other people's, and so are the messages that repeat
them.
"""

import json
import sys
from typing import Any

from beam_pipeline.terminal.lines import fitted
from transforms.storage.retry import naming

__all__ = ["STDOUT", "json_text", "print_prose", "print_text", "printable"]

STDOUT = "standard output"
"""In messages, where a path would be."""


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


def print_prose(text: str) -> None:
    """Prints sentences, broken between words where standard output is a terminal."""
    print_text(fitted(printable(text, keep="\n"), sys.stdout))
