"""Starts the processes of a cluster, waits for them, and stops those alone."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from clusters.failure import Failure
from clusters.notes import Process, started_at

_READY_SECONDS = 120
_STOP_SECONDS = 15
_LOOK_SECONDS = 0.2


class Starter:
    """Starts processes with one environment, each with a log of its own.

    Attributes:
      processes: those started so far.
      environment: of those that are still to be started, beside this one's own.
    """

    def __init__(self, logs: Path) -> None:
        self.processes: list[Process] = []
        self.environment: dict[str, str] = {}
        self._logs = logs

    def start(self, role: str, command: Sequence[str | Path]) -> None:
        """Starts a process that outlives this one and its terminal."""
        with (self._logs / f"{role}.out").open("wb") as log:
            child = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self.environment},
                start_new_session=True,
            )
        started = started_at(child.pid)
        if started is None:
            raise self._ended(role)
        self.processes.append(Process(child.pid, started, role))

    def wait(self, ready: Callable[[], bool]) -> None:
        """Waits until the cluster is ready.

        Raises:
          Failure: a process has ended, or it takes too long.
        """
        end = time.monotonic() + _READY_SECONDS
        while time.monotonic() < end:
            with contextlib.suppress(OSError, ValueError, KeyError):
                if ready():
                    return
            for process in self.processes:
                if not process.is_alive:
                    raise self._ended(process.role)
            time.sleep(_LOOK_SECONDS)
        raise Failure(
            f"The cluster must be ready within {_READY_SECONDS} s, and is not; what "
            f"its processes say is in {self._logs}."
        )

    def _ended(self, role: str) -> Failure:
        log = self._logs / f"{role}.out"
        lines = log.read_text(errors="replace").strip().splitlines()[-3:]
        said = " / ".join(lines)[-500:] or "nothing"
        return Failure(f"The process {role} has ended: {said} (see {self._logs}).")


def stop(processes: Iterable[Process]) -> None:
    """Ends processes, the last started first, and only those that it started."""
    for process in reversed(list(processes)):
        _signal(process, signal.SIGTERM)
        end = time.monotonic() + _STOP_SECONDS
        while process.is_alive and time.monotonic() < end:
            time.sleep(_LOOK_SECONDS)
        _signal(process, signal.SIGKILL)


def _signal(process: Process, number: signal.Signals) -> None:
    if process.is_alive:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)


def free_ports(count: int) -> list[int]:
    """Returns loopback ports that are free at this moment."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def are_free(ports: Sequence[int]) -> bool:
    """Whether nobody listens at any of these loopback ports."""
    for port in ports:
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            return False
    return True


def fetch_json(url: str) -> Any:
    """Returns the response of an address on this machine."""
    # Without the environment's proxy, which cannot reach this machine's loopback.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=5) as answer:
        return json.load(answer)
