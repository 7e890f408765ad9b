"""Job servers: those that run, and those that are found on this machine and started."""

import contextlib
import ctypes
import functools
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence

from beam_pipeline.engines.beam_errors import telling
from transforms.errors import BeamTFRecordError, UsageError

# How long a job server or a master may take to answer.
_ASK_SECONDS = 10.0
_LOOK_SECONDS = 0.1
# After it a job server is ended by force.
_END_SECONDS = 5.0
_LOG_BYTES = 1 << 16
_PR_SET_PDEATHSIG = 1
# Loaded before the fork: between fork and exec a child may call hardly anything.
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def _cached(*names: str) -> pathlib.Path:
    """Returns a path below the folder where `scripts/cluster` puts what it brings."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return pathlib.Path(base, "beam-tfrecord", *names)


def jar_path(artifact: str, version: str) -> pathlib.Path:
    """Returns where a job server of Beam is, as published, brought or not."""
    return _cached("jars", f"{artifact}-{version}.jar")


def find_jar(artifact: str, version: str) -> pathlib.Path | None:
    """Returns the job server that is there: as published, else as put together last."""
    published = jar_path(artifact, version)
    if published.is_file():
        return published
    made = published.parent.glob(f"{artifact}-{version}-of-*.jar")
    return max(made, key=lambda path: path.stat().st_mtime_ns, default=None)


def find_java() -> str:
    """Returns the path of `java`: of JAVA_HOME, else of the PATH.

    Raises:
      UsageError: there is none.
    """
    home = os.environ.get("JAVA_HOME")
    where = os.path.join(home, "bin", "java") if home else "java"
    path = shutil.which(where)
    if path is None:
        raise UsageError(
            f"Job servers need Java 17, and there is no {where!r}. Install it (Debian: "
            f"apt install openjdk-17-jre-headless), or let JAVA_HOME name its folder."
        )
    return path


def find_program(name: str, artifact: str, flag: str) -> str:
    """Returns the path of what takes the jobs of an engine.

    Args:
      name: of the engine.
      artifact: of its job server, in Beam's own repository; empty for a program.
      flag: Beam's, that names another one.

    Raises:
      UsageError: it is not there.
    """
    # Here, since it takes long to load, and the command line asks for the engines.
    import importlib.metadata

    version = importlib.metadata.version("apache-beam")
    what, fetched = f"{name.capitalize()} {version}", ""
    path = _cached("engines", f"{name}-{version}-loopback")
    program = path if path.is_file() else None
    if artifact:
        what = f"Beam's job server {artifact} {version}"
        fetched = f"; Maven may have it as org.apache.beam:{artifact}:{version}"
        path = jar_path(artifact, version)
        program = find_jar(artifact, version)
    if program is None:
        raise UsageError(
            f"{what} must be at {str(path)!r}; there is no such file. In a checkout, "
            f"'scripts/cluster {name} up' brings it{fetched}. Or name another after "
            f"--: --{flag}=PATH."
        )
    return str(program)


def _connect(address: str) -> None:
    """Raises OSError, ValueError where nobody takes connections at HOST:PORT."""
    host, _, port = address.rpartition(":")
    if not port.isdecimal():
        raise ValueError("its address must end with a port, as in :7077")
    socket.create_connection((host.strip("[]"), int(port)), _ASK_SECONDS).close()


def check_job_server(endpoint: str) -> None:
    """Refuses the address of a job server that nobody answers at.

    Beam would wait for it as long as for the job.

    Raises:
      UsageError: there is none.
    """
    # Here, since it takes long to load.
    import grpc

    try:
        _connect(endpoint)
        with grpc.insecure_channel(endpoint) as channel:
            grpc.channel_ready_future(channel).result(timeout=_ASK_SECONDS)
    except (OSError, OverflowError, ValueError, grpc.FutureTimeoutError) as error:
        why = str(error) or "what answers there is no gRPC server"
        raise UsageError(
            f"There must be a job server at {endpoint!r}; found none: {why}. Start "
            f"it, or leave out --job_endpoint: each job then starts its own."
        ) from error


def check_spark(master: str) -> None:
    """Refuses a standalone master at which nobody answers; Spark tries for a minute.

    Args:
      master: as Spark writes it: `spark://host:port`, with more of them behind commas
        where one takes over from another. Other kinds are not asked.

    Raises:
      UsageError: none answers.
    """
    kind, _, hosts = master.rpartition("//")
    if kind != "spark:":
        return
    why = ""
    for host in hosts.split(","):
        try:
            return _connect(host)
        except (OSError, OverflowError, ValueError) as error:
            why = str(error)
    raise UsageError(
        f"There must be a Spark at {master!r}; found none: {why}. Start it, or "
        f"name another after --: --spark_master_url=URL; in a checkout, "
        f"'scripts/cluster spark up' starts one for trials."
    )


@contextlib.contextmanager
def started(
    name: str, command: Sequence[str], port: int, room: str
) -> Iterator[Callable[[], list[str]]]:
    """Starts a job server, waits until it listens, and ends it.

    It has a session of its own: Ctrl-C in a terminal would reach it too, and end it
    before the job could be cancelled through it. Yields what returns its last lines.

    Args:
      name: of the engine.
      command: that starts the server.
      port: that it is to listen on.
      room: folder of its log.

    Raises:
      BeamTFRecordError: it has ended before it has listened.
    """
    log = os.path.join(room, "job-server.log")
    with open(log, "wb") as out:
        server = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            # Safe with threads: it calls one C function, which is loaded already.
            preexec_fn=_end_with_parent,
        )
    try:
        while not _listens(port):
            if server.poll() is not None:
                line = telling(_last_lines(log), "")
                raise BeamTFRecordError(
                    f"The job server of {name} must listen until the job ends; it has "
                    f"ended with {server.returncode}. Its last words: {line}"
                )
            time.sleep(_LOOK_SECONDS)
        yield functools.partial(_last_lines, log)
    finally:
        server.terminate()
        try:
            server.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def free_port() -> int:
    """Returns a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    return port


def _end_with_parent() -> None:
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _listens(port: int) -> bool:
    try:
        _connect(f"localhost:{port}")
    except OSError:
        return False
    return True


def _last_lines(path: str) -> list[str]:
    """Returns the end of a log; a Java trace fits."""
    with open(path, "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _LOG_BYTES))
        return file.read().decode("utf-8", "replace").splitlines()
