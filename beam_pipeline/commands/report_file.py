"""The file of `--report-json`: checked before the work, written at its end.

A report replaces reports only, and is never where the run reads or writes: a new file
in a source would be read by the next run, and one in an output would block it. It
appears by one rename, so a program that waits for it finds it whole.
"""

import contextlib
import fnmatch
import os
import re
import secrets
import stat
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import IO, Any, NoReturn

from beam_pipeline.terminal import printing
from transforms import files
from transforms.errors import DamageError, UsageError
from transforms.publishing import own_folder
from transforms.storage.paths import is_remote
from transforms.storage.retry import naming

__all__ = ["ReportFile"]

# How a report of `convert` begins, and one of `repair`; spaces apart.
_OURS = re.compile(
    rb'\{\s*"status":\s*"(?:committed|failed|submitted|up to date)",\s*"exit_code":'
    rb'|\{\s*"source":\s*"(?:[^"\\]|\\.)*",\s*"output":\s*"(?:[^"\\]|\\.)*",\s*"files":'
)
# Two paths may be in the beginning.
_HEAD_BYTES = 64 << 10
_DESCRIPTOR = re.compile(r"/(?:dev|proc/(?:self|\d+))/fd/(\d+)")
_STANDARD = {"/dev/stdout": 1, "/dev/stderr": 2}
# Settings of what a run reads and writes.
_PLACES = ("source", "output", "split_lock", "vocabulary_lock")


