"""The engines by name, and the presets of each: Beam's flags for a job.

A preset names values of the job in braces, and is left out where the job lacks one of
them. Flink, Spark and Prism take jobs from a job server. Dataflow's machines see
nothing of this one: paths are those of buckets, access is by the workers' service
account, and what a worker has installed is the user's to say.
"""

import dataclasses
import json
import os
import pathlib
import posixpath
import re
import secrets
import string
import tempfile
from collections.abc import Sequence

from beam_pipeline.engines import checks
from beam_pipeline.engines.checks import EngineWorkers
from beam_pipeline.settings.spec import Spec
from beam_pipeline.settings.values import runner_named

SERVICE_TIMEOUT = "--job_server_timeout=86400"
"""Beam's flag for a day: a long job must not fail because its service timed out."""

# Options of Java from 17 on, where Flink and Spark reach into its own packages.
_OPENED = [
    f"--add-opens=java.base/{package}=ALL-UNNAMED"
    for package in (
        *("java.lang", "java.util", "java.util.concurrent", "java.lang.invoke"),
        *("java.nio", "sun.nio.ch"),
    )
]
_WITH_SERVER = (
    SERVICE_TIMEOUT,
    # Else a list of all packages installed here is staged, which no worker reads.
    "--experiments=disable_logging_submission_environment",
    "--job_endpoint={job_endpoint}",
    "--environment_type={environment}",
    "--environment_config={worker}",
)
_WITH_JAVA = (
    *_WITH_SERVER,
    # A worker waits for the next stage: a Python takes seconds to start. Those of the
    # last stage end ten seconds after the job.
    "--environment_cache_millis=10000",
    # One Python for each slot, or they would share one interpreter's lock.
    "--sdk_worker_parallelism={slots}",
    # By it the engine is asked for the job.
    "--job_name={job_name}",
    "--job_server_java_launcher={java_home}/bin/java",
    "--artifacts_dir={room}",
    "--job_server_jvm_properties=-Xmx1g",
    # C1 alone: the server exits before C2 would pay off.
    "--job_server_jvm_properties=-XX:TieredStopAtLevel=1",
    *(f"--job_server_jvm_properties={option}" for option in _OPENED),
)
# Of the output's name in the name of a job, which says in the engine's lists whose it
# is.
_NAME_CHARS = 40
# Random, so that no two jobs share a name: Flink cancels by it.
_NAME_BYTES = 6
_FORMATTER = string.Formatter()


@dataclasses.dataclass(frozen=True)
class Engine:
    """An engine: `check` is called before planning, and `flags` before it runs.

    Attributes:
      name: as `--runner` takes it.
      runner: Beam's name of it.
      given: flags of Beam or of the job server, which name values of a job in braces.
      job_server: Beam's class of the job server, with its module; empty for an engine
        that takes jobs by itself.
      program: of the job server; see `brought`.
      default_master: where none is named.
    """

    name: str
    runner: str
    given: tuple[str, ...]
    job_server: str = ""
    program: str = ""
    default_master: str = ""

    @property
    def is_service(self) -> bool:
        """Whether it takes jobs by itself, on machines that share nothing with this."""
        return not self.job_server

    def workers(self, beam_flags: Sequence[str]) -> EngineWorkers | None:
        """Returns the workers of a job; None for those of this machine."""
        flags = checks.values_of(beam_flags)
        return checks.workers_of(self.runner, flags, starts_here=True)

    def check(self, settings: Spec, beam_flags: Sequence[str]) -> None:
        """Refuses what its workers could not see or be started with.

        Raises:
          SpecError, TargetError, UsageError: the engine cannot take the job.
        """
        workers = self.workers(beam_flags)
        places = [
            *(("source", settings.source), ("output", settings.output)),
            ("folder of --images-root", settings.images_folder),
        ]
        if workers is not None and not workers.started:
            places.append(("file that starts workers", tempfile.gettempdir()))
        checks.check_seen(workers, places, shared=settings.shared_output)
        if self.is_service:
            checks.check_dataflow(checks.values_of(beam_flags))

    def flags(self, settings: Spec, beam_flags: Sequence[str], room: str) -> list[str]:
        """Returns Beam's flags for a job; later flags of the user win.

        Args:
          settings: of the job.
          beam_flags: of the user.
          room: folder of the job, with the file `worker`, which starts workers.

        Raises:
          UsageError: what the engine needs is not there.
        """
        flags = checks.values_of(beam_flags)
        master = checks.master_of(self.runner, flags) or self.default_master
        endpoint = flags.get("job_endpoint", "")
        workers = settings.workers if isinstance(settings.workers, int) else 0
        # Tasks of all machines at the same time, and of each of them.
        tasks = slots = 0
        if endpoint:
            checks.check_answers("job server", endpoint)
        if self.name == "flink" and master not in checks.WITHIN_SERVER:
            tasks, slots = checks.flink_size(master)
            # More processes than tasks would wait for nothing.
            slots = min(slots, workers or slots)
        elif master.startswith("spark://") and not endpoint:
            checks.check_answers("Spark master", master)
        near = master.startswith(("spark://localhost:", "spark://127.0.0.1:"))
        starts = not checks.environment_given(flags)
        values = {
            "environment": starts and "PROCESS",
            "java_home": "" if endpoint else os.environ.get("JAVA_HOME", ""),
            "job_endpoint": endpoint,
            "job_name": _job_name(settings.output),
            "loopback": near and "127.0.0.1",
            "master": master,
            "parallelism": workers or tasks,
            # Twice as many partitions as slots, because their sizes differ.
            "partitions": 2 * workers,
            "program": "" if endpoint else brought(self.program),
            "room": room,
            "slots": slots,
            "worker": starts and json.dumps({"command": f"{room}/worker"}),
        }
        return [
            flag.format_map(values)
            for flag in self.given
            # It is left out where the job lacks a value that it names.
            if all(values[name] for _, name, _, _ in _FORMATTER.parse(flag) if name)
        ]


