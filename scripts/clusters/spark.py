"""Spark: a master and two workers of two cores each."""

from collections.abc import Sequence
from pathlib import Path

from clusters.downloads import Package, unpacked
from clusters.processes import Starter, fetch_json

__all__ = ["ARTIFACT", "CLASS_PATH", "PORTS", "SLOTS", "WORKERS", "home", "launch"]

ARTIFACT = "beam-runners-spark-3-job-server"
# The master's, its web pages', those of each worker.
# Of the master, its pages and the pages of each worker; the first two are Spark's own.
PORTS = (7077, 8080, 8181, 8182)
WORKERS = 2
SLOTS = 2
_MEMORY = "1500m"
# Each job brings Beam's classes with it.
CLASS_PATH = ""
# Exactly the job server's version, because the two exchange Java objects.
_VERSION = "3.5.0"
_PACKAGE = Package(
    "pyspark",
    _VERSION,
    "d41a9b76bd2aca370a6100d075c029e22ba44c5940927877e9435a3a9c566558",
    f"pyspark-{_VERSION}/deps",
    only=("bin", "jars", "sbin"),
)
_LOCAL = "127.0.0.1"
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"


def home() -> Path:
    """Returns the folder of Spark's programs and jars, which it fetches if needed."""
    return unpacked(f"spark-{_VERSION}", [_PACKAGE])


def launch(
    starter: Starter, folder: Path, java: Path, ports: Sequence[int]
) -> tuple[str, str]:
    """Starts a cluster; returns its master and its web pages once it is ready.

    Args:
      starter: of its processes.
      folder: its own, with `logs/` in it.
      java: the program.
      ports: as many as `PORTS`.
    """
    spark = home()
    port, web, *pages = ports
    (folder / "conf").mkdir()
    # Created here: a worker that loses the race to create it runs no jobs at all.
    (folder / "tmp").mkdir()
    starter.environment.update(
        JAVA_HOME=str(java.resolve().parents[1]),
        SPARK_HOME=str(spark),
        SPARK_CONF_DIR=str(folder / "conf"),
        SPARK_LOG_DIR=str(folder / "logs"),
        # What workers, executors and web pages bind to.
        SPARK_LOCAL_IP=_LOCAL,
        SPARK_LOCAL_DIRS=str(folder / "tmp"),
        SPARK_DAEMON_MEMORY="384m",
    )
    program = spark / "bin" / "spark-class"
    local = ["--host", _LOCAL, "--webui-port"]
    starter.start("master", [program, _MASTER, "--port", str(port), *local, str(web)])
    master = f"spark://{_LOCAL}:{port}"
    url = f"http://{_LOCAL}:{web}"
    starter.wait(lambda: bool(fetch_json(f"{url}/json/")["url"]))
    for number, page in enumerate(pages, 1):
        sizes = ["--cores", str(SLOTS), "--memory", _MEMORY]
        place = ["--work-dir", str(folder / "logs" / f"worker-{number}")]
        starter.start(
            f"worker-{number}",
            [program, _WORKER, *local, str(page), *sizes, *place, master],
        )
    starter.wait(lambda: fetch_json(f"{url}/json/")["aliveworkers"] == WORKERS)
    return master, url
