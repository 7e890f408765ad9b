"""Errors of a job in our own words: what workers report, what Beam and engines say.

JobWatch    while it runs: the first error that no retry can help ends it
translated  when it has failed: our own error in what Beam raises
"""

import contextlib
import dataclasses
import math
import operator
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from beam_pipeline.version import __version__
from transforms import errors
from transforms.errors import BeamTFRecordError, StorageError
from transforms.storage.paths import is_remote
from transforms.work.reports import FAILURE, WORKER, Reports

_OUR_ERROR = re.compile(
    r"transforms\.errors\.(?P<type>\w+): (?P<message>.*?)"
    r"(?: \[while running '(?P<stage>[^']*)'\])?$",
    re.MULTILINE,
)
# Of a worker whose interpreter has no such version of this program, or none at all.
_NO_PROGRAM = re.compile(
    r"^(?:ModuleNotFoundError: No module named |AttributeError: Can't get attribute |"
    r"ImportError: cannot import name ).*'(?:transforms|beam_pipeline)\b.*$",
    re.MULTILINE,
)
_REST = r"(?P<message>.*?)(?: \[while running '(?P<stage>[^']*)'\])?$"
# What follows the frames of a traceback: an exception of any name, with words or none.
_RAISED = re.compile(
    r"(?:^|: )Traceback \(most recent call last\):\n(?:[ \t].*\n)+"
    r"(?P<type>[A-Za-z_][\w.]*)(?::[ ]|(?=[ ]\[)|$)" + _REST,
    re.MULTILINE,
)
_ANY_ERROR = re.compile(
    r"^(?P<type>[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit)): " + _REST,
    re.MULTILINE,
)


def translated(failure: BaseException) -> BaseException:
    """Returns the error of ours that Beam has wrapped, else its error in one line."""
    seen: BaseException | None = failure
    while seen is not None:
        if isinstance(seen, BeamTFRecordError):
            message = re.sub(r" \[while running '[^']*'\]$", "", str(seen))
            return _rebuilt(type(seen).__name__, message)
        seen = seen.__cause__
    text = str(failure)
    if ours := in_text(text):
        return ours
    whole = f"{type(failure).__name__}: {text}"
    for kind in (_RAISED, _ANY_ERROR):
        if matches := list(kind.finditer(whole)):
            last = matches[-1]
            where = f" in {last['stage']!r}" if last["stage"] else ""
            words = last["type"], last["message"].rstrip(". ")
            return BeamTFRecordError(
                f"The pipeline failed{where}: {': '.join(filter(None, words))}. "
                f"Nothing was committed."
            )
    return BeamTFRecordError(
        f"The pipeline failed: {failure!r}. Nothing was committed."
    )


def in_text(traceback: str) -> BeamTFRecordError | None:
    """Returns the last of our errors that a traceback names, if any."""
    # The last error is the one that was raised; earlier ones are its causes.
    if matches := list(_OUR_ERROR.finditer(traceback)):
        return _rebuilt(matches[-1]["type"], matches[-1]["message"])
    if lacking := _NO_PROGRAM.search(traceback):
        return errors.WorkerError(
            f"Every worker must have beam-tfrecord {__version__}, as the job's "
            f"submitter; one has another version or none: {lacking[0].strip()}. "
            f"Install it in the workers' image: pip install 'beam-tfrecord=="
            f"{__version__}', with [s3], [gcs] or [azure] for the output's store; "
            f"nothing was committed."
        )
    return None


def _rebuilt(name: str, message: str) -> BeamTFRecordError:
    kind = getattr(errors, name, BeamTFRecordError)
    return kind(message)


_FAULT = re.compile(r"(Error|Exception)\b.*:|\bERROR\b|\bFATAL\b")


def last_words(lines: Iterable[str], error: str) -> str:
    """Returns a job server's own account of a failure, as a sentence to add; or "".

    Args:
      lines: of the job server, of which the last fault, or line, is taken.
      error: the message so far; lines that only repeat it are left out.
    """
    lines = [line.strip() for line in lines]
    faults = [line for line in lines if _FAULT.search(line)] or lines
    news = [line for line in faults if line and line.rstrip(".") not in error]
    return f" The job server's last words: {news[-1]}" if news else ""


