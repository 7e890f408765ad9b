"""Ask a Flink for its size, its jobs and what they have raised, by its REST interface.

Beam's job server waits for a batch job inside one call to Flink, and a cancellation
only ends that call: the job itself would go on.
"""

import json
import time
from typing import Any

from transforms.errors import UsageError

VERSION = "1.20"

# A cluster that takes longer to answer is treated as unreachable.
_ASK_SECONDS = 10
# How long to wait for a cancelled job to end.
_END_SECONDS = 15.0
_LOOK_SECONDS = 0.2
_ENDED = frozenset(("CANCELED", "FAILED", "FINISHED"))


def _ask(master: str, path: str, method: str = "GET") -> dict[str, Any]:
    """Returns what a Flink answers.

    Args:
      master: as `HOST:PORT`, or with `http://`.
      path: of what is asked for.
      method: of HTTP.

    Raises:
      OSError, ValueError: it does not answer.
    """
    # Here, since it takes long to load, and the command line asks for the engines.
    import http.client
    import urllib.request

    url = master if "//" in master else f"http://{master}"
    asked = urllib.request.Request(f"{url}/{path}", method=method)
    try:
        with urllib.request.urlopen(asked, timeout=_ASK_SECONDS) as answer:
            content: dict[str, Any] = json.loads(answer.read() or "{}")
    except http.client.HTTPException as error:
        # An address without a port's number, or an answer that is not of HTTP.
        raise ValueError(str(error)) from error
    return content


def _jobs(master: str, name: str) -> list[str]:
    """Returns the ids of the jobs of a name that have not ended."""
    # [local] or [auto]: a Flink within the job server, which ends with it.
    if master.startswith("["):
        return []
    return [
        str(job["jid"])
        for job in _ask(master, "jobs/overview")["jobs"]
        if job["name"] == name and job["state"] not in _ENDED
    ]


def cancel(master: str, name: str) -> None:
    """Cancels the job of a name, and waits a while for its end.

    If several jobs have the name, none is cancelled: they may belong to others.

    Raises:
      OSError, ValueError, KeyError: the master cannot be asked.
    """
    end = time.monotonic() + _END_SECONDS
    while len(jobs := _jobs(master, name)) == 1 and time.monotonic() < end:
        _ask(master, f"jobs/{jobs[0]}?mode=cancel", "PATCH")
        time.sleep(_LOOK_SECONDS)


def traces(master: str, name: str) -> list[tuple[float, str]]:
    """Returns when tasks of the job of a name have failed, and the traces of that.

    Raises:
      OSError, ValueError, KeyError: the master cannot be asked.
    """
    jobs = _jobs(master, name)
    if len(jobs) != 1:
        return []
    thrown = _ask(master, f"jobs/{jobs[0]}/exceptions")
    return [
        (float(entry["timestamp"]) / 1000, str(entry.get("stacktrace", "")))
        for entry in thrown.get("exceptionHistory", {}).get("entries", [])
    ]


def size(master: str) -> tuple[int, int]:
    """Returns task managers, and slots of each, of a running Flink.

    Raises:
      UsageError: there is none, or not of the job server's version.
    """
    try:
        seen = _ask(master, "overview")
        version = str(seen["flink-version"])
        machines, slots = int(seen["taskmanagers"]), int(seen["slots-total"])
    except (OSError, ValueError, KeyError) as error:
        raise UsageError(
            f"There must be a Flink at {master!r}; found none: {error}. Start it, or "
            f"name another after --: --flink_master=HOST:PORT; in a checkout, "
            f"'scripts/cluster flink up' starts one for trials."
        ) from error
    if not version.startswith(f"{VERSION}.") or not slots:
        raise UsageError(
            f"The Flink at {master!r} must be of {VERSION}, as the job server is, and "
            f"have task slots (bin/taskmanager.sh start); it is of {version}, and has "
            f"{machines} task managers with {slots} slots."
        )
    return machines, -(-slots // max(machines, 1))
