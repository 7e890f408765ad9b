"""The start program of a worker: Beam's container contract without a container.

    worker --id=ID --provision_endpoint=HOST:PORT [--semi_persist_dir=DIR ...]

An engine's process environment runs one executable file, with these arguments alone. It
gets this interpreter with this module path, so that a worker runs the same code as the
submitter, installed or not.
"""

import argparse
import os
import shlex
import sys
import threading
import time
from collections.abc import Sequence

_START = (
    "import sys; sys.path[:] = {}; "
    "from beam_pipeline.engines.worker import main; main()"
)
_LOOK_SECONDS = 1.0


def write_worker(path: str) -> None:
    """Writes the executable file that an engine is to start as a worker.

    Args:
      path: where; on a file system that every machine of the engine sees.
    """
    # In no variable: what the worker starts may be Python of another version.
    places = [os.path.abspath(entry) for entry in sys.path]
    command = [sys.executable, "-c", _START.format(places)]
    with open(path, "w", encoding="utf-8") as file:
        file.write(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
        os.fchmod(file.fileno(), 0o755)


def main(argv: Sequence[str] | None = None) -> None:
    """Asks the engine what to do, and works for it until it hangs up.

    Exits with 2 for a usage error.

    Args:
      argv: the engine's flags; None for those of this process.
    """
    parser = argparse.ArgumentParser("beam-tfrecord-worker", allow_abbrev=False)
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
