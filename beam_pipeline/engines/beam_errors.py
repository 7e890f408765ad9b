"""Errors of a failed job in our own words: what Beam raises, what a job server said."""

import re
from collections.abc import Iterable

from beam_pipeline.version import __version__
from transforms import errors
from transforms.errors import BeamTFRecordError

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
# Of Flink, where a person or another program has cancelled the job.
_CANCELLED = "JobCancellationException"
_REST = r"(?P<message>.*?)(?: \[while running '(?P<stage>[^']*)'\])?$"
# What follows the frames of a traceback: an exception of any name, with words or none.
_RAISED = re.compile(
    r"(?:^|: )Traceback \(most recent call last\):\n(?:[ \t].*\n)+"
    r"(?P<type>[A-Za-z_][\w.]*)(?::[ ]|(?=[ ]\[)|$)" + _REST,
    re.MULTILINE,
)
_LAST_LINE = re.compile(r"^(?P<type>\w+): " + _REST + r"\Z", re.MULTILINE)
_ANY_ERROR = re.compile(
    r"^(?P<type>[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit)): " + _REST,
    re.MULTILINE,
)


def translated(failure: BaseException) -> BaseException:
    """Returns the error of ours that Beam has wrapped, else its error in one line."""
    seen: BaseException | None = failure
    while seen is not None:
        if isinstance(seen, BeamTFRecordError):
            return _rebuilt(type(seen).__name__, _without_stage(str(seen)))
        seen = seen.__cause__
    text = str(failure)
    if ours := in_text(text):
        return ours
    if _CANCELLED in text:
        return BeamTFRecordError(
            "The job was cancelled at the engine, not by this program. Nothing was "
            "committed; run again to go on from here."
        )
    whole = f"{type(failure).__name__}: {text}"
    for kind in (_RAISED, _ANY_ERROR, _LAST_LINE):
        if matches := list(kind.finditer(whole)):
            last = matches[-1]
            where = f" in {last['stage']!r}" if last["stage"] else ""
            words = last["type"], last["message"].rstrip(". ")
            return BeamTFRecordError(
                f"The pipeline failed{where}: {': '.join(filter(None, words))}. "
                f"Nothing was committed."
            )
    return BeamTFRecordError(f"The pipeline failed: {failure!r}.")


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


def _without_stage(message: str) -> str:
    return re.sub(r" \[while running '[^']*'\]$", "", message)


def _rebuilt(name: str, message: str) -> BeamTFRecordError:
    kind = getattr(errors, name, BeamTFRecordError)
    return kind(message)


_FAULT = re.compile(r"(Error|Exception)\b.*:|\bERROR\b|\bFATAL\b")


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
    faults = [line for line in lines if _FAULT.search(line)] or lines
    news = [line for line in faults if line and line.rstrip(".") not in error]
    return news[-1] if news else ""
