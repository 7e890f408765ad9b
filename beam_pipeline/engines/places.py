"""Find a job server, and check that its workers see what they need."""

import importlib.metadata
import ipaddress
import os
import re
import socket
import tempfile
from collections.abc import Sequence

from beam_pipeline.engines import cluster
from beam_pipeline.engines.engine import JobSettings
from beam_pipeline.engines.workers import environment_flags
from transforms.errors import TargetError, UsageError
from transforms.storage import paths

__all__ = [
    "WITHIN_SERVER",
    "check_job_server",
    "check_shared",
    "find_program",
    "host_elsewhere",
]

# Masters of Flink that are a cluster within the job server.
WITHIN_SERVER = ("[local]", "[auto]")
# How long a job server may take to answer.
_ASK_SECONDS = 10.0


def find_program(name: str, artifact: str, flag: str) -> str:
    """Returns the path of what takes the jobs of an engine.

    Args:
      name: of the engine.
      artifact: of its job server, in Beam's own repository; empty for a program.
      flag: Beam's, that names another one.

    Raises:
      UsageError: it is not there.
    """
    version = importlib.metadata.version("apache-beam")
    if artifact:
        what = f"Beam's job server {artifact} {version}"
        path = cluster.jar_path(artifact, version)
        found = cluster.find_jar(artifact, version)
    else:
        what, path = (
            f"{name.capitalize()} {version}",
            cluster.program_path(name, version),
        )
        found = path if path.is_file() else None
    if found is None:
        raise UsageError(
            f"{what} must be at {str(path)!r}; there is no such file. 'scripts/cluster "
            f"{name} up' fetches it, or name another after --: "
            f"--{flag}=PATH."
        )
    return str(found)


def check_job_server(endpoint: str) -> None:
    """Refuses the address of a job server that nobody answers at.

    Beam would wait for it as long as for the job.

    Raises:
      UsageError: there is none.
    """
    host, _, port = endpoint.rpartition(":")
    try:
        address = host.strip("[]"), int(port)
        with socket.create_connection(address, timeout=_ASK_SECONDS):
            pass
    except (OSError, ValueError) as error:
        raise UsageError(
            f"There must be a job server at {endpoint!r}; found none: {error}. Start "
            f"it, or leave out --job-endpoint: each job then starts its own."
        ) from error


def check_shared(
    name: str, master: str, settings: JobSettings, beam_flags: Sequence[str]
) -> None:
    """Refuses folders of this machine where the workers are on others.

    What starts a worker, and what it leaves, is a file too: it is in the work folder,
    or where that is in an object store in the folder of temporary files.
    """
    host = host_elsewhere(master)
    if not host:
        return
    who = f"The workers of {name} at {host!r}"
    ours = environment_flags(settings, beam_flags) is None
    shares = settings.shared_output and os.environ.get("TMPDIR")
    if paths.is_remote(settings.output) and ours and not shares:
        raise UsageError(
            f"{who} must see the file that starts them; with an output in an object "
            f"store it is in this machine's {tempfile.gettempdir()!r}. Set TMPDIR to "
            f"a folder that every machine sees under this very path and say "
            f"--shared-output, or use a master on this machine."
        )
    for what, path in (("source", settings.source), ("output", settings.output)):
        if not (settings.shared_output or paths.is_remote(path)):
            raise TargetError(
                f"{who} must see the {what}; {path!r} is a path of this machine. Say "
                f"--shared-output if every machine sees it under this very path, or "
                f"use a master on this machine."
            )


def host_elsewhere(master: str) -> str:
    """Returns the host of a master; empty where it is this machine."""
    host = _host(master)
    return "" if _is_here(host) else host


def _host(master: str) -> str:
    """Returns the host of a master; empty for one inside the job server."""
    if master in WITHIN_SERVER or re.fullmatch(r"local(\[.*\])?", master):
        return ""
    return master.rpartition("//")[2].partition("/")[0].partition(":")[0]


def _is_here(host: str) -> bool:
    """Whether a host is this machine."""
    if host in ("", "localhost", socket.gethostname(), socket.getfqdn()):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
