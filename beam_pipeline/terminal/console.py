"""Styled lines and tables on standard output; nothing in them is cut.

Texts are escaped here, so that only escapes of colours reach a terminal. A pipe or a
file gets no colours, and no line is broken for it.
"""

import dataclasses
import os
import shlex
import sys
from collections.abc import Sequence

from beam_pipeline.terminal.printing import STDOUT, fitted, printable, text_width
from beam_pipeline.terminal.words import size_text
from transforms.core.manifest import SplitFacts
from transforms.storage.retry import naming

_STYLES = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33, "cyan": 36}
_BETWEEN = "  "


def _styled(text: str, style: str) -> str:
    """Returns escaped text, in a style if standard output shows colours."""
    shown = printable(text)
    if not style or not shown or not shows_colours():
        return shown
    return f"\x1b[{_STYLES[style]}m{shown}\x1b[0m"


def shows_colours() -> bool:
    """Whether standard output is a terminal that is asked for colours."""
    is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return sys.stdout.isatty() and not is_plain


def _emit(line: str) -> None:
    with naming(STDOUT):
        print(line)  # noqa: T201


def print_parts(*parts: tuple[str, str]) -> None:
    """Prints texts with their styles as one line, which is not broken."""
    _emit("".join(_styled(text, style) for text, style in parts))


def print_line(text: str = "", style: str = "") -> None:
    """Prints a line, broken between words on a terminal."""
    for line in fitted(printable(text), sys.stdout).split("\n"):
        _emit(_styled(line, style))


def print_head(text: str, rest: str, style: str = "bold") -> None:
    """Prints a line like `print_line`, whose first text has a style."""
    first, *others = fitted(printable(f"{text}{rest}"), sys.stdout).split("\n")
    size = len(printable(text))
    _emit(_styled(first[:size], style) + first[size:])
    for line in others:
        _emit(line)


@dataclasses.dataclass(frozen=True, slots=True)
class Table:
    """Cells in columns, without lines between them.

    Attributes:
      columns: their names.
      right: those of them that are numbers.
      rows: the cells of each row; no control characters, as in the names.
      bold: numbers of rows.
    """

    columns: tuple[str, ...]
    right: frozenset[str]
    rows: list[tuple[str, ...]] = dataclasses.field(default_factory=list)
    bold: set[int] = dataclasses.field(default_factory=set)

    def add_row(self, *cells: str, bold: bool = False) -> None:
        """Adds a row: a cell for each column."""
        if bold:
            self.bold.add(len(self.rows))
        self.rows.append(tuple(map(printable, cells)))


def new_table(*columns: str, right: Sequence[str] = ()) -> Table:
    """Returns a table without rows; the columns of `right` are numbers."""
    return Table(tuple(map(printable, columns)), frozenset(map(printable, right)))


def print_table(table: Table, *, apart: bool = True) -> None:
    """Prints a table, without spaces at the ends of lines.

    Args:
      table: the cells.
      apart: whether an empty line comes first.
    """
    columns = zip(table.columns, *table.rows, strict=True)
    widths = [max(map(text_width, cells)) for cells in columns]
    right = [name in table.right for name in table.columns]
    lines = [] if not apart else [""]
    lines.append(_styled(_line(table.columns, widths, right), "bold"))
    for number, row in enumerate(table.rows):
        line = _line(row, widths, right)
        lines.append(_styled(line, "bold") if number in table.bold else line)
    _emit("\n".join(lines))


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    parts = []
    for cell, width, is_right in zip(cells, widths, right, strict=True):
        spaces = " " * (width - text_width(cell))
        parts.append(spaces + cell if is_right else cell + spaces)
    return _BETWEEN.join(parts).rstrip()


def splits_table(splits: Sequence[SplitFacts]) -> Table:
    """Returns a table of splits with their records, shards and size."""
    numbers = ("records", "shards", "size")
    table = new_table("split", *numbers, right=numbers)
    for split in splits:
        shards = f"{len(split.shards):,}"
        table.add_row(split.name, f"{split.records:,}", shards, size_text(split.bytes))
    return table


def print_next(output: str) -> None:
    """Prints commands that show a dataset."""
    path = shlex.quote(output)
    print_line(f"next: beam-tfrecord inspect {path}", "dim")
    program = f"beam-tfrecord code {path} --as tensorflow  # or keras, torch, ..."
    print_line(f"      {program}", "dim")
