"""Messages about operations that were retried, in this process or in a worker.

`transforms.storage.retry` logs each retry. Workers print them, beside what else they
print, to the log of the run, which the watching process reads.
"""

import contextlib
import logging
import os
import tempfile
from collections.abc import Iterator

from beam_pipeline.shared_change import shared_change
from beam_pipeline.terminal import printing
from transforms.storage import retry

_LOGGER = logging.getLogger(retry.__name__)
_PREFIX = b"tried again: "
# Retries that are reported one by one.
_SHOWN = 5


class RetryNotes(logging.Handler):
    """Log handler of the watching process, which shows its retries and its workers'.

    Attributes:
      log: file that workers print to.
    """

    def __init__(self) -> None:
        super().__init__()
        self.log = tempfile.TemporaryFile()  # noqa: SIM115
        self._lines: list[str] = []
        self._read = self._count = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps a line until it is shown."""
        self._lines.append(record.getMessage())

    def show(self) -> None:
        """Prints what has come since it was last called, the first few lines of it."""
        # No message is worth a run: the next call reads what this one could not.
        with contextlib.suppress(OSError):
            self._lines += self._of_workers()
        while self._lines:
            line = self._lines.pop(0)
            self._count += 1
            if self._count <= _SHOWN:
                printing.say(f"warning: {line}")

    def _of_workers(self) -> list[str]:
        number = self.log.fileno()
        size = os.fstat(number).st_size - self._read
        # The last line may be on its way.
        lines = os.pread(number, size, self._read).splitlines(keepends=True)
        whole = [line for line in lines if line.endswith(b"\n")]
        self._read += sum(map(len, whole))
        return [
            line.removeprefix(_PREFIX).decode("utf-8", "replace").rstrip("\n")
            for line in whole
            if line.startswith(_PREFIX)
        ]

    def close(self) -> None:
        """Prints what is left, and how many lines were not shown."""
        self.show()
        if self._count > _SHOWN:
            more = self._count - _SHOWN
            printing.say(f"warning: {more:,} more were tried again")
        self.log.close()
        super().close()


@contextlib.contextmanager
def collected_retries() -> Iterator[RetryNotes]:
    """Yields what shows the retries of a run; workers are started inside."""
    notes = RetryNotes()
    with _handled():
        _LOGGER.addHandler(notes)
        try:
            yield notes
        finally:
            _LOGGER.removeHandler(notes)
            notes.close()


@shared_change
def _handled() -> Iterator[None]:
    """Keeps the lines about retries from other handlers, those of the caller."""
    before = _LOGGER.level, _LOGGER.propagate
    _LOGGER.setLevel(logging.WARNING)
    _LOGGER.propagate = False
    try:
        yield
    finally:
        _LOGGER.setLevel(before[0])
        _LOGGER.propagate = before[1]


class _Printed(logging.Handler):
    """Log handler of a worker, which prints its retries."""

    def emit(self, record: logging.LogRecord) -> None:
        """Prints a line at once, so that lines of others are not mixed with it."""
        line = record.getMessage().replace("\n", " ").encode("utf-8", "replace")
        with contextlib.suppress(OSError):
            os.write(2, _PREFIX + line + b"\n")


def print_retries() -> None:
    """Lets this process, a worker, print its retries, and show none."""
    _LOGGER.handlers = [_Printed()]
    _LOGGER.setLevel(logging.WARNING)
    _LOGGER.propagate = False
