"""Beam's own pool of workers, which starts `beam-tfrecord-worker`."""

import contextlib
import os
import pathlib
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable

import grpc
from apache_beam.portability.api import (
    beam_fn_api_pb2,
    beam_fn_api_pb2_grpc,
    endpoints_pb2,
)

Folder = pathlib.Path
_PROGRAM = [
    sys.executable,
    "-c",
    "from beam_pipeline.beam_internals.engine_worker import main; main()",
]
# Nobody listens there: a worker waits for its engine.
_NOWHERE = endpoints_pb2.ApiServiceDescriptor(url="localhost:1")
_WAIT_SECONDS = 60.0


class Pool:
    """A pool that runs.

    Attributes:
      flags: Beam's, for a job whose workers it starts.

    Args:
      folder: of the program that it starts, and of what it says.
      code: folder of the program that the workers have; None for this one.
    """

    def __init__(self, folder: Folder, *, code: Folder | None = None) -> None:
        program = folder / "beam-tfrecord-worker"
        program.write_text(f'#!/bin/sh\nexec {shlex.join(_PROGRAM)} "$@"\n')
        program.chmod(0o755)
        with socket.create_server(("localhost", 0)) as free:
            self.port = free.getsockname()[1]
        self.address = f"localhost:{self.port}"
        self.flags = (
            "--environment_type=EXTERNAL",
            f"--environment_config={self.address}",
        )
        module = "apache_beam.runners.worker.worker_pool_main"
        given = [f"--service_port={self.port}", f"--container_executable={program}"]
        with (folder / "said").open("wb") as said:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, *given],
                stdout=said,
                stderr=said,
                cwd=folder,
                env=None if code is None else {**os.environ, "PYTHONPATH": str(code)},
                start_new_session=True,
            )
        await_that(self._listens)
        self.channel = grpc.insecure_channel(self.address)
        self.asked = beam_fn_api_pb2_grpc.BeamFnExternalWorkerPoolStub(self.channel)

    def _listens(self) -> bool:
        with contextlib.suppress(OSError):
            socket.create_connection(("localhost", self.port)).close()
            return True
        return False

    def start(self, worker: str) -> int:
        """Starts a worker, as engines do; returns its process id."""
        before = set(self.workers())
        answer = self.asked.StartWorker(
            beam_fn_api_pb2.StartWorkerRequest(
                worker_id=worker, provision_endpoint=_NOWHERE, control_endpoint=_NOWHERE
            )
        )
        assert not answer.error
        (started,) = set(self.workers()) - before
        return started

    def stop(self, worker: str) -> None:
        self.asked.StopWorker(beam_fn_api_pb2.StopWorkerRequest(worker_id=worker))

    def workers(self) -> list[int]:
        """Process ids of what the pool has started and has not ended."""
        return [pid for pid in children_of(self.process.pid) if runs(pid)]

    def end(self) -> None:
        """Kills it and its workers, if they are still there."""
        self.channel.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def children_of(pid: int) -> list[int]:
    """Returns the processes that one has started."""
    found: list[str] = []
    for task in Folder(f"/proc/{pid}/task").iterdir():
        # A thread may end between the two looks.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found += (task / "children").read_text().split()
    return [*map(int, found)]


def runs(pid: int) -> bool:
    """Whether a process is there, and is no zombie."""
    try:
        status = Folder(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def await_that(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + _WAIT_SECONDS
    while not condition():
        assert time.monotonic() < end, "it has not come about"
        time.sleep(0.05)
