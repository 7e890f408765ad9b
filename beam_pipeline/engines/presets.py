"""The engines by name, and the presets of each: Beam's flags for a job.

Flink, Spark and Prism take jobs from a job server on this machine. Dataflow's machines
see nothing of this one: paths are those of buckets, access is by the workers' service
account, and what a worker has installed is the user's to say.
"""

import dataclasses
import os
import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import Any

from beam_pipeline.engines import checks, flink, job_server
from beam_pipeline.engines.checks import flag_given
from beam_pipeline.settings.spec import Spec
from beam_pipeline.settings.values import runner_named
from transforms.errors import SpecError

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
# Its seconds of work end before the second compiler could pay.
_JAVA_OPTIONS = ("-Xmx1g", "-XX:TieredStopAtLevel=1", *_OPENED)
# Of the output's name in the name of a job.
_NAME_CHARS = 40


@dataclasses.dataclass(frozen=True)
class WorkerPlace:
    """Where a job is to run, and what is there for it.

    Attributes:
      master: of the cluster.
      java: path of `java`.
      program: path of the job server's jar, or of Prism.
      job_endpoint: host:port of a job server that runs already; empty for none.
      starts_elsewhere: whether Beam's own flags say how workers are started.
      parallelism: tasks at the same time; None for what the cluster does by itself.
      slots: tasks that one machine of the cluster runs at the same time.
      job_name: says in the engine's lists whose job it is; submission adds what no
        other job has.
    """

    master: str = ""
    java: str = "java"
    program: str = ""
    job_endpoint: str = ""
    starts_elsewhere: bool = False
    parallelism: int | None = None
    slots: int = 1
    job_name: str = ""


def worker_file(room: str) -> str:
    """Returns the path of the executable that starts a worker, in a job's folder."""
    return os.path.join(room, "worker")


class Engine:
    """An engine: `check` is called before planning, and `place` before it runs.

    Attributes:
      name: as `--runner` takes it.
      runner: Beam's class, as `module:name`.
      master_flag: Beam's flag that names a master; empty where there is none.
      default_master: where none is named.
      program_flag: Beam's flag that names another job server; empty for an engine
        that takes jobs by itself.
      artifact: of the job server, in Beam's own repository; empty for a program that
        needs no Java.
      known: flags that only the engine's job server knows.
      starts: what starts workers, as in "check that its machines start workers".
    """

    name = ""
    runner = ""
    master_flag = ""
    default_master = ""
    program_flag = ""
    artifact = ""
    known: frozenset[str] = frozenset()
    starts = "its machines start workers"

    def size(self, master: str) -> tuple[int, int] | None:
        """Returns the machines of a cluster, and the slots of each.

        None for one of a slot each, as many as there is room for.

        Raises:
          UsageError: nobody answers.
        """
        return None

    def check(self, settings: Spec, beam_flags: Sequence[str]) -> None:
        """Refuses what its workers could not see or be started with.

        Raises:
          SpecError, TargetError, UsageError: the engine cannot take the job.
        """
        checks.check_pool(beam_flags)
        master = self._master(beam_flags)
        checks.check_shared(self.name, master, settings, beam_flags)

    def works_elsewhere(self, beam_flags: Sequence[str]) -> bool:
        """Whether workers share nothing with this machine but the target's store."""
        return checks.starts_elsewhere(beam_flags)

    def detaches(self, beam_flags: Sequence[str]) -> bool:
        """Whether nobody waits for the job, which is only handed over."""
        return False

    def place(self, settings: Spec, beam_flags: Sequence[str]) -> WorkerPlace:
        """Returns the master, the job server and the machines of a job.

        Raises:
          UsageError: what the engine needs is not there.
        """
        master = self._master(beam_flags)
        endpoint = flag_given(beam_flags, "job_endpoint") or ""
        program = flag_given(beam_flags, self.program_flag) or ""
        java = flag_given(beam_flags, "job_server_java_launcher") or ""
        if endpoint:
            job_server.check_job_server(endpoint)
        size = None if master in checks.WITHIN_SERVER else self.size(master)
        machines, slots = size or (0, 1)
        if not endpoint:
            program = program or job_server.find_program(
                self.name, self.artifact, self.program_flag
            )
            if self.artifact:
                java = java or job_server.find_java()
        given = settings.workers if isinstance(settings.workers, int) else None
        return WorkerPlace(
            master=master,
            java=java,
            program=program,
            job_endpoint=endpoint,
            starts_elsewhere=checks.environment_given(beam_flags),
            parallelism=given or machines * slots or None,
            slots=max(slots, 1),
            job_name=_job_name(settings.output),
        )

    def presets(self, place: WorkerPlace, room: str) -> list[str]:
        """Returns Beam's flags for a job; later flags of the user win.

        Args:
          place: of the job.
          room: its folder, with the file that starts workers.
        """
        flags = [
            SERVICE_TIMEOUT,
            # Else a list of all packages installed here is staged, which no worker
            # reads.
            "--experiments=disable_logging_submission_environment",
        ]
        if not place.starts_elsewhere:
            flags += checks.process_flags(worker_file(room))
        if place.job_endpoint:
            flags.append(f"--job_endpoint={place.job_endpoint}")
        return flags

    def server(self, flags: Mapping[str, Any], port: int) -> list[str]:
        """Returns the command of a job server.

        Args:
          flags: the values of all of Beam's flags.
          port: to listen on.
        """
        return [
            flags["job_server_java_launcher"],
            *flags["job_server_jvm_properties"],
            *("-jar", flags[self.program_flag]),
            *(f"--{self.master_flag.replace('_', '-')}", flags[self.master_flag]),
            *("--artifacts-dir", flags["artifacts_dir"]),
            *("--job-port", str(port)),
            *("--artifact-port", str(flags["artifact_port"])),
            *("--expansion-port", str(flags["expansion_port"])),
        ]

    def cancel(self, master: str, name: str) -> None:
        """Cancels the job of a name, where Beam's way is not enough."""

    def traces(self, master: str, name: str) -> list[tuple[float, str]]:
        """Returns what tasks of a job have raised, and when.

        Empty where the engine does not try again for longer than a user waits.
        """
        return []

    def _master(self, beam_flags: Sequence[str]) -> str:
        """Returns the master that was named, or else the one of the usual port."""
        if not self.master_flag:
            return ""
        return flag_given(beam_flags, self.master_flag) or self.default_master

    def _java_presets(self, place: WorkerPlace, room: str) -> list[str]:
        """Returns Beam's flags for a job server in Java."""
        server = [
            f"--{self.program_flag}={place.program}",
            f"--job_server_java_launcher={place.java}",
            f"--artifacts_dir={os.path.join(room, 'artifacts')}",
            *(f"--job_server_jvm_properties={option}" for option in _JAVA_OPTIONS),
        ]
        return [
            *Engine.presets(self, place, room),
            # A worker waits for the next stage: a Python takes seconds to start. Those
            # of the last stage end ten seconds after the job.
            "--environment_cache_millis=10000",
            *([] if place.job_endpoint else server),
            # One Python for each slot, or they would share one interpreter's lock.
            f"--sdk_worker_parallelism={place.slots}",
            f"--{self.master_flag}={place.master}",
            # By it the engine is asked for the job.
            f"--job_name={place.job_name}",
        ]


