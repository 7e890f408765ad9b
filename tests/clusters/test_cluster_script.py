"""`scripts/cluster`: real clusters that use only loopback and stop on command."""

import re
import subprocess

import pytest
from clusters.notes import Cluster

on_clusters = pytest.mark.parametrize("engine", ["flink", "spark"])
_LOOPBACK = re.compile(r"(127\.0\.0\.1|\[::1\]|\[::ffff:127\.0\.0\.1\]):\d+")


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
