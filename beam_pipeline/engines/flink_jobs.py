"""Jobs of a Flink cluster, through its REST interface.

Beam's job server waits for a batch job inside one call to Flink, and a cancellation
only ends that call: the job itself would go on.
"""

import json
import time
from typing import Any

__all__ = ["cancel_job", "flink_url"]

_ASK_SECONDS = 10
_END_SECONDS = 15.0
_LOOK_SECONDS = 0.2
_ENDED = frozenset(("CANCELED", "FAILED", "FINISHED"))


def flink_url(master: str) -> str:
    """Returns the URL of a Flink's REST interface, as `HOST:PORT` or with `http://`."""
    return master if "//" in master else f"http://{master}"


def cancel_job(master: str, name: str) -> None:
    """Cancels the job of a name, and waits a while for its end.

    Where several have the name, none is cancelled: others' might be among them.

    Args:
      master: of the cluster; one within the job server ends with that.
      name: of the job.

    Raises:
      OSError, ValueError: it cannot be asked.
    """
    if master.startswith("["):
        return
    # Here, since it takes long to load, and the command line asks for the engines.
    import urllib.request

    url = flink_url(master)
    end = time.monotonic() + _END_SECONDS
    while len(found := _at_work(url, name)) == 1 and time.monotonic() < end:
        asked = urllib.request.Request(
            f"{url}/jobs/{found[0]}?mode=cancel", method="PATCH"
        )
        with urllib.request.urlopen(asked, timeout=_ASK_SECONDS):
            pass
        time.sleep(_LOOK_SECONDS)


def _at_work(url: str, name: str) -> list[str]:
    import urllib.request

    with urllib.request.urlopen(f"{url}/jobs/overview", timeout=_ASK_SECONDS) as answer:
        jobs: list[dict[str, Any]] = json.load(answer)["jobs"]
    return [
        str(job["jid"])
        for job in jobs
        if job["name"] == name and job["state"] not in _ENDED
    ]
