"""Messages about operations that were retried, in this process or in a worker.

`transforms.storage.retry` logs each retry. Workers send their log lines to the watching
process through a pipe, which is made before they are started.
"""

import contextlib
import logging
import os
from collections.abc import Iterator

from beam_pipeline.shared_change import shared_change
from beam_pipeline.terminal import printing
from transforms.storage import retry

# Less than PIPE_BUF: a line is written to the pipe whole, never mixed with others.
_LINE_BYTES = 1024
_READ_BYTES = 1 << 16
_LOGGER = logging.getLogger(retry.__name__)
# Retries that are reported one by one.
_SHOWN = 5


class _Sender(logging.Handler):
    """Log handler that sends lines to the watcher.

    Attributes:
      write_end: of the watcher's pipe.
    """

    def __init__(self, write_end: int) -> None:
        super().__init__()
        self.write_end = write_end
        # A full pipe must not block a worker: lines that do not fit are lost.
        os.set_blocking(write_end, False)
        self._is_closed = False

    def emit(self, record: logging.LogRecord) -> None:
        """Sends a line to the watcher."""
        line = record.getMessage().replace("\n", " ").encode("utf-8", "replace")
        if self._is_closed:
            # A thread of a stopped run may still log.
            return
        with contextlib.suppress(BlockingIOError):
            os.write(self.write_end, line[: _LINE_BYTES - 1] + b"\n")


class RetryNotes(_Sender):
    """Log handler of the watching process, which prints what all of them send.

    Attributes:
      count: retries seen so far.
    """

    def __init__(self) -> None:
        self._read_end, write_end = os.pipe()
        super().__init__(write_end)
        self.count = 0
        os.set_blocking(self._read_end, False)
        self._rest = b""

    def show(self) -> None:
        """Prints what has come since it was last called, the first few lines of it."""
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._read_end, _READ_BYTES):
                self._rest += data
        *lines, self._rest = self._rest.split(b"\n")
        for line in lines:
            self.count += 1
            if self.count <= _SHOWN:
                printing.say(f"warning: {line.decode('utf-8', 'replace')}")

    def finish(self) -> None:
        """Prints what is left, and how many lines were not shown."""
        self.show()
        if self.count > _SHOWN:
            more = self.count - _SHOWN
            printing.say(f"warning: {more:,} more were tried again")

    def close(self) -> None:
        """Closes the pipe."""
        self.acquire()
        try:
            self._is_closed = True
            os.close(self._read_end)
            os.close(self.write_end)
        finally:
            self.release()
        super().close()


@contextlib.contextmanager
def collected_retries() -> Iterator[RetryNotes]:
    """Sends log lines about retries to the watcher; workers are started inside."""
    notes = RetryNotes()
    with _handled():
        _LOGGER.addHandler(notes)
        try:
            yield notes
        finally:
            notes.finish()
            _LOGGER.removeHandler(notes)
            notes.close()


def send_retries(write_end: int) -> None:
    """Sends what this worker logs about retries to the watcher.

    Args:
      write_end: of the pipe of the watcher's `RetryNotes`. A forked worker has it.
    """
    _LOGGER.addHandler(_Sender(write_end))
    _LOGGER.setLevel(logging.WARNING)
    _LOGGER.propagate = False


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
