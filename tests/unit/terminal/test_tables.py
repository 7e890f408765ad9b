"""Tables look as rich draws them, whatever their width."""

import io
from typing import Any

import pytest
import rich.table

from beam_pipeline.terminal.console import Console, Table, new_table, print_table

_ROWS = [
    ("id", "float", "1", ""),
    ("寬度", "int64", "12,345", "from 1 to 9"),
    ("", "text", "", "a rather long cell with words"),
    ("x\x1b[0m", "", "7", "[bold]no markup[/bold] :smile:"),
]


def _console(width: int, *, terminal: bool = False) -> Console:
    return Console(
        file=io.StringIO(),
        width=width,
        force_terminal=terminal,
        color_system="standard" if terminal else None,
        highlight=False,
        emoji=False,
        markup=False,
    )


def _table() -> Table:
    table = new_table("feature", "kind", "count", "values", right=("count",))
    for number, row in enumerate(_ROWS):
        table.add_row(*row, bold=number == 1)
    return table


def _printed(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [200, 60, 30])
def test_looks_as_drawn_by_rich(width: int) -> None:
    """Wide, folded and right-aligned cells are where rich would put them."""
    console, other = _console(width), _console(width)
    print_table(console, _table())
    drawn = rich.table.Table(box=None, pad_edge=False)
    for name in ("feature", "kind", "count", "values"):
        side: Any = "right" if name == "count" else "left"
        drawn.add_column(name, justify=side, overflow="fold")
    for row in _ROWS:
        drawn.add_row(*row)
    other.print(drawn)
    expected = [line.rstrip() for line in _printed(other).splitlines()]
    assert _printed(console).splitlines() == ["", *expected]


@pytest.mark.parametrize("width", [200, 30])
def test_heads_and_marked_rows_are_bold(width: int) -> None:
    """On a terminal; a table without an empty line before it begins with its head."""
    console = _console(width, terminal=True)
    print_table(console, _table(), apart=False)
    lines = _printed(console).splitlines()
    assert lines[0].startswith("\x1b[1mfeature")
    bold = [line for line in lines if line.startswith("\x1b[1m")]
    assert any("寬度" in line for line in bold)
    assert not any("float" in line for line in bold)


def test_a_table_without_rows_is_its_head() -> None:
    """The names of the columns stand alone."""
    console = _console(80)
    print_table(console, new_table("reason", "count"))
    assert _printed(console) == "\nreason  count\n"
