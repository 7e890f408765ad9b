"""The worker's start program: Beam's container contract without a container.

    worker --id=ID --provision_endpoint=HOST:PORT [--semi_persist_dir=DIR ...]

The engine's process environment runs one executable file, with these arguments alone.
`write_worker` makes that file: it starts the submitter's interpreter with the
submitter's module path, so that the worker runs the same code, installed or not.
"""

import argparse
import os
import shlex
import stat
import sys
import threading
import time
from collections.abc import Sequence

from beam_pipeline.engines.sign_on import SIGN_ON

__all__ = ["main", "write_worker"]

_START = (
    "import sys; count = int(sys.argv[1]); "
    "sys.path[:] = sys.argv[2:2 + count]; "
    "from beam_pipeline.engines.worker_boot import main; "
    "main(sys.argv[2 + count:])"
)
_LOOK_SECONDS = 1.0


def write_worker(path: str, *, started: str) -> None:
    """Writes the executable file that an engine is to start as a worker.

    Args:
      path: where; on a file system that every machine of the engine sees.
      started: folder where workers sign on.
    """
    places = [os.path.abspath(place) for place in sys.path]
    start = [sys.executable, "-c", _START, str(len(places)), *places]
    command = shlex.join(start)
    # The sign-on file comes before anything can fail; `exec` keeps the process id.
    sign_on = f": >{shlex.quote(started)}/$${SIGN_ON}"
    with open(path, "w", encoding="utf-8") as file:
        file.write(f'#!/bin/sh\n{sign_on}\nexec {command} "$@"\n')
        mode = os.fstat(file.fileno()).st_mode
        os.fchmod(file.fileno(), mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)


def main(argv: Sequence[str]) -> None:
    """Asks the engine what to do, and works for it until it hangs up."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name in ("id", "provision_endpoint"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--semi_persist_dir", default="")
    given, _ = parser.parse_known_args(argv)
    # The engine may never read stdout, and a full pipe would block the worker.
    os.dup2(2, 1)
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    # Imported after the thread has started: it takes a second, and the parent may die.
    from beam_pipeline.beam_internals.engine_worker import serve_engine

    # Prism quotes the id as if a shell would unquote it.
    worker_id = given.id.strip("'")
    serve_engine(worker_id, given.provision_endpoint)


def _end_with_parent(parent: int) -> None:
    """Ends this process when its parent has ended, even in the middle of work."""
    while os.getppid() == parent:
        time.sleep(_LOOK_SECONDS)
    os._exit(1)
