"""Flink: a job manager and two task managers of two slots each."""

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from clusters.downloads import Package, unpacked
from clusters.processes import Starter, fetch_json

__all__ = ["ARTIFACT", "CLASS_PATH", "PORTS", "SLOTS", "WORKERS", "home", "launch"]

ARTIFACT = "beam-runners-flink-1.20-job-server"
# The job manager's, its web pages'.
# Of the job manager and its pages: Flink's own.
PORTS = (6123, 8081)
WORKERS = 2
SLOTS = 2
# Variable of what goes to the end of the class path, from Hadoop or not.
CLASS_PATH = "HADOOP_CLASSPATH"
_VERSION = "1.20.5"
_PACKAGES = (
    # All of Flink but its scripts ...
    Package(
        "apache-flink-libraries",
        _VERSION,
        "e6aee62ea1a1fe7b32e28894ad079f3f1a50a372a4caac3df52405267f4228c8",
        f"apache_flink_libraries-{_VERSION}/deps",
    ),
    # ... which are in the package for Python; the same whatever Python it is for.
    Package(
        "apache-flink",
        _VERSION,
        "6e8ec098a7c06ea34d01fd540e81d44703a90e3bda74052dcbcbb7db5253c10f",
        "pyflink",
        only=("bin", "conf"),
        options=(
            *("--only-binary=:all:", "--python-version=3.11"),
            *("--platform=manylinux2014_x86_64", "--platform=manylinux_2_17_x86_64"),
            "--platform=manylinux1_x86_64",
        ),
    ),
)
_LOCAL = "127.0.0.1"


def _settings(folder: Path, rpc: int, web: int) -> dict[str, object]:
    return {
        "jobmanager.rpc.address": _LOCAL,
        "jobmanager.rpc.port": rpc,
        "jobmanager.bind-host": _LOCAL,
        "jobmanager.memory.process.size": "1200m",
        "rest.address": _LOCAL,
        "rest.bind-address": _LOCAL,
        "rest.port": web,
        "rest.bind-port": web,
        "taskmanager.host": _LOCAL,
        "taskmanager.bind-host": _LOCAL,
        "taskmanager.numberOfTaskSlots": SLOTS,
        "taskmanager.memory.process.size": "1600m",
        # By default each blocking exchange needs 512 buffers of 32 KiB, and a job has
        # several at once in each slot.
        "taskmanager.memory.network.min": "256m",
        "taskmanager.memory.network.max": "256m",
        "taskmanager.network.sort-shuffle.min-buffers": 64,
        # Notice a killed task manager after 10 seconds, not after the default of 50.
        "heartbeat.interval": 2000,
        "heartbeat.timeout": 10000,
        # Beam's classes in the class path are loaded once. Those that come with a job
        # are unloaded after each stage, and the Python workers end with them.
        "classloader.resolve-order": "parent-first",
        # A lost task manager costs an attempt for each task that it ran or that waited
        # for its results. Beam's flag for this affects streams only.
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": 100,
        # Longer than the preset `environment_cache_millis`: an attempt within that time
        # gets the connection to a worker that is gone, again and again.
        "restart-strategy.fixed-delay.delay": "12 s",
        "io.tmp.dirs": folder / "tmp",
        "web.tmpdir": folder / "tmp",
    }


def home() -> Path:
    """Returns the folder of Flink's programs and jars, which it fetches if needed."""
    return unpacked(f"flink-{_VERSION}", _PACKAGES)


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
    flink = home()
    rpc, web = ports
    conf = folder / "conf"
    shutil.copytree(flink / "conf", conf)
    (folder / "tmp").mkdir()
    # What Java 17 must open is in the file that comes with Flink.
    shipped = (flink / "conf" / "config.yaml").read_text()
    (opens,) = re.findall(r"^ +all: (--add-.*)$", shipped, re.MULTILINE)
    settings = {"env.java.opts.all": opens, **_settings(folder, rpc, web)}
    lines = [f"{name}: {value}\n" for name, value in settings.items()]
    (conf / "config.yaml").write_text("".join(lines))
    starter.environment.update(
        JAVA_HOME=str(java.resolve().parents[1]),
        FLINK_HOME=str(flink),
        FLINK_CONF_DIR=str(conf),
        FLINK_LOG_DIR=str(folder / "logs"),
        FLINK_PID_DIR=str(folder),
    )
    starter.start("jobmanager", [flink / "bin" / "jobmanager.sh", "start-foreground"])
    for number in range(1, WORKERS + 1):
        starter.environment["FLINK_IDENT_STRING"] = f"{folder.name}-{number}"
        starter.start(
            f"taskmanager-{number}",
            [flink / "bin" / "taskmanager.sh", "start-foreground"],
        )
    url = f"http://{_LOCAL}:{web}"
    starter.wait(lambda: fetch_json(f"{url}/overview")["taskmanagers"] == WORKERS)
    return f"{_LOCAL}:{web}", url
