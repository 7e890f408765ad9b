"""Worker processes of the local run: Beam's SDK harness, started beforehand.

A worker that is forked from a process that has imported everything starts in
milliseconds, and a new interpreter in a second. But the child of a process with threads
may wait forever for a lock that one of them held: of gRPC, of Beam's pool of threads,
of Java. So only the command line forks, before it uses any of these; in a user's
process, who knows what runs there, each worker is a new interpreter.

The workers wait on a pipe until the runner asks for them; those not asked for end
unused. What `transforms.storage.retry` logs, each prints to the log of the run, beside
what else it prints. The process that watches the run reads it.
"""

import contextlib
import dataclasses
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator
from typing import IO

from beam_pipeline import terminal
from beam_pipeline.beam_internals.local_runner import NO_THREAD, serve_runner
from beam_pipeline.engines.job_server import end_with_parent
from transforms.errors import BeamTFRecordError, no_memory
from transforms.storage import retry
from transforms.storage.visibility import python_command

# In which the system says of a process that is ending how it has ended.
_ENDED_SECONDS = 0.2
# Of the workers' log, for an error.
_LAST_BYTES = 500
# Where this program is: another package of its name may have come before it since.
_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# The new interpreter searches for other modules where this one does. Ctrl-C while it
# loads is the parent's. It says an error in one write: others write to the same file.
_START = (
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); "
    "sys.excepthook = lambda kind, error, _: "
    "os.write(2, f'{kind.__name__}: {error}\\n'.encode()); "
    "root, parent, *path = sys.argv[1:]; sys.path[:] = [root, *path]; "
    "from beam_pipeline.beam_internals.loading import load_for_worker; "
    "load_for_worker(); sys.path[:] = path; "
    "from beam_pipeline.running import workers; "
    "workers.work(sys.stdin.fileno(), int(parent)); os._exit(0)"
)


_LOGGER = logging.getLogger(retry.__name__)
# Of its own, since a run raises the level of the root logger.
_LOGGER.setLevel(logging.WARNING)
_PREFIX = b"tried again: "
# Retries that are reported one by one.
_SHOWN = 5


@dataclasses.dataclass
class _Worker:
    """A process that waits for the address of a runner, works for it, or has ended.

    Attributes:
      write_end: of the pipe on which it waits; -1 once it has been written to.
      pid: its id; 0 until it has started.
      is_let_go: whether the runner has told it to stop.
      status: with which it has ended, as `os.waitpid` returns it; None before.
    """

    write_end: int
    pid: int = 0
    is_let_go: bool = False
    status: int | None = None


