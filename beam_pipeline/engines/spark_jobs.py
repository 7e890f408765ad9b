"""What a Spark says of a job, through the pages of its driver.

The job server is the driver. Its pages answer at a port that it logs; those of a job
server that runs already are looked for at Spark's usual ports.
"""

import datetime
import json
import socket
import time
import urllib.parse
from typing import Any

from beam_pipeline.engines.beam_errors import in_text
from beam_pipeline.engines.engine_words import (
    EngineWords,
    ServerWords,
    in_a_line,
    words_of_server,
)
from transforms.errors import UsageError

# Spark takes the next one for each further driver on a machine.
_USUAL_PORTS = range(4040, 4043)
# Nothing else is watched meanwhile. A driver that has just started takes seconds.
_ASK_SECONDS = 5.0
# The first answer costs a driver a second of work, which a short job need not wait for.
_FIRST_SECONDS = 10.0
# Failed attempts of a stage that are looked at: Spark allows few.
_TASKS = 20
_DRIVER = "driver"


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
    found = [_silence(*each.rpartition(":")[::2]) for each in hosts]
    if "" in found:
        return
    raise UsageError(
        f"There must be a Spark at {master!r}; found none: {found[-1]}. Start it, or "
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


def words_of_job(master: str, name: str, server: ServerWords) -> EngineWords:
    """Returns what a Spark, or else its job server, says of a job; see `Engine.words`.

    Raises:
      OSError, ValueError, KeyError: it cannot be asked.
    """
    said = words_of_server(master, name, server)
    app = _app(name, server)
    if not app:
        return said
    stages = _asked(f"{app}/stages?status=active&status=failed")
    tasks = [
        task
        for stage in stages
        if stage["numFailedTasks"]
        for task in _asked(
            f"{app}/stages/{stage['stageId']}/{stage['attemptId']}/taskList"
            f"?status=failed&length={_TASKS}"
        )
    ]
    failed = sorted((_ended(task), str(task.get("errorMessage", ""))) for task in tasks)
    failures = [(seconds, in_text(text)) for seconds, text in failed]
    waits = said.waits or ("" if failed else _waits(app, master))
    return EngineWords(
        waits,
        in_a_line(failed[-1][1]) if failed else said.error,
        tuple((at, error) for at, error in failures if error is not None),
    )


def _waits(app: str, master: str) -> str:
    """Returns what a job waits for where no machine runs it; empty where one does."""
    if not master.startswith("spark://"):
        # The driver runs the tasks itself.
        return ""
    machines = [each["id"] for each in _asked(f"{app}/executors")]
    return "" if {*machines} - {_DRIVER} else "waits for machines"


def _app(name: str, server: ServerWords) -> str:
    """Returns the URL of a job's application; empty where there is none."""
    if server.pages is None:
        return ""
    if not server.pages:
        if time.monotonic() - server.began < _FIRST_SECONDS:
            return ""
        ports = [server.port] if server.port else []
        if server.is_foreign:
            ports = [str(port) for port in _USUAL_PORTS]
        for port in ports:
            if app := _app_at(f"http://{server.host}:{port}", name, server):
                server.pages = app
                break
    return server.pages or ""


def _app_at(pages: str, name: str, server: ServerWords) -> str:
    url = f"{pages}/api/v1/applications"
    try:
        apps = _asked(url)
    except TimeoutError:
        if server.is_foreign:
            # A port that is not open to this machine is asked no more.
            server.pages = None
        raise
    except (OSError, ValueError):
        # Nobody is there, or somebody else; a driver that starts has no list yet.
        return ""
    # Beam adds a word to the name of the job.
    ids = [each["id"] for each in apps if each["name"].startswith(f"{name}_")]
    return f"{url}/{urllib.parse.quote(ids[0])}" if ids else ""


def _ended(task: dict[str, Any]) -> float:
    """Returns when a task has ended, in seconds since 1970."""
    began = datetime.datetime.strptime(task["launchTime"], "%Y-%m-%dT%H:%M:%S.%f%Z")
    began = began.replace(tzinfo=datetime.UTC)
    return began.timestamp() + float(task.get("duration", 0)) / 1000


def _asked(url: str) -> Any:
    # Here, since it takes long to load, and the command line asks for the engines.
    import urllib.error
    import urllib.request

    try:
        with urllib.request.urlopen(url, timeout=_ASK_SECONDS) as answer:
            return json.load(answer)
    except urllib.error.URLError as error:
        if isinstance(error.reason, TimeoutError):
            raise error.reason from error
        raise