class ReportFile:
    """A place for a report.

    Args:
      path: of the file.
      ours: how the files begin that it may replace.

    Attributes:
      is_refused: whether the path is part of the job, so that it must not be written.
    """

    def __init__(self, path: str, ours: re.Pattern[bytes] = _OURS) -> None:
        """Looks at the place; raises UsageError where no report can be written."""
        self.is_refused = False
        self._ours = ours
        self._path = path
        self._stream: IO[str] | None = None
        if is_remote(path):
            raise UsageError(
                f"The report must be a file of this machine; found {path!r}."
            )
        # Where a link leads is what would be replaced.
        self._real = os.path.realpath(path)
        try:
            self._open()
        except OSError as error:
            raise UsageError(
                f"The report must be writable; {path!r} is not: {error.strerror}. "
                f"Name another file."
            ) from error

    def _open(self) -> None:
        """Opens what is no regular file, and checks one that is; raises OSError."""
        number = _descriptor(self._path)
        if number is not None:
            self._stream = _opened(os.dup(number), "w")
            return
        try:
            mode = os.stat(self._real).st_mode
        except FileNotFoundError:
            # Raises why no file can be made there, and leaves nothing behind.
            with tempfile.TemporaryFile(dir=os.path.dirname(self._real)):
                return
        if stat.S_ISREG(mode):
            self._check_content()
        elif stat.S_ISBLK(mode):
            raise UsageError(
                f"The report must not replace what is on a disk; {self._path!r} is a "
                f"block device. Name another file."
            )
        else:
            # Opened once: the reader of a pipe stops when it is closed.
            self._stream = _opened(self._real, "w")

    def _check_content(self) -> None:
        with open(self._real, "r+b") as file:
            head = file.read(_HEAD_BYTES)
        if head and self._ours.match(head) is None:
            raise UsageError(
                f"The report may only replace a report or an empty file; "
                f"{self._path!r} holds something else. Name another file."
            )

    def check_apart(
        self, settings: Mapping[str, Any], used: Iterable[str] = ()
    ) -> None:
        """Raises UsageError where the place is part of a job.

        Args:
          settings: of the job, as far as known: `source`, `output` and the locks.
          used: more files that it reads or writes.
        """
        if self._stream is not None:
            return
        source, output, *locks = (_text(settings.get(key)) for key in _PLACES)
        used = [*used, *locks]
        if output and not is_remote(output):
            # They load Arrow, which `repair` does without.
            from transforms.publishing import target
            from transforms.work.reject_files import items_beside

            work, rejects = target.work_folder(output), target.rejects_path(output)
            used += [work, own_folder.new_path(work), rejects, items_beside(rejects)]
        places = {"the source": source, "the output": output}
        for what, place in (places | {repr(path): path for path in used}).items():
            if place and self._is_in(place):
                self._refuse(f"{what}, which this run reads or writes")
        folder = os.path.dirname(self._real)
        if _is_dataset(folder):
            self._refuse(f"the dataset {folder!r}, which may hold no other files")

    def _is_in(self, place: str) -> bool:
        if is_remote(place):
            return False
        if files.is_pattern(place):
            return _matches(self._real, os.path.abspath(place))
        return files.is_inside(self._real, place)

    def _refuse(self, what: str) -> NoReturn:
        self.is_refused = True
        raise UsageError(
            f"The report must be outside of {what}; {self._path!r} is not. Name "
            f"another file."
        )

    def write(self, texts: Callable[[], Iterable[str]], *, done: str) -> None:
        """Writes the report; where that fails, a warning says so and no more.

        Args:
          texts: gives the report, in pieces; may be asked twice.
          done: what became of the work, for the warning.
        """
        try:
            self.put(texts)
        except (OSError, UsageError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            printing.say(
                f"warning: the report could not be written to {self._path!r}: {why}. "
                f"{done}"
            )

    def put(self, texts: Callable[[], Iterable[str]]) -> None:
        """Writes the report.

        Args:
          texts: gives the report, in pieces; may be asked twice.

        Raises:
          OSError: it cannot be written.
          UsageError: the file holds something else by now.
        """
        with naming(self._path):
            if self._stream is None:
                self._replace(texts)
            else:
                # What was printed before comes first, should both go to one place.
                sys.stdout.flush()
                _write_to(self._stream, texts())

    def _replace(self, texts: Callable[[], Iterable[str]]) -> None:
        """Writes a regular file under another name, and renames it."""
        exists = os.path.lexists(self._real)
        if exists:
            # Checked again: a run may take hours, and the file may have changed.
            self._check_content()
        name = f".report-{os.getpid()}-{secrets.token_hex(4)}.tmp"
        temporary = os.path.join(os.path.dirname(self._real), name)
        try:
            _write_to(_opened(temporary, "x"), texts())
            os.replace(temporary, self._real)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            if not exists:
                raise
            # A file may be written though its folder may not, and one that is mounted
            # into a container cannot be renamed.
            _write_to(_opened(self._real, "w"), texts())


def _opened(path: str | int, mode: str) -> IO[str]:
    return open(path, mode, encoding="utf-8", errors="backslashreplace")


def _write_to(file: IO[str], texts: Iterable[str]) -> None:
    try:
        with file:
            file.writelines(texts)
    except OSError:
        # It is not closed where the rest of it could not be written; try no more.
        with contextlib.suppress(OSError):
            file.close()
        raise


def _descriptor(path: str) -> int | None:
    """Returns the open file of this process that a path names; None for none.

    One that a shell has opened for it must be written on, not replaced.
    """
    path = "/dev/stdout" if path == "-" else os.path.abspath(path)
    if path in _STANDARD:
        return _STANDARD[path]
    if found := _DESCRIPTOR.fullmatch(path):
        return int(found[1])
    for number in _STANDARD.values():
        with contextlib.suppress(OSError):
            if os.path.samestat(os.stat(path), os.fstat(number)):
                return number
    return None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _is_dataset(folder: str) -> bool:
    # It loads Arrow; see above.
    from transforms.publishing import target

    try:
        target.read_manifest(folder)
    except (OSError, DamageError):
        return False
    return True


def _matches(path: str, pattern: str) -> bool:
    """Whether a glob names a path, as `transforms.files.expand` would find it."""

    def match(parts: Sequence[str], wanted: Sequence[str]) -> bool:
        if not parts or not wanted:
            return not parts and not wanted
        if wanted[0] == "**":
            return match(parts, wanted[1:]) or match(parts[1:], wanted)
        same = fnmatch.fnmatchcase(parts[0], wanted[0])
        return same and match(parts[1:], wanted[1:])

    return match(path.split(os.sep), pattern.split(os.sep))
