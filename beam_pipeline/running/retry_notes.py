"""Notes of the operations on storage that are tried again, in all processes of a run.

What `transforms.storage.retry` logs, each worker process prints to the log of the run,
beside what else it prints. The process that watches the run reads it.
"""

import contextlib
import logging
import os
import tempfile
from collections.abc import Iterator
from typing import IO

from beam_pipeline import terminal
from transforms.storage import retry

_LOGGER = logging.getLogger(retry.__name__)
# Of its own, since a run raises the level of the root logger.
_LOGGER.setLevel(logging.WARNING)
_PREFIX = b"tried again: "
# Retries that are reported one by one.
_SHOWN = 5


class RetryNotes(logging.Handler):
    """Prints retries to a log, and shows what all processes of a run print there.

    Attributes:
      log: file that workers print to, and this process its retries.
    """

    def __init__(self, log: IO[bytes]) -> None:
        super().__init__()
        self.log = log
        self._read = self._count = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Prints a line at once, so that lines of others are not mixed with it."""
        line = record.getMessage().replace("\n", " ").encode("utf-8", "replace")
        # The log of a run that has ended is closed.
        with contextlib.suppress(OSError, ValueError):
            os.write(self.log.fileno(), _PREFIX + line + b"\n")

    def show(self) -> None:
        """Shows what has come since it was last called, the first few lines of it."""
        number, data = self.log.fileno(), b""
        # The disk that is noted here may fail here as well; no message is worth a run.
        with contextlib.suppress(OSError):
            size = os.fstat(number).st_size - self._read
            data = os.pread(number, size, self._read)
        # The last line may be on its way.
        whole, end, _ = data.rpartition(b"\n")
        self._read += len(whole + end)
        for line in whole.splitlines():
            if line.startswith(_PREFIX):
                self._count += 1
                if self._count <= _SHOWN:
                    text = line.removeprefix(_PREFIX).decode("utf-8", "replace")
                    terminal.say(f"warning: {text}")

    def end(self) -> None:
        """Shows what is left, and how many lines were not shown."""
        self.show()
        if (more := self._count - _SHOWN) > 0:
            terminal.say(f"warning: {more:,} more were tried again")


@contextlib.contextmanager
def collected_retries() -> Iterator[RetryNotes]:
    """Yields what shows the retries of a run; workers are started inside."""
    with tempfile.TemporaryFile() as log:
        notes = RetryNotes(log)
        _LOGGER.addHandler(notes)
        try:
            yield notes
        finally:
            _LOGGER.removeHandler(notes)
            notes.end()


def only_print_retries(number: int) -> None:
    """Lets a worker process print its retries to an open file, and do no more."""
    _LOGGER.handlers = [RetryNotes(open(number, "wb", closefd=False))]  # noqa: SIM115
    _LOGGER.propagate = False