class WorkerPool:
    """Processes that wait to become workers.

    Attributes:
      log: what the workers print; the error of one that cannot start is shown.
    """

    def __init__(self, log: IO[bytes]) -> None:
        self.log = log
        self._workers: list[_Worker] = []
        # The runner may start workers in several threads.
        self._lock = threading.Lock()

    def add(self, *, forks: bool) -> None:
        """Starts a process: a fork of this one, or a new interpreter.

        Args:
          forks: this process must have no threads then.

        Raises:
          BeamTFRecordError: the interpreter cannot be started.
        """
        read_end, write_end = os.pipe()
        # Ctrl-C may come at any line. A process without an id here ends when nobody
        # can write to it.
        worker = _Worker(write_end)
        self._workers.append(worker)
        try:
            worker.pid = self._fork(read_end) if forks else self._new(read_end)
        except (OSError, ValueError) as error:
            raise _not_working(str(error)) from error
        finally:
            os.close(read_end)

    def _new(self, read_end: int) -> int:
        paths = (path for path in sys.path if isinstance(path, str))
        process = subprocess.Popen(
            [*python_command(), "-c", _START, _ROOT, str(os.getpid()), *paths],
            stdin=read_end,
            stdout=self.log,
            stderr=self.log,
        )
        # The pool waits for it by its id, as for forks.
        process.returncode = 0
        return process.pid

    def _fork(self, read_end: int) -> int:
        parent = os.getpid()
        if pid := os.fork():
            return pid
        try:
            # Open copies of the pipes would keep workers from seeing their end.
            for worker in self._workers:
                if worker.write_end >= 0:
                    os.close(worker.write_end)
            os.dup2(self.log.fileno(), 1)
            os.dup2(self.log.fileno(), 2)
            work(read_end, parent)
            os._exit(0)
        except BaseException:  # noqa: BLE001 - the child ends here in any case
            # For `_last_line`.
            traceback.print_exc()
        finally:
            # The child must never return into the parent's code, nor run its handlers.
            os._exit(1)

    def start(self, worker_id: str, control_address: str) -> int:
        """Tells one process to work for this runner; returns its id."""
        with self._lock:
            worker = next(w for w in self._workers if w.write_end >= 0)
            write_end, worker.write_end = worker.write_end, -1
        # A worker that has died is found by `failure`.
        with contextlib.suppress(BrokenPipeError):
            os.write(write_end, f"{worker_id}\n{control_address}".encode())
        os.close(write_end)
        return worker.pid

    def let_go(self, pid: int) -> None:
        """Notes that a worker may end; the runner has closed its connection."""
        next(worker for worker in self._workers if worker.pid == pid).is_let_go = True

    def _status(self, worker: _Worker) -> int | None:
        if worker.status is None:
            try:
                pid, status = os.waitpid(worker.pid, os.WNOHANG)
            except ChildProcessError:
                # The caller's program has asked before.
                pid, status = worker.pid, int(signal.SIGKILL)
            if pid:
                worker.status = status
        return worker.status

    def failure(self, *, failed: bool = False) -> BeamTFRecordError | None:
        """Returns the error of a process that has ended without being told to, if any.

        Args:
          failed: whether the run has failed. Then the runner has told all of them to
            stop, also one that a signal had ended.
        """
        if failed:
            # The runner knows of a lost connection before the system says why.
            time.sleep(_ENDED_SECONDS)
        for worker in self._workers:
            status = self._status(worker)
            if status is None or (worker.is_let_go and not failed):
                continue
            if os.WIFSIGNALED(status):
                return BeamTFRecordError(
                    f"A worker process ({worker.pid}) was ended from outside, perhaps "
                    f"for lack of memory. Run again, with fewer --workers if memory is "
                    f"short."
                )
            # Of one that leaves with 0 in the middle of its work the runner reports.
            is_early = status or worker.write_end >= 0
            if is_early and not worker.is_let_go:
                code = os.waitstatus_to_exitcode(status)
                if code == NO_THREAD:
                    return no_memory()
                said = self._last_line()
                return _not_working(f"one ended with exit code {code}{said}")
        return None

    def _last_line(self) -> str:
        """Returns what a worker has printed last, to be added to a sentence."""
        log = self.log.fileno()
        # The workers write where a file object would seek to.
        start = max(0, os.fstat(log).st_size - _LAST_BYTES)
        text = os.pread(log, _LAST_BYTES, start).decode("utf-8", "replace").strip()
        # Errors of gRPC go on in indented lines, and end with a bracket.
        lines = [line for line in text.splitlines() if line[:1].isalpha()]
        return f": {lines[-1]}" if lines else ""

    def close(self) -> None:
        """Ends every process by force; none is left behind."""
        for worker in self._workers:
            if worker.write_end >= 0:
                os.close(worker.write_end)
                worker.write_end = -1
            if worker.status is None and worker.pid:
                worker.status = 0
                with contextlib.suppress(ProcessLookupError, ChildProcessError):
                    os.kill(worker.pid, signal.SIGKILL)
                    os.waitpid(worker.pid, 0)


def _not_working(reason: str) -> BeamTFRecordError:
    """Returns the error about worker processes that do not start, or ended early."""
    command = python_command()[0]
    return BeamTFRecordError(
        f"Worker processes must start as {command!r} and work until the run "
        f"ends; {reason}. With --workers 1 this process does their work."
    )


