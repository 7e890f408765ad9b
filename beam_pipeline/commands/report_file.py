"""The report of `--report-json`: its file, written whole at the end, and its content.

The file is outside of what the job reads and writes: the next run would read a new file
in a source, and a new file in an output would block it.
"""

import os
import sys
from collections.abc import Mapping
from typing import Any

from beam_pipeline.terminal import printing
from transforms.core.files import part_name
from transforms.core.manifest import Manifest
from transforms.errors import BeamTFRecordError, StorageError, UsageError
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


def submitted_json(job: str, directory: str) -> dict[str, Any]:
    """Returns the result of a run that has handed its job over: nothing is known yet.

    Args:
      job: the engine's id of it.
      directory: the target.
    """
    return {"status": "submitted", "exit_code": 0, "output": directory, "job": job}


def failure_json(
    error: BeamTFRecordError | OSError, settings: Mapping[str, Any]
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
    }
