"""A line on a terminal that shows how much of large files is read."""

import contextlib
import io
from collections.abc import Iterator
from typing import Any, BinaryIO, Self, cast

from beam_pipeline.terminal.printing import Line
from beam_pipeline.terminal.words import size_text
from transforms.storage.files import storage

# Less than this is read within a second: no line is shown.
_MIN_BYTES = 300_000_000


class _Watched:
    """An open file that counts the bytes read from it for a progress line."""

    def __init__(self, file: io.RawIOBase, bar: "Progress") -> None:
        self._file, self._bar = file, bar

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._file.close()

    def read(self, size: int = -1, /) -> bytes:
        data = self._file.read(size) or b""
        self._bar.add(len(data))
        return data


class Progress:
    """A line on a terminal: the share of the bytes that was read."""

    def __init__(self, line: Line, total: int, word: str) -> None:
        self._word = word
        self._line = line
        self._is_shown = bool(line) and total >= _MIN_BYTES
        self._total = total
        self._done = 0

    def watched(self, path: str) -> BinaryIO:
        """Opens a file whose reads move the line; raises OSError."""
        file = storage(path).open_unbuffered()
        watched = _Watched(file, self) if self._is_shown else file
        return cast(BinaryIO, watched)

    def read_range(self, path: str, start: int, stop: int) -> bytes:
        """Returns a part of a file; the line moves. Raises OSError."""
        self.add(stop - start)
        return storage(path).read_range(start, stop)

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
