"""The file of `--report-json` and `report -o`, written whole at the end; - is stdout.

It is outside of what the job reads and writes: the next run would read a new file in a
source, and a new file in an output would block it.
"""

import os
import sys

from transforms.errors import UsageError
from transforms.storage.files import storage
from transforms.storage.paths import is_remote


def check_report(path: str, *job_paths: object) -> None:
    """Raises UsageError where no report can be written, or in one of the job's."""
    real = os.path.realpath(path)
    local = [p for p in job_paths if isinstance(p, str) and not is_remote(p)]
    is_possible = os.path.isfile(real) or not os.path.exists(real)
    is_possible &= os.access(os.path.dirname(real), os.W_OK)
    if path != "-" and (not is_possible or any(map(storage(real).is_inside, local))):
        raise UsageError(
            f"The report must be a file of this machine, outside of source and output, "
            f"in a folder that can be written, or - for stdout; {path!r} is not."
        )


def write_report(path: str, text: str) -> None:
    """Writes a report; a file appears when it is whole."""
    data = text.encode("utf-8", "backslashreplace")
    if path == "-":
        # What was printed before comes first.
        sys.stdout.flush()
        with open(1, "wb", closefd=False) as file:
            file.write(data)
    else:
        # Where a link leads is what is replaced.
        real = os.path.realpath(path)
        storage(real).write_file(data, attempts=os.path.dirname(real))
