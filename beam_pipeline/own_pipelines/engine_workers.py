"""Where the workers of a user's pipeline are, as the pipeline's options say.

A master on another machine, or Beam's --environment_type, puts them elsewhere: they
share no disk with the program that builds the pipeline, unless its user says so.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import apache_beam as beam

from beam_pipeline.engines.checks import (
    START_THERE,
    WITHIN_SERVER,
    check_paths,
    host_elsewhere,
)
from transforms.errors import TargetError
from transforms.storage.paths import is_remote

# Beam's name for workers that are threads of this process.
_LOOPBACK = "LOOPBACK"
# Of `job_endpoint`: a job server, and its workers, in this process.
_EMBEDDED = "embed"
# By name: Beam takes long to load them.
_HAVE_JOB_SERVERS = frozenset(
    ("FlinkRunner", "PortableRunner", "PrismRunner", "SparkRunner")
)
_MASTERS = {"FlinkRunner": "flink_master", "SparkRunner": "spark_master_url"}


@dataclasses.dataclass(frozen=True, slots=True)
class EngineWorkers:
    """Workers that an engine starts, which are no threads of this process.

    Attributes:
      who: they are, as in "The workers of Flink at 'far.example'".
      is_dataflow: whether they are Dataflow's, which has no disk of the user's.
      started: whether the options say how they are started.
    """

    who: str
    is_dataflow: bool = False
    started: bool = False


def workers_of(pipeline: beam.Pipeline) -> EngineWorkers | None:
    """Returns the workers of an engine; None for those within this process."""
    runner = pipeline.runner
    kind = type(runner).__name__
    if "Dataflow" in kind:
        return EngineWorkers("Dataflow's workers", is_dataflow=True)
    if not _HAVE_JOB_SERVERS & {base.__name__ for base in type(runner).__mro__}:
        return None
    flags: Mapping[str, Any] = pipeline.options.get_all_options()
    endpoint = str(flags.get("job_endpoint") or "")
    if endpoint == _EMBEDDED:
        return None
    master = str(flags.get(_MASTERS.get(kind, "")) or "")
    host = host_elsewhere(master) or host_elsewhere(endpoint)
    environment = flags.get("environment_type")
    started = bool(
        environment
        or flags.get("environment_config")
        or flags.get("environment_options")
    )
    threads = environment == _LOOPBACK or (not started and _runs_threads(kind, master))
    if threads and not host:
        return None
    name = kind.removesuffix("Runner")
    who = "The job server's workers" if name == "Portable" else f"The workers of {name}"
    at = f" at {host!r}" if host else ""
    return EngineWorkers(f"{who}{at}", started=started and not threads)


def _runs_threads(kind: str, master: str) -> bool:
    """Whether Beam's default for a runner is threads of this process; else Docker."""
    if kind == "FlinkRunner":
        return master in WITHIN_SERVER
    if kind == "SparkRunner":
        return not host_elsewhere(master) and not master.startswith("spark://")
    return kind == "PrismRunner"


def check_seen(
    places: Iterable[tuple[str, str]], pipeline: beam.Pipeline, *, shared: bool
) -> None:
    """Refuses what is on this machine's disk where the workers are on others.

    Args:
      places: (what it is, path) of each; an empty path for none.
      pipeline: that is to read or write them.
      shared: whether its user says that all machines see them.

    Raises:
      TargetError: the workers do not see one of them.
    """
    local = [(what, path) for what, path in places if path and not is_remote(path)]
    workers = workers_of(pipeline) if local else None
    if workers is None:
        return
    if workers.is_dataflow:
        what, path = local[0]
        raise TargetError(
            f"Dataflow's workers must see the {what}, as in gs://bucket/folder; "
            f"{path!r} is a path of this machine. Copy it to a bucket first."
        )
    if not shared:
        starts = "" if workers.started else START_THERE
        check_paths(workers.who, local, starts=starts)
