"""Messages from workers to the submitter, as files in a folder that both see.

An engine reports the error of a task only after several attempts, if at all, and in a
truncated trace of its own. A file that the worker leaves says at once what went wrong.

Prism does not notice that a worker has died, and waits for ever. So workers leave a
file with their process id, and the submitter checks whether they are alive.
"""

import dataclasses
import logging
import os
import time
from collections.abc import Sequence

from beam_pipeline.engines.beam_errors import in_text
from transforms.errors import BeamTFRecordError, StorageError

__all__ = ["WORKER", "FailureFiles", "absent", "lasting", "latest"]

# The end of a traceback is kept, because it names the error.
_TEXT_BYTES = 1 << 16
_FAILURE = ".failure"
# A fault of storage is lasting if it recurs for this long, more than a few times, ...
_LASTING_SECONDS = 60.0
_FEW = 3
# ... with at most this between: an attempt may itself retry for minutes.
_APART_SECONDS = 120.0
WORKER = ".worker"
"""Suffix of the files by which workers sign on; the process id comes before it."""


class FailureFiles(logging.Handler):
    """Writes what Beam's worker logs of a failed task into a folder."""

    def __init__(self, folder: str) -> None:
        super().__init__(logging.ERROR)
        self._folder = folder

    def emit(self, record: logging.LogRecord) -> None:
        """Writes one file; if that fails, only the engine's own message remains."""
        text = record.getMessage()
        if in_text(text) is None:
            return
        # Names in the order of time, one an attempt.
        name = f"{time.time_ns():020d}-{os.getpid()}"
        # Renamed when it is whole: the submitter reads the folder meanwhile.
        partial = os.path.join(self._folder, f"{name}.partial")
        try:
            with open(partial, "wb") as file:
                file.write(text.encode("utf-8", "replace")[-_TEXT_BYTES:])
            os.rename(partial, os.path.join(self._folder, f"{name}{_FAILURE}"))
        except OSError:
            self.handleError(record)


def latest(folder: str) -> BeamTFRecordError | None:
    """Returns the last of our errors that workers have left, if any."""
    return next((note.error for note in _all(folder)), None)


def lasting(folder: str) -> BeamTFRecordError | None:
    """Returns the last error that retries cannot fix, if any.

    A fault of storage may pass, so it counts only if it recurs for a while. An engine
    may retry a hundred times, and would report it only after that.
    """
    found = _all(folder)
    for note in found:
        if not isinstance(note.error, StorageError):
            return note.error
    return found[0].error if _goes_on([note.seconds for note in found]) else None


def _goes_on(times: Sequence[float]) -> bool:
    """Whether faults of storage, the last first, recur often and long enough."""
    count, first = 0, times[0] if times else 0.0
    for each in times:
        if first - each > _APART_SECONDS:
            # An earlier fault, which has passed.
            break
        count, first = count + 1, each
    return count > _FEW and times[0] - first >= _LASTING_SECONDS


def absent(folder: str) -> list[int]:
    """Returns the process ids of workers that have signed on and ended."""
    names = [name for name in os.listdir(folder) if name.endswith(WORKER)]
    pids = sorted(int(name.removesuffix(WORKER)) for name in names)
    return [pid for pid in pids if not _runs(pid)]


def _runs(pid: int) -> bool:
    """Whether a process is alive."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@dataclasses.dataclass(frozen=True, slots=True)
class _Note:
    """What a worker left behind.

    Attributes:
      seconds: when it was left, since the epoch.
      error: of ours.
    """

    seconds: float
    error: BeamTFRecordError


def _all(folder: str) -> list[_Note]:
    """Returns what was left in a folder, the last first."""
    try:
        names = sorted(os.listdir(folder), reverse=True)
    except FileNotFoundError:
        return []
    found = []
    for name in names:
        if name.endswith(_FAILURE):
            with open(os.path.join(folder, name), "rb") as file:
                error = in_text(file.read().decode("utf-8", "replace"))
            if error is not None:
                found.append(_Note(int(name.partition("-")[0]) / 1e9, error))
    return found
