"""Messages about operations that were retried, in this process or in a worker.

`transforms.storage.retry` logs each retry. Every process of a run writes them to one
log, beside what else workers print, and the watching process shows them.
"""

import contextlib
import logging
import os
import tempfile
from collections.abc import Iterator
from typing import IO

from beam_pipeline.shared_change import shared_change
from beam_pipeline.terminal import printing
from transforms.storage import retry

_LOGGER = logging.getLogger(retry.__name__)
_PREFIX = b"tried again: "
# Retries that are reported one by one.
_SHOWN = 5


class LogRetries(logging.Handler):
    """Log handler that writes the retries of this process to the log of a run."""

    def __init__(self, log: int) -> None:
        super().__init__()
        self._log = log
        _LOGGER.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Writes a line at once, so that lines of others are not mixed with it."""
        line = record.getMessage().replace("\n", " ").encode("utf-8", "replace")
        # A thread of a stopped run may still log.
        if self in _LOGGER.handlers:
            os.write(self._log, _PREFIX + line + b"\n")


class RetryNotes:
    """Shows retries that are in the log of a run, the first few one by one.

    Attributes:
      log: of the run.
    """

    def __init__(self, log: IO[bytes]) -> None:
        self.log = log
        self._read = self._count = 0

    def show(self) -> None:
        """Prints what has come since it was last called."""
        end = os.fstat(self.log.fileno()).st_size
        data = os.pread(self.log.fileno(), end - self._read, self._read)
        # The last line may be on its way.
        whole = data[: data.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.splitlines():
            if line.startswith(_PREFIX):
                self._count += 1
                if self._count <= _SHOWN:
                    text = line.removeprefix(_PREFIX).decode("utf-8", "replace")
                    printing.say(f"warning: {text}")

    def finish(self) -> None:
        """Prints what is left, and how many lines were not shown."""
        self.show()
        if self._count > _SHOWN:
            more = self._count - _SHOWN
            printing.say(f"warning: {more:,} more were tried again")


@contextlib.contextmanager
def collected_retries() -> Iterator[RetryNotes]:
    """Yields what shows the retries of a run; workers are started inside."""
    with tempfile.TemporaryFile() as log, _handled():
        notes, handler = RetryNotes(log), LogRetries(log.fileno())
        try:
            yield notes
        finally:
            _LOGGER.removeHandler(handler)
            notes.finish()


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