def work(read_end: int, parent: int) -> None:
    """Waits for the address of the runner in a worker process, and works for it.

    Args:
      read_end: of the pipe that the address comes by.
      parent: the id of the process that has started this one.
    """
    # Ctrl-C reaches all processes; the parent handles it. Linux kills the worker when
    # its parent dies, even by SIGKILL; the parent may have died before that call.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    end_with_parent(signal.SIGKILL)
    if os.getppid() != parent:
        return
    only_print_retries(2)
    command = os.read(read_end, 65_536).decode()
    if command:
        serve_runner(*command.split("\n"))


@contextlib.contextmanager
def local_workers(count: int, *, forks: bool, log: IO[bytes]) -> Iterator[WorkerPool]:
    """Starts processes for a local run; ends them all on leaving.

    Args:
      count: of them.
      forks: whether they are forks of this process, or new interpreters.
      log: gets what they print, and what they try again.

    Raises:
      BeamTFRecordError: no loopback network, or too few descriptors are left: the
        runner would wait for its workers.
    """
    # Descriptors that gRPC opens here: some 20, and 3 for each worker.
    need = 20 + 3 * count
    try:
        with contextlib.ExitStack() as opened:
            for _ in range(need):
                opened.enter_context(open(os.devnull, "rb", buffering=0))
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection(server.getsockname(), timeout=5).close()
    except OSError as error:
        raise _not_working(
            f"{count} of them need {need} more open files (ulimit -n) and the loopback "
            f"network (ip link set lo up): {error.strerror or error}"
        ) from error
    with contextlib.closing(WorkerPool(log)) as pool:
        for _ in range(count):
            pool.add(forks=forks)
        yield pool


class RetryNotes(logging.Handler):
    """The retries of worker processes: each prints its own to a log, the run shows all.

    Attributes:
      log: file that workers print to, and this process its retries.
    """

    def __init__(self, log: IO[bytes]) -> None:
        super().__init__()
        self.log = log
        self._read = self._count = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Prints a line at once, so that lines of others are not mixed with it."""
        line = record.getMessage().replace("\n", " ").encode("utf-8", "replace")
        # The log of a run that has ended is closed.
        with contextlib.suppress(OSError, ValueError):
            os.write(self.log.fileno(), _PREFIX + line + b"\n")

    def show(self) -> None:
        """Shows what has come since it was last called, the first few lines of it."""
        number, data = self.log.fileno(), b""
        # The disk that is noted here may fail here as well; no message is worth a run.
        with contextlib.suppress(OSError):
            size = os.fstat(number).st_size - self._read
            data = os.pread(number, size, self._read)
        # The last line may be on its way.
        whole, end, _ = data.rpartition(b"\n")
        self._read += len(whole + end)
        for line in whole.splitlines():
            if line.startswith(_PREFIX):
                self._count += 1
                if self._count <= _SHOWN:
                    text = line.removeprefix(_PREFIX).decode("utf-8", "replace")
                    terminal.say(f"warning: {text}")

    def end(self) -> None:
        """Shows what is left, and how many lines were not shown."""
        self.show()
        if (more := self._count - _SHOWN) > 0:
            terminal.say(f"warning: {more:,} more were tried again")


@contextlib.contextmanager
def collected_retries() -> Iterator[RetryNotes]:
    """Yields what shows the retries of a run; workers are started inside."""
    with tempfile.TemporaryFile() as log:
        notes = RetryNotes(log)
        _LOGGER.addHandler(notes)
        try:
            yield notes
        finally:
            _LOGGER.removeHandler(notes)
            notes.end()


def only_print_retries(number: int) -> None:
    """Lets a worker process print its retries to an open file, and do no more."""
    _LOGGER.handlers = [RetryNotes(open(number, "wb", closefd=False))]  # noqa: SIM115
    _LOGGER.propagate = False
