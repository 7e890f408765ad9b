"""Tables: cells below one another, whatever their width."""

import pytest

from beam_pipeline.terminal import console
from beam_pipeline.terminal.console import Table, new_table, print_table


def _table() -> Table:
    table = new_table("feature", "kind", "count", "values", right=("count",))
    table.add_row("id", "float", "1", "")
    table.add_row("寬度", "int64", "12,345", "from 1 to 9", bold=True)
    table.add_row("", "text", "", "a rather long cell with words")
    table.add_row("x\x1b[0m", "", "7", "[bold]no markup[/bold] :smile:")
    return table


def test_cells_are_below_one_another(capsys: pytest.CaptureFixture[str]) -> None:
    """Wide letters count twice, numbers are to the right, escapes are written out."""
    print_table(_table())
    assert capsys.readouterr().out == (
        "\n"
        "feature   kind    count  values\n"
        "id        float       1\n"
        "寬度      int64  12,345  from 1 to 9\n"
        "          text           a rather long cell with words\n"
        "x\\x1b[0m              7  [bold]no markup[/bold] :smile:\n"
    )


def test_heads_and_marked_rows_are_bold(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a terminal; a table without an empty line before it begins with its head."""
    monkeypatch.setattr(console, "shows_colours", lambda: True)
    print_table(_table(), apart=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("\x1b[1mfeature")
    bold = [line for line in lines if line.startswith("\x1b[1m")]
    assert [*map(lines.index, bold)] == [0, 2]


def test_a_table_without_rows_is_its_head(capsys: pytest.CaptureFixture[str]) -> None:
    """The names of the columns stand alone."""
    print_table(new_table("reason", "count"))
    assert capsys.readouterr().out == "\nreason  count\n"
