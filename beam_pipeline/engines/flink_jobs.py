"""Jobs and size of a Flink cluster, through its REST interface.

Beam's job server waits for a batch job inside one call to Flink, and a cancellation
only ends that call: the job itself would go on.
"""

import json
import time
from collections.abc import Iterable, Mapping
from typing import Any

from beam_pipeline.engines.beam_errors import in_text
from beam_pipeline.engines.engine_words import (
    EngineWords,
    ServerWords,
    in_a_line,
    words_of_server,
)
from transforms.errors import UsageError

FLINK_VERSION = "1.20"

# A cluster that takes longer to answer is treated as unreachable.
_ASK_SECONDS = 10
# How long to wait for a cancelled job to end.
_END_SECONDS = 15.0
_LOOK_SECONDS = 0.2
_ENDED = frozenset(("CANCELED", "FAILED", "FINISHED"))
# States of a job, and of its tasks, in which it is at work or recovers.
_BUSY_JOB = frozenset(("RESTARTING", "FAILING", "CANCELLING"))
_BUSY_TASK = ("DEPLOYING", "INITIALIZING", "RUNNING", "FAILED", "CANCELING")
# A job that has just failed and is being restarted waits for nothing else.
_FAILED_SECONDS = 60.0


def _url(master: str) -> str:
    """Returns the URL of a Flink's REST interface, as `HOST:PORT` or with `http://`."""
    return master if "//" in master else f"http://{master}"


def cancel_job(master: str, name: str) -> None:
    """Cancels the job of a name, and waits a while for its end.

    If several jobs have the name, none is cancelled: they may belong to others.

    Args:
      master: of the cluster; one within the job server ends with that.
      name: of the job.

    Raises:
      OSError, ValueError: it cannot be asked.
    """
    # [local] or [auto]: a Flink within the job server, which ends with it.
    if master.startswith("["):
        return
    # Here, since it takes long to load, and the command line asks for the engines.
    import urllib.request

    url = _url(master)
    end = time.monotonic() + _END_SECONDS
    while len(found := _at_work(_jobs(url, name))) == 1 and time.monotonic() < end:
        asked = urllib.request.Request(
            f"{url}/jobs/{found[0]}?mode=cancel", method="PATCH"
        )
        with urllib.request.urlopen(asked, timeout=_ASK_SECONDS):
            pass
        time.sleep(_LOOK_SECONDS)


def _jobs(url: str, name: str) -> list[dict[str, Any]]:
    """Returns the jobs of a name."""
    jobs = _asked(f"{url}/jobs/overview")["jobs"]
    return [job for job in jobs if job["name"] == name]


def _at_work(jobs: Iterable[Mapping[str, Any]]) -> list[str]:
    """Returns the ids of those jobs that have not ended."""
    return [str(job["jid"]) for job in jobs if job["state"] not in _ENDED]


def words_of_job(master: str, name: str, server: ServerWords) -> EngineWords:
    """Returns what a Flink says of a job; see `Engine.words`.

    Raises:
      OSError, ValueError, KeyError: it cannot be asked.
    """
    if master.startswith("["):
        return words_of_server(master, name, server)
    url = _url(master)
    jobs = _jobs(url, name)
    found = _at_work(jobs)
    if len(found) != 1:
        return EngineWords() if jobs else EngineWords("waits to be submitted")
    job = _asked(f"{url}/jobs/{found[0]}")
    thrown = _asked(f"{url}/jobs/{found[0]}/exceptions")
    history = thrown.get("exceptionHistory", {}).get("entries", [])
    traces = [
        (float(each["timestamp"]) / 1000, str(each.get("stacktrace", "")))
        for each in history
    ]
    now = float(job.get("now", 0)) / 1000
    has_failed = any(now - seconds < _FAILED_SECONDS for seconds, _ in traces)
    tasks = [vertex.get("tasks", {}) for vertex in job.get("vertices", ())]
    busy = str(job["state"]) in _BUSY_JOB or any(
        each.get(state, 0) for each in tasks for state in _BUSY_TASK
    )
    waits = "" if busy or has_failed else "waits for slots"
    failures = [(seconds, in_text(trace)) for seconds, trace in traces]
    return EngineWords(
        waits,
        in_a_line(traces[0][1]) if traces else "",
        tuple((at, error) for at, error in failures if error is not None),
        page=f"{url}/#/job/running/{found[0]}",
    )


def _asked(url: str) -> dict[str, Any]:
    import urllib.request

    with urllib.request.urlopen(url, timeout=_ASK_SECONDS) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def size_of_cluster(master: str) -> tuple[int, int]:
    """Returns task managers, and slots of each, of a running Flink.

    Raises:
      UsageError: there is none, or not of the job server's version.
    """
    import urllib.request

    url = f"{_url(master)}/overview"
    try:
        with urllib.request.urlopen(url, timeout=_ASK_SECONDS) as answer:
            seen = json.load(answer)
        version = str(seen["flink-version"])
        machines, slots = int(seen["taskmanagers"]), int(seen["slots-total"])
    except (OSError, ValueError, KeyError) as error:
        raise UsageError(
            f"There must be a Flink at {master!r}; found none: {error}. Start it, or "
            f"name another with --flink-master; in a checkout, 'scripts/cluster flink "
            f"up' starts one for trials."
        ) from error
    if not version.startswith(f"{FLINK_VERSION}."):
        raise UsageError(
            f"The Flink at {master!r} must be of {FLINK_VERSION}, as the job server "
            f"is; found {version}."
        )
    if not slots:
        raise UsageError(
            f"The Flink at {master!r} must have task slots; it has {machines} task "
            f"managers and no slot. Start one: bin/taskmanager.sh start."
        )
    return machines, -(-slots // max(machines, 1))
