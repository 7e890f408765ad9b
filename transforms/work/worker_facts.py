"""Check which workers have made the facts of a job, before it is committed."""

import collections
from collections.abc import Iterable, Mapping
from typing import Any

from transforms.core.this_worker import Worker
from transforms.errors import WorkerError
from transforms.work.worker_check import PROGRAM, VersionRules

__all__ = ["Workers", "check_facts", "counted", "workers_of"]

Workers = Mapping[tuple[str, str], Worker]
"""Workers by host and process."""


def check_facts(
    facts: Iterable[object], versions: VersionRules | None
) -> list[dict[str, Any]]:
    """Returns the versions of the workers that have made facts, and how many they are.

    Args:
      facts: of all stages; each names its worker.
      versions: of the job; None for a local run, whose facts are of no worker.

    Raises:
      WorkerError: a fact names none, as those of an older version, or one of other
        versions than the job's.
    """
    if versions is None:
        return []
    # A fact of a version without the field lacks it when it is unpickled.
    stamps = (getattr(fact, "worker", "") for fact in facts)
    return counted(workers_of(stamps, versions))


def workers_of(
    stamps: Iterable[str], versions: VersionRules
) -> dict[tuple[str, str], Worker]:
    """Returns the workers that facts name.

    Args:
      stamps: of the facts; see `transforms.core.this_worker`.
      versions: that they must have.

    Raises:
      WorkerError: see `check_facts`.
    """
    wanted = versions.digest
    # By process: its stamp changes when another dataset of the pipeline asks it.
    workers = {}
    for stamp in sorted(set(stamps)):
        try:
            worker = Worker.of(stamp)
        except ValueError:
            raise _foreign("a worker that says no version has", versions) from None
        if not worker.has(wanted):
            has = f"{worker.in_words()} has {PROGRAM} {worker.program} and other codecs"
            if worker.program != versions.wanted[PROGRAM]:
                has = f"{worker.in_words()} has {PROGRAM} {worker.program}"
            raise _foreign(f"{has}, and has", versions)
        workers[worker.host, worker.process] = worker
    return workers


def counted(workers: Workers) -> list[dict[str, Any]]:
    """Returns the versions that workers have, and how many have each."""
    counts = collections.Counter(
        (worker.program, worker.python, worker.platform) for worker in workers.values()
    )
    return [
        {
            PROGRAM: program,
            "python": python,
            "platform": platform,
            "workers": count,
        }
        for (program, python, platform), count in sorted(counts.items())
    ]


def _foreign(who: str, versions: VersionRules) -> WorkerError:
    wanted = versions.wanted[PROGRAM]
    return WorkerError(
        f"All work of a job must be done by the versions it was submitted with, "
        f"{PROGRAM} {wanted} and its codecs; {who} done part of it. Install "
        f"{PROGRAM}=={wanted} in the workers' image; nothing was committed."
    )
