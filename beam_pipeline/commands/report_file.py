"""The file of `--report-json` and of `report -o`, written whole at the end.

The file is outside of what the job reads and writes: the next run would read a new file
in a source, and a new file in an output would block it.
"""

import os
import sys
from collections.abc import Mapping
from typing import Any

from beam_pipeline.terminal import printing
from transforms.errors import StorageError, UsageError
from transforms.storage.files import storage
from transforms.storage.paths import is_remote
from transforms.storage.retry import naming

_STDOUT = ("-", "/dev/stdout")


def check_report(path: str, job: Mapping[str, Any]) -> None:
    """Raises UsageError where no report can be written.

    Args:
      path: of the report; - for stdout.
      job: the settings of the job, as far as known: its `source` and `output`.
    """
    if _is_stream(path):
        return
    real = os.path.realpath(path)
    for what in ("source", "output"):
        job_path = job.get(what)
        if not isinstance(job_path, str) or is_remote(job_path):
            continue
        if storage(real).is_inside(job_path):
            raise UsageError(
                f"The report must be outside of the {what}, {job_path!r}; {path!r} is "
                f"not. Name another file."
            )
    if os.path.isdir(real) or not os.access(os.path.dirname(real), os.W_OK):
        raise UsageError(
            f"The report must be a file in a folder of this machine that can be "
            f"written; {path!r} is not. Name another file."
        )


def _is_stream(path: str) -> bool:
    """Whether a path is stdout, a pipe or a device."""
    if path in _STDOUT:
        return True
    return os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path))


def write_report(path: str, text: str) -> None:
    """Writes a report; a file appears when it is whole.

    Raises:
      OSError, StorageError: it cannot be written.
    """
    data = text.encode("utf-8", "backslashreplace")
    if not _is_stream(path):
        # Where a link leads is what is replaced.
        real = os.path.realpath(path)
        storage(real).write_file(data, attempts=os.path.dirname(real))
        return
    own = path not in _STDOUT
    with naming(path):
        # What was printed before comes first.
        sys.stdout.flush()
        with open(path if own else 1, "wb", closefd=own) as file:
            file.write(data)


def try_report(path: str, text: str, *, done: str) -> None:
    """Writes a report; where that fails, a warning says so, and what is `done`."""
    try:
        write_report(path, text)
    except (OSError, StorageError) as error:
        why = f"{error.strerror}." if isinstance(error, OSError) else error
        printing.say(
            f"warning: the report could not be written to {path!r}: {why} {done}"
        )
