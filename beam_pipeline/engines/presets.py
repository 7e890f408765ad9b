"""The engines by name, and the presets of each: Beam's flags for a job.

Dataflow's machines see nothing of this one: paths are those of buckets, access is by
the workers' service account, and what a worker has installed is the user's to say.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from beam_pipeline.engines import flink_jobs, spark_jobs
from beam_pipeline.engines.dataflow_checks import check_dataflow, is_detached
from beam_pipeline.engines.engine import (
    AddStages,
    Engine,
    JobSettings,
    Place,
    RunHooks,
)
from beam_pipeline.engines.job_server import (
    OPENED,
    JobServerEngine,
    java_flags,
    java_server,
    worker_flags,
)
from beam_pipeline.engines.workers import refuse_starts
from transforms.errors import SpecError, closest
from transforms.work.reports import Reports

# Beam's default is a dozen tasks in each process, and each holds a block or a shard in
# memory. Two are enough: one works while the other waits for the store.
_DATAFLOW_THREADS = 2


def _flink_presets(place: Place) -> list[str]:
    """Returns Beam's flags for a place; later flags of the user win."""
    flags = [
        *java_flags(place, "flink_job_server_jar"),
        f"--flink_master={place.master}",
        f"--job_name={place.job_name}",
        f"--flink_version={flink_jobs.FLINK_VERSION}",
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
    artifact=f"beam-runners-flink-{flink_jobs.FLINK_VERSION}-job-server",
    server=_flink_server,
    size=flink_jobs.size_of_cluster,
    cancel=flink_jobs.cancel_job,
    traces=flink_jobs.traces_of_job,
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
    reach=spark_jobs.reach_master,
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
        from beam_pipeline.engines.dataflow_submission import run_on_dataflow

        run_on_dataflow(self, place, add_stages, hooks, reports)

    def submit(self, add_stages: AddStages, place: Place, hooks: RunHooks) -> str:
        from beam_pipeline.engines.dataflow_submission import submit_to_dataflow

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
