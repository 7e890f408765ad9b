"""`scripts/cluster`: real clusters that use only loopback and stop on command."""

import os
import pathlib
import re
import signal
import subprocess
import urllib.request

import pytest
from clusters import notes as cluster
from clusters.notes import Cluster

from tests.clusters.conftest import control
from tests.clusters.runs import NAME
from tests.support.worker_pool import await_that

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


@on_clusters
def test_two_run_side_by_side(engine: str, request: pytest.FixtureRequest) -> None:
    """`down` of one leaves the other."""
    found: Cluster = request.getfixturevalue(engine)
    name = "second"
    try:
        assert control(engine, "up", "--name", name).returncode == 0
        second = cluster.read_cluster(engine, name)
        assert second is not None
        assert second.master != found.master
    finally:
        assert control(engine, "down", "--name", name).returncode == 0
    assert not any(process.is_alive for process in second.processes)
    assert all(process.is_alive for process in found.processes)
    assert control(engine, "status", "--name", name).returncode == 1
    logs = cluster.cluster_folder(engine, name) / "logs"
    assert [path for path in logs.iterdir() if path.stat().st_size]


@on_clusters
def test_loss_shows(engine: str) -> None:
    """A killed worker shows in `status`; `up` then starts the cluster again."""
    name = "lossy"
    try:
        assert control(engine, "up", "--name", name).returncode == 0
        found = cluster.read_cluster(engine, name)
        assert found is not None
        os.kill(found.processes[-1].pid, signal.SIGKILL)
        # A busy machine takes a moment to end it.
        await_that(lambda: control(engine, "status", "--name", name).returncode == 1)
        status = control(engine, "status", "--name", name)
        assert status.returncode == 1
        assert "ended" in status.stdout
        assert control(engine, "up", "--name", name).returncode == 0
        assert control(engine, "status", "--name", name).returncode == 0
    finally:
        control(engine, "down", "--name", name)
