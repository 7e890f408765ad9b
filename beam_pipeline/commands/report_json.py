"""The result of a job as JSON for schedulers; see `report` for people's text."""

from collections.abc import Mapping
from typing import Any

from transforms.core.manifest import Manifest
from transforms.errors import BeamTFRecordError


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
        "read": account.read,
        "written": account.written,
        "rejected": dict(account.rejected),
        "skipped": dict(account.skipped),
        "parts": {part: dict(counts) for part, counts in account.parts.items()},
        "image_notes": dict(manifest.image_notes),
        "notes": list(manifest.run.get("notes", [])),
        "seconds": round(seconds, 3),
        **account.by_steps,
    }


def submitted_json(
    job: str, template: str, directory: str, seconds: float
) -> dict[str, Any]:
    """Returns the result of a run that has handed its job over: nothing is known yet.

    Args:
      job: the engine's id of it; empty for none.
      template: where one was made; empty for none.
      directory: the target.
      seconds: the run took.
    """
    return {
        "status": "submitted",
        "exit_code": 0,
        "output": directory,
        "job": job or None,
        "template": template or None,
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
