"""The start program of a worker: Beam's container contract without a container.

    worker --id=ID --provision_endpoint=HOST:PORT [--semi_persist_dir=DIR ...]

An engine's process environment runs one executable file, with these arguments alone,
and so does a pool. Both get this interpreter with this module path, so that a worker
runs the same code as what starts it, installed or not.

A worker signs on first of all, by a file with the number of its process. Prism does not
notice that a worker has died, and waits for ever. Reports do not show it either where
the worker has died before its first bundle; the file does.
"""

import argparse
import importlib
import json
import os
import shlex
import shutil
import signal
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Sequence

_START = (
    "import sys; count = int(sys.argv[1]); "
    "sys.path[:] = sys.argv[2:2 + count]; "
    "from beam_pipeline.engines.worker_boot import boot; "
    "boot(sys.argv[2 + count:])"
)
_LOOK_SECONDS = 1.0
SIGN_ON = ".worker"
"""Suffix of the files by which workers sign on; the process id comes before it."""


def start_command() -> list[str]:
    """Returns the command that boots a worker, to which an engine's flags are added."""
    places = [os.path.abspath(place) for place in sys.path]
    return [sys.executable, "-c", _START, str(len(places)), *places]


def write_worker(path: str, *, started: str) -> None:
    """Writes the executable file that an engine is to start as a worker.

    Args:
      path: where; on a file system that every machine of the engine sees.
      started: folder where workers sign on.
    """
    command = shlex.join(start_command())
    # The sign-on file comes before anything can fail; `exec` keeps the process id.
    sign_on = f": >{shlex.quote(started)}/$${SIGN_ON}"
    with open(path, "w", encoding="utf-8") as file:
        file.write(f'#!/bin/sh\n{sign_on}\nexec {command} "$@"\n')
        mode = os.fstat(file.fileno()).st_mode
        os.fchmod(file.fileno(), mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)


def boot(argv: Sequence[str], *, name: str | None = None) -> None:
    """Asks the engine what to do, and works for it until it hangs up.

    Args:
      argv: the engine's flags, and those of a pool: `--pool`, its process, with which
        the worker ends; `--scratch`, the folder of temporary files that it then
        removes; or `--spare` for a process that gets all others later, as a line of
        JSON on stdin.
      name: of the program in messages; None for the one of this process.
    """
    parser = argparse.ArgumentParser(name, allow_abbrev=False)
    is_spare = "--spare" in argv
    for required in ("id", "provision_endpoint"):
        parser.add_argument(f"--{required}", required=not is_spare)
    parser.add_argument("--pool", type=int, default=os.getppid())
    parser.add_argument("--scratch", default="")
    given, _ = parser.parse_known_args(argv)
    # The engine may never read stdout, and a full pipe would block the worker.
    os.dup2(2, 1)
    ending = threading.Thread(target=_end_with, args=(given,), daemon=True)
    ending.start()
    if is_spare and not _become_worker(parser, given):
        return
    # Beam's modules read it from here as they are loaded. Prism quotes it as if a shell
    # would unquote it.
    os.environ["WORKER_ID"] = given.id.strip("'")
    # Imported after the thread has started: it takes a second, and the parent may die.
    from beam_pipeline.beam_internals.engine_worker import serve_engine

    serve_engine(given.provision_endpoint)


def _become_worker(parser: argparse.ArgumentParser, given: argparse.Namespace) -> bool:
    """Waits until the pool has work for this process, which imports Beam meanwhile.

    Returns:
      False where the pool has none, for it has ended.
    """
    # Ctrl-C ends it without a traceback, as it ends the pool.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    importlib.import_module("beam_pipeline.beam_internals.engine_worker")
    # What jobs of this program unpickle.
    importlib.import_module("beam_pipeline.graph")
    line = sys.stdin.readline()
    if not line.endswith("\n"):
        return False
    parser.parse_known_args(json.loads(line), namespace=given)
    os.environ["TMPDIR"] = given.scratch
    tempfile.tempdir = None
    return True


def _end_with(given: argparse.Namespace) -> None:
    """Ends this process when its parent has ended, even in the middle of work."""
    while os.getppid() == given.pool:
        time.sleep(_LOOK_SECONDS)
    if given.scratch:
        shutil.rmtree(given.scratch, ignore_errors=True)
    os._exit(1)


def absent(folder: str) -> list[int]:
    """Returns the process ids of workers that have signed on and ended."""
    names = [name for name in os.listdir(folder) if name.endswith(SIGN_ON)]
    pids = sorted(int(name.removesuffix(SIGN_ON)) for name in names)
    return [pid for pid in pids if not _runs(pid)]


def _runs(pid: int) -> bool:
    """Whether a process is alive."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
