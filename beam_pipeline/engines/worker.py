"""The start program of a worker: Beam's container contract without a container.

    worker --id=ID --provision_endpoint=HOST:PORT [--semi_persist_dir=DIR ...]

An engine's process environment runs one executable file, with these arguments alone. It
gets this interpreter with this module path, so that a worker runs the same code as the
submitter, installed or not.
"""

import argparse
import importlib.metadata
import os
import platform
import shlex
import stat
import sys
import threading
import time
from collections.abc import Sequence
from typing import NoReturn

from beam_pipeline.version import __version__

_START = (
    "import sys; count = int(sys.argv[1]); "
    "sys.path[:] = sys.argv[2:2 + count]; "
    "from beam_pipeline.engines.worker import boot; "
    "boot(sys.argv[2 + count:])"
)
_LOOK_SECONDS = 1.0


def start_command() -> list[str]:
    """Returns the command that boots a worker, to which an engine's flags are added."""
    places = [os.path.abspath(entry) for entry in sys.path]
    return [sys.executable, "-c", _START, str(len(places)), *places]


def write_worker(path: str) -> None:
    """Writes the executable file that an engine is to start as a worker.

    Args:
      path: where; on a file system that every machine of the engine sees.
    """
    with open(path, "w", encoding="utf-8") as file:
        file.write(f'#!/bin/sh\nexec {shlex.join(start_command())} "$@"\n')
        mode = os.fstat(file.fileno()).st_mode
        os.fchmod(file.fileno(), mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)


def boot(argv: Sequence[str], *, name: str | None = None) -> None:
    """Asks the engine what to do, and works for it until it hangs up.

    Args:
      argv: the engine's flags.
      name: of the program in messages; None for the one of this process.
    """
    parser = argparse.ArgumentParser(name, allow_abbrev=False)
    for required in ("id", "provision_endpoint"):
        parser.add_argument(f"--{required}", required=True)
    given, _ = parser.parse_known_args(argv)
    # The engine may never read stdout, and a full pipe would block the worker.
    os.dup2(2, 1)
    parent = os.getppid()
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    # Beam's modules read it from here as they are loaded. Prism quotes it as if a shell
    # would unquote it.
    os.environ["WORKER_ID"] = given.id.strip("'")
    # Imported after the thread has started: it takes a second, and the parent may die.
    from beam_pipeline.beam_internals.engine_worker import serve_engine

    serve_engine(given.provision_endpoint)


def _end_with(parent: int) -> None:
    """Ends this process when its parent has ended, even in the middle of work."""
    while os.getppid() == parent:
        time.sleep(_LOOK_SECONDS)
    os._exit(1)


_NAME = "beam-tfrecord-worker"
_USAGE = f"""usage: {_NAME} --id=ID --provision_endpoint=HOST:PORT

Works for an engine, which starts it. Beam's pool starts it as well:

  python -m apache_beam.runners.worker.worker_pool_main --service_port=50000 \\
      --container_executable=PATH_OF_{_NAME.upper()}
"""


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Runs the command line and exits: 0 when the engine hangs up, 2 usage error."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["--version"]:
        sys.stdout.write(f"{_versions()}\n")
    elif arguments[:1] == ["--help"]:
        sys.stdout.write(_USAGE)
    elif not arguments or not arguments[0].startswith("--"):
        sys.stderr.write(_USAGE)
        sys.exit(2)
    else:
        boot(arguments, name=_NAME)
    sys.exit(0)


def _versions() -> str:
    beam = importlib.metadata.version("apache-beam")
    python = platform.python_version()
    return f"beam-tfrecord {__version__}, Beam {beam}, Python {python}"
