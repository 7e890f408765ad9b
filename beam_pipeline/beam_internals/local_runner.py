"""Beam's local runner, and its worker loop in processes that were started beforehand.

runner asks for a worker -> _WaitingWorkerHandler -> Workers.start -> a process
that process             -> serve_runner         -> works until it is let go

In IPython, Beam imports its interactive environment as soon as a graph is built. That
imports Beam's DataFrames, which need a pandas before 3; `plain_labels` keeps it out.
"""

import contextlib
import functools
import importlib
import os
import sys
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Protocol

import grpc
from apache_beam import pipeline as graph
from apache_beam.runners.portability.fn_api_runner import FnApiRunner, worker_handlers
from apache_beam.runners.worker import sdk_worker
from apache_beam.transforms import environments
from apache_beam.utils import thread_pool_executor

_Context = contextlib._GeneratorContextManager[None]

_URN = "beam-tfrecord:env:waiting:v1"
_STATE_CACHE_BYTES = 64 << 20
NO_THREAD = 71
"""Exit code of a worker that the system has refused a thread."""
THREAD_REFUSED = threading.Event()
"""Set when the system has refused this process a thread; see `noticed_refusals`."""


class Workers(Protocol):
    """Processes that wait to become workers."""

    def start(self, worker_id: str, control_address: str) -> int:
        """Lets one process call `serve_runner`; returns its process id."""

    def let_go(self, pid: int) -> None:
        """Notes that a process may end: the runner has closed its connection."""


def shared_change(function: Callable[[], Iterator[None]]) -> Callable[[], _Context]:
    """Makes a context manager that the first of several users opens and the last ends.

    Each of them alone would restore what it has found: the last to leave, what another
    one had changed.

        >>> @shared_change
        ... def quiet():
        ...     print("quiet")
        ...     yield
        ...     print("loud")
        >>> with quiet(), quiet():
        ...     pass
        quiet
        loud

    Args:
      function: a generator function, as `contextlib.contextmanager` takes it.
    """
    opened = contextlib.contextmanager(function)
    lock = threading.Lock()
    users = 0
    change = opened()

    @functools.wraps(function)
    @contextlib.contextmanager
    def joined() -> Iterator[None]:
        nonlocal users, change
        with lock:
            if not users:
                change = opened()
                change.__enter__()
            users += 1
        try:
            yield
        finally:
            with lock:
                users -= 1
                if not users:
                    change.__exit__(*sys.exc_info())

    return joined


@contextlib.contextmanager
def local_runner(workers: Workers | None) -> Iterator[FnApiRunner]:
    """Yields the runner inside Beam, for one job.

    Args:
      workers: do the work; None for this process itself.
    """
    if workers is None:
        yield FnApiRunner()
        return
    # Threads may run jobs at the same time, each with workers of its own.
    name = str(id(workers)).encode()
    _WaitingWorkerHandler.known[name] = workers
    try:
        with _bound_to_loopback():
            capabilities = environments.python_sdk_capabilities()
            yield FnApiRunner(_WaitingEnvironment(name, capabilities))
    finally:
        del _WaitingWorkerHandler.known[name]


@shared_change
def _bound_to_loopback() -> Iterator[None]:
    """Lets the runner serve its workers on this machine only."""
    # Beam binds its servers to every interface of the machine, without authentication.
    ours = vars(grpc) | {"server": _server_on_loopback}
    worker_handlers.grpc = types.SimpleNamespace(**ours)
    try:
        yield
    finally:
        worker_handlers.grpc = grpc


@shared_change
def noticed_refusals() -> Iterator[None]:
    """Sets `THREAD_REFUSED` when the system refuses this process a thread.

    Beam and gRPC drop that error, and wait for ever for what the thread would do.
    """
    THREAD_REFUSED.clear()
    start = threading.Thread.start
    _watch_threads(THREAD_REFUSED.set)
    try:
        yield
    finally:
        vars(threading)["Thread"].start = start


def _watch_threads(refused: Callable[[], object]) -> None:
    """Calls a function before a thread that cannot start raises its error."""
    start = threading.Thread.start

    def watched_start(thread: threading.Thread) -> None:
        try:
            start(thread)
        except RuntimeError:
            # It has no id: this is not the second start of a thread.
            if thread.ident is None:
                refused()
            raise

    vars(threading)["Thread"].start = watched_start


def serve_runner(worker_id: str, control_address: str) -> None:
    """Works for a runner, in a process of its own, until it hangs up.

    It ends with `NO_THREAD` if it cannot start a thread.
    """
    _watch_threads(lambda: os._exit(NO_THREAD))
    sdk_worker.SdkHarness(
        control_address,
        worker_id=worker_id,
        state_cache_size=_STATE_CACHE_BYTES,
        data_buffer_time_limit_ms=0,
        runner_capabilities=worker_handlers.FNAPI_RUNNER_CAPABILITIES,
    ).run()


# Gives a forked process a pool of threads, for those of its parent are not in it. A
# user's process may fork after a job, as `multiprocessing` does.
os.register_at_fork(after_in_child=lambda: importlib.reload(thread_pool_executor))


def _server_on_loopback(*arguments: Any, **options: Any) -> Any:
    """As `grpc.server`, but what is bound to any address is bound to loopback."""
    server = grpc.server(*arguments, **options)
    bind: Callable[[str], int] = server.add_insecure_port
    server.add_insecure_port = lambda address: bind(
        address.replace("[::]", "localhost")
    )
    return server


@environments.Environment.register_urn(_URN, bytes)
class _WaitingEnvironment(environments.Environment):
    """The environment that asks the runner for processes which wait.

    Attributes:
      name: of the workers, among those known.
    """

    def __init__(
        self, name: bytes, capabilities: Any, artifacts: Any = (), hints: Any = None
    ) -> None:
        super().__init__(capabilities, artifacts, hints)
        self.name = name

    def to_runner_api_parameter(self, context: Any) -> tuple[str, bytes]:
        """Returns the URN, and which workers are meant."""
        return _URN, self.name

    @staticmethod
    def from_runner_api_parameter(
        payload: Any, capabilities: Any, artifacts: Any, hints: Any, context: Any
    ) -> "_WaitingEnvironment":
        """Inverse of `to_runner_api_parameter`."""
        return _WaitingEnvironment(payload, capabilities, artifacts, hints)


@worker_handlers.WorkerHandler.register_environment(_URN, bytes)
class _WaitingWorkerHandler(worker_handlers.GrpcWorkerHandler):
    """Starts and stops one worker on behalf of the runner."""

    known: ClassVar[dict[bytes, Workers]] = {}

    def __init__(
        self, payload: Any, state: Any, provision_info: Any, grpc_server: Any
    ) -> None:
        super().__init__(state, provision_info, grpc_server)
        self._workers = self.known[payload]
        self._pid = 0

    def start_worker(self) -> None:
        """Hands the runner's address to a waiting process."""
        self._pid = self._workers.start(self.worker_id, self.control_address)

    def stop_worker(self) -> None:
        """Lets the process end; the runner has closed its connection."""
        self._workers.let_go(self._pid)


@shared_change
def plain_labels() -> Iterator[None]:
    """Keeps Beam's runners from changing the names of stages in a notebook."""
    module: Any = graph
    plain = module.alter_label_if_ipython
    module.alter_label_if_ipython = lambda _transform, _value: None
    try:
        yield
    finally:
        module.alter_label_if_ipython = plain
