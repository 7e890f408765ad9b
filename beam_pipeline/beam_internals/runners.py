"""Beam's runners for engines, and the job server that some of them start.

Beam starts it as any child of this process, in its session: Ctrl-C in a terminal would
reach it too, and end it before the job could be cancelled through it.
"""

import contextlib
import ctypes
import importlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import grpc
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc
from apache_beam.runners.portability import job_server
from apache_beam.utils import subprocess_server

_PR_SET_PDEATHSIG = 1
_RECONNECT_MS = 100
# After it Beam ends the server its own way.
_END_SECONDS = 5.0
# Loaded before the fork: between fork and exec a child may call hardly anything.
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
# A server that takes longer to answer is treated as unreachable.
_ASK_SECONDS = 10


class _NoSignals:
    """Stands in for the module `signal` where Beam starts a job server.

    Beam would install its own handler for Ctrl-C, which fails outside the main thread.
    """

    SIGINT = 0

    @staticmethod
    def getsignal(number: int) -> None:
        """Returns None, as if no handler were installed."""

    @staticmethod
    def signal(number: int, handler: object) -> None:
        """Keeps the handler that is installed."""


class _OwnSession:
    """Stands in for the module `subprocess` there: the server gets its own session.

    It ends with the thread that started it, even if this process is killed.
    """

    PIPE = subprocess.PIPE
    STDOUT = subprocess.STDOUT

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables
        self._started: list[subprocess.Popen[bytes]] = []

    def Popen(self, command: list[str], **options: Any) -> "subprocess.Popen[bytes]":  # noqa: N802
        """Starts a process."""
        process = subprocess.Popen(
            command,
            **{"env": {**os.environ, **self._variables}, **options},
            start_new_session=True,
            # Safe with threads: it calls one C function, which is loaded already.
            preexec_fn=_end_with_parent,
        )
        self._started.append(process)
        return process

    def end(self) -> None:
        """Ends what it has started; Beam would look once a second whether it has."""
        for process in self._started:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_END_SECONDS)


class _PromptGrpc:
    """Stands in for the module `grpc` there: finds a server soon after its start.

    By default a client waits a second after its first failure to connect, then longer
    each time, which would be added to the seconds that the server takes.
    """

    RpcError = grpc.RpcError
    FutureTimeoutError = grpc.FutureTimeoutError
    channel_ready_future = staticmethod(grpc.channel_ready_future)

    @staticmethod
    def insecure_channel(
        endpoint: str, options: Sequence[tuple[str, Any]]
    ) -> "grpc.Channel":
        """Returns a channel that tries again after a tenth of a second."""
        waits = [
            (f"grpc.{which}_reconnect_backoff_ms", _RECONNECT_MS)
            for which in ("initial", "min", "max")
        ]
        return grpc.insecure_channel(endpoint, options=[*options, *waits])


def _end_with_parent() -> None:
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def new_runner(name: str) -> Any:
    """Returns a runner of Beam's, by its class: `module:name`."""
    module, _, kind = name.partition(":")
    return getattr(importlib.import_module(module), kind)()


@contextlib.contextmanager
def runner_of(name: str, variables: Mapping[str, str]) -> Iterator[Any]:
    """Yields Beam's runner; the job server that it starts ends with the context.

    Args:
      name: see `new_runner`.
      variables: of the job server's environment, beside those of this process.
    """
    runner = new_runner(name)
    start = runner.default_job_server
    servers: list[Any] = []
    session = _OwnSession(variables)

    def remembered(options: PipelineOptions) -> Any:
        server = start(options)
        servers.append(server)
        return server

    runner.default_job_server = remembered
    try:
        with (
            _replaced(job_server, "signal", _NoSignals),
            _replaced(subprocess_server, "subprocess", session),
            _replaced(subprocess_server, "grpc", _PromptGrpc),
        ):
            yield runner
    finally:
        session.end()
        for server in servers:
            server.stop()


def created_jobs(runner: Any) -> list[str]:
    """Returns a list that gets the id of the job that a runner creates."""
    found: list[str] = []
    run = runner.run_pipeline

    def remembered(*arguments: Any, **extra: Any) -> Any:
        result = run(*arguments, **extra)
        found.append(result.job_id())
        return result

    runner.run_pipeline = remembered
    return found


@contextlib.contextmanager
def _replaced(module: Any, name: str, other: Any) -> Iterator[None]:
    plain = getattr(module, name)
    setattr(module, name, other)
    try:
        yield
    finally:
        setattr(module, name, plain)


def cancel_at(endpoint: str, name: str) -> None:
    """Cancels the jobs of a name at a job server; those that have ended stay as is.

    Args:
      endpoint: host:port of the server.
      name: that the job was submitted with.

    Raises:
      OSError: it cannot be asked.
    """
    try:
        with grpc.insecure_channel(endpoint) as channel:
            stub = beam_job_api_pb2_grpc.JobServiceStub(channel)
            asked = beam_job_api_pb2.GetJobsRequest()
            for job in stub.GetJobs(asked, timeout=_ASK_SECONDS).job_info:
                # The servers of Flink and Spark add a word that no other job has.
                if job.job_id.startswith(f"{name}_"):
                    ended = beam_job_api_pb2.CancelJobRequest(job_id=job.job_id)
                    stub.Cancel(ended, timeout=_ASK_SECONDS)
    except grpc.RpcError as error:
        raise OSError(f"no answer of the job server at {endpoint!r}") from error
