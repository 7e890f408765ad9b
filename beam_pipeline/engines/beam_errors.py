"""Errors of ours in what Beam, engines and workers raise; else theirs in a line."""

import re

from beam_pipeline.version import __version__
from transforms import errors
from transforms.errors import BeamTFRecordError, WorkerError

_REST = r"(?P<message>.*?)(?: \[while running '(?P<stage>[^']*)'\])?$"
_OUR_ERROR = re.compile(r"transforms\.errors\.(?P<type>\w+): " + _REST, re.MULTILINE)
# Of a worker whose interpreter has no such version of this program, or none at all.
_NO_PROGRAM = re.compile(
    r"^(?:ModuleNotFoundError: No module named |AttributeError: Can't get attribute |"
    r"ImportError: cannot import name ).*'(?:transforms|beam_pipeline)\b.*$",
    re.MULTILINE,
)
# What follows the frames of a traceback: an exception of any name, with words or none.
_RAISED = re.compile(
    r"(?:^|: )Traceback \(most recent call last\):\n(?:[ \t].*\n)+"
    r"(?P<type>[A-Za-z_][\w.]*)(?::[ ]|(?=[ ]\[)|$)" + _REST,
    re.MULTILINE,
)
# What Beam raises in this process, which has no traceback in its words.
_OWN_WORDS = re.compile(r"(?P<type>\w+): " + _REST, re.DOTALL)


def translated(failure: BaseException) -> BeamTFRecordError:
    """Returns the error of ours that Beam has wrapped, else its error in one line."""
    seen: BaseException | None = failure
    while seen is not None:
        if isinstance(seen, BeamTFRecordError):
            kind = getattr(errors, type(seen).__name__, BeamTFRecordError)
            return kind(re.sub(r" \[while running '[^']*'\]$", "", str(seen)))
        seen = seen.__cause__
    text = str(failure)
    if ours := in_text(text):
        return ours
    *_, last = (
        *_OWN_WORDS.finditer(f"{type(failure).__name__}: {text}"),
        *_RAISED.finditer(text),
    )
    where = f" in {last['stage']!r}" if last["stage"] else ""
    words = ": ".join(filter(None, (last["type"], last["message"].rstrip(". \n"))))
    return BeamTFRecordError(
        f"The pipeline failed{where}: {words}. Nothing was committed."
    )


def in_text(traceback: str) -> BeamTFRecordError | None:
    """Returns the last of our errors that a traceback names, if any."""
    # The last error is the one that was raised; earlier ones are its causes.
    if matches := list(_OUR_ERROR.finditer(traceback)):
        kind = getattr(errors, matches[-1]["type"], BeamTFRecordError)
        return kind(matches[-1]["message"])
    lacking = _NO_PROGRAM.search(traceback)
    return without_program(lacking[0].strip()) if lacking else None


def without_program(words: str) -> WorkerError:
    """Returns the error of a worker that lacks this program, with its words."""
    return WorkerError(
        f"Every worker must have beam-tfrecord {__version__}, as the job's "
        f"submitter; one has another version or none: {words}. "
        f"Install it in the workers' image: pip install 'beam-tfrecord=="
        f"{__version__}', with [s3], [gcs] or [azure] for the output's store; "
        f"nothing was committed."
    )
