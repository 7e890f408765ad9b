"""The engines by name, and the presets of each: Beam's flags for a job.

Flink, Spark and Prism take jobs from a job server on this machine. Dataflow's machines
see nothing of this one: paths are those of buckets, access is by the workers' service
account, and what a worker has installed is the user's to say.
"""

import dataclasses
import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from beam_pipeline.engines import masters
from beam_pipeline.engines.checks import check_dataflow, is_detached
from beam_pipeline.engines.engine import (
    SERVICE_TIMEOUT,
    AddStages,
    Engine,
    JobSettings,
    Place,
    RunHooks,
    environment_given,
    flag_given,
    process_flags,
    refuse_starts,
    starts_elsewhere,
)
from transforms.errors import SpecError, closest
from transforms.work.reports import Reports

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


def worker_flags(place: Place) -> list[str]:
    """Returns Beam's flags of every job server: where it is, what starts workers."""
    return [
        SERVICE_TIMEOUT,
        # Else a list of all packages installed here is staged, which no worker reads.
        "--experiments=disable_logging_submission_environment",
        *([] if place.starts_elsewhere else process_flags(place.worker)),
        *([f"--job_endpoint={place.job_endpoint}"] if place.job_endpoint else []),
    ]


def java_flags(place: Place, program_flag: str) -> list[str]:
    """Returns Beam's flags of a job server in Java.

    Args:
      place: with the server's jar, and the slots of a machine.
      program_flag: Beam's flag that names the jar.
    """
    server = [
        f"--{program_flag}={place.program}",
        f"--job_server_java_launcher={place.java}",
        f"--artifacts_dir={place.artifacts}",
        *(f"--job_server_jvm_properties={option}" for option in _JAVA_OPTIONS),
    ]
    return [
        *worker_flags(place),
        # A worker waits for the next stage: a Python takes seconds to start. Those of
        # the last stage end ten seconds after the job.
        "--environment_cache_millis=10000",
        *([] if place.job_endpoint else server),
        # One Python for each slot, or they would share one interpreter's lock.
        f"--sdk_worker_parallelism={place.slots}",
    ]


def java_server(
    flags: Mapping[str, Any], port: int, jar: str, master: Sequence[str]
) -> list[str]:
    """Returns the command of a job server in Java.

    Args:
      flags: the values of Beam's flags.
      port: to listen on.
      jar: of the server.
      master: the server's own flag for the master.
    """
    return [
        flags["job_server_java_launcher"],
        *flags["job_server_jvm_properties"],
        *("-jar", jar, *master),
        *("--artifacts-dir", flags["artifacts_dir"]),
        *("--job-port", str(port)),
        *("--artifact-port", str(flags["artifact_port"])),
        *("--expansion-port", str(flags["expansion_port"])),
    ]


def _unasked(_master: str) -> None:
    """Asks nobody."""


