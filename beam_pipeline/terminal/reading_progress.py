"""A line on a terminal that shows how much of large files is read."""

import contextlib
from collections.abc import Iterator

from beam_pipeline.terminal.printing import Line
from beam_pipeline.terminal.words import size_text

# Less than this is read within a second: no line is shown.
_MIN_BYTES = 300_000_000


class Progress:
    """A line on a terminal: the share of the bytes that was read."""

    def __init__(self, line: Line, total: int, word: str) -> None:
        self._word = word
        self._line = line
        self._is_shown = bool(line) and total >= _MIN_BYTES
        self._total = total
        self._done = 0

    def add(self, size: int) -> None:
        """Counts bytes, and shows their share."""
        self._done += size
        if self._is_shown:
            percent = min(100 * self._done // self._total, 100)
            self._line.show(f"{self._word} {size_text(self._total)}: {percent:3d} %")


@contextlib.contextmanager
def shown_reading(
    total: int, word: str = "verifying", *, quiet: bool = False
) -> Iterator[Progress]:
    """Yields the line and clears it at the end.

    Args:
      total: bytes to be read.
      word: for what is done.
      quiet: show nothing, as where standard error is no terminal.
    """
    line = Line(quiet=quiet)
    try:
        yield Progress(line, total, word)
    finally:
        line.clear()
