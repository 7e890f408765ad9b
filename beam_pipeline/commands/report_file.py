"""The file of `--report-json`: checked before the work, written whole at its end.

It replaces reports only, and lies outside of what the job reads and writes: the next
run would read a new file in a source, and a new file in an output would block it.
"""

import contextlib
import fnmatch
import json
import os
import stat
import sys
from collections.abc import Callable, Mapping
from typing import Any

from beam_pipeline.terminal import printing
from transforms import files
from transforms.errors import StorageError, UsageError
from transforms.storage.paths import is_remote
from transforms.storage.retry import naming

# What a report of `convert`, and one of `repair`, has always.
_MARKS = (
    {"status", "exit_code", "output", "seconds"},
    {"source", "output", "files", "skipped"},
)
_STDOUT = ("-", "/dev/stdout")


def _is_report(content: bytes) -> bool:
    try:
        report = json.loads(content)
    except (ValueError, RecursionError):
        return False
    return isinstance(report, dict) and any(mark <= report.keys() for mark in _MARKS)


class ReportFile:
    """A place for a report.

    Args:
      path: of the file; - for stdout.
      job: the settings of the job, as far as known: its `source` and `output`.
      ours: whether a file's content is a report, which may be replaced.

    Raises:
      UsageError: no report can be written there.
    """

    def __init__(
        self,
        path: str,
        job: Mapping[str, Any],
        ours: Callable[[bytes], bool] = _is_report,
    ) -> None:
        self._path, self._ours = path, ours
        # Where a link leads is what would be replaced.
        self._real = os.path.realpath(path)
        if self._is_stream():
            return
        for what in ("source", "output"):
            if isinstance(job.get(what), str) and _is_in(self._real, job[what]):
                raise UsageError(
                    f"The report must be outside of the {what}, {job[what]!r}; "
                    f"{path!r} is not. Name another file."
                )
        if not os.access(os.path.dirname(self._real), os.W_OK):
            raise UsageError(
                f"The report must be a file in a folder of this machine that can be "
                f"written; {path!r} is not. Name another file."
            )
        self._check_content()

    def _is_stream(self) -> bool:
        """Whether it is stdout, a pipe or a device of characters, not a file."""
        if self._path in _STDOUT:
            return True
        with contextlib.suppress(OSError):
            mode = os.stat(self._path).st_mode
            return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)
        return False

    def _check_content(self) -> None:
        """Raises UsageError where a file is there that is not empty and no report."""
        try:
            content = files.read_bytes(self._real)
        except FileNotFoundError:
            return
        except OSError:
            content = b"?"
        if content and not self._ours(content):
            raise UsageError(
                f"The report may only replace a report or an empty file; "
                f"{self._path!r} is something else. Name another file."
            )

    def write(self, text: str, *, done: str) -> None:
        """Writes the report; where that fails, a warning says so and no more.

        Args:
          text: the report.
          done: what became of the work, for the warning.
        """
        try:
            self.put(text)
        except (OSError, StorageError, UsageError) as error:
            why = f"{error.strerror}." if isinstance(error, OSError) else error
            printing.say(
                f"warning: the report could not be written to {self._path!r}: {why} "
                f"{done}"
            )

    def put(self, text: str) -> None:
        """Writes the report; a file appears when it is whole.

        Raises:
          OSError, StorageError: it cannot be written.
          UsageError: the file holds something else by now.
        """
        data = text.encode("utf-8", "backslashreplace")
        if not self._is_stream():
            # Checked again: a run may take hours, and the file may have changed.
            self._check_content()
            files.write_file(self._real, data, attempts=os.path.dirname(self._real))
            return
        own = self._path not in _STDOUT
        with naming(self._path):
            # What was printed before comes first.
            sys.stdout.flush()
            with open(self._path if own else 1, "wb", closefd=own) as file:
                file.write(data)


def _is_in(path: str, place: str) -> bool:
    """Whether a path is a place or below it, or matches it as a pattern.

    A star of this pattern takes slashes, too: rather a report too many is refused.
    """
    if is_remote(place):
        return False
    pattern = os.path.realpath(place).replace("**/", "*")
    return files.is_inside(path, place) or fnmatch.fnmatchcase(path, pattern)
