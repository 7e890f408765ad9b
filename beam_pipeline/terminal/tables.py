"""Tables for a terminal or a pipe; nothing is wrapped or cut."""

import sys
from collections.abc import Sequence
from typing import Any

from rich.table import Table

from beam_pipeline.terminal.console import Console
from beam_pipeline.terminal.printing import printable

__all__ = ["new_table", "open_console", "print_table"]

# Wider than any table: what goes into a pipe is never wrapped or cut.
_PIPE_COLUMNS = 10_000


def open_console() -> Console:
    """Returns a console for stdout that takes texts as they are, without markup."""
    width = None if sys.stdout.isatty() else _PIPE_COLUMNS
    return Console(highlight=False, emoji=False, markup=False, width=width)


def new_table(*columns: str, right: Sequence[str] = ()) -> Table:
    """Returns a table without lines; the columns of `right` are numbers."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        side: Any = "right" if name in right else "left"
        table.add_column(printable(name), justify=side, overflow="fold")
    return table


def print_table(console: Console, table: Table) -> None:
    """Prints a table after an empty line, without spaces at the ends of lines."""
    with console.capture() as captured:
        console.print(table)
    console.file.write("\n")
    for line in captured.get().splitlines():
        console.file.write(f"{line.rstrip()}\n")
