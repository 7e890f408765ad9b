"""The engines by name, and the presets of each: Beam's flags for a job.

Flink, Spark and Prism take jobs from a job server on this machine. Dataflow's machines
see nothing of this one: paths are those of buckets, access is by the workers' service
account, and what a worker has installed is the user's to say.
"""

import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import Any

from beam_pipeline.engines import checks, masters
from beam_pipeline.engines.engine import (
    SERVICE_TIMEOUT,
    Engine,
    JobSettings,
    WorkerPlace,
    environment_given,
    flag_given,
    process_flags,
    refuse_starts,
    starts_elsewhere,
)
from transforms.errors import SpecError, closest

OPENED = [
    f"--add-opens=java.base/{package}=ALL-UNNAMED"
    for package in (
        *("java.lang", "java.util", "java.util.concurrent", "java.lang.invoke"),
        *("java.nio", "sun.nio.ch"),
    )
]
"""Options of Java from 17 on, where Flink and Spark reach into its own packages."""

# Of the output's name in the name of a job.
_NAME_CHARS = 40
# Its seconds of work end before the second compiler could pay.
_JAVA_OPTIONS = ("-Xmx1g", "-XX:TieredStopAtLevel=1", *OPENED)


def _job_name(output: str) -> str:
    """Returns the name of a job that writes an output: ASCII, for every engine."""
    named = re.sub(r"[^a-z0-9]+", "-", posixpath.basename(output.rstrip("/")).lower())
    return "-".join(filter(None, ("beam-tfrecord", named.strip("-")[:_NAME_CHARS])))


class JobServerEngine(Engine):
    """An engine that takes jobs from a job server on this machine.

    Attributes:
      master_setting: the setting that names another master; empty for none.
      master_flag: Beam's flag for the same.
      default_master: where none is named.
      program_flag: Beam's flag that names another job server.
      artifact: of the job server, in Beam's own repository; empty for a program that
        needs no Java.
    """

    master_setting = ""
    master_flag = ""
    default_master = ""
    program_flag = ""
    artifact = ""

    def size(self, master: str) -> tuple[int, int] | None:
        """Returns the machines of a cluster, and the slots of each.

        None for one of a slot each, as many as there is room for.

        Raises:
          UsageError: nobody answers.
        """
        return None

    def reach(self, master: str) -> None:
        """Raises UsageError where nobody answers at a master that has no `size`."""

    def check(self, settings: JobSettings, beam_flags: Sequence[str]) -> None:
        """Refuses what its workers could not see or be started with; see `Engine`."""
        checks.check_pool(beam_flags)
        master = self._master(settings, beam_flags)
        checks.check_shared(self.name, master, settings, beam_flags)

    def works_elsewhere(self, settings: JobSettings, beam_flags: Sequence[str]) -> bool:
        """Whether somebody else starts the workers; see `Engine`."""
        return starts_elsewhere(beam_flags)

    def place(self, settings: JobSettings, beam_flags: Sequence[str]) -> WorkerPlace:
        """Returns the master, the job server and the machines; see `Engine`."""
        master = self._master(settings, beam_flags)
        endpoint = flag_given(beam_flags, "job_endpoint") or settings.job_endpoint or ""
        program = flag_given(beam_flags, self.program_flag) or ""
        java = flag_given(beam_flags, "job_server_java_launcher") or "java"
        if endpoint:
            checks.check_job_server(endpoint)
        else:
            self.reach(master)
        is_within = master in checks.WITHIN_SERVER
        size = None if is_within else self.size(master)
        if not endpoint:
            artifact = self.artifact
            program = program or checks.find_program(
                self.name, artifact, self.program_flag
            )
            if artifact and java == "java":
                java = checks.find_java()
        parallelism = settings.workers if isinstance(settings.workers, int) else None
        machines, slots = size or (0, 1)
        return WorkerPlace(
            worker="",
            artifacts="",
            master=master,
            java=java,
            program=program,
            job_endpoint=endpoint,
            starts_elsewhere=environment_given(beam_flags),
            parallelism=parallelism or machines * slots or None,
            slots=max(slots, 1),
            job_name=_job_name(settings.output),
        )

    def presets(self, place: WorkerPlace) -> list[str]:
        """Returns Beam's flags of every job server; see `Engine`."""
        flags = [
            SERVICE_TIMEOUT,
            # Else a list of all packages installed here is staged, which no worker
            # reads.
            "--experiments=disable_logging_submission_environment",
        ]
        if not place.starts_elsewhere:
            flags += process_flags(place.worker)
        if place.job_endpoint:
            flags.append(f"--job_endpoint={place.job_endpoint}")
        return flags

    def _master(self, settings: JobSettings, beam_flags: Sequence[str]) -> str:
        """Returns the master that was named, or else the one of the usual port."""
        if not self.master_flag:
            return ""
        named: str | None = getattr(settings, self.master_setting)
        return flag_given(beam_flags, self.master_flag) or named or self.default_master