# Between two questions, to a disk and to an object store.
_NEAR_SECONDS = 0.5
_FAR_SECONDS = 3.0
# Workers that have not reported for this long are told of: four reports are missing.
_SILENT_SECONDS = 60.0
# Faults of storage are lasting if more than a few recur for this long, ...
_FEW = 3
_LASTING_SECONDS = 60.0
# ... with at most this between: an attempt may itself retry for minutes.
_APART_SECONDS = 120.0

# When, in seconds since 1970, and what a task has raised.
Failure = tuple[float, BeamTFRecordError]
_when = operator.itemgetter(0)


@dataclasses.dataclass
class JobWatch:
    """Watches a job while it runs.

    Attributes:
      name: of the engine.
      reports: of the run.
      say: takes what a person should know.
      ask: returns what tasks have raised, as the engine says; any error means that it
        does not.
    """

    name: str
    reports: Reports
    say: Callable[[str], None]
    ask: Callable[[], Sequence[Failure]] = tuple
    _failures: dict[str, Failure] = dataclasses.field(default_factory=dict)
    _engines: Sequence[Failure] = ()
    _workers: dict[str, int] = dataclasses.field(default_factory=dict)
    # Since when no worker has reported; infinite once that has been said.
    _heard: float = dataclasses.field(default_factory=lambda: time.monotonic())

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Asks the store and the engine meanwhile."""
        ended = threading.Event()
        far = is_remote(self.reports.folder)

        def work() -> None:
            while not ended.wait(_FAR_SECONDS if far else _NEAR_SECONDS):
                self.read()
                with contextlib.suppress(Exception):
                    self._engines = self.ask()

        threading.Thread(target=work, name="job watch", daemon=True).start()
        try:
            yield
        finally:
            ended.set()

    def read(self) -> None:
        """Reads what workers have reported since the last time."""
        with contextlib.suppress(OSError, StorageError):
            for entry in self.reports.entries():
                name = entry.path
                if name.endswith(WORKER):
                    if self._workers.get(name) != entry.modified_ns:
                        self._workers[name] = entry.modified_ns
                        self._heard = time.monotonic()
                elif name.endswith(FAILURE) and name not in self._failures:
                    error = in_text(self.reports.read(name))
                    if error is not None:
                        self._failures[name] = entry.modified_ns / 1e9, error

    def latest(self) -> BeamTFRecordError | None:
        """Returns the last of our errors that workers have reported, if any."""
        self.read()
        failures = sorted(self._failures.values(), key=_when)
        return failures[-1][1] if failures else None

    def look(self) -> None:
        """Says a line where workers are silent.

        Raises:
          BeamTFRecordError: a worker has met what no retry can help.
        """
        # The engine's account of the same failures would count them twice.
        failures = [*self._failures.values()] or self._engines
        if (error := lasting(failures)) is not None:
            raise error
        silent = time.monotonic() - self._heard
        if silent >= _SILENT_SECONDS:
            self._heard = math.inf
            self.say(
                f"no worker of {self.name} has reported for {silent:.0f} s; unless its "
                f"machines are still starting, check that it has free slots, that "
                f"these start workers (a pool must run on each of them), and that the "
                f"workers have beam-tfrecord {__version__} and reach the output's "
                f"store; Ctrl-C ends the job"
            )


def lasting(failures: Sequence[Failure]) -> BeamTFRecordError | None:
    """Returns the last error that retries cannot fix, if any.

    A fault of storage may pass, so it counts only if it recurs for a while. An engine
    may retry a hundred times, and would report it only after that.

    Args:
      failures: (seconds, error), in any order.
    """
    ordered = sorted(failures, key=_when)
    for _, error in reversed(ordered):
        if not isinstance(error, StorageError):
            return error
    recent: list[float] = []
    for at, _ in ordered:
        if recent and at - recent[-1] > _APART_SECONDS:
            # The earlier faults have passed.
            recent = []
        recent.append(at)
    if len(recent) > _FEW and recent[-1] - recent[0] >= _LASTING_SECONDS:
        return ordered[-1][1]
    return None
