"""Messages from workers to the submitter, as files in a folder that both see.

An engine hands the error of a task on, if at all, within a trace of its own, cut
somewhere, and only after it has tried the task some more times. A file that the worker
leaves says at once what went wrong.

An engine of this machine that does not notice the end of a worker waits for ever: so
workers sign on, and whoever looks sees which of them are gone.
"""

import dataclasses
import logging
import os
import time
from collections.abc import Sequence

from beam_pipeline.engines.beam_errors import in_text
from transforms.errors import BeamTFRecordError, StorageError

__all__ = ["WORKER", "FailureFiles", "absent", "lasting", "latest"]

# Of a traceback the end is kept: it names the error.
_TEXT_BYTES = 1 << 16
_FAILURE = ".failure"
# A fault of storage that new tries have met for so long, and more than a few times, ...
_LASTING_SECONDS = 60.0
_FEW = 3
# ... with no more than this between them; each try may take a retry's whole time.
_APART_SECONDS = 120.0
WORKER = ".worker"
"""What ends the names of the files, named by process ids, by which workers sign on."""


class FailureFiles(logging.Handler):
    """Writes what Beam's worker logs of a failed task into a folder."""

    def __init__(self, folder: str) -> None:
        super().__init__(logging.ERROR)
        self._folder = folder

    def emit(self, record: logging.LogRecord) -> None:
        """Leaves one file; where it cannot, the engine's own message must do."""
        text = record.getMessage()
        if in_text(text) is None:
            return
        # Names in the order of time, one an attempt.
        name = f"{time.time_ns():020d}-{os.getpid()}"
        partial = os.path.join(self._folder, f"{name}.partial")
        try:
            with open(partial, "wb") as file:
                file.write(text.encode("utf-8", "replace")[-_TEXT_BYTES:])
            os.rename(partial, os.path.join(self._folder, f"{name}{_FAILURE}"))
        except OSError:
            self.handleError(record)


def latest(folder: str) -> BeamTFRecordError | None:
    """Returns the error of ours that was left last, if any: what ended the job."""
    return next((note.error for note in _all(folder)), None)


def lasting(folder: str) -> BeamTFRecordError | None:
    """Returns the last error that no other try fixes, if any.

    A fault of storage may pass, and is one only where workers go on meeting it: an
    engine that tries again a hundred times would say nothing of it for as long.
    """
    found = _all(folder)
    for note in found:
        if not isinstance(note.error, StorageError):
            return note.error
    return found[0].error if _goes_on([note.seconds for note in found]) else None


def _goes_on(times: Sequence[float]) -> bool:
    """Whether faults of storage, the last first, are one that does not pass."""
    count, first = 0, times[0] if times else 0.0
    for each in times:
        if first - each > _APART_SECONDS:
            # Of another fault, which has passed.
            break
        count, first = count + 1, each
    return count > _FEW and times[0] - first >= _LASTING_SECONDS


def absent(folder: str) -> list[int]:
    """Returns the workers, all of this machine, that have signed on and are gone."""
    names = [name for name in os.listdir(folder) if name.endswith(WORKER)]
    pids = sorted(int(name.removesuffix(WORKER)) for name in names)
    return [pid for pid in pids if not _runs(pid)]


def _runs(pid: int) -> bool:
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
