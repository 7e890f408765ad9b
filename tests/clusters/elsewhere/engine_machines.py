"""Flink as examples/kubernetes has it, and Spark, on machines of their own."""

import json
import pathlib
import sys
import urllib.request
from typing import Any

from clusters.notes import find_java

from tests.clusters.elsewhere.containers import configured, containers
from tests.clusters.elsewhere.images import engine_image, given
from tests.clusters.elsewhere.sites import POOL, Site, until
from tests.clusters.runs import ROOT

sys.path.append(str(ROOT / "scripts"))

from clusters import flink, spark
from clusters.job_server import job_server

__all__ = ["flags_of", "start_flink", "start_spark"]

Folder = pathlib.Path

_FLINK_WEB = 8081
_JOB_ENDPOINT = 8099
_SPARK_MASTER = 7077
_SPARK_WEB = 8180


def start_flink(site: Site, folder: Folder) -> None:
    """Starts a Flink of one task manager, and its job server; waits for both.

    Args:
      site: where.
      folder: to be made, of its image.
    """
    jar = job_server("flink", flink.ARTIFACT)
    engine_image(folder, flink.home(), jar)
    config = folder / "conf" / "config.yaml"
    # It is a link to the one that came with Flink.
    config.unlink()
    config.write_text(configured("flink.yaml", "flink")["config.yaml"])
    machine = site.machine(
        "flink", {"/opt/flink": folder, **_java(), **given(site.image)}
    )
    found = containers("flink.yaml", site.addresses())
    java = {"JAVA_HOME": str(_home()), "PATH": f"{_home()}/bin:/usr/bin:/bin"}
    for name in ("jobmanager", "taskmanager"):
        process = site.start(machine, found[name], (), java)
    url = f"http://{site.network.there}:{_FLINK_WEB}/overview"
    until(lambda: _answer(url).get("taskmanagers") == 1, process, f"no Flink at {url}")
    process = site.start(machine, found["job-server"], (), java)
    site.until_listening(f":{_JOB_ENDPOINT}", process)


def start_spark(site: Site) -> None:
    """Starts a Spark of one worker with two cores; waits for it."""
    # The submitter starts the job server itself, from where it is kept.
    job_server("spark", spark.ARTIFACT)
    machine = site.machine("spark", {"/opt/spark": spark.home(), **_java()})
    variables = {
        "JAVA_HOME": str(_home()),
        "PATH": f"{_home()}/bin:/usr/bin:/bin",
        "SPARK_HOME": "/opt/spark",
        "SPARK_LOG_DIR": "/tmp",
        "SPARK_LOCAL_IP": site.network.there,
        "SPARK_DAEMON_MEMORY": "384m",
    }
    program = ["/opt/spark/bin/spark-class"]
    here = ["--host", site.network.there]
    master = ["org.apache.spark.deploy.master.Master", *here]
    ports = ["--port", str(_SPARK_MASTER), "--webui-port", str(_SPARK_WEB)]
    machine.start([*program, *master, *ports], variables, site.log("spark"))
    worker = ["org.apache.spark.deploy.worker.Worker", *here, "--work-dir", "/tmp/work"]
    sizes = ["--cores", "2", "--memory", "1500m"]
    url = f"http://{site.network.there}:{_SPARK_WEB}/json/"
    process = machine.start(
        [*program, *worker, *sizes, f"spark://{site.network.there}:{_SPARK_MASTER}"],
        variables,
        site.log("spark"),
    )
    until(lambda: _answer(url).get("aliveworkers") == 1, process, f"no Spark at {url}")


def flags_of(engine: str, site: Site, pool: str = POOL) -> list[str]:
    """Returns the last flags of a command: those of an engine and of its pool."""
    there, here = site.network.there, site.network.here
    elsewhere = [f"--runner={engine}", "--workers=2"]
    beams = ["--", "--environment_type=EXTERNAL", f"--environment_config={pool}"]
    if engine == "prism":
        return [*elsewhere, *beams]
    if engine == "flink":
        server = f"--job_endpoint={there}:{_JOB_ENDPOINT}"
        return [*elsewhere, *beams, f"--flink_master={there}:{_FLINK_WEB}", server]
    # The submitter is Spark's driver, which executors call back.
    driver = [
        f"--job_server_jvm_properties=-Dspark.driver.{name}={here}"
        for name in ("host", "bindAddress")
    ]
    master = f"--spark_master_url=spark://{there}:{_SPARK_MASTER}"
    return [*elsewhere, *beams, master, *driver]


def _home() -> Folder:
    return Folder(find_java()).resolve().parents[1]


def _java() -> dict[str, Folder]:
    return {str(_home()): _home()}


def _answer(url: str) -> dict[str, Any]:
    """Returns what a page says, nothing while there is none."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=5) as answer:
            return dict(json.load(answer))
    except OSError:
        return {}
