"""`scripts/cluster`: real clusters that use only loopback and stop on command."""

import pathlib
import re
import subprocess
import urllib.request

import pytest
from clusters import notes as cluster
from clusters.notes import Cluster

from tests.clusters.conftest import control
from tests.clusters.runs import NAME

Folder = pathlib.Path

on_clusters = pytest.mark.parametrize("engine", ["flink", "spark"])
_LOOPBACK = re.compile(r"(127\.0\.0\.1|\[::1\]|\[::ffff:127\.0\.0\.1\]):\d+")


@on_clusters
def test_is_ready_when_up_returns(engine: str, request: pytest.FixtureRequest) -> None:
    """Master, two workers and web pages are there; `up` again changes nothing."""
    found: Cluster = request.getfixturevalue(engine)
    assert len(found.processes) == 3
    assert all(process.is_alive for process in found.processes)
    with urllib.request.urlopen(found.web, timeout=10) as answer:
        assert answer.status == 200
    assert (cluster.cluster_folder(engine, NAME) / "tmp").is_dir()
    again = control(engine, "up", "--name", NAME)
    assert again.returncode == 0
    assert "is up already" in again.stdout
    assert cluster.read_cluster(engine, NAME) == found


@on_clusters
def test_listens_on_loopback_alone(engine: str, request: pytest.FixtureRequest) -> None:
    """No port of any process of a cluster is open to the network."""
    found: Cluster = request.getfixturevalue(engine)
    shown = subprocess.run(
        ["ss", "--listening", "--tcp", "--numeric", "--processes", "--no-header"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    pids = {f"pid={process.pid}," for process in found.processes}
    lines = [line for line in shown.splitlines() if any(pid in line for pid in pids)]
    assert len(lines) >= len(found.processes)
    assert [line for line in lines if not _LOOPBACK.fullmatch(line.split()[3])] == []
