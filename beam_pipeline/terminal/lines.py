"""Wrap lines between words on a terminal, and nowhere else."""

import os
import textwrap
from typing import TextIO

__all__ = ["broken", "fitted"]


def fitted(text: str, stream: TextIO) -> str:
    """Returns text whose lines fit the terminal of a stream, as far as words allow.

    What is no terminal gets the text as it is. A word that is too long, such as a path,
    stays whole, so that it can be copied.
    """
    columns = _columns(stream)
    return "\n".join(broken(text, columns)) if columns else text


def broken(text: str, columns: int) -> list[str]:
    """Returns text as lines of at most a number of characters, broken between words."""
    return [
        part
        for line in text.split("\n")
        for part in textwrap.wrap(
            line,
            columns,
            break_long_words=False,
            break_on_hyphens=False,
            expand_tabs=False,
            replace_whitespace=False,
        )
        or [""]
    ]


def _columns(stream: TextIO) -> int:
    """Returns the columns of a terminal; 0 for a stream that is none."""
    try:
        if not stream.isatty():
            return 0
        # As rich does for tables.
        given = os.environ.get("COLUMNS", "")
        return (
            int(given)
            if given.isdecimal()
            else os.get_terminal_size(stream.fileno()).columns
        )
    except (OSError, ValueError):
        return 0
