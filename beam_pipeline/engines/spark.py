"""Spark 3.5 through Beam's job server; workers are processes of the executors."""

from collections.abc import Mapping

from beam_pipeline.engines.engine import Place
from beam_pipeline.engines.job_server import OPENED, JobServerEngine, java_flags
from beam_pipeline.engines.spark_jobs import reach_master, words_of_job

__all__ = ["SPARK"]


def _presets(place: Place) -> list[str]:
    """Returns Beam's flags for a place; later flags of the user win."""
    properties = {
        "spark.executor.memory": "1g",
        "spark.executor.cores": str(place.slots),
        # The job server is Spark's driver: it takes Spark's settings as properties.
        "spark.executor.extraJavaOptions": " ".join(OPENED),
    }
    if place.parallelism is not None:
        properties["spark.cores.max"] = str(place.parallelism)
        # Twice as many partitions as slots, because their sizes differ.
        properties["spark.default.parallelism"] = str(2 * place.parallelism)
    if _is_here(place):
        # Otherwise the driver's ports are open to the network, without authentication.
        properties["spark.driver.host"] = "127.0.0.1"
        properties["spark.driver.bindAddress"] = "127.0.0.1"
        # Its pages say what has become of the tasks; see `_variables`.
        properties["spark.ui.port"] = "0"
        properties["spark.ui.killEnabled"] = "false"
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


def _is_here(place: Place) -> bool:
    """Whether the master listens on the loopback interface."""
    host = place.master.removeprefix("spark://").partition(":")[0]
    return host in ("localhost", "127.0.0.1")


def _variables(place: Place) -> Mapping[str, str]:
    """Returns what binds the driver's pages to one interface; no property does."""
    return {"SPARK_LOCAL_IP": "127.0.0.1"} if _is_here(place) else {}


SPARK = JobServerEngine(
    name="spark",
    runner="apache_beam.runners.portability.spark_runner:SparkRunner",
    presets=_presets,
    master_setting="spark_master",
    master_flag="spark_master_url",
    default_master="spark://localhost:7077",
    program_flag="spark_job_server_jar",
    artifact="beam-runners-spark-3-job-server",
    server_logger="SparkJarJobServer",
    server_variables=_variables,
    reach=reach_master,
    words=words_of_job,
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
