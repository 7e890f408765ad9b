"""The command line in a forked process that has already loaded the program and Beam.

A real process spends a second of processor time on imports before it does anything.
Here one server per test process imports once and forks for each run:

    done = fork_server.run("convert", source, output)
    assert done.returncode == 0, done.stderr

A run gets its own arguments, environment, folder, umask, standard streams and session.
It ends as `python -m beam_pipeline` does, so that exit codes are those of the program.

A fork differs from a real process in what happens before the first line of the program.
These tests start real processes:

    start-up           how quick `--help` is, what it imports, wheels, shadowing modules
    the interpreter    locale, encoding, `PYTHON...`, closed standard streams, limits
    signals            programs that are stopped, killed or paused, and their workers
    determinism        a fork has the hash seed of the server, a process one of its own
    programs           those of the pages, of `python -c`, and all that a shell starts

`run` refuses an environment that changes how Python starts.
"""

import atexit
import dataclasses
import functools
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from typing import TextIO, cast

__all__ = ["Started", "run", "start"]

# Variables that Python or its libraries read before the program begins.
_AT_START = ("PYTHON", "LC_", "LANG", "LD_", "OPENBLAS_", "OMP_")
_MOST_BYTES = 1 << 20


def run(
    *arguments: object,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 60,
) -> "subprocess.CompletedProcess[str]":
    """Runs the command line; what it prints is captured, and nothing is on stdin.

    Raises:
      subprocess.TimeoutExpired: it took longer than the timeout in seconds.
    """
    with (
        open(os.devnull, "rb") as nothing,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as errors,
    ):
        streams = (nothing.fileno(), out.fileno(), errors.fileno())
        code = start(*arguments, streams=streams, cwd=cwd, env=env).wait(timeout)
        printed = []
        for file in (out, errors):
            file.seek(0)
            printed.append(file.read().decode())
    return subprocess.CompletedProcess([*map(str, arguments)], code, *printed)


def start(
    *arguments: object,
    streams: tuple[int, int, int],
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
) -> "Started":
    """Starts the command line; the one before it must have ended.

    Args:
      arguments: of the program.
      streams: file descriptors of its stdin, stdout and stderr.
      cwd: the folder to run in; without it, that of this process.
      env: all of its environment; without it, that of this process.
    """
    environment = dict(os.environ if env is None else env)
    server = _server()
    if _at_start(environment) != server.at_start:
        raise ValueError(
            "The environment changes how Python starts; run a real process instead."
        )
    umask = os.umask(0)
    os.umask(umask)
    request = {
        "arguments": [*map(str, arguments)],
        "environment": environment,
        "folder": os.path.abspath(cwd or os.getcwd()),
        "umask": umask,
    }
    return server.start(json.dumps(request).encode(), streams)


def _at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {k: v for k, v in environment.items() if k.startswith(_AT_START)}


@dataclasses.dataclass
class Started:
    """A run of the command line.

    Attributes:
      pid: of its process, which leads a session and a process group.
    """

    pid: int
    server: "_Server"
    returncode: int | None = None

    def wait(self, timeout: float) -> int:
        """Returns its exit code, negative for a signal, as `subprocess` does."""
        if self.returncode is None:
            if not select.select([self.server.connection], [], [], timeout)[0]:
                os.killpg(self.pid, signal.SIGKILL)
                self.returncode = self.server.ended()
                raise subprocess.TimeoutExpired("beam-tfrecord", timeout)
            self.returncode = self.server.ended()
        return self.returncode


class _Server:
    """The process that forks, as its client sees it; serves one run at a time."""

    def __init__(self) -> None:
        self.at_start = _at_start(os.environ)
        self.connection, theirs = socket.socketpair(
            socket.AF_UNIX, socket.SOCK_SEQPACKET
        )
        self.busy = False
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        atexit.register(self.close)

    def start(self, request: bytes, streams: tuple[int, int, int]) -> Started:
        assert not self.busy, "the run before it has not ended"
        socket.send_fds(self.connection, [request], streams)
        self.busy = True
        return Started(self._answer(), self)

    def ended(self) -> int:
        self.busy = False
        return self._answer()

    def _answer(self) -> int:
        answer = self.connection.recv(_MOST_BYTES)
        assert answer, "the server that forks has ended; its error is above"
        return int(answer)

    def close(self) -> None:
        self.connection.close()
        self.process.wait()


@functools.cache
def _server() -> _Server:
    return _Server()


def _load() -> None:
    """Imports what the program's commands import, in its own order."""
    from beam_pipeline import commands
    from beam_pipeline.beam_internals.loading import beam_loading, spare_imports

    importlib.import_module("beam_pipeline.cli")
    spare_imports()
    with beam_loading() as loaded:
        loaded()
    for module in pkgutil.iter_modules(commands.__path__):
        importlib.import_module(f"{commands.__name__}.{module.name}")
    # What is there now is never garbage, and stays in pages that the children share.
    gc.collect()
    gc.freeze()


def _serve(connection: socket.socket) -> bool:
    """Forks for each request; returns True in a child, and False at the end."""
    while True:
        request, streams, _, _ = socket.recv_fds(connection, _MOST_BYTES, 3)
        if not request:
            return False
        assert threading.active_count() == 1, "a process with threads must not fork"
        pid = os.fork()
        if not pid:
            connection.close()
            _become(streams, **json.loads(request))
            return True
        for number in streams:
            os.close(number)
        connection.send(b"%d" % pid)
        _, status = os.waitpid(pid, 0)
        connection.send(b"%d" % os.waitstatus_to_exitcode(status))


def _become(
    streams: list[int],
    arguments: list[str],
    environment: dict[str, str],
    folder: str,
    umask: int,
) -> None:
    """Makes a forked child what a new process for the program would be."""
    os.setsid()
    os.umask(umask)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    tempfile.tempdir = None
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    # The old ones remember what their files were.
    sys.stdin = _opened(0, "r", sys.stdin)
    sys.stdout = _opened(1, "w", sys.stdout)
    sys.stderr = _opened(2, "w", sys.stderr)
    sys.stderr.reconfigure(line_buffering=True)
    sys.argv = ["beam_pipeline", *arguments]
    sys.orig_argv = [sys.executable, "-m", *sys.argv]
    sys.path.insert(0, folder)


def _opened(number: int, mode: str, like: TextIO) -> io.TextIOWrapper:
    """Opens a standard stream as Python does at its start."""
    return cast(
        "io.TextIOWrapper",
        open(number, mode, encoding=like.encoding, errors=like.errors, closefd=False),
    )


if __name__ == "__main__":
    # Python puts this file's folder first, whose modules are not the program's.
    del sys.path[0]
    _load()
    if _serve(socket.socket(fileno=int(sys.argv[1]))):
        # Here, not in a function, so that the interpreter ends as it always does.
        runpy.run_module("beam_pipeline", run_name="__main__", alter_sys=True)
