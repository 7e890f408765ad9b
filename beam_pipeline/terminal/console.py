"""Styled lines and tables on standard output; nothing in them is cut.

Texts are escaped here, so that only escapes of colours reach a terminal. A pipe or a
file gets no colours, and no line is broken for it.
"""

import os
import shlex
import sys
from collections.abc import Iterable, Sequence

from beam_pipeline.terminal.printing import STDOUT, fitted, printable, text_width
from beam_pipeline.terminal.words import size_text
from transforms.core.manifest import SplitFacts
from transforms.storage.retry import naming

_STYLES = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33, "cyan": 36}
_BETWEEN = "  "


def _styled(text: str, style: str) -> str:
    """Returns escaped text, in a style if standard output shows colours."""
    if not style or not text or not shows_colours():
        return text
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m"


def shows_colours() -> bool:
    """Whether standard output is a terminal that is asked for colours."""
    is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return sys.stdout.isatty() and not is_plain


def _emit(line: str) -> None:
    with naming(STDOUT):
        print(line)  # noqa: T201


def print_line(text: str = "", style: str = "", rest: str = "") -> None:
    """Prints a line, broken between words on a terminal; `rest` has no style."""
    styled = len(printable(text))
    for line in fitted(printable(text + rest), sys.stdout).split("\n"):
        _emit(_styled(line[:styled], style) + line[styled:])
        # The space at which a line is broken is dropped.
        styled = max(styled - len(line) - 1, 0)


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Sequence[str] = (),
    apart: bool = True,
    has_total: bool = False,
) -> None:
    """Prints cells in columns, without lines between them or spaces at the ends.

    Args:
      columns: their names.
      rows: a cell for each column.
      right: the columns that are numbers.
      apart: whether an empty line comes first.
      has_total: whether the last row is the sum of the others.
    """
    cells = [tuple(map(printable, row)) for row in (columns, *rows)]
    widths = [max(map(text_width, column)) for column in zip(*cells, strict=True)]
    lines = [] if not apart else [""]
    for number, row in enumerate(cells):
        padded = []
        for cell, width, name in zip(row, widths, columns, strict=True):
            spaces = " " * (width - text_width(cell))
            padded.append(spaces + cell if name in right else cell + spaces)
        is_bold = number == 0 or (has_total and number == len(cells) - 1)
        line = _BETWEEN.join(padded).rstrip()
        lines.append(_styled(line, "bold" if is_bold else ""))
    _emit("\n".join(lines))


def print_splits(
    splits: Sequence[SplitFacts], *, apart: bool = False, has_total: bool = False
) -> None:
    """Prints a table of splits with their records, shards and size."""
    facts = [(s.name, s.records, len(s.shards), s.bytes) for s in splits]
    if has_total := has_total and len(splits) > 1:
        _, records, shards, sizes = zip(*facts, strict=True)
        facts.append(("total", sum(records), sum(shards), sum(sizes)))
    rows = [(name, f"{n:,}", f"{k:,}", size_text(size)) for name, n, k, size in facts]
    columns = ("split", "records", "shards", "size")
    print_table(columns, rows, right=columns[1:], apart=apart, has_total=has_total)


def print_next(output: str) -> None:
    """Prints commands that show a dataset."""
    path = shlex.quote(output)
    print_line(f"next: beam-tfrecord inspect {path}", "dim")
    program = f"beam-tfrecord code {path} --as tensorflow  # or keras, torch, ..."
    print_line(f"      {program}", "dim")