def _job_name(output: str) -> str:
    """Returns the name of a job that writes an output: ASCII, for every engine."""
    named = re.sub(r"[^a-z0-9]+", "-", posixpath.basename(output.rstrip("/")).lower())
    return "-".join(filter(None, ("beam-tfrecord", named.strip("-")[:_NAME_CHARS])))


class Flink(Engine):
    """Flink, whose interface over HTTP says how large it is and what fails."""

    name = "flink"
    runner = "apache_beam.runners.portability.flink_runner:FlinkRunner"
    master_flag = "flink_master"
    default_master = "localhost:8081"
    program_flag = "flink_job_server_jar"
    artifact = f"beam-runners-flink-{flink.VERSION}-job-server"
    known = frozenset(
        """
        auto_balance_write_files_sharding_enabled auto_watermark_interval
        attach_mode checkpoint_timeout_millis checkpointing_interval checkpointing_mode
        disable_metrics execution_mode_for_batch execution_retry_delay faster_copy
        fail_on_checkpointing_errors file_input_split_max_size_m_b flink_conf_dir
        force_slot_sharing_group force_unaligned_checkpoint_enabled
        job_check_interval_in_secs latency_tracking_interval max_bundle_size
        max_bundle_time_mills number_of_concurrent_checkpoints
        number_of_execution_retries object_reuse operator_chaining
        re_iterable_group_by_key_result retain_externalized_checkpoints_on_cancellation
        savepoint_path shutdown_sources_after_idle_ms state_backend
        use_data_stream_for_batch
        """.split()
    )

    def size(self, master: str) -> tuple[int, int]:
        """Returns what Flink says of its task managers."""
        return flink.size(master)

    def presets(self, place: WorkerPlace, room: str) -> list[str]:
        """Returns the flags that are easily wrong: versions, exchanges, parallelism."""
        flags = [
            *self._java_presets(place, room),
            f"--flink_version={flink.VERSION}",
            # Writes exchanges to disk: after a loss only the lost tasks run again.
            "--execution_mode_for_batch=BATCH_FORCED",
        ]
        if place.parallelism is not None:
            flags.append(f"--parallelism={place.parallelism}")
        return flags

    def cancel(self, master: str, name: str) -> None:
        """Cancels the job at Flink: Beam only ends its call."""
        flink.cancel(master, name)

    def traces(self, master: str, name: str) -> list[tuple[float, str]]:
        """Returns what Flink, which may try a hundred times, says of its tasks."""
        return flink.traces(master, name)


