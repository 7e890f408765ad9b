"""A pool of workers, as an engine uses it."""

import contextlib
import os
import pathlib
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

__all__ = ["PROGRAM", "Pool", "await_that", "runs"]

Folder = pathlib.Path
PROGRAM = [
    sys.executable,
    "-c",
    "from beam_pipeline.engines.worker_program import main; main()",
]
# Nobody listens there: a worker waits for its engine.
_NOWHERE = endpoints_pb2.ApiServiceDescriptor(url="localhost:1")
_WAIT_SECONDS = 60.0


class Pool:
    """A pool that runs, and what it has said.

    Args:
      folder: of what it says, and of its temporary files.
      spares: how many processes wait to be workers.
      environment: more variables.
    """

    def __init__(self, folder: Folder, *, spares: int = 0, **environment: str) -> None:
        self.temporary = folder / "temporary"
        self.temporary.mkdir()
        self.said = folder / "said"
        with self.said.open("wb") as said:
            self.process = subprocess.Popen(
                [*PROGRAM, "pool", "--port=0", f"--spares={spares}"],
                # Nobody reads it, and nothing may wait for that.
                stdout=subprocess.PIPE,
                stderr=said,
                env={**os.environ, "TMPDIR": str(self.temporary), **environment},
            )
        await_that(lambda: "listens on" in self.said.read_text())
        said_now = self.said.read_text()
        self.address = said_now.partition("listens on ")[2].partition(";")[0]
        self.channel = grpc.insecure_channel(self.address)
        self.asked = beam_fn_api_pb2_grpc.BeamFnExternalWorkerPoolStub(self.channel)

    def start(self, worker: str) -> int:
        """Starts a worker, where no process waits; returns its process id."""
        before = set(self.workers())
        self.ask(worker)
        (started,) = set(self.workers()) - before
        return started

    def ask(self, worker: str) -> None:
        """Asks for a worker, as engines do."""
        answer = self.asked.StartWorker(
            beam_fn_api_pb2.StartWorkerRequest(
                worker_id=worker, provision_endpoint=_NOWHERE, control_endpoint=_NOWHERE
            )
        )
        assert not answer.error

    def stop(self, worker: str) -> None:
        self.asked.StopWorker(beam_fn_api_pb2.StopWorkerRequest(worker_id=worker))

    def workers(self) -> list[int]:
        """Process ids of what the pool has started and has not ended."""
        children: list[str] = []
        for task in Folder(f"/proc/{self.process.pid}/task").iterdir():
            # A thread may end between the two looks.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                children += (task / "children").read_text().split()
        return [pid for pid in map(int, children) if runs(pid)]

    def end(self) -> None:
        """Kills it, if it is still there."""
        self.channel.close()
        self.process.kill()
        self.process.communicate()


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
