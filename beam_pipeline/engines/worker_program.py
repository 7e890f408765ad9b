"""The command `beam-tfrecord-worker`: what an image of workers runs.

    beam-tfrecord-worker pool --port 50000      beside an engine's machine
    beam-tfrecord-worker boot --id=ID ...       as the engine starts a worker itself

It knows nothing of the submitter: all that a worker does comes with the job. An engine
adds its flags to the path of one file, so `boot` may be left out before them.
"""

import argparse
import importlib.metadata
import platform
import sys
from collections.abc import Sequence
from typing import NoReturn

from beam_pipeline.beam_internals.loading import quiet_import
from beam_pipeline.engines.worker_boot import boot, start_command
from beam_pipeline.version import __version__
from transforms.errors import BeamTFRecordError

_NAME = "beam-tfrecord-worker"
_LAST_PORT = 65_535
_SPARES = 2


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Runs the command line and exits: 0 when stopped, 1 failed, 2 usage error."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["boot"] or _is_flag_of_engine(arguments):
        boot(arguments[arguments[0] == "boot" :], name=f"{_NAME} boot")
        sys.exit(0)
    given = _parser().parse_args(arguments)
    # Imported late: `--help` answers without Beam.
    quiet_import()
    from beam_pipeline.beam_internals.worker_pool import serve_pool

    try:
        serve_pool(
            given.host,
            given.port,
            command=start_command(),
            versions=_versions(),
            spares=given.spares,
        )
    except BeamTFRecordError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(error.exit_code)
    sys.exit(0)


def _is_flag_of_engine(arguments: Sequence[str]) -> bool:
    """Whether a command line begins as Beam's container contract has it."""
    name = arguments[0].partition("=")[0] if arguments else ""
    return name.startswith("--") and name not in ("--help", "--version")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        _NAME, description="Runs workers of beam-tfrecord where an engine runs."
    )
    parser.add_argument("--version", action="version", version=_versions())
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    pool = commands.add_parser(
        "pool", help="start workers as engines ask for them; see --worker-pool"
    )
    pool.add_argument(
        "--port", type=_port, default=50_000, help="to listen on; 0: a free one [50000]"
    )
    pool.add_argument(
        "--host",
        default="localhost",
        help="to listen on; whoever reaches it can run programs here [localhost]",
    )
    pool.add_argument(
        "--spares",
        type=_count,
        default=_SPARES,
        metavar="N",
        help="processes that wait to be workers while there are none, of 200 MB each; "
        f"a task slot each is best [{_SPARES}]",
    )
    commands.add_parser(
        "boot", help="work for an engine that gives --id and --provision_endpoint"
    )
    return parser


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port <= _LAST_PORT:
        raise argparse.ArgumentTypeError(f"a port is 0 to {_LAST_PORT}")
    return port


def _count(text: str) -> int:
    count = int(text)
    if count < 0:
        raise argparse.ArgumentTypeError("a number is 0 or more")
    return count


def _versions() -> str:
    beam = importlib.metadata.version("apache-beam")
    python = platform.python_version()
    return f"beam-tfrecord {__version__}, Beam {beam}, Python {python}"
