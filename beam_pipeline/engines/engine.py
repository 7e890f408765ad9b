"""The definition of an engine, and of the place where it runs a job.

Its functions read Beam's own flags without importing Beam, which is slow to load.
"""

import abc
import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from beam_pipeline.version import FOR_ROWS, __version__, deciding_versions
from transforms.errors import SpecError
from transforms.work.worker_check import VersionRules

# Adds the stages of a job to a Beam pipeline; typed loosely to load without Beam.
AddStages = Callable[[Any], object]
SERVICE_TIMEOUT = "--job_server_timeout=86400"
"""Beam's flag for a day: a long job must not fail because its service timed out."""


@dataclasses.dataclass(frozen=True)
class RunHooks:
    """Where the caller of a run takes part in it.

    Attributes:
      beam_flags: Beam's own flags; they win over ours.
      between: a PTransform, own steps from Batch to Batch; None for none. See
        `beam_pipeline.graph.build`.
      watch: called several times a second meanwhile, in the calling thread.
      say: called with what a person should know.
      abandon: called once when the run is stopped; after it nothing may be published.
    """

    beam_flags: Sequence[str] = ()
    # Of Beam's type, which takes long to load.
    between: Any = None
    watch: Callable[[], None] = lambda: None
    say: Callable[[str], None] = lambda _text: None
    abandon: Callable[[], None] = lambda: None


class JobSettings(Protocol):
    """The settings of a job that decide its engine; a `Spec` has them.

    Engines depend on this and not on `Spec`, because the spec imports their names.

    Attributes:
      runner: the engine's name, or Beam's name of its runner.
      workers: tasks at the same time, or "auto".
      source: path or URI of the input.
      output: path or URI of the dataset.
      images_root: folder of the images that a table names; empty for none.
      job_endpoint: host:port of a job server that runs already; None for one of this
        program's.
      shared_output: every worker sees local paths as this machine does.
      flink_master: host:port; None for the cluster that was started last.
      spark_master: as Spark writes it; None likewise.
      split_lock: file that is written after the job, if any.
    """

    @property
    def runner(self) -> str: ...
    @property
    def workers(self) -> int | str: ...
    @property
    def source(self) -> str: ...
    @property
    def output(self) -> str: ...
    @property
    def images_root(self) -> str: ...
    @property
    def job_endpoint(self) -> str | None: ...
    @property
    def shared_output(self) -> bool: ...
    @property
    def flink_master(self) -> str | None: ...
    @property
    def spark_master(self) -> str | None: ...
    @property
    def split_lock(self) -> str | None: ...


@dataclasses.dataclass(frozen=True)
class WorkerPlace:
    """Where a job is to run, and what is there for it.

    Attributes:
      worker: path of the executable that starts a worker.
      starts_elsewhere: whether Beam's own flags say how workers are started; else
        `worker` does.
      artifacts: folder of what the job server stages.
      master: of the cluster.
      java: path of `java`.
      program: path of the job server's jar, or of Prism.
      job_endpoint: host:port of a job server that runs already; empty for none.
      parallelism: tasks at the same time; None for what the cluster does by itself.
      slots: tasks that one machine of the cluster runs at the same time.
      job_name: says in the engine's lists whose job it is; submission adds what no
        other job has.
    """

    worker: str
    artifacts: str
    master: str = ""
    java: str = "java"
    program: str = ""
    job_endpoint: str = ""
    starts_elsewhere: bool = False
    parallelism: int | None = None
    slots: int = 1
    job_name: str = ""


class Engine(abc.ABC):
    """One engine: `check` is called before planning, and `place` before it runs.

    Attributes:
      name: as `--runner` takes it.
      runner: Beam's class, as `module:name`.
      known: flags that only the engine's job server knows.
    """

    name: str
    runner: str
    known: frozenset[str] = frozenset()

    @property
    def beam_name(self) -> str:
        """The name of Beam's class."""
        return self.runner.partition(":")[2]

    @abc.abstractmethod
    def check(self, settings: JobSettings, beam_flags: Sequence[str]) -> None:
        """Checks a job before it is planned.

        Raises:
          SpecError, TargetError, UsageError: the engine cannot take the job.
        """

    def works_elsewhere(self, settings: JobSettings, beam_flags: Sequence[str]) -> bool:
        """Whether workers share nothing with this machine but the target's store."""
        return True

    def detaches(self, beam_flags: Sequence[str]) -> bool:
        """Whether nobody waits for the job, which is only handed over."""
        return False

    @abc.abstractmethod
    def place(self, settings: JobSettings, beam_flags: Sequence[str]) -> WorkerPlace:
        """Returns where the job is to run; paths of the worker are not set yet.

        Raises:
          UsageError: what the engine needs is not there.
        """

    @abc.abstractmethod
    def presets(self, place: WorkerPlace) -> list[str]:
        """Returns Beam's flags for a place; later flags of the user win."""

    def server(self, flags: Mapping[str, Any], port: int) -> list[str]:
        """Returns the command of a job server.

        Args:
          flags: the values of all of Beam's flags.
          port: to listen on.
        """
        raise NotImplementedError(f"{self.name} takes jobs from no job server")

    def cancel(  # noqa: B027 - for most engines Beam's way is enough
        self, master: str, name: str
    ) -> None:
        """Cancels the job of a name, where Beam's way is not enough."""

    def traces(self, master: str, name: str) -> list[tuple[float, str]]:
        """Returns what tasks of a job have raised, and when.

        Empty where the engine does not try again for longer than a user waits.
        """
        return []


