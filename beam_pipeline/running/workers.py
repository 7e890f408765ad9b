"""Worker processes of the local run: Beam's SDK harness, started beforehand.

A worker that is forked from a process that has imported everything starts in
milliseconds, and a new interpreter in a second. But the child of a process with threads
may wait forever for a lock that one of them held: of gRPC, of Beam's pool of threads,
of Java. So only the command line forks, before it uses any of these; in a user's
process, who knows what runs there, each worker is a new interpreter.

The workers wait on a pipe until the runner asks for them; those not asked for end
unused.
"""

import contextlib
import ctypes
import os
import resource
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

from beam_pipeline.beam_internals.local_runner import NO_THREAD, serve_runner
from beam_pipeline.running.retry_notes import send_retries
from transforms.core.interpreter import python_command
from transforms.errors import BeamTFRecordError, no_memory

# A worker may exit with 0 just before the run ends; later than this it is an error. One
# that was told to stop has as long.
_LEAVE_SECONDS = 5.0
_PAUSE_SECONDS = 0.002
_CONNECT_SECONDS = 5.0
# Descriptors that gRPC opens here: in all, and for each worker. Measured: 22 and 3.
_OWN_FILES = 20
_FILES_OF_A_WORKER = 3
_PR_SET_PDEATHSIG = 1
# Of the workers' log, for an error.
_LAST_BYTES = 500
# Where this program is: another package of its name may have come before it since.
_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# The new interpreter searches for other modules where this one does. Ctrl-C while it
# loads is the parent's.
_START = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); "
    "root, parent, notes, *path = sys.argv[1:]; sys.path[:] = [root, *path]; "
    "from beam_pipeline.beam_internals.loading import load_for_worker; "
    "load_for_worker(); sys.path[:] = path; "
    "from beam_pipeline.running.workers import work_in_new_process; "
    "work_in_new_process(int(parent), int(notes))"
)


