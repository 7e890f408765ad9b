"""What an engine says of a job, or its job server in its output."""

import collections
import contextlib
import dataclasses
import logging
import re
import time
from collections.abc import Iterable, Iterator

from transforms.errors import BeamTFRecordError

# The last line of a chain of causes in Java, or the error's own line.
_CAUSE = re.compile(
    r"^(?:Caused by: )?(?P<error>[\w.$]+(?:Exception|Error)\b(?:: (?P<said>.+))?.*)$"
)

_ERROR_CHARS = 300
# A Java trace fits; the whole output of a long job would grow without bound.
_KEPT_LINES = 500
_FAULT = re.compile(r"(Error|Exception)\b.*:|\bERROR\b|\bFATAL\b")
# If Spark aborts a job because its executors keep dying, the job's error says only that
# it was aborted.
_GIVEN_UP = "stopped SparkContext"
# Spark says so every 15 s while it has no machine for a job.
_NO_MACHINES = re.compile(r"Initial job has not accepted any resources")
_SAID_SECONDS = 40.0
_PAGES = re.compile(r"Successfully started service 'SparkUI' on port (\d+)")
_EXECUTOR_LOST = re.compile(r"Executor updated: \S+ is now [A-Z]+ \(.+\)")


@dataclasses.dataclass(frozen=True, slots=True)
class EngineWords:
    """What an engine says of a job.

    Attributes:
      waits: in a few words, what the job waits for while none of its tasks runs; empty
        where they run, or where the engine does not say.
      error: the latest error in a line; empty for none.
      failures: (seconds since 1970, error) of the errors of ours that it names.
      page: address of the engine's page of the job; empty where it has none.
    """

    waits: str = ""
    error: str = ""
    failures: tuple[tuple[float, BeamTFRecordError], ...] = ()
    page: str = ""


def in_a_line(trace: str) -> str:
    """Returns the error of a trace in a line of bounded length."""
    lines = trace.splitlines()
    return (last_error(lines) or (lines[0] if lines else ""))[:_ERROR_CHARS]


def last_error(lines: Iterable[str]) -> str:
    """Returns the innermost error of a Java trace, in a line; empty for none.

    Netty puts the address behind the words of the innermost one; that line is given.
    """
    error, said = "", ""
    for line in lines:
        match = _CAUSE.match(line.strip())
        if match is None:
            continue
        inner = match["said"] or ""
        if not inner or not said.startswith(f"{inner}: "):
            error, said = match["error"], inner
    return error


class ServerWords(logging.Handler):
    """Takes what job servers print, which Beam logs; the last of it is kept.

    Attributes:
      lines: as they came.
      began, heard: when this began to listen, and when the last line came, of
        `time.monotonic`.
      host: of the job server.
      is_foreign: whether it ran before; then nothing of what it prints comes here.
      port: of its web pages, as it has printed that; "" before.
      pages: URL of what else it says of the job, once that is known; "" before; None
        where nothing answers.
    """

    def __init__(self, endpoint: str = "") -> None:
        super().__init__()
        self.host = endpoint.rpartition(":")[0] or "127.0.0.1"
        self.is_foreign = bool(endpoint)
        self.pages: str | None = ""
        self.port = ""
        self.lines: collections.deque[str] = collections.deque(maxlen=_KEPT_LINES)
        self.began = self.heard = time.monotonic()

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps a line."""
        line = record.getMessage()
        self.lines.append(line)
        if found := _PAGES.search(line):
            # Said once, at the start: the line will not be kept.
            self.port = found[1]
        self.heard = time.monotonic()


@contextlib.contextmanager
def server_words(name: str, endpoint: str = "") -> Iterator[ServerWords]:
    """Listens to a job server.

    Args:
      name: of the logger that Beam gives its output.
      endpoint: host:port of one that runs already; empty for none.
    """
    words = ServerWords(endpoint)
    logger = logging.getLogger(name)
    level, propagate = logger.level, logger.propagate
    logger.addHandler(words)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield words
    finally:
        logger.removeHandler(words)
        logger.setLevel(level)
        logger.propagate = propagate


def with_words_of(server: ServerWords, error: BaseException) -> BaseException:
    """Adds the job server's explanation to an error; our own errors stay the same."""
    if type(error) is not BeamTFRecordError:
        return error
    line = telling(server.lines, str(error))
    if not line:
        return error
    return BeamTFRecordError(f"{error} The job server's last words: {line}")


def words_of_server(_master: str, _name: str, server: ServerWords) -> EngineWords:
    """Returns what a job server's output says of its job; see `Engine.words`."""
    lines = [*server.lines]
    last = next((line for line in reversed(lines) if line.strip()), "")
    is_new = time.monotonic() - server.heard < _SAID_SECONDS
    waits = "waits for machines" if is_new and _NO_MACHINES.search(last) else ""
    return EngineWords(waits, telling(lines, "") if _has_fault(lines) else "")


def _has_fault(lines: Iterable[str]) -> bool:
    return any(_FAULT.search(line) for line in lines)


def telling(lines: Iterable[str], error: str) -> str:
    """Returns the line that best explains why a job failed; "" if there is none.

    Args:
      lines: of the job server.
      error: the message so far; lines that only repeat it are left out.
    """
    lines = [line.strip() for line in lines]
    lost = [found[0] for line in lines if (found := _EXECUTOR_LOST.search(line))]
    if _GIVEN_UP in error and lost:
        return f"{lost[-1]}. Its worker's log says more."
    faults = [line for line in lines if _FAULT.search(line)] or lines
    news = [line for line in faults if line and line.rstrip(".") not in error]
    return news[-1] if news else ""
