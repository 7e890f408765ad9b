"""The file of `--report-json`: checked before the work, written whole at its end.

It replaces reports only, and lies outside of what the job reads and writes: the next
run would read a new file in a source, and a new file in an output would block it.
"""

import contextlib
import fnmatch
import json
import os
import secrets
import stat
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from beam_pipeline.terminal import printing
from transforms import files
from transforms.errors import UsageError
from transforms.storage.paths import is_remote
from transforms.storage.retry import naming

# What a report of `convert`, and one of `repair`, has always.
_MARKS = (
    {"status", "exit_code", "output", "seconds"},
    {"source", "output", "files", "skipped"},
)


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
        if self._path in ("-", "/dev/stdout"):
            return True
        with contextlib.suppress(OSError):
            mode = os.stat(self._path).st_mode
            return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)
        return False

    def _check_content(self) -> None:
        """Raises UsageError where a file is there that is not empty and no report."""
        if not os.path.lexists(self._real):
            return
        content = b"?"
        if os.path.isfile(self._real):
            with contextlib.suppress(OSError):
                content = files.read_bytes(self._real)
        if content and not self._ours(content):
            raise UsageError(
                f"The report may only replace a report or an empty file; "
                f"{self._path!r} is something else. Name another file."
            )

    def write(self, texts: Callable[[], Iterable[str]], *, done: str) -> None:
        """Writes the report; where that fails, a warning says so and no more.

        Args:
          texts: gives the report, in pieces.
          done: what became of the work, for the warning.
        """
        try:
            self.put(texts)
        except (OSError, UsageError) as error:
            why = f"{error.strerror}." if isinstance(error, OSError) else error
            printing.say(
                f"warning: the report could not be written to {self._path!r}: {why} "
                f"{done}"
            )

    def put(self, texts: Callable[[], Iterable[str]]) -> None:
        """Writes the report, a file under another name that is then renamed.

        Raises:
          OSError: it cannot be written.
          UsageError: the file holds something else by now.
        """
        with naming(self._path):
            if self._is_stream():
                # What was printed before comes first.
                sys.stdout.flush()
                standard = self._path in ("-", "/dev/stdout")
                _write(os.dup(1) if standard else self._path, "w", texts())
                return
            # Checked again: a run may take hours, and the file may have changed.
            self._check_content()
            folder = os.path.dirname(self._real)
            temporary = os.path.join(folder, f".report-{secrets.token_hex(8)}.tmp")
            try:
                _write(temporary, "x", texts())
                os.replace(temporary, self._real)
            except OSError:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
                raise


def _is_in(path: str, place: str) -> bool:
    """Whether a path is a place or below it, or matches it as a pattern.

    A star of this pattern takes slashes, too: rather a report too many is refused.
    """
    if is_remote(place):
        return False
    pattern = os.path.realpath(place).replace("**/", "*")
    return files.is_inside(path, place) or fnmatch.fnmatchcase(path, pattern)


def _write(path: str | int, mode: str, texts: Iterable[str]) -> None:
    with open(path, mode, encoding="utf-8", errors="backslashreplace") as file:
        file.writelines(texts)