class Spark(Engine):
    """Spark, whose driver is the job server."""

    name = "spark"
    runner = "apache_beam.runners.portability.spark_runner:SparkRunner"
    master_flag = "spark_master_url"
    default_master = "spark://localhost:7077"
    program_flag = "spark_job_server_jar"
    artifact = "beam-runners-spark-3-job-server"
    known = frozenset(
        """
        batch_interval_millis bundle_size cache_disabled checkpoint_dir
        checkpoint_duration_millis enable_spark_metric_sinks max_records_per_batch
        min_read_time_millis prefer_group_by_key_to_handle_huge_values
        read_time_percentage storage_level use_provided_spark_context
        """.split()
    )

    def place(self, settings: Spec, beam_flags: Sequence[str]) -> WorkerPlace:
        """Asks the master, too, if the job server is to start here."""
        place = super().place(settings, beam_flags)
        if not place.job_endpoint:
            job_server.check_spark(place.master)
        return place

    def presets(self, place: WorkerPlace, room: str) -> list[str]:
        """Returns Spark's settings as properties of Java, which its driver reads."""
        properties = {
            "spark.executor.memory": "1g",
            "spark.executor.cores": str(place.slots),
            # Its pages have no authentication, and end with the job.
            "spark.ui.enabled": "false",
            "spark.executor.extraJavaOptions": " ".join(_OPENED),
        }
        if place.parallelism is not None:
            properties["spark.cores.max"] = str(place.parallelism)
            # Twice as many partitions as slots, because their sizes differ.
            properties["spark.default.parallelism"] = str(2 * place.parallelism)
        if place.master.startswith(("spark://localhost:", "spark://127.0.0.1:")):
            # Otherwise the driver's ports are open to the network, without
            # authentication.
            properties["spark.driver.host"] = "127.0.0.1"
            properties["spark.driver.bindAddress"] = "127.0.0.1"
        return [
            *self._java_presets(place, room),
            *(
                f"--job_server_jvm_properties=-D{name}={value}"
                for name, value in properties.items()
            ),
            # Spills what does not fit; by default Spark would compute it again.
            "--storage_level=MEMORY_AND_DISK",
        ]


class Prism(Engine):
    """Prism, Beam's own runner, which is its job server."""

    name = "prism"
    runner = "apache_beam.runners.portability.prism_runner:PrismRunner"
    program_flag = "prism_location"

    def presets(self, place: WorkerPlace, room: str) -> list[str]:
        """Returns the flags of every job server, and which Prism."""
        own = [f"--prism_location={place.program}", "--prism_log_level=warn"]
        return [*super().presets(place, room), *own]

    def server(self, flags: Mapping[str, Any], port: int) -> list[str]:
        """Returns the command of Prism, without its pages."""
        level = flags["prism_log_level"]
        given = ["--job_port", str(port), "--log_level", level, "--serve_http=false"]
        return [flags["prism_location"], *given]


class Dataflow(Engine):
    """Google Cloud Dataflow, which takes jobs itself and starts its own workers."""

    name = "dataflow"
    runner = "apache_beam.runners.dataflow.dataflow_runner:DataflowRunner"
    starts = "its machines, which take minutes to start, run"

    def check(self, settings: Spec, beam_flags: Sequence[str]) -> None:
        """Refuses what its machines could not see, and flags that it lacks."""
        checks.refuse_starts(beam_flags, "Dataflow")
        checks.check_dataflow(settings, beam_flags)
        if self.detaches(beam_flags) and settings.split_lock:
            raise SpecError(
                "split_lock is written after the job, and with --no_wait_until_finish "
                "nobody waits for that. Leave either out."
            )

    def works_elsewhere(self, beam_flags: Sequence[str]) -> bool:
        """Its machines share nothing with this one."""
        return True

    def detaches(self, beam_flags: Sequence[str]) -> bool:
        """With this flag the program ends when the job is handed over."""
        return checks.has_flag(beam_flags, "no_wait_until_finish")

    def place(self, settings: Spec, beam_flags: Sequence[str]) -> WorkerPlace:
        """Returns how many workers there may be."""
        workers = settings.workers
        return WorkerPlace(parallelism=workers if isinstance(workers, int) else None)

    def presets(self, place: WorkerPlace, room: str) -> list[str]:
        """Returns flags for workers that install all modules."""
        flags = [
            # Nothing is defined in `__main__`: the workers install all modules.
            "--no_save_main_session",
            # Beam's default is a dozen tasks in each process, and each holds a block or
            # a shard in memory. Of two, one works while the other waits for the store.
            "--number_of_worker_harness_threads=2",
        ]
        if place.parallelism is not None:
            flags.append(f"--max_num_workers={place.parallelism}")
        return flags


ENGINES: dict[str, Engine] = {
    engine.name: engine for engine in (Flink(), Spark(), Prism(), Dataflow())
}


def engine_of(runner: str) -> Engine | None:
    """Returns the engine of a name of ours or of Beam's; None for the local run.

    Raises:
      SpecError: there is no such runner; names the nearest.
    """
    return ENGINES.get(runner_named(runner))
