"""The command `beam-tfrecord-worker`: works for an engine, from the engine's image.

    beam-tfrecord-worker --id=ID --provision_endpoint=HOST:PORT ...

It is a program of Beam's container contract: an engine starts it as a process, and so
does Beam's pool, with `--container_executable`. It knows nothing of the submitter: all
that a worker does comes with the job.
"""

import importlib.metadata
import platform
import sys
from collections.abc import Sequence
from typing import NoReturn

from beam_pipeline.engines.worker_boot import boot
from beam_pipeline.version import __version__

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
