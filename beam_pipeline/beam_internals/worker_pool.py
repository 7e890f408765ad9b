"""A pool: starts and stops workers where it runs, as engines ask it to.

It serves Beam's protocol of external environments. Unlike Beam's own pool it starts
workers with its own interpreter, gives each of them a folder for temporary files, and
leaves nothing behind: no process, no file, no output that nobody reads.

A Python that imports Beam takes seconds to start. So while no worker runs, a pool keeps
some processes that have done so, and wait for their engine on stdin. They are started
like any other, not forked: Beam's and Arrow's threads would not survive that.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent import futures
from types import FrameType
from typing import Any

import grpc
from apache_beam.portability.api import beam_fn_api_pb2, beam_fn_api_pb2_grpc

from transforms.errors import UsageError

# Workers end with the connection to their engine; this is for those that do not.
_STOP_SECONDS = 5.0
# Calls take no time, except that a stop waits for the end of a process.
_CALLS = 16
# Two pools on one port would each get some of the workers.
_OPTIONS = (("grpc.so_reuseport", 0),)


def serve_pool(
    host: str, port: int, *, command: Sequence[str], versions: str, spares: int = 0
) -> None:
    """Serves a pool until this process gets SIGTERM or SIGINT; its workers end with it.

    Args:
      host: name or address of the interface to listen on.
      port: 0 for a free one.
      command: starts a worker, with flags of `worker_boot.boot` added to it.
      versions: of this program and what it needs, for the message on the start.
      spares: how many processes wait to be workers while there are none.

    Raises:
      UsageError: the port is taken, or the host is not of this machine.
    """
    stop = threading.Event()

    def stopped(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stopped)
    server = grpc.server(futures.ThreadPoolExecutor(_CALLS), options=_OPTIONS)
    try:
        port = server.add_insecure_port(f"{host}:{port}")
    except RuntimeError as error:
        raise UsageError(
            f"A pool must be able to listen on {host}:{port}; it cannot. Choose "
            f"another --port, or a --host of this machine."
        ) from error
    with _workers(command, spares) as workers:
        beam_fn_api_pb2_grpc.add_BeamFnExternalWorkerPoolServicer_to_server(
            workers, server
        )
        server.start()
        _say(f"listens on {host}:{port}; {versions}")
        workers.fill()
        stop.wait()
        server.stop(None)


class _Workers(beam_fn_api_pb2_grpc.BeamFnExternalWorkerPoolServicer):
    """The workers of a pool, and the ids that engines have given them."""

    def __init__(self, command: Sequence[str], spares: int) -> None:
        self._command = [*command, f"--pool={os.getpid()}"]
        self._spares = spares
        self._lock = threading.Lock()
        # By process: an engine may give an id a second time.
        self._running: dict[subprocess.Popen[bytes], str] = {}
        self._waiting: list[subprocess.Popen[bytes]] = []
        self._is_closed = False

    # Names of Beam's protocol.
    def StartWorker(self, request: Any, _context: object) -> Any:  # noqa: N802
        """Starts a process; what goes wrong is answered, and the engine reports it."""
        try:
            self._start(request.worker_id, request.provision_endpoint.url)
        except OSError as error:
            return beam_fn_api_pb2.StartWorkerResponse(error=str(error))
        return beam_fn_api_pb2.StartWorkerResponse()

    def StopWorker(self, request: Any, _context: object) -> Any:  # noqa: N802
        """Ends a process, if it has not ended by itself."""
        with self._lock:
            named = [
                p for p, name in self._running.items() if name == request.worker_id
            ]
        _end(named)
        return beam_fn_api_pb2.StopWorkerResponse()

    def close(self) -> None:
        """Ends all workers; no other is started from now on."""
        with self._lock:
            self._is_closed = True
            started = [*self._running, *self._waiting]
        _end(started)

    def fill(self) -> None:
        """Starts the spare processes, if no worker runs: it needs the processors."""
        with self._lock:
            while (
                len(self._waiting) < self._spares
                and not self._running
                and not self._is_closed
            ):
                process = subprocess.Popen(
                    [*self._command, "--spare"],
                    stdin=subprocess.PIPE,
                    stdout=sys.stderr,
                )
                self._waiting.append(process)
                threading.Thread(target=self._await_spare, args=(process,)).start()

    def _start(self, worker: str, endpoint: str) -> None:
        scratch = tempfile.mkdtemp(prefix="beam-tfrecord-worker-")
        given = [
            f"--scratch={scratch}",
            f"--id={worker}",
            f"--provision_endpoint={endpoint}",
        ]
        try:
            with self._lock:
                if self._is_closed:
                    raise OSError("the pool is being stopped")
                process = self._taken(given)
                is_spare = process is not None
                if process is None:
                    process = subprocess.Popen(
                        [*self._command, *given],
                        stdin=subprocess.DEVNULL,
                        stdout=sys.stderr,
                        env={**os.environ, "TMPDIR": scratch},
                    )
                self._running[process] = worker
        except BaseException:
            shutil.rmtree(scratch, ignore_errors=True)
            raise
        # gRPC's threads are daemons, and this one would be too: the pool could end
        # before the files are removed.
        waits = threading.Thread(
            target=self._await_end, args=(worker, process, scratch), daemon=False
        )
        waits.start()
        how = "started worker" if not is_spare else "started worker at once:"
        _say(f"{how} {worker}, process {process.pid}")

    def _taken(self, given: Sequence[str]) -> "subprocess.Popen[bytes] | None":
        """Returns a process that has waited, and is now a worker; None for none."""
        while self._waiting:
            process = self._waiting.pop(0)
            assert process.stdin is not None
            try:
                process.stdin.write(json.dumps([*given]).encode() + b"\n")
                process.stdin.close()
            except OSError:
                # It has just ended.
                continue
            return process
        return None

    def _await_spare(self, process: "subprocess.Popen[bytes]") -> None:
        """Notes the end of a process that nobody has asked to work."""
        code = process.wait()
        with self._lock:
            if process not in self._waiting or self._is_closed:
                return
            self._waiting.remove(process)
            # Another would end likewise, again and again.
            self._spares = 0
        _say(f"a spare process has ended with {code}; workers are started when asked")

    def _await_end(
        self, worker: str, process: "subprocess.Popen[bytes]", scratch: str
    ) -> None:
        """Waits until a worker has ended, and removes what is left of it."""
        code = process.wait()
        shutil.rmtree(scratch, ignore_errors=True)
        with self._lock:
            del self._running[process]
        _say(f"worker {worker}, process {process.pid}, has ended with {code}")
        self.fill()


@contextlib.contextmanager
def _workers(command: Sequence[str], spares: int) -> Iterator[_Workers]:
    """Yields the workers of a pool, and ends them."""
    workers = _Workers(command, spares)
    try:
        yield workers
    finally:
        workers.close()


def _end(processes: "list[subprocess.Popen[bytes]]") -> None:
    """Ends processes, at last by force."""
    for process in processes:
        process.terminate()
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_SECONDS)
            continue
        process.kill()
        process.wait()


def _say(text: str) -> None:
    with contextlib.suppress(OSError):
        sys.stderr.write(f"beam-tfrecord-worker pool: {text}\n")
        sys.stderr.flush()
