"""Messages about operations that were retried, in this process or in a worker.

`transforms.storage.retry` logs each retry. Workers print them, beside what else they
print, to the log of the run, which the watching process reads.
"""

import contextlib
import logging
import os
import tempfile
from collections.abc import Callable, Iterator

from beam_pipeline.terminal import printing
from transforms.storage import retry

_LOGGER = logging.getLogger(retry.__name__)
# Of its own, since a run raises the level of the root logger.
_LOGGER.setLevel(logging.WARNING)
_PREFIX = b"tried again: "
# Retries that are reported one by one.
_SHOWN = 5


class RetryNotes:
    """What the watching process shows of its retries and its workers'.

    Attributes:
      log: file that workers print to, and the retries of this process.
    """

    def __init__(self) -> None:
        self.log = tempfile.TemporaryFile()  # noqa: SIM115
        self._read = self._count = 0

    def show(self) -> None:
        """Prints what has come since it was last called, the first few lines of it."""
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
                    printing.say(f"warning: {text}")

    def close(self) -> None:
        """Prints what is left, and how many lines were not shown."""
        self.show()
        if self._count > _SHOWN:
            more = self._count - _SHOWN
            printing.say(f"warning: {more:,} more were tried again")
        self.log.close()


@contextlib.contextmanager
def collected_retries() -> Iterator[RetryNotes]:
    """Yields what shows the retries of a run; workers are started inside."""
    notes = RetryNotes()
    handler = _Printed(notes.log.fileno)
    _LOGGER.addHandler(handler)
    try:
        yield notes
    finally:
        _LOGGER.removeHandler(handler)
        notes.close()


class _Printed(logging.Handler):
    """Log handler that prints each retry to a file, which may be closed meanwhile."""

    def __init__(self, fileno: Callable[[], int]) -> None:
        super().__init__()
        self._fileno = fileno

    def emit(self, record: logging.LogRecord) -> None:
        """Prints a line at once, so that lines of others are not mixed with it."""
        line = record.getMessage().replace("\n", " ").encode("utf-8", "replace")
        with contextlib.suppress(OSError, ValueError):
            os.write(self._fileno(), _PREFIX + line + b"\n")


def print_retries() -> None:
    """Lets this process, a worker, print its retries, and show none."""
    _LOGGER.handlers = [_Printed(lambda: 2)]
    _LOGGER.propagate = False
