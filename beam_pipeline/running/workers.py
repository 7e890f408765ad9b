"""Worker processes of the local run: Beam's SDK harness, forked beforehand.

A worker that is forked from a process that has imported everything starts in
milliseconds, where Beam's `multi_processing` mode starts a new interpreter (1-2 s,
hundreds of MB). The forks must happen before gRPC makes its first thread, so they
wait on a pipe until the runner asks for them; those not asked for end unused.
"""

import contextlib
import ctypes
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from typing import IO

from beam_pipeline.beam_internals.forked import serve_runner

__all__ = ["WorkerPool", "forked_workers"]

# A worker may exit with 0 just before the run ends; later than this it is an error.
_LEAVE_SECONDS = 5.0
_PR_SET_PDEATHSIG = 1


class WorkerPool:
    """Forked processes that wait to become workers.

    Attributes:
      log: what the workers print; shown only when one of them dies.
    """

    # Set by the first pool: gRPC starts threads then, and the child of a process with
    # threads may deadlock.
    spent: bool = False

    def __init__(self, count: int) -> None:
        # Closed by `close`; the workers write to it as long as they live.
        self.log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self._waiting: list[tuple[int, int]] = []
        self._working: list[int] = []
        self._killed: list[int] = []
        # Workers that exited with 0, and when that was seen.
        self._left: dict[int, float] = {}
        # The runner starts and stops workers in its own thread; the watcher is another.
        self._lock = threading.Lock()
        for _ in range(count):
            self._fork()

    def _fork(self) -> None:
        parent = os.getpid()
        read_end, write_end = os.pipe()
        pid = os.fork()
        if pid:
            os.close(read_end)
            self._waiting.append((pid, write_end))
            return
        status = 1
        try:
            # Open copies of the pipes would keep other workers from seeing their end.
            os.close(write_end)
            for _, other in self._waiting:
                os.close(other)
            _become_worker(read_end, parent, self.log.fileno())
            status = 0
        finally:
            # The child must never return into the parent's code, nor run its handlers.
            os._exit(status)

    def start(self, worker_id: str, control_address: str) -> int:
        """Tells one process to work for this runner; returns its id."""
        with self._lock:
            pid, write_end = self._waiting.pop(0)
            self._working.append(pid)
        # A worker that has died is found by `dead`.
        with contextlib.suppress(BrokenPipeError):
            os.write(write_end, f"{worker_id}\n{control_address}".encode())
        os.close(write_end)
        return pid

    def wait(self, pid: int) -> None:
        """Waits for a worker that was told to stop."""
        if pid in self._working:
            self._working.remove(pid)
            with contextlib.suppress(ChildProcessError):
                self._note(pid, os.waitpid(pid, 0)[1])

    def _note(self, pid: int, status: int) -> None:
        if os.WIFSIGNALED(status):
            self._killed.append(pid)

    def killed(self) -> int | None:
        """Returns the id of a process that a signal has ended, if any."""
        self.dead()
        return self._killed[0] if self._killed else None

    def dead(self) -> int | None:
        """Returns the id of a process that has ended without being told to, if any."""
        with self._lock:
            for pid, write_end in list(self._waiting):
                if self._has_ended(pid):
                    self._waiting.remove((pid, write_end))
                    os.close(write_end)
                    return pid
        for pid in list(self._working):
            if self._has_ended(pid) and pid in self._working:
                self._working.remove(pid)
                if pid not in self._left:
                    return pid
        # The runner dismisses workers shortly before the run ends.
        overdue = time.monotonic() - _LEAVE_SECONDS
        return next((pid for pid, at in self._left.items() if at < overdue), None)

    def _has_ended(self, pid: int) -> bool:
        try:
            found, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            return True
        if found:
            self._note(pid, status)
            if status == 0:
                self._left[pid] = time.monotonic()
        return bool(found)

    def close(self) -> None:
        """Ends every process; none is left behind."""
        for pid, write_end in self._waiting:
            os.close(write_end)
            self._working.append(pid)
        self._waiting.clear()
        for pid in self._working:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        self._working.clear()
        self.log.close()


def _become_worker(read_end: int, parent: int, log: int) -> None:
    """Waits for the runner's address in a forked process, and works for it."""
    # Ctrl-C reaches all processes; the parent handles it. Linux kills the worker when
    # its parent dies, even by SIGKILL; the parent may have died before that call.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            return
    os.dup2(log, 1)
    os.dup2(log, 2)
    command = os.read(read_end, 65_536).decode()
    if not command:
        return
    worker_id, control_address = command.split("\n")
    serve_runner(worker_id, control_address)


@contextlib.contextmanager
def forked_workers(count: int) -> Iterator[WorkerPool]:
    """Forks processes for a local run; ends them all on leaving."""
    pool = WorkerPool(count)
    WorkerPool.spent = True
    try:
        yield pool
    finally:
        pool.close()
