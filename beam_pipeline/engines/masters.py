"""Ask masters: a Flink for its size and its jobs, a Spark whether it answers.

Beam's job server waits for a batch job inside one call to Flink, and a cancellation
only ends that call: the job itself would go on.
"""

import json
import socket
import time
from typing import Any

from transforms.errors import UsageError

FLINK_VERSION = "1.20"

# A cluster that takes longer to answer is treated as unreachable.
_ASK_SECONDS = 10
# How long to wait for a cancelled job to end.
_END_SECONDS = 15.0
_LOOK_SECONDS = 0.2
_ENDED = frozenset(("CANCELED", "FAILED", "FINISHED"))


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
    while len(jobs := _at_work(url, name)) == 1 and time.monotonic() < end:
        asked = urllib.request.Request(
            f"{url}/jobs/{jobs[0]}?mode=cancel", method="PATCH"
        )
        with urllib.request.urlopen(asked, timeout=_ASK_SECONDS):
            pass
        time.sleep(_LOOK_SECONDS)


def _at_work(url: str, name: str) -> list[str]:
    """Returns the ids of the jobs of a name that have not ended."""
    return [
        str(job["jid"])
        for job in _asked(f"{url}/jobs/overview")["jobs"]
        if job["name"] == name and job["state"] not in _ENDED
    ]


def traces_of_job(master: str, name: str) -> list[tuple[float, str]]:
    """Returns when tasks of a job have failed, and the traces of that.

    Raises:
      OSError, ValueError, KeyError: it cannot be asked.
    """
    if master.startswith("["):
        return []
    url = _url(master)
    jobs = _at_work(url, name)
    if len(jobs) != 1:
        return []
    thrown = _asked(f"{url}/jobs/{jobs[0]}/exceptions")
    history = thrown.get("exceptionHistory", {}).get("entries", [])
    return [
        (float(entry["timestamp"]) / 1000, str(entry.get("stacktrace", "")))
        for entry in history
    ]


def _asked(url: str) -> dict[str, Any]:
    import urllib.request

    with urllib.request.urlopen(url, timeout=_ASK_SECONDS) as answer:
        content: dict[str, Any] = json.load(answer)
    return content


def size_of_cluster(master: str) -> tuple[int, int]:
    """Returns task managers, and slots of each, of a running Flink.

    Raises:
      UsageError: there is none, or not of the job server's version.
    """
    url = f"{_url(master)}/overview"
    try:
        seen = _asked(url)
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


def reach_master(master: str) -> None:
    """Refuses a standalone master at which nobody answers; Spark tries for a minute.

    Args:
      master: as Spark writes it: `spark://host:port`, with more of them behind commas
        where one stands in for another. Other kinds are not asked.

    Raises:
      UsageError: none answers.
    """
    if not master.startswith("spark://"):
        return
    hosts = master.removeprefix("spark://").split(",")
    reasons = [_silence(*host.rpartition(":")[::2]) for host in hosts]
    if "" in reasons:
        return
    raise UsageError(
        f"There must be a Spark at {master!r}; found none: {reasons[-1]}. Start it, or "
        f"name another with --spark-master; in a checkout, 'scripts/cluster spark up' "
        f"starts one for trials."
    )


def _silence(host: str, port: str) -> str:
    """Returns why nobody answers at an address, "" where somebody does."""
    if not port.isdigit():
        return "its address must end with a port, as in :7077"
    try:
        address = host.strip("[]"), int(port)
        with socket.create_connection(address, timeout=_ASK_SECONDS):
            return ""
    except (OSError, OverflowError) as error:
        return str(error)
