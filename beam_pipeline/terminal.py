"""Standard streams: the words, lines and tables that a person sees there.

All that the program prints passes `printable`: in `print_text`, `print_line` and
`print_table` on stdout, in `say` on stderr. File names, columns, classes and values are
other people's, and so are the messages that repeat them. A pipe or a file gets no
colours. A broken stderr never fails a run.
"""

import contextlib
import json
import os
import re
import shlex
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TextIO

from transforms.core.schema import Feature, Kind
from transforms.storage.retry import naming

if TYPE_CHECKING:  # they load Arrow and NumPy, which most commands do not need
    from transforms.core.infer.evidence import Evidence
    from transforms.core.manifest import SplitFacts

STDOUT = "standard output"
"""In messages, where a path would be."""

# What a terminal takes for: remove the line from the cursor on.
_ERASE = "\x1b[K"


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
    _print_raw(printable(text, keep="\n"), end)


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

    def __bool__(self) -> bool:
        return self._terminal is not None

    def show(self, text: str) -> None:
        """Shows another text, as much of it as fits the terminal."""
        if self._terminal is None:
            return
        # A broken stderr must not stop the run.
        with contextlib.suppress(OSError, ValueError):
            shown = text[: shutil.get_terminal_size().columns - 1]
            self._terminal.write(f"\r{_ERASE}{shown}")
            self._terminal.flush()
        Line.drawn = self if text else None

    def clear(self) -> None:
        """Leaves the line empty."""
        if Line.drawn is self:
            self.show("")


def say(text: str) -> None:
    """Prints a line on standard error, or drops it where that is broken or full."""
    if sys.stderr is None:
        return
    if Line.drawn is not None:
        Line.drawn.clear()
    try:
        print(printable(text, keep="\n"), file=sys.stderr, flush=True)  # noqa: T201
    except OSError:
        silence(sys.stderr)


def silence(stream: TextIO) -> None:
    """Ends a standard stream that broke: its buffer, written at exit, is dropped."""
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


MOST_EXAMPLES = 3
_MOST_CHARACTERS = 80
_EXAMPLE_CHARS = 32
# A float beyond has no fraction, and its last digits mean little.
_MOST_EXACT = 1e15


def size_text(size: int) -> str:
    """Returns a number of bytes for people: "21 B", "4.1 kB", "150 MB"."""
    value = float(size)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 999.5 or unit == "TB":
            break
        value /= 1000
    digits = 0 if unit == "B" or value >= 99.95 else 1
    return f"{value:,.{digits}f} {unit}"


def count_text(count: int, singular: str, plural: str = "") -> str:
    """Returns "1 shard" or "1,024 shards"."""
    word = singular if count == 1 else plural or f"{singular}s"
    return f"{count:,} {word}"


def counts_text(counts: Mapping[str, int]) -> str:
    """Returns "not_image 3, too_large 1,024"."""
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())


def share_text(count: int, whole: int) -> str:
    """Returns a share as "66.7 %"; "100 %" and "0 %" only where that is exact.

    >>> share_text(1, 10_000), share_text(9_999, 10_000)
    ('< 0.1 %', '> 99.9 %')
    """
    if count == whole:
        return "100 %"
    if count == 0:
        return "0 %"
    text = f"{100 * count / whole:.1f} %"
    return {"0.0 %": "< 0.1 %", "100.0 %": "> 99.9 %"}.get(text, text)


def instant_text(value: int, unit: str) -> str:
    """Returns "2024-05-01T12:00:00Z" for a number of units since 1970 in UTC.

    Empty for what is no instant: the smallest int64, which NumPy keeps for that.
    """
    # Imported here: few commands show instants, and NumPy loads slowly.
    import numpy as np

    instant = np.int64(value).astype(f"datetime64[{unit or 's'}]")
    return "" if np.isnat(instant) else f"{instant}Z"


def kind_text(feature: Feature) -> str:
    """Returns "text[any]", "tensor uint8[28, 28]", "label, to predict"."""
    text = str(feature.kind)
    if feature.kind is Kind.TENSOR:
        text += f" {feature.dtype}"
    text += shape_text(feature.shape)
    if feature.kind is Kind.TIMESTAMP:
        text += f" in {feature.unit or 's'}"
    return f"{text}, to predict" if feature.is_label else text


def shape_text(shape: Sequence[int | None]) -> str:
    """Returns "[any, 4]": sizes that differ are "any"; nothing for one value."""
    sizes = ", ".join("any" if n is None else f"{n}" for n in shape)
    return f"[{sizes}]" if shape else ""


