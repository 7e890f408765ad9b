"""What an engine itself says of a job, for workers that cannot report."""

import dataclasses
import re
from collections.abc import Iterable

from transforms.errors import BeamTFRecordError

__all__ = ["EngineWords", "in_a_line", "last_error"]

# The last line of a chain of causes in Java, or the error's own line.
_CAUSE = re.compile(
    r"^(?:Caused by: )?(?P<error>[\w.$]+(?:Exception|Error)\b(?:: (?P<said>.+))?.*)$"
)

_ERROR_CHARS = 300


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