@dataclasses.dataclass(frozen=True)
class JobServerEngine(Engine):
    """An engine that takes jobs from a job server on this machine.

    Attributes:
      master_setting: the setting that names another master; empty for none.
      master_flag: Beam's flag for the same.
      default_master: where none is named.
      program_flag: Beam's flag that names another job server.
      artifact: of the job server, in Beam's own repository; empty for a program that
        needs no Java.
      size: returns the machines of a cluster, and the slots of each, by its master;
        None for one of a slot each, as many as there is room for.
      reach: raises UsageError for a master at which nobody answers, where `size` does
        not ask it.
    """

    master_setting: str = ""
    master_flag: str = ""
    default_master: str = ""
    program_flag: str = ""
    artifact: str = ""
    size: Callable[[str], tuple[int, int]] | None = None
    reach: Callable[[str], None] = _unasked

    def check(self, settings: JobSettings, beam_flags: Sequence[str]) -> None:
        """Refuses what its workers could not see or be started with; see `Engine`."""
        from beam_pipeline.engines.checks import check_pool, check_shared

        check_pool(beam_flags)
        master = self._master(settings, beam_flags)
        check_shared(self.name, master, settings, beam_flags)

    def works_elsewhere(self, settings: JobSettings, beam_flags: Sequence[str]) -> bool:
        """Whether somebody else starts the workers; see `Engine`."""
        return starts_elsewhere(beam_flags)

    def place(self, settings: JobSettings, beam_flags: Sequence[str]) -> Place:
        """Returns the master, the job server and the machines; see `Engine`."""
        # Imported here: they load slowly, and the command line imports all engines.
        from beam_pipeline.engines.checks import (
            WITHIN_SERVER,
            check_job_server,
            find_java,
            find_program,
        )

        master = self._master(settings, beam_flags)
        endpoint = flag_given(beam_flags, "job_endpoint") or settings.job_endpoint or ""
        program = flag_given(beam_flags, self.program_flag) or ""
        if endpoint:
            check_job_server(endpoint)
        else:
            self.reach(master)
        if not endpoint and not program:
            program = find_program(self.name, self.artifact, self.program_flag)
        place = Place(
            worker="",
            artifacts="",
            master=master,
            program=program,
            job_endpoint=endpoint,
            starts_elsewhere=environment_given(beam_flags),
            parallelism=settings.workers if isinstance(settings.workers, int) else None,
            job_name=_job_name(settings.output),
        )
        if not self.artifact:
            return place
        given = flag_given(beam_flags, "job_server_java_launcher")
        if given is None and not endpoint:
            place = dataclasses.replace(place, java=find_java())
        if self.size is None or master in WITHIN_SERVER:
            return place
        machines, slots = self.size(master)
        if place.parallelism is None:
            place = dataclasses.replace(place, parallelism=max(machines * slots, 1))
        return dataclasses.replace(place, slots=max(slots, 1))

    def run(
        self,
        add_stages: AddStages,
        place: Place,
        hooks: RunHooks,
        *,
        work_folder: str,
        reports: Reports,
    ) -> None:
        """Runs a pipeline through the job server; see `Engine`."""
        from beam_pipeline.engines.submit import run_on_engine

        run_on_engine(
            self, place, add_stages, hooks, work_folder=work_folder, reports=reports
        )

    def _master(self, settings: JobSettings, beam_flags: Sequence[str]) -> str:
        """Returns the master that was named, or else the one of the usual port."""
        if not self.master_flag:
            return ""
        named: str | None = getattr(settings, self.master_setting)
        return flag_given(beam_flags, self.master_flag) or named or self.default_master


# Beam's default is a dozen tasks in each process, and each holds a block or a shard in
# memory. Two are enough: one works while the other waits for the store.
_DATAFLOW_THREADS = 2


def _flink_presets(place: Place) -> list[str]:
    """Returns Beam's flags for a place; later flags of the user win."""
    flags = [
        *java_flags(place, "flink_job_server_jar"),
        f"--flink_master={place.master}",
        f"--job_name={place.job_name}",
        f"--flink_version={masters.FLINK_VERSION}",
        # Writes exchanges to disk: after a loss only the lost tasks run again.
        "--execution_mode_for_batch=BATCH_FORCED",
    ]
    if place.parallelism is not None:
        flags.append(f"--parallelism={place.parallelism}")
    return flags


def _flink_server(flags: Mapping[str, Any], port: int) -> list[str]:
    master = ["--flink-master", flags["flink_master"]]
    return java_server(flags, port, flags["flink_job_server_jar"], master)


FLINK = JobServerEngine(
    name="flink",
    runner="apache_beam.runners.portability.flink_runner:FlinkRunner",
    presets=_flink_presets,
    master_setting="flink_master",
    master_flag="flink_master",
    default_master="localhost:8081",
    program_flag="flink_job_server_jar",
    artifact=f"beam-runners-flink-{masters.FLINK_VERSION}-job-server",
    server=_flink_server,
    size=masters.size_of_cluster,
    cancel=masters.cancel_job,
    traces=masters.traces_of_job,
    known=frozenset(
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
    ),
)
"""As of `--runner flink`."""


def _spark_presets(place: Place) -> list[str]:
    """Returns Beam's flags for a place; later flags of the user win."""
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
        # Otherwise the driver's ports are open to the network, without authentication.
        properties["spark.driver.host"] = "127.0.0.1"
        properties["spark.driver.bindAddress"] = "127.0.0.1"
    return [
        *java_flags(place, "spark_job_server_jar"),
        # The name of Spark's application, by which its pages are asked.
        f"--job_name={place.job_name}",
        f"--spark_master_url={place.master}",
        *(
            f"--job_server_jvm_properties=-D{name}={value}"
            for name, value in properties.items()
        ),
        # Spills what does not fit; by default Spark would compute it again.
        "--storage_level=MEMORY_AND_DISK",
    ]


