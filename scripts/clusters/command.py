"""The command line of `scripts/cluster`."""

import argparse
import contextlib
import re
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType, ModuleType
from typing import NoReturn

from clusters import downloads, flink, spark
from clusters.failure import Failure
from clusters.job_server import job_server
from clusters.notes import (
    Cluster,
    JavaError,
    cluster_folder,
    find_java,
    program_path,
    read_cluster,
    write_cluster,
)
from clusters.processes import Starter, are_free, free_ports, stop

__all__ = ["main"]

_ENGINES: dict[str, ModuleType] = {"flink": flink, "spark": spark}


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Runs the command and exits: 0 success, 1 failed or down, 2 usage error."""
    parser = argparse.ArgumentParser(
        prog="scripts/cluster", description="Starts real engines on this machine."
    )
    parser.add_argument("engine", choices=[*_ENGINES, "prism"])
    parser.add_argument("action", choices=["up", "down", "status"])
    parser.add_argument("--name", default="default", help="tells clusters apart")
    parser.add_argument(
        "--ports",
        metavar="A,B,...",
        help="flink: of the job manager and its web pages; spark: of the master, its "
        "web pages and each worker's [their usual ones for 'default', else free ones]",
    )
    given = parser.parse_args(argv)
    if not re.fullmatch(r"[a-z0-9_]+", given.name):
        parser.error("a name is of small letters, digits and _")
    signal.signal(signal.SIGTERM, _terminated)
    try:
        sys.exit(_do(given))
    except (Failure, JavaError, OSError) as failure:
        print(f"error: {failure}", file=sys.stderr)
    except KeyboardInterrupt:
        print("interrupted; what was started is stopped", file=sys.stderr)
    sys.exit(1)


def _terminated(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _do(given: argparse.Namespace) -> int:
    if given.engine == "prism":
        return _prism(given.action)
    cluster = read_cluster(given.engine, given.name)
    if given.action == "up":
        return _up(given, cluster)
    if given.action == "down":
        return _down(cluster, given.engine, given.name)
    if cluster is None or not any(each.is_alive for each in cluster.processes):
        print(f"{given.engine} {given.name!r} is down")
        return 1
    _show(cluster)
    return 0 if all(each.is_alive for each in cluster.processes) else 1


def _prism(action: str) -> int:
    path = program_path("prism", downloads.beam_version())
    if action == "up":
        print(f"Prism is {downloads.prism()}; each job starts its own")
    elif action == "down":
        print("Prism ends with each job; nothing is left to stop")
    else:
        print(f"Prism is {path if path.is_file() else 'not built'}")
        return 0 if path.is_file() else 1
    return 0


def _up(given: argparse.Namespace, cluster: Cluster | None) -> int:
    engine = _ENGINES[given.engine]
    if cluster is not None and all(each.is_alive for each in cluster.processes):
        print(f"{given.engine} {given.name!r} is up already")
        _show(cluster)
        return 0
    if cluster is not None:
        stop(cluster.processes)
    java = find_java()
    ports = _ports(given.ports, engine.PORTS, usual=given.name == "default")
    brought = _job_server(given.engine, engine.ARTIFACT)
    folder = cluster_folder(given.engine, given.name)
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "logs").mkdir(parents=True)
    starter = Starter(folder / "logs")
    if brought is not None and engine.CLASS_PATH:
        starter.environment[engine.CLASS_PATH] = str(brought)
    try:
        master, web = engine.launch(starter, folder, Path(java), ports)
    except BaseException:
        stop(starter.processes)
        raise
    cluster = Cluster(
        engine=given.engine,
        name=given.name,
        master=master,
        web=web,
        workers=engine.WORKERS,
        slots=engine.SLOTS,
        started=time.time(),
        processes=tuple(starter.processes),
    )
    write_cluster(cluster)
    _show(cluster)
    if brought is not None:
        print(f"job server {brought}")
    return 0


def _job_server(engine: str, artifact: str) -> Path | None:
    """Returns Beam's job server; None if it cannot be obtained.

    The cluster starts anyway, for users who have a job server of their own.
    """
    try:
        return job_server(engine, artifact)
    except Failure as failure:
        print(f"warning: there is no job server. {failure}", file=sys.stderr)
        return None


def _ports(text: str | None, wanted: Sequence[int], *, usual: bool) -> list[int]:
    count = len(wanted)
    if text is None:
        return [*wanted] if usual and are_free(wanted) else free_ports(count)
    with contextlib.suppress(ValueError):
        ports = [int(part) for part in text.split(",")]
        if len(ports) == count:
            return ports
    raise Failure(f"--ports must be {count} numbers, as in 6123,8081; found {text!r}.")


def _down(cluster: Cluster | None, engine: str, name: str) -> int:
    if cluster is None:
        print(f"{engine} {name!r} is down already")
        return 0
    stop(cluster.processes)
    folder = cluster_folder(engine, name)
    (folder / "cluster.json").unlink()
    # The engine's copies for each job are large and are not logs.
    shutil.rmtree(folder / "tmp", ignore_errors=True)
    for jar in folder.rglob("*.jar"):
        jar.unlink()
    print(f"{engine} {name!r} is down; its logs are in {folder / 'logs'}")
    return 0


def _show(cluster: Cluster) -> None:
    print(f"{cluster.engine} {cluster.name!r} at {cluster.master}, pages {cluster.web}")
    for each in cluster.processes:
        print(f"  {each.role:<14} {'runs, ' if each.is_alive else 'ended, '}{each.pid}")
    print(f"  logs in {cluster_folder(cluster.engine, cluster.name) / 'logs'}")
