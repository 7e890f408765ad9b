"""Flink 1.20 through Beam's job server; workers are processes of the task managers."""

from beam_pipeline.engines.engine import Place
from beam_pipeline.engines.flink_jobs import (
    FLINK_VERSION,
    cancel_job,
    size_of_cluster,
    words_of_job,
)
from beam_pipeline.engines.job_server import JobServerEngine, java_flags

__all__ = ["FLINK"]


def _presets(place: Place) -> list[str]:
    """Returns Beam's flags for a place; later flags of the user win."""
    flags = [
        *java_flags(place, "flink_job_server_jar"),
        f"--flink_master={place.master}",
        f"--job_name={place.job_name}",
        f"--flink_version={FLINK_VERSION}",
        # Writes exchanges to disk: after a loss only the lost tasks run again.
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
    words=words_of_job,
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