def shortened(text: str, most: int = _MOST_CHARACTERS) -> str:
    """Returns a text on one line, cut to at most this many columns of a terminal.

    >>> shortened("a" * 100, 5)
    'aaaa…'
    """
    # Escapes make a text longer, never shorter.
    shown = printable(text[: most + 1])
    if text_width(shown) <= most:
        return shown
    while text_width(shown) >= most:
        shown = shown[:-1]
    return f"{shown}…"


def value_text(value: float, feature: Feature | None = None) -> str:
    """Returns a value for people: an instant, a whole number with commas, a float.

    >>> value_text(1234567.0), value_text(0.12345678), value_text(1e30)
    ('1,234,567', '0.123457', '1e+30')
    """
    if feature and feature.kind is Kind.TIMESTAMP and abs(value) < 2**63:
        return re.sub(r"\.0+Z$", "Z", instant_text(int(value), feature.unit))
    if isinstance(value, int) or (value.is_integer() and abs(value) < _MOST_EXACT):
        return f"{int(value):,}"
    return f"{value:.6g}"


def present_text(evidence: "Evidence") -> str:
    """Returns the share of cells with a value: "100 %", "99.4 %", "0 %"."""
    return share_text(evidence.sampled - evidence.missing, evidence.sampled)


def range_text(
    low: float | None, high: float | None, feature: Feature | None = None
) -> str:
    """Returns "LOW to HIGH", one of them where both are the same; empty for none."""
    if low is None or high is None:
        return ""
    least, most = value_text(low, feature), value_text(high, feature)
    return least if least == most else f"{least} to {most}"


def examples_text(texts: Sequence[str]) -> str:
    """Returns the first few values, each on one line and cut; '' in quotes for none."""
    return ", ".join(
        shortened(t, _EXAMPLE_CHARS) or "''" for t in texts[:MOST_EXAMPLES]
    )


_STYLES = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33, "cyan": 36}
_BETWEEN = "  "


def _styled(text: str, style: str) -> str:
    """Returns escaped text, in a style if standard output shows colours."""
    if not style or not text or not _shows_colours():
        return text
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m"


def _shows_colours() -> bool:
    """Whether standard output is a terminal that is asked for colours."""
    is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return sys.stdout.isatty() and not is_plain


def _print_raw(text: str, end: str = "\n") -> None:
    """Prints text that is escaped already; its errors name standard output."""
    with naming(STDOUT):
        print(text, end=end)  # noqa: T201


def print_line(text: str = "", style: str = "", rest: str = "") -> None:
    """Prints a line; `rest` has no style."""
    _print_raw(_styled(printable(text), style) + printable(rest))


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Sequence[str] = (),
    apart: bool = True,
) -> None:
    """Prints cells in columns, without lines between them or spaces at the ends.

    Args:
      columns: their names.
      rows: a cell for each column.
      right: the columns that are numbers.
      apart: whether an empty line comes first.
    """
    cells = [tuple(map(printable, row)) for row in (columns, *rows)]
    widths = [max(map(text_width, column)) for column in zip(*cells, strict=True)]
    lines = [] if not apart else [""]
    for number, row in enumerate(cells):
        padded = []
        for cell, width, name in zip(row, widths, columns, strict=True):
            spaces = " " * (width - text_width(cell))
            padded.append(spaces + cell if name in right else cell + spaces)
        line = _BETWEEN.join(padded).rstrip()
        lines.append(_styled(line, "" if number else "bold"))
    _print_raw("\n".join(lines))


def print_splits(
    splits: "Sequence[SplitFacts]", *, apart: bool = False, has_total: bool = False
) -> None:
    """Prints a table of splits with their records, shards and size."""
    facts = [(s.name, s.records, len(s.shards), s.bytes) for s in splits]
    if has_total and len(splits) > 1:
        _, records, shards, sizes = zip(*facts, strict=True)
        facts.append(("total", sum(records), sum(shards), sum(sizes)))
    rows = [(name, f"{n:,}", f"{k:,}", size_text(size)) for name, n, k, size in facts]
    columns = ("split", "records", "shards", "size")
    print_table(columns, rows, right=columns[1:], apart=apart)


def print_next(output: str) -> None:
    """Prints commands that show a dataset."""
    path = shlex.quote(output)
    print_line(f"next: beam-tfrecord inspect {path}", "dim")
    program = f"beam-tfrecord code {path} --as tensorflow  # or keras, torch, ..."
    print_line(f"      {program}", "dim")