def brought(program: str) -> str:
    """Returns the path of the program that a preset names; "" for none.

    `scripts/cluster` brings it.

    Args:
      program: its file, below the cache, with braces for Beam's version. Of several
        jars the one that Beam publishes comes first.
    """
    # Here, since it takes long to load, and the command line asks for the engines.
    import importlib.metadata

    version = importlib.metadata.version("apache-beam")
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    files = pathlib.Path(base).glob(f"beam-tfrecord/{program.format(version)}")
    # "-2.77.0.jar" is above "-2.77.0-of-2.70.0.jar".
    return str(max(files, default=""))


def _job_name(output: str) -> str:
    """Returns what presets say for --job_name: ASCII, new, by the output."""
    named = re.sub(r"[^a-z0-9]+", "-", posixpath.basename(output.rstrip("/")).lower())
    parts = "beam-tfrecord", named.strip("-")[:_NAME_CHARS]
    return "-".join(filter(None, (*parts, secrets.token_hex(_NAME_BYTES))))


_FLINK = Engine(
    name="flink",
    runner="FlinkRunner",
    job_server="apache_beam.runners.portability.flink_runner.FlinkJarJobServer",
    default_master="localhost:8081",
    program=f"jars/beam-runners-flink-{checks.FLINK_VERSION}-job-server-{{}}*.jar",
    given=(
        *_WITH_JAVA,
        "--flink_job_server_jar={program}",
        "--flink_master={master}",
        f"--flink_version={checks.FLINK_VERSION}",
        # Writes exchanges to disk: after a loss only the lost tasks run again.
        "--execution_mode_for_batch=BATCH_FORCED",
        "--parallelism={parallelism}",
    ),
)

# Spark's settings are properties of Java, which its driver, the job server, reads.
_SPARK = Engine(
    name="spark",
    runner="SparkRunner",
    job_server="apache_beam.runners.portability.spark_runner.SparkJarJobServer",
    default_master="spark://localhost:7077",
    program="jars/beam-runners-spark-3-job-server-{}*.jar",
    given=(
        *_WITH_JAVA,
        "--spark_job_server_jar={program}",
        "--spark_master_url={master}",
        # Spills what does not fit; by default Spark would compute it again.
        "--storage_level=MEMORY_AND_DISK",
        "--job_server_jvm_properties=-Dspark.executor.cores=1",
        "--job_server_jvm_properties=-Dspark.executor.extraJavaOptions="
        + " ".join(_OPENED),
        # Its pages have no authentication, and end with the job.
        "--job_server_jvm_properties=-Dspark.ui.enabled=false",
        "--job_server_jvm_properties=-Dspark.cores.max={parallelism}",
        "--job_server_jvm_properties=-Dspark.default.parallelism={partitions}",
        # Otherwise the driver's ports are open to the network, without authentication.
        "--job_server_jvm_properties=-Dspark.driver.host={loopback}",
        "--job_server_jvm_properties=-Dspark.driver.bindAddress={loopback}",
    ),
)

_PRISM = Engine(
    name="prism",
    runner="PrismRunner",
    job_server="apache_beam.runners.portability.prism_runner.PrismJobServer",
    program="engines/prism-{}-loopback",
    given=(*_WITH_SERVER, "--prism_location={program}", "--prism_log_level=warn"),
)

_DATAFLOW = Engine(
    name="dataflow",
    runner="DataflowRunner",
    given=(
        # Nothing is defined in `__main__`: the workers install all modules.
        "--no_save_main_session",
        # Beam's default is a dozen tasks in each process, and each holds a block or a
        # shard in memory. Of two, one works while the other waits for the store.
        "--number_of_worker_harness_threads=2",
        "--max_num_workers={parallelism}",
    ),
)

ENGINES = {engine.name: engine for engine in (_FLINK, _SPARK, _PRISM, _DATAFLOW)}


def engine_of(runner: str) -> Engine | None:
    """Returns the engine of a name of ours or of Beam's; None for the local run.

    Raises:
      SpecError: there is no such runner; names the nearest.
    """
    return ENGINES.get(runner_named(runner))
