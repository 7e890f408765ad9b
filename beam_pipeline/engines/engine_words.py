"""The last words of a job server, which may explain why a job has failed."""

import re
from collections.abc import Iterable

from transforms.errors import BeamTFRecordError

_FAULT = re.compile(r"(Error|Exception)\b.*:|\bERROR\b|\bFATAL\b")
# If Spark aborts a job because its executors keep dying, the job's error says only that
# it was aborted.
_GIVEN_UP = "stopped SparkContext"
_EXECUTOR_LOST = re.compile(r"Executor updated: \S+ is now [A-Z]+ \(.+\)")


def with_words_of(lines: Iterable[str], error: BaseException) -> BaseException:
    """Adds a job server's explanation to an error; our own errors stay the same."""
    if type(error) is not BeamTFRecordError:
        return error
    line = telling(lines, str(error))
    if not line:
        return error
    return BeamTFRecordError(f"{error} The job server's last words: {line}")


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
