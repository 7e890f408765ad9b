"""The job server of a run: it starts beside the graph, and ends with the run."""

import contextlib
import ctypes
import functools
import os
import pkgutil
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence

from apache_beam.options.pipeline_options import PipelineOptions

from beam_pipeline.engines.checks import why_silent
from beam_pipeline.engines.presets import Engine, brought
from transforms.errors import BeamTFRecordError, UsageError

_LOOK_SECONDS = 0.1
# After it a job server is ended by force; it archives its classes in 3 s.
_LEAVE_SECONDS = 20.0
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
        words, endpoint = server_of(options).subprocess_cmd_and_endpoint()
        program, made = brought(engine.program), f"{log}.jsa"
        command = _with_classes([str(word) for word in words], program, made)
        with open(log, "wb") as out:
            server = subprocess.Popen(
                command,
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
            f"The job server of {engine.name} cannot start: {said}. Those of Flink and "
            f"Spark need Java 17, by JAVA_HOME or the PATH. In a checkout, "
            f"'scripts/cluster {engine.name} up' downloads it; or name one after --: "
            f"{other.format(program='PATH')}."
        ) from error
    try:
        yield endpoint, until_ready
    finally:
        server.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(_LEAVE_SECONDS)
        server.kill()
        server.wait()
    if server.returncode == -signal.SIGKILL:
        # What it has archived until then is not whole.
        return
    # Of a job that has not failed: it has loaded all that jobs load.
    with contextlib.suppress(OSError):
        copy = shutil.copyfile(made, f"{_classes(program)}.{os.getpid()}")
        os.replace(copy, _classes(program))


def _classes(jar: str) -> str:
    """Returns the path of the archive of a jar's classes."""
    return f"{jar}.jsa"


def _with_classes(command: Sequence[str], jar: str, made: str) -> Sequence[str]:
    """Returns a command of Java that maps its classes from an archive, or makes one.

    That starts a job 1.2 s earlier than by the jar. Java itself ignores an archive that
    does not fit (https://docs.oracle.com/en/java/javase/17/vm/class-data-sharing.html).

    Args:
      command: that starts a job server.
      jar: in our own cache, with its archive beside it; other jars have none.
      made: where Java makes an archive as it ends.
    """
    java = shutil.which(command[0])
    if java is None or jar not in command or not jar.endswith(".jar"):
        return command
    option = f"-XX:ArchiveClassesAtExit={made}"
    with contextlib.suppress(FileNotFoundError):
        # Both change when they are installed, whatever time their files have.
        installed = max(os.stat(java).st_ctime, os.stat(jar).st_ctime)
        if os.stat(_classes(jar)).st_mtime > installed:
            option = f"-XX:SharedArchiveFile={_classes(jar)}"
    return [java, option, *command[1:]]


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
    """Lets Linux end a job server by a signal when its parent ends, even by SIGKILL."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, number)
