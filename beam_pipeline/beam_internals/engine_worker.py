"""The start program of a worker: Beam's container contract without a container.

    worker --id=ID --provision_endpoint=HOST:PORT [--semi_persist_dir=DIR ...]

An engine's process environment runs one executable file, with these arguments alone. It
gets this interpreter with this module path, so that a worker runs the same code as the
submitter, installed or not.
"""

import argparse
import json
import os
import shlex
import sys
import threading
import time
from collections.abc import Sequence

_START = (
    "import sys; sys.path[:] = {}; "
    "from beam_pipeline.beam_internals.engine_worker import main; main()"
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
    _serve_engine(given.provision_endpoint)


def _end_with(parent: int) -> None:
    """Ends this process when its parent has ended, even in the middle of work."""
    while os.getppid() == parent:
        time.sleep(_LOOK_SECONDS)
    os._exit(1)


def _serve_engine(endpoint: str) -> None:
    """Asks the engine with this provision service what to do, and does it."""
    # Imported after the thread has started: it takes a second, and the parent may die.
    import grpc
    from apache_beam.portability.api import (
        beam_provision_api_pb2,
        beam_provision_api_pb2_grpc,
    )
    from apache_beam.runners.worker import sdk_worker_main
    from google.protobuf import json_format, text_format

    channel = grpc.insecure_channel(endpoint)
    stub = beam_provision_api_pb2_grpc.ProvisionServiceStub(channel)
    info = stub.GetProvisionInfo(
        beam_provision_api_pb2.GetProvisionInfoRequest(),
        metadata=(("worker_id", os.environ["WORKER_ID"]),),
        wait_for_ready=True,
    ).info
    options = json.dumps(json_format.MessageToDict(info.pipeline_options))
    os.environ.update(
        PIPELINE_OPTIONS=options,
        RUNNER_CAPABILITIES=" ".join(info.runner_capabilities),
    )
    for service in ("control", "logging", "status"):
        field = f"{service}_endpoint"
        if info.HasField(field):
            os.environ[f"{service.upper()}_API_SERVICE_DESCRIPTOR"] = (
                text_format.MessageToString(getattr(info, field))
            )
    sdk_worker_main.main([])