class WorkerPool:
    """Processes that wait to become workers.

    Attributes:
      log: what the workers print; the error of one that cannot start is shown.
    """

    def __init__(self) -> None:
        # Closed by `close`; the workers write to it as long as they live.
        self.log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self._waiting: list[tuple[int, int]] = []
        self._working: list[int] = []
        # Told to stop; `close` ends them if the runner waits no longer.
        self._leaving: set[int] = set()
        self._statuses: dict[int, int] = {}
        # Workers that exited with 0, and when that was seen.
        self._left: dict[int, float] = {}
        # The runner starts and stops workers in its own thread; the watcher is another.
        self._lock = threading.Lock()

    def add_new(self, notes: int) -> None:
        """Starts a new interpreter, which sends what it retries to a file descriptor.

        Raises:
          BeamTFRecordError: it cannot be started.
        """
        read_end, write_end = os.pipe()
        numbers = map(str, (os.getpid(), notes))
        paths = (path for path in sys.path if isinstance(path, str))
        try:
            process = subprocess.Popen(
                [*python_command(), "-c", _START, _ROOT, *numbers, *paths],
                stdin=read_end,
                stdout=self.log,
                stderr=self.log,
                pass_fds=[notes],
            )
            self._waiting.append((process.pid, write_end))
            # The pool waits for it by its id, as for forks.
            process.returncode = 0
        except BaseException as error:
            # Ctrl-C may come at any line. A process that is not known here ends when
            # nobody can write to it.
            if all(end != write_end for _, end in self._waiting):
                os.close(write_end)
            if isinstance(error, OSError | ValueError):
                raise _not_working(str(error)) from error
            raise
        finally:
            os.close(read_end)

    def add_fork(self) -> None:
        """Forks this process, which must have no threads."""
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
        except BaseException:
            # For `_last_line`.
            traceback.print_exc()
            raise
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
        """Waits for a worker that was told to stop, and ends one that does not."""
        if pid not in self._working:
            return
        self._working.remove(pid)
        self._leaving.add(pid)
        limit = time.monotonic() + _LEAVE_SECONDS
        while not self._has_ended(pid):
            if time.monotonic() > limit:
                _kill(pid)
                break
            time.sleep(_PAUSE_SECONDS)
        self._leaving.discard(pid)
        self._left.pop(pid, None)

    def error_of(self, pid: int) -> BeamTFRecordError:
        """Returns the error of a process that `dead` or `killed` has found."""
        status = self._statuses.get(pid, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(status)
        if code < 0:
            return BeamTFRecordError(
                f"A worker process ({pid}) was ended from outside, perhaps for lack of "
                f"memory. Run again, with fewer --workers if memory is short."
            )
        if code == NO_THREAD:
            return no_memory()
        return _not_working(f"one ended with exit code {code}{self._last_line()}")

    def _last_line(self) -> str:
        """Returns what a worker has printed last, to be added to a sentence."""
        log = self.log.fileno()
        # The workers write where a file object would seek to.
        start = max(0, os.fstat(log).st_size - _LAST_BYTES)
        text = os.pread(log, _LAST_BYTES, start).decode("utf-8", "replace").strip()
        # Errors of gRPC go on in indented lines, and end with a bracket.
        lines = [line for line in text.splitlines() if line[:1].isalpha()]
        return f": {lines[-1]}" if lines else ""

    def killed(self) -> int | None:
        """Returns the id of a process that a signal has ended, if any."""
        self.dead()
        ended = self._statuses.items()
        return next((pid for pid, status in ended if os.WIFSIGNALED(status)), None)

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
            self._statuses[pid] = status
            if status == 0:
                self._left[pid] = time.monotonic()
        return bool(found)

    def close(self) -> None:
        """Ends every process; none is left behind."""
        for pid, write_end in self._waiting:
            os.close(write_end)
            self._working.append(pid)
        self._waiting.clear()
        for pid in (*self._working, *self._leaving):
            _kill(pid)
        self._working.clear()
        self.log.close()


def _kill(pid: int) -> None:
    """Ends a process by force; it may have ended."""
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _check_means(count: int) -> None:
    """Checks beforehand that workers can be served: the runner would wait for them.

    Args:
      count: of the workers.

    Raises:
      BeamTFRecordError: no loopback network, or too few descriptors are left.
    """
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection(server.getsockname(), _CONNECT_SECONDS).close()
    except OSError as error:
        raise _not_working(
            f"the loopback network, through which they are reached, does not work "
            f"here: {error.strerror or error}. Turn it on (ip link set lo up)"
        ) from error
    need = _OWN_FILES + _FILES_OF_A_WORKER * count
    try:
        with contextlib.ExitStack() as opened:
            for _ in range(need):
                opened.enter_context(open(os.devnull, "rb", buffering=0))
    except OSError as error:
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        raise _not_working(
            f"{count} of them need {need} more open files, and this process may have "
            f"{limit:,} in all. Raise that limit (ulimit -n)"
        ) from error


def _not_working(reason: str) -> BeamTFRecordError:
    command = python_command()[0]
    return BeamTFRecordError(
        f"Worker processes must start as {command!r} and work until the run "
        f"ends; {reason}. With --workers 1 this process does their work."
    )


def work_in_new_process(parent: int, notes: int) -> None:
    """Works for the process that has started this interpreter, then ends this one.

    Args:
      parent: its id.
      notes: file descriptor to which retries are sent.
    """
    send_retries(notes)
    _become_worker(sys.stdin.fileno(), parent, sys.stdout.fileno())
    os._exit(0)


def _become_worker(read_end: int, parent: int, log: int) -> None:
    """Waits for the address of the runner in a worker process, and works for it."""
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
def local_workers(count: int, *, forks: bool, notes: int) -> Iterator[WorkerPool]:
    """Starts processes for a local run; ends them all on leaving.

    Args:
      count: of them.
      forks: whether they are forks of this process, or new interpreters.
      notes: file descriptor to which new ones send what they retry.
    """
    _check_means(count)
    pool = WorkerPool()
    try:
        for _ in range(count):
            if forks:
                pool.add_fork()
            else:
                pool.add_new(notes)
        yield pool
    finally:
        pool.close()
