"""Choose the engine and its place from the settings, or refuse with a reason."""

import dataclasses
import importlib.metadata
import ipaddress
import json
import os
import re
import socket
import tempfile
import urllib.error
import urllib.request
from collections.abc import Sequence

from beam_pipeline.engines import cluster
from beam_pipeline.engines.dataflow import DATAFLOW
from beam_pipeline.engines.dataflow_checks import check_dataflow
from beam_pipeline.engines.engine import Engine, JobSettings, Place
from beam_pipeline.engines.flags import flag_given, flag_stands
from beam_pipeline.engines.flink import FLINK, FLINK_VERSION
from beam_pipeline.engines.flink_jobs import flink_url
from beam_pipeline.engines.java import JavaError, find_java
from beam_pipeline.engines.prism import PRISM
from beam_pipeline.engines.table import engine_of
from transforms.errors import TargetError, UsageError
from transforms.storage import paths

__all__ = ["Chosen", "choose"]

_ASK_SECONDS = 10
# Flink starts a cluster of its own within the job server.
_WITHIN = ("[local]", "[auto]")
# Flags of who starts workers in a way of their own.
_ENVIRONMENT = ("environment_type", "environment_config")


@dataclasses.dataclass(frozen=True)
class Chosen:
    """An engine and where it runs; the worker's paths are still to be filled in."""

    engine: Engine
    place: Place


def choose(settings: JobSettings, beam_flags: Sequence[str]) -> Chosen | None:
    """Returns where the job is to run; None for this machine, in this process.

    Args:
      settings: of the job.
      beam_flags: Beam's own flags; `--runner` among them wins over theirs.

    Raises:
      UsageError: there is no such runner, what it needs is not there, or its workers
        would not see what starts them.
      TargetError: its workers would not see the source or the output.
    """
    engine = engine_of(flag_given(beam_flags, "runner") or settings.runner)
    if engine is None:
        return None
    parallelism = settings.workers if isinstance(settings.workers, int) else None
    if engine is DATAFLOW:
        check_dataflow(settings, beam_flags)
        return Chosen(engine, Place("", "", parallelism=parallelism))
    noted = cluster.last_started(engine.name)
    master = _master(engine, settings, beam_flags, noted)
    _check_shared(engine, master, settings, beam_flags)
    place = Place(
        worker="",
        artifacts="",
        master=master,
        program=_program(engine, beam_flags),
        parallelism=parallelism,
    )
    if engine is PRISM:
        return Chosen(engine, place)
    if flag_given(beam_flags, "job_server_java_launcher") is None:
        try:
            place = dataclasses.replace(place, java=find_java())
        except JavaError as error:
            raise UsageError(str(error)) from error
    if noted is not None and noted.master == master:
        machines, slots = noted.workers, noted.slots
    elif engine is FLINK and master not in _WITHIN:
        machines, slots = _size_of_flink(master)
    else:
        return Chosen(engine, place)
    if place.parallelism is None:
        place = dataclasses.replace(place, parallelism=max(machines * slots, 1))
    return Chosen(engine, dataclasses.replace(place, slots=max(slots, 1)))


def _master(
    engine: Engine,
    settings: JobSettings,
    beam_flags: Sequence[str],
    noted: cluster.Cluster | None,
) -> str:
    if not engine.master_flag:
        return ""
    said = {"flink": settings.flink_master, "spark": settings.spark_master}[engine.name]
    return (
        flag_given(beam_flags, engine.master_flag)
        or said
        or (noted.master if noted else engine.default_master)
    )


def _program(engine: Engine, beam_flags: Sequence[str]) -> str:
    """Returns the path of what takes the job, after looking that it is there."""
    if given := flag_given(beam_flags, engine.program_flag):
        return given
    version = importlib.metadata.version("apache-beam")
    if engine.artifact:
        what = f"Beam's job server {engine.artifact} {version}"
        path = cluster.jar_path(engine.artifact, version)
        found = cluster.find_jar(engine.artifact, version)
    else:
        what, path = f"Prism {version}", cluster.prism_path(version)
        found = path if path.is_file() else None
    if found is None:
        raise UsageError(
            f"{what} must lie at {str(path)!r}; there is none. 'scripts/cluster "
            f"{engine.name} up' fetches it, or name another after --: "
            f"--{engine.program_flag}=PATH."
        )
    return str(found)


def _check_shared(
    engine: Engine, master: str, settings: JobSettings, beam_flags: Sequence[str]
) -> None:
    """Refuses folders of this machine where the workers are on others.

    What starts a worker, and what it leaves, is a file too: it is in the work folder,
    or where that is in an object store in the folder of temporary files.
    """
    host = _host(master)
    if not host or _is_here(host):
        return
    who = f"The workers of {engine.name} at {host!r}"
    ours = not any(flag_stands(beam_flags, flag) for flag in _ENVIRONMENT)
    shares = settings.shared_output and os.environ.get("TMPDIR")
    if paths.is_remote(settings.output) and ours and not shares:
        raise UsageError(
            f"{who} must see the file that starts them; with an output in an object "
            f"store it lies in this machine's {tempfile.gettempdir()!r}. Set TMPDIR to "
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


def _host(master: str) -> str:
    if master in _WITHIN or re.fullmatch(r"local(\[.*\])?", master):
        return ""
    return master.rpartition("//")[2].partition("/")[0].partition(":")[0]


def _is_here(host: str) -> bool:
    if host in ("localhost", socket.gethostname(), socket.getfqdn()):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _size_of_flink(master: str) -> tuple[int, int]:
    """Returns task managers, and slots of each, of a running Flink.

    Raises:
      UsageError: there is none, or not of the job server's version.
    """
    url = flink_url(master)
    try:
        with urllib.request.urlopen(f"{url}/overview", timeout=_ASK_SECONDS) as answer:
            seen = json.load(answer)
        version = str(seen["flink-version"])
        machines, slots = int(seen["taskmanagers"]), int(seen["slots-total"])
    except (OSError, urllib.error.URLError, ValueError, KeyError) as error:
        raise UsageError(
            f"There must be a Flink at {master!r}; found none: {error}. Start one with "
            f"'scripts/cluster flink up', or name another with --flink-master."
        ) from error
    if not version.startswith(f"{FLINK_VERSION}."):
        raise UsageError(
            f"The Flink at {master!r} must be of {FLINK_VERSION}, as the job server "
            f"is; found {version}."
        )
    if not slots:
        raise UsageError(
            f"The Flink at {master!r} must have task slots; it has {machines} task "
            f"managers and no slot. Start one: bin/taskmanager.sh start."
        )
    return machines, -(-slots // max(machines, 1))
