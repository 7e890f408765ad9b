"""Tables, and a rich console that raises on a broken pipe and prints text as it is.

Tables are for a terminal or a pipe; nothing in them is cut. Rich draws a cell in some
70 microseconds, because it may have to fold it: the tables of thousands of columns took
seconds. So it draws only those that are too wide for the terminal.
"""

import dataclasses
import shlex
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import rich.console
import rich.table
from rich.cells import cell_len
from rich.segment import Segment
from rich.text import Text

from beam_pipeline.terminal.printing import STDOUT, broken, printable
from beam_pipeline.terminal.words import size_text
from transforms.core.manifest import SplitFacts
from transforms.storage.retry import naming

# Wider than any table: what goes into a pipe is never wrapped or cut.
_PIPE_COLUMNS = 10_000
_BETWEEN = "  "


class Console(rich.console.Console):
    """A console that raises BrokenPipeError; rich would exit with 1, as if damaged.

    What a text holds of escapes and other control characters is shown, not obeyed.
    """

    def print(self, *objects: Any, **options: Any) -> None:
        """Prints as rich does; an error says what could not be written."""
        with naming(STDOUT):
            super().print(*objects, **options)

    def say(self, text: str | Text, style: str | None = None) -> None:
        """Prints a line, broken between words on a terminal, never within one."""
        whole = self.render_str(text) if isinstance(text, str) else text
        starts, at = [], 0
        for line in broken(whole.plain, self.width):
            at = whole.plain.index(line, at)
            starts.append(at)
            at += len(line)
        for part in whole.divide(starts[1:]):
            part.rstrip()
            self.print(part, style=style, soft_wrap=True)

    def head(self, text: str, rest: str, style: str = "bold") -> None:
        """Prints a line whose first text, of any origin, has a style."""
        self.say(Text.assemble((printable(text), style), rest))

    def on_broken_pipe(self) -> None:
        """Called by rich while it handles the error."""
        raise

    def render_str(self, text: str, **options: Any) -> Text:
        """Returns a string as rich's text: one line, and empty ones around it."""
        line = text.strip("\n")
        start = text.index(line)
        shown = printable(line)
        text = f"{text[:start]}{shown}{text[start + len(line) :]}"
        return super().render_str(text, **options)

    def render(
        self,
        renderable: rich.console.RenderableType,
        options: rich.console.ConsoleOptions | None = None,
    ) -> Iterable[Segment]:
        """Yields what is printed; the escapes among it are rich's own alone."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment(printable(segment.text, keep="\n"), segment.style)


def open_console() -> Console:
    """Returns a console for stdout that takes texts as they are, without markup."""
    width = None if sys.stdout.isatty() else _PIPE_COLUMNS
    return Console(highlight=False, emoji=False, markup=False, width=width)


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


def print_table(console: Console, table: Table, *, apart: bool = True) -> None:
    """Prints a table, without spaces at the ends of lines.

    Args:
      console: that it is printed on.
      table: the cells.
      apart: whether an empty line comes first.
    """
    if apart:
        console.file.write("\n")
    columns = zip(table.columns, *table.rows, strict=True)
    widths = [max(map(_width, cells)) for cells in columns]
    if sum(widths) + len(_BETWEEN) * (len(widths) - 1) > console.width:
        _print_folded(console, table)
        return
    right = [name in table.right for name in table.columns]
    _print_bold(console, _line(table.columns, widths, right))
    for number, row in enumerate(table.rows):
        line = _line(row, widths, right)
        if number in table.bold:
            _print_bold(console, line)
        else:
            console.file.write(f"{line}\n")


def splits_table(splits: Sequence[SplitFacts]) -> Table:
    """Returns a table of splits with their records, shards and size."""
    numbers = ("records", "shards", "size")
    table = new_table("split", *numbers, right=numbers)
    for split in splits:
        shards = f"{len(split.shards):,}"
        table.add_row(split.name, f"{split.records:,}", shards, size_text(split.bytes))
    return table


def print_next(console: Console, output: str) -> None:
    """Prints commands that show a dataset."""
    place = shlex.quote(output)
    console.say(f"next: beam-tfrecord inspect {place}", style="dim")
    program = f"beam-tfrecord schema {place} --as tensorflow  # or keras, torch, ..."
    console.say(f"      {program}", style="dim")


def _print_bold(console: Console, line: str) -> None:
    console.print(Text(line, style="bold"), soft_wrap=True)


def _width(cell: str) -> int:
    """Returns how many places of a terminal a cell takes."""
    return len(cell) if cell.isascii() else cell_len(cell)


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    parts = []
    for cell, width, is_right in zip(cells, widths, right, strict=True):
        spaces = " " * (width - _width(cell))
        parts.append(spaces + cell if is_right else cell + spaces)
    return _BETWEEN.join(parts).rstrip()


def _print_folded(console: Console, table: Table) -> None:
    """Prints a table whose lines are too long, with cells of several lines."""
    drawn = rich.table.Table(box=None, pad_edge=False, header_style="bold")
    for name in table.columns:
        side: Any = "right" if name in table.right else "left"
        drawn.add_column(name, justify=side, overflow="fold")
    for number, row in enumerate(table.rows):
        drawn.add_row(*row, style="bold" if number in table.bold else None)
    with console.capture() as captured:
        console.print(drawn)
    for line in captured.get().splitlines():
        console.file.write(f"{line.rstrip()}\n")
