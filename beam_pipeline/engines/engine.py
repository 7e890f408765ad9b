"""The definition of an engine, and of the place where it runs a job."""

import dataclasses
from collections.abc import Callable
from typing import Protocol

__all__ = [
    "JOB_SERVER_FLAGS",
    "KEEP_WORKERS",
    "Engine",
    "JobSettings",
    "Place",
    "opened",
]

# Of a day: a job must not end because Beam's job service timed out.
_SERVICE_SECONDS = 86_400
JOB_SERVER_FLAGS = (
    f"--job_server_timeout={_SERVICE_SECONDS}",
    # It would stage a list of all that is installed here, which no worker reads.
    "--experiments=disable_logging_submission_environment",
)
"""What every engine behind Beam's job service gets."""
KEEP_WORKERS = "--environment_cache_millis=10000"
"""Lets a worker wait for the next stage: a Python takes seconds to start.

By default each stage starts workers of its own. Those of the last stage end so much
later than the job."""


class JobSettings(Protocol):
    """The settings of a job that decide its engine; a `Spec` has them.

    Engines know no more of a job than this, and the spec may ask which engines exist.

    Attributes:
      runner: the engine's name, or Beam's name of its runner.
      workers: tasks at the same time, or "auto".
      source: path or URI of the input.
      output: path or URI of the dataset.
      images_root: folder of the images that a table names; empty for none.
      shared_output: every worker sees local paths as this machine does.
      flink_master: host:port; None for the cluster that was started last.
      spark_master: as Spark writes it; None likewise.
      vocabulary_lock: file that is written after the job, if any.
      split_lock: likewise.
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
    def shared_output(self) -> bool: ...
    @property
    def flink_master(self) -> str | None: ...
    @property
    def spark_master(self) -> str | None: ...
    @property
    def vocabulary_lock(self) -> str | None: ...
    @property
    def split_lock(self) -> str | None: ...


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a job is to run, and what is there for it.

    Attributes:
      worker: path of the executable that starts a worker.
      artifacts: folder of what the job server stages.
      master: of the cluster.
      java: path of `java`.
      program: path of the job server's jar, of Prism, or of what Dataflow's workers
        install.
      parallelism: tasks at the same time; None for what the cluster does by itself.
      slots: tasks that one machine of the cluster runs at the same time.
      job_name: that no other job has.
    """

    worker: str
    artifacts: str
    master: str = ""
    java: str = "java"
    program: str = ""
    parallelism: int | None = None
    slots: int = 1
    job_name: str = ""


@dataclasses.dataclass(frozen=True)
class Engine:
    """One engine.

    Attributes:
      name: as `--runner` takes it.
      runner: Beam's class, as `module:name`.
      presets: makes Beam's flags.
      master_flag: Beam's flag that names another master; empty for none.
      default_master: where no cluster was started and none was named.
      program_flag: Beam's flag that names another job server.
      artifact: of the job server, in Beam's own repository; empty for none.
      cancel: cancels a job, by the master and its name, where Beam's way is not
        enough; None where it is.
      mends_losses: whether it goes on where a worker process has ended.
      known: flags that only the engine's job server knows.
    """

    name: str
    runner: str
    presets: Callable[[Place], list[str]]
    master_flag: str = ""
    default_master: str = ""
    program_flag: str = ""
    artifact: str = ""
    cancel: Callable[[str, str], None] | None = None
    mends_losses: bool = True
    known: frozenset[str] = frozenset()

    @property
    def beam_name(self) -> str:
        """The name of Beam's class."""
        return self.runner.partition(":")[2]


def opened(*packages: str) -> list[str]:
    """Returns flags that open packages of Java's base, which Beam's servers reach."""
    return [
        f"--job_server_jvm_properties=--add-opens=java.base/{package}=ALL-UNNAMED"
        for package in packages
    ]
