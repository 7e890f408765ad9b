"""The job server of a run: it starts beside the graph, and ends with the run."""

import contextlib
import ctypes
import functools
import pkgutil
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

from apache_beam.options.pipeline_options import PipelineOptions

from beam_pipeline.engines.checks import why_silent
from beam_pipeline.engines.presets import Engine
from transforms.errors import BeamTFRecordError, UsageError

_LOOK_SECONDS = 0.1
# After it a job server is ended by force.
_LEAVE_SECONDS = 5.0
_FAULT = re.compile(r"(Error|Exception)\b.*:|\bERROR\b|\bFATAL\b")
_PR_SET_PDEATHSIG = 1
# Loaded before the fork: between fork and exec a child may call hardly anything.
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


@contextlib.contextmanager
def job_server(
    engine: Engine, options: PipelineOptions, log: str
) -> Iterator[tuple[str, Callable[[], None]]]:
    """Starts a job server, which Beam may download, and ends it.

    Yields its address, and a function that waits until it listens there: meanwhile the
    caller can build the graph.

    It has a session of its own: Ctrl-C in a terminal would reach it too, and end it
    before the job could be cancelled through it. Beam's own start has none, and works
    in the main thread only.

    Raises:
      UsageError: it cannot be had, or not be started.
      BeamTFRecordError: of that function: it has ended before it has listened.
    """

    def until_ready() -> None:
        while why_silent(endpoint):
            if server.poll() is not None:
                raise BeamTFRecordError(
                    f"The job server must listen until the job ends; it has ended with "
                    f"{server.returncode}.{last_words(log)}"
                )
            time.sleep(_LOOK_SECONDS)

    try:
        server_of = pkgutil.resolve_name(engine.job_server)
        command, endpoint = server_of(options).subprocess_cmd_and_endpoint()
        with open(log, "wb") as out:
            server = subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                # Safe with threads: it calls one C function, which is loaded already.
                preexec_fn=functools.partial(end_with_parent, signal.SIGTERM),
            )
    except Exception as error:
        # A jar's address may have a password.
        said = re.sub(r"//[^/@\s]*@", "//...@", str(error)).rstrip(".") or "no file"
        other = next(flag for flag in engine.given if "{program}" in flag)
        raise UsageError(
            f"The job server of {engine.name} must start here: {said}. In a checkout, "
            f"'scripts/cluster {engine.name} up' brings it; or name another after --: "
            f"{other.format(program='PATH')}. Those of Flink and Spark need Java 17, "
            f"by JAVA_HOME or the PATH."
        ) from error
    try:
        yield endpoint, until_ready
    finally:
        server.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(_LEAVE_SECONDS)
        server.kill()
        server.wait()


def last_words(log: str, error: str = "") -> str:
    """Returns a job server's own account of a failure, as a sentence to add; or "".

    Args:
      log: of the job server, of which the last fault is taken; may not exist.
      error: the message so far; lines that only repeat it are left out.
    """
    faults: list[str] = []
    with contextlib.suppress(FileNotFoundError), open(log, errors="replace") as file:
        faults += (line.strip() for line in file if _FAULT.search(line))
    news = [line for line in faults if line.rstrip(".") not in error]
    return f" The job server's last words: {news[-1]}" if news else ""


def end_with_parent(number: signal.Signals) -> None:
    """Lets Linux send this process a signal when its parent ends, even by SIGKILL."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, number)
