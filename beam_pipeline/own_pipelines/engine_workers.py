"""The workers of a user's pipeline: where they are, and how values reach them.

A master on another machine, or Beam's --environment_type, puts them elsewhere: they
share no disk with the program that builds the pipeline, unless its user says so.

What a pipeline is built with is in its graph if it is small. A large value is made
again, once a process, and must be what it was.
"""

import dataclasses
import functools
import hashlib
import pickle
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

import apache_beam as beam

from beam_pipeline.engines.checks import (
    START_THERE,
    WITHIN_SERVER,
    check_paths,
    host_elsewhere,
)
from transforms.errors import InputError, TargetError, UsageError
from transforms.storage.files import storage
from transforms.storage.paths import Access, is_remote

# Beam's name for workers that are threads of this process.
_LOOPBACK = "LOOPBACK"
# Of `job_endpoint`: a job server, and its workers, in this process.
_EMBEDDED = "embed"
# By name: Beam takes long to load them.
_HAVE_JOB_SERVERS = frozenset(
    ("FlinkRunner", "PortableRunner", "PrismRunner", "SparkRunner")
)
_MASTERS = {"FlinkRunner": "flink_master", "SparkRunner": "spark_master_url"}
# Of a file. Two stages may hold what it says, each in base 64: 1 MiB of the graph for
# three files.
_FILE_BYTES = 1 << 17

_Value = TypeVar("_Value")


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


@dataclasses.dataclass(frozen=True)
class Held(Generic[_Value]):
    """A value on its way to the workers.

    Attributes:
      path: of what the value is made of.
      digest: of the value, or of the file at the path.
      make: makes it again; returns the value and its digest.
      inline: the value; None where it is large.
      access: how the path is reached, wherever the value is sent.
    """

    path: str
    digest: str
    make: Callable[[], tuple[_Value, str]] = dataclasses.field(compare=False)
    inline: _Value | None = dataclasses.field(default=None, compare=False)
    access: Access = dataclasses.field(default_factory=Access)

    def get(self) -> _Value:
        """Returns the value.

        Raises:
          InputError: it is another one now.
        """
        if self.inline is not None:
            return self.inline
        value: _Value = _made_once(self)
        return value


def hold(
    path: str,
    make: Callable[[], tuple[_Value, str]],
    most_bytes: int | None = None,
) -> Held[_Value]:
    """Makes a value, and keeps it where it is small; raises what `make` does.

    Args:
      path: of what it is made of.
      make: returns the value and its digest; a function of a module.
      most_bytes: that it may have in the graph; by default those of a file.
    """
    value, digest = make()
    size = len(pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL))
    most = _FILE_BYTES if most_bytes is None else most_bytes
    return Held(path, digest, make, value if size <= most else None)


def sha256_of(path: str) -> str:
    """Returns the digest of a file's bytes; empty where there is no file."""
    try:
        return hashlib.sha256(storage(path).read_bytes()).hexdigest()
    except FileNotFoundError:
        return ""


# Asked for every bundle; a process may work for several pipelines in turn.
@functools.lru_cache(maxsize=4)
def _made_once(held: Held[Any]) -> Any:
    """Returns a held value, made anew; InputError if what it is made of has changed."""
    digest, cause = "", None
    try:
        value, digest = held.make()
    except (FileNotFoundError, UsageError) as error:
        cause = error
    if digest != held.digest:
        raise InputError(
            f"What a pipeline was built with must stay as it is while it runs; "
            f"{held.path!r} has changed or is gone. Build the pipeline again."
        ) from cause
    return value
