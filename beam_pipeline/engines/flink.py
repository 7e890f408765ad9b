"""Flink 1.20 through Beam's job server; workers are processes of the task managers."""

import json

from beam_pipeline.engines.engine import JOB_SERVER_FLAGS, KEEP_WORKERS, Place, opened
from beam_pipeline.engines.flink_jobs import FLINK_VERSION, cancel_job, size_of_cluster
from beam_pipeline.engines.job_server import JobServerEngine

__all__ = ["FLINK"]


def _presets(place: Place) -> list[str]:
    """Returns Beam's flags for a place; later flags of the user win."""
    flags = [
        *JOB_SERVER_FLAGS,
        KEEP_WORKERS,
        f"--flink_master={place.master}",
        f"--job_name={place.job_name}",
        f"--flink_version={FLINK_VERSION}",
        f"--flink_job_server_jar={place.program}",
        f"--job_server_java_launcher={place.java}",
        f"--artifacts_dir={place.artifacts}",
        "--job_server_jvm_properties=-Xmx1g",
        *opened(
            *("java.lang", "java.util", "java.util.concurrent", "java.lang.invoke"),
            *("java.nio", "sun.nio.ch"),
        ),
        "--environment_type=PROCESS",
        f"--environment_config={json.dumps({'command': place.worker})}",
        # One Python for each slot, or they would share one interpreter's lock.
        f"--sdk_worker_parallelism={place.slots}",
        # Exchanges that are written out: after a loss only what was lost runs again.
        "--execution_mode_for_batch=BATCH_FORCED",
    ]
    if place.parallelism is not None:
        flags.append(f"--parallelism={place.parallelism}")
    return flags


FLINK = JobServerEngine(
    name="flink",
    runner="apache_beam.runners.portability.flink_runner:FlinkRunner",
    presets=_presets,
    master_setting="flink_master",
    master_flag="flink_master",
    default_master="localhost:8081",
    program_flag="flink_job_server_jar",
    artifact=f"beam-runners-flink-{FLINK_VERSION}-job-server",
    server_logger="FlinkJarJobServer",
    size=size_of_cluster,
    cancel=cancel_job,
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