class _JavaEngine(JobServerEngine):
    """An engine whose job server is a program in Java."""

    def presets(self, place: WorkerPlace) -> list[str]:
        server = [
            f"--{self.program_flag}={place.program}",
            f"--job_server_java_launcher={place.java}",
            f"--artifacts_dir={place.artifacts}",
            *(f"--job_server_jvm_properties={option}" for option in _JAVA_OPTIONS),
        ]
        return [
            *super().presets(place),
            # A worker waits for the next stage: a Python takes seconds to start. Those
            # of the last stage end ten seconds after the job.
            "--environment_cache_millis=10000",
            *([] if place.job_endpoint else server),
            # One Python for each slot, or they would share one interpreter's lock.
            f"--sdk_worker_parallelism={place.slots}",
            f"--{self.master_flag}={place.master}",
            # By it the engine's pages are asked.
            f"--job_name={place.job_name}",
        ]

    def server(self, flags: Mapping[str, Any], port: int) -> list[str]:
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


class _Flink(_JavaEngine):
    name = "flink"
    runner = "apache_beam.runners.portability.flink_runner:FlinkRunner"
    master_setting = master_flag = "flink_master"
    default_master = "localhost:8081"
    program_flag = "flink_job_server_jar"
    artifact = f"beam-runners-flink-{masters.FLINK_VERSION}-job-server"
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
        return masters.size_of_cluster(master)

    def presets(self, place: WorkerPlace) -> list[str]:
        flags = [
            *super().presets(place),
            f"--flink_version={masters.FLINK_VERSION}",
            # Writes exchanges to disk: after a loss only the lost tasks run again.
            "--execution_mode_for_batch=BATCH_FORCED",
        ]
        if place.parallelism is not None:
            flags.append(f"--parallelism={place.parallelism}")
        return flags

    def cancel(self, master: str, name: str) -> None:
        masters.cancel_job(master, name)

    def traces(self, master: str, name: str) -> list[tuple[float, str]]:
        return masters.traces_of_job(master, name)


class _Spark(_JavaEngine):
    name = "spark"
    runner = "apache_beam.runners.portability.spark_runner:SparkRunner"
    master_setting = "spark_master"
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

    def reach(self, master: str) -> None:
        masters.reach_master(master)

    def presets(self, place: WorkerPlace) -> list[str]:
        properties = {
            "spark.executor.memory": "1g",
            "spark.executor.cores": str(place.slots),
            # Its pages have no authentication, and end with the job.
            "spark.ui.enabled": "false",
            # The job server is Spark's driver: it takes Spark's settings as properties.
            "spark.executor.extraJavaOptions": " ".join(OPENED),
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
            *super().presets(place),
            *(
                f"--job_server_jvm_properties=-D{name}={value}"
                for name, value in properties.items()
            ),
            # Spills what does not fit; by default Spark would compute it again.
            "--storage_level=MEMORY_AND_DISK",
        ]


class _Prism(JobServerEngine):
    name = "prism"
    runner = "apache_beam.runners.portability.prism_runner:PrismRunner"
    program_flag = "prism_location"

    def presets(self, place: WorkerPlace) -> list[str]:
        own = [f"--prism_location={place.program}", "--prism_log_level=warn"]
        return [*super().presets(place), *own]

    def server(self, flags: Mapping[str, Any], port: int) -> list[str]:
        level = flags["prism_log_level"]
        given = ["--job_port", str(port), "--log_level", level, "--serve_http=false"]
        return [flags["prism_location"], *given]


class _Dataflow(Engine):
    name = "dataflow"
    runner = "apache_beam.runners.dataflow.dataflow_runner:DataflowRunner"

    def check(self, settings: JobSettings, beam_flags: Sequence[str]) -> None:
        refuse_starts(settings, "Dataflow")
        checks.check_dataflow(settings, beam_flags)

    def detaches(self, beam_flags: Sequence[str]) -> bool:
        return checks.is_detached(beam_flags)

    def place(self, settings: JobSettings, beam_flags: Sequence[str]) -> WorkerPlace:
        workers = settings.workers
        return WorkerPlace(
            "", "", parallelism=workers if isinstance(workers, int) else None
        )

    def presets(self, place: WorkerPlace) -> list[str]:
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


FLINK, SPARK, PRISM, DATAFLOW = _Flink(), _Spark(), _Prism(), _Dataflow()
ENGINES = {engine.name: engine for engine in (FLINK, SPARK, PRISM, DATAFLOW)}
# What Beam calls the runner that is used within this process.
_LOCAL = ("local", "FnApiRunner", "DirectRunner")
RUNNERS = ("local", *ENGINES)


def engine_of(runner: str) -> Engine | None:
    """Returns the engine of a name of ours or of Beam's; None for the local run.

    Raises:
      SpecError: there is no such runner; names the nearest.
    """
    for engine in ENGINES.values():
        if runner in (engine.name, engine.beam_name):
            return engine
    if runner in _LOCAL:
        return None
    names = [*RUNNERS, *(engine.beam_name for engine in ENGINES.values()), *_LOCAL[1:]]
    near = closest(runner, names)
    hint = f" Did you mean {near!r}?" if near else ""
    raise SpecError(
        f"The runner is {', '.join(RUNNERS)}, or Beam's name of one of them; found "
        f"{runner!r}.{hint}"
    )