def _spark_server(flags: Mapping[str, Any], port: int) -> list[str]:
    master = ["--spark-master-url", flags["spark_master_url"]]
    return java_server(flags, port, flags["spark_job_server_jar"], master)


SPARK = JobServerEngine(
    name="spark",
    runner="apache_beam.runners.portability.spark_runner:SparkRunner",
    presets=_spark_presets,
    master_setting="spark_master",
    master_flag="spark_master_url",
    default_master="spark://localhost:7077",
    program_flag="spark_job_server_jar",
    artifact="beam-runners-spark-3-job-server",
    server=_spark_server,
    reach=masters.reach_master,
    known=frozenset(
        """
        batch_interval_millis bundle_size cache_disabled checkpoint_dir
        checkpoint_duration_millis enable_spark_metric_sinks max_records_per_batch
        min_read_time_millis prefer_group_by_key_to_handle_huge_values
        read_time_percentage storage_level use_provided_spark_context
        """.split()
    ),
)
"""As of `--runner spark`."""


def _dataflow_presets(place: Place) -> list[str]:
    """Returns Beam's flags for a place; later flags of the user win."""
    flags = [
        # Nothing is defined in `__main__`: the workers install all modules.
        "--no_save_main_session",
        f"--number_of_worker_harness_threads={_DATAFLOW_THREADS}",
    ]
    if place.parallelism is not None:
        flags.append(f"--max_num_workers={place.parallelism}")
    return flags


@dataclasses.dataclass(frozen=True)
class _Dataflow(Engine):
    def check(self, settings: JobSettings, beam_flags: Sequence[str]) -> None:
        refuse_starts(settings, "Dataflow")
        check_dataflow(settings, beam_flags)

    def detaches(self, beam_flags: Sequence[str]) -> bool:
        return is_detached(beam_flags)

    def place(self, settings: JobSettings, beam_flags: Sequence[str]) -> Place:
        workers = settings.workers
        return Place("", "", parallelism=workers if isinstance(workers, int) else None)

    def run(
        self,
        add_stages: AddStages,
        place: Place,
        hooks: RunHooks,
        *,
        work_folder: str,
        reports: Reports,
    ) -> None:
        from beam_pipeline.engines.submit import run_on_dataflow

        run_on_dataflow(self, place, add_stages, hooks, reports)

    def submit(self, add_stages: AddStages, place: Place, hooks: RunHooks) -> str:
        from beam_pipeline.engines.submit import submit_to_dataflow

        return submit_to_dataflow(self, place, add_stages, hooks)


DATAFLOW = _Dataflow(
    name="dataflow",
    runner="apache_beam.runners.dataflow.dataflow_runner:DataflowRunner",
    presets=_dataflow_presets,
)
"""As of `--runner dataflow`."""


def _prism_presets(place: Place) -> list[str]:
    """Returns Beam's flags for a place; later flags of the user win."""
    return [
        *worker_flags(place),
        f"--prism_location={place.program}",
        "--prism_log_level=warn",
    ]


def _prism_server(flags: Mapping[str, Any], port: int) -> list[str]:
    level = flags["prism_log_level"]
    given = ["--job_port", str(port), "--log_level", level, "--serve_http=false"]
    return [flags["prism_location"], *given]


PRISM = JobServerEngine(
    name="prism",
    runner="apache_beam.runners.portability.prism_runner:PrismRunner",
    presets=_prism_presets,
    program_flag="prism_location",
    server=_prism_server,
)
"""As of `--runner prism`."""


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
    known = [*RUNNERS, *(engine.beam_name for engine in ENGINES.values()), *_LOCAL[1:]]
    near = closest(runner, known)
    hint = f" Did you mean {near!r}?" if near else ""
    raise SpecError(
        f"The runner is {', '.join(RUNNERS)}, or Beam's name of one of them; found "
        f"{runner!r}.{hint}"
    )
