"""The report of `--report-json`: its file, written whole at the end, and its content.

The file is outside of what the job reads and writes: the next run would read a new file
in a source, and a new file in an output would block it.
"""

import fnmatch
import os
import sys
from collections.abc import Mapping
from typing import Any

from beam_pipeline.terminal import printing
from transforms.core.manifest import Manifest
from transforms.core.naming import part_name
from transforms.errors import BeamTFRecordError, StorageError, UsageError
from transforms.storage.files import storage
from transforms.storage.paths import is_remote
from transforms.storage.retry import naming

_STDOUT = ("-", "/dev/stdout")


class ReportFile:
    """A file for a report; one that is there is replaced.

    Args:
      path: of the file; - for stdout.
      job: the settings of the job, as far as known: its `source` and `output`.

    Raises:
      UsageError: no report can be written there.
    """

    def __init__(self, path: str, job: Mapping[str, Any]) -> None:
        self._path = path
        # Where a link leads is what is replaced.
        self._real = os.path.realpath(path)
        if self._is_stream():
            return
        for what in ("source", "output"):
            if isinstance(job.get(what), str) and _is_in(self._real, job[what]):
                raise UsageError(
                    f"The report must be outside of the {what}, {job[what]!r}; "
                    f"{path!r} is not. Name another file."
                )
        folder = os.path.dirname(self._real)
        if os.path.isdir(self._real) or not os.access(folder, os.W_OK):
            raise UsageError(
                f"The report must be a file in a folder of this machine that can be "
                f"written; {path!r} is not. Name another file."
            )

    def _is_stream(self) -> bool:
        """Whether it is stdout, a pipe or a device."""
        if self._path in _STDOUT:
            return True
        real = self._real
        return os.path.exists(real) and not (
            os.path.isfile(real) or os.path.isdir(real)
        )

    def write(self, text: str, *, done: str) -> None:
        """Writes the report; where that fails, a warning says so and no more.

        Args:
          text: the report.
          done: what became of the work, for the warning.
        """
        try:
            self.put(text)
        except (OSError, StorageError) as error:
            why = f"{error.strerror}." if isinstance(error, OSError) else error
            printing.say(
                f"warning: the report could not be written to {self._path!r}: {why} "
                f"{done}"
            )

    def put(self, text: str) -> None:
        """Writes the report; a file appears when it is whole.

        Raises:
          OSError, StorageError: it cannot be written.
        """
        data = text.encode("utf-8", "backslashreplace")
        if not self._is_stream():
            storage(self._real).write_file(data, attempts=os.path.dirname(self._real))
            return
        own = self._path not in _STDOUT
        with naming(self._path):
            # What was printed before comes first.
            sys.stdout.flush()
            with open(self._path if own else 1, "wb", closefd=own) as file:
                file.write(data)


def _is_in(path: str, source: str) -> bool:
    """Whether a path is a place or below it, or matches it as a pattern.

    A star of this pattern takes slashes, too: rather a report too many is refused.
    """
    if is_remote(source):
        return False
    pattern = os.path.realpath(source).replace("**/", "*")
    return storage(path).is_inside(source) or fnmatch.fnmatchcase(path, pattern)


def success_json(manifest: Manifest, directory: str, seconds: float) -> dict[str, Any]:
    """Returns the result of a committed run."""
    account = manifest.account
    return {
        "status": "committed",
        "exit_code": 0,
        "output": directory,
        "digest": manifest.digest,
        "records": manifest.records,
        "splits": {
            split.name: {
                "records": split.records,
                "bytes": split.bytes,
                "shards": len(split.shards),
            }
            for split in manifest.splits
        },
        "classes": {
            split.name: {name: dict(counts) for name, counts in split.classes.items()}
            for split in manifest.splits
        },
        "part": part_name(directory),
        "drift": dict(manifest.run.get("drift", {})),
        "read": account.read,
        "written": account.written,
        "rejected": dict(account.rejected),
        "skipped": dict(account.skipped),
        "parts": {kind: dict(counts) for kind, counts in account.parts.items()},
        "image_notes": dict(manifest.image_notes),
        "notes": list(manifest.run.get("notes", [])),
        "seconds": round(seconds, 3),
        **account.by_steps,
    }


def submitted_json(job: str, directory: str, seconds: float) -> dict[str, Any]:
    """Returns the result of a run that has handed its job over: nothing is known yet.

    Args:
      job: the engine's id of it.
      directory: the target.
      seconds: the run took.
    """
    return {
        "status": "submitted",
        "exit_code": 0,
        "output": directory,
        "job": job,
        "seconds": round(seconds, 3),
    }


def failure_json(
    error: BeamTFRecordError | OSError, settings: Mapping[str, Any], seconds: float
) -> dict[str, Any]:
    """Returns the result of a run that committed nothing.

    Where the run got as far as counting its items, it says how many were read, rejected
    and skipped, the last two by reason, what became of their parts, and where the
    rejects are; else None.
    """
    counts = ("read", "rejected", "skipped", "parts", "rejects")
    output = settings.get("output")
    account = getattr(error, "account", None) or {}
    return {
        "status": "failed",
        "exit_code": getattr(error, "exit_code", BeamTFRecordError.exit_code),
        "error": type(error).__name__,
        "message": str(error),
        # What is no path may hold what would have been taken off one.
        "output": output if isinstance(output, str) else None,
        **{key: account.get(key) for key in counts},
        "seconds": round(seconds, 3),
    }