def check_words(flags: Sequence[str]) -> None:
    """Raises SpecError for a word that is neither a flag nor the value of one."""
    for before, flag in zip(["", *flags], flags, strict=False):
        is_value = before.startswith("--") and "=" not in before
        if not flag.startswith("-") and not is_value:
            raise SpecError(
                f"What follows -- must be flags of Beam, as --job_name=NAME is; found "
                f"{flag!r}. Give SOURCE, OUTPUT and the program's own flags before --."
            )


def flag_given(flags: Sequence[str], name: str) -> str | None:
    """Returns the last value of one of Beam's flags; None where it is not given."""
    value = None
    for at, flag in enumerate(flags):
        if flag.startswith(f"--{name}="):
            value = flag.partition("=")[2]
        elif flag == f"--{name}" and at + 1 < len(flags):
            value = flags[at + 1]
    return value


def has_flag(flags: Sequence[str], name: str) -> bool:
    """Whether one of Beam's flags is there, with a value or without one."""
    return any(flag.partition("=")[0] == f"--{name}" for flag in flags)


_ENVIRONMENT = ("environment_type", "environment_config", "environment_options")
# Beam's name for workers that are threads of this process.
_LOOPBACK = "LOOPBACK"


def environment_given(beam_flags: Sequence[str]) -> bool:
    """Whether Beam's own flags say how workers are started."""
    return any(has_flag(beam_flags, name) for name in _ENVIRONMENT)


def starts_elsewhere(beam_flags: Sequence[str]) -> bool:
    """Whether workers are started without this program: they may share no disk."""
    is_loopback = flag_given(beam_flags, "environment_type") == _LOOPBACK
    return environment_given(beam_flags) and not is_loopback


def process_flags(command: str) -> tuple[str, ...]:
    """Returns Beam's flags for workers that the engine starts as processes."""
    return (
        "--environment_type=PROCESS",
        f"--environment_config={json.dumps({'command': command})}",
    )


def silence_check(flags: Sequence[str]) -> str:
    """Returns what to check where workers are silent, by Beam's flags."""
    starts = "its machines start workers"
    config = flag_given(flags, "environment_config")
    if config and flag_given(flags, "environment_type") == "EXTERNAL":
        starts = f"a pool at {config} runs on each of its machines"
    return (
        f"it has free slots, that {starts}, and that these have beam-tfrecord "
        f"{__version__} and reach the output's store; Ctrl-C ends the job"
    )


def refuse_starts(settings: JobSettings, who: str) -> None:
    """Refuses settings of engines with a job server.

    Args:
      settings: of a job that runs elsewhere.
      who: starts the workers there, as in "a local run".

    Raises:
      SpecError: one is given.
    """
    if settings.job_endpoint:
        raise SpecError(
            f"--job-endpoint is for Flink, Spark and Prism; {who} starts its workers "
            f"itself. Leave it out, or choose the engine with --runner."
        )
    for name, engine in (("flink_master", "flink"), ("spark_master", "spark")):
        if getattr(settings, name):
            raise SpecError(
                f"--{name.replace('_', '-')} is for --runner {engine}, and this is "
                f"{who}. Add --runner {engine}, or leave it out."
            )


def version_rules(*, images: bool, compressed: bool) -> VersionRules:
    """Returns the versions that decide bytes of a job, which are those of here.

    Machines of others have another zlib, say, than this one; a job of plain rows need
    not be refused for that.

    Args:
      images: whether it has images, whose codecs decide bytes.
      compressed: whether its shards are compressed.
    """
    versions = deciding_versions()
    deciding = FOR_ROWS | ({"zlib"} if compressed else set())
    free = frozenset() if images else frozenset(versions.keys() - deciding)
    return VersionRules(versions, deciding_versions, free)
