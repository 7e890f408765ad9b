"""The same command on real engines: the same bytes and errors, after losses too."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator

import pytest
from clusters.notes import (
    Cluster,
    cluster_folder,
    read_cluster,
)

from tests.clusters.runs import (
    NAME,
    ROOT,
    ROWS,
    committed,
    convert,
    flags_for,
    same,
)
from tests.support.segments import program
from tests.support.worker_pool import children_of

Folder = pathlib.Path

ENGINES = ("flink", "spark", "prism")
on_engines = pytest.mark.parametrize("engine", ENGINES)


@on_engines
def test_images_are_the_same(
    engine: str, data: Folder, tmp_path: Folder, request: pytest.FixtureRequest
) -> None:
    """Shards, sidecars and the digest of images are those of the local run."""
    flags = flags_for(engine, request)
    source = data / "sample" / "photos"
    committed(convert(source, tmp_path / "here"), tmp_path / "here")
    committed(convert(source, tmp_path / "there", *flags), tmp_path / "there")
    same(tmp_path / "there", tmp_path / "here")
    if engine == "spark":
        # Spark retries a failed task, but ends the job at the fourth failure.
        assert failed_tasks() == []


def failed_tasks() -> list[str]:
    """What the executors of the last job on Spark say of tasks that have failed."""
    logs = cluster_folder("spark", NAME) / "logs"
    last = max(path.name for path in logs.glob("worker-*/app-*"))
    found = list(logs.glob(f"worker-*/{last}/*/stderr"))
    assert len(found) == 2
    lines = [line for path in found for line in path.read_text().splitlines()]
    assert any("Running task" in line for line in lines)
    return [line for line in lines if "Exception in task" in line]


@on_engines
def test_rows_are_the_same(
    engine: str, data: Folder, tmp_path: Folder, request: pytest.FixtureRequest
) -> None:
    """So are those of 200,000 rows in four shards, by way of segment files."""
    flags = flags_for(engine, request)
    source = data / "rows.csv"
    committed(convert(source, tmp_path / "here", *ROWS), tmp_path / "here")
    committed(convert(source, tmp_path / "there", *ROWS, *flags), tmp_path / "there")
    same(tmp_path / "there", tmp_path / "here")


@on_engines
def test_our_message_reaches_the_terminal(
    engine: str, tmp_path: Folder, request: pytest.FixtureRequest
) -> None:
    """Too many rejects: exit 3 with the words of the local run, and at once."""
    flags = flags_for(engine, request)
    source = tmp_path / "rows.csv"
    rows = [f"{n},{n}{',more' * (n % 5 == 4)}\n" for n in range(1_000)]
    source.write_text("a,b\n" + "".join(rows))
    here = convert(source, tmp_path / "out")
    there = convert(source, tmp_path / "out", *flags)
    assert here.returncode == there.returncode == 3
    assert "Traceback" not in there.stderr
    assert there.stderr.splitlines()[-1] == here.stderr.splitlines()[-1]
    assert not (tmp_path / "out").exists()


@on_engines
def test_stopped_jobs_are_cancelled(
    engine: str, data: Folder, tmp_path: Folder, request: pytest.FixtureRequest
) -> None:
    """Ctrl-C ends the job on the engine too; the next run goes on to the same bytes."""
    flags = flags_for(engine, request)
    source, out = data / "rows.csv", tmp_path / "there"
    with begun(source, out, *ROWS, *flags) as process:
        until(lambda: segments(out) > 0, process)
        # Reports are removed when the run ends.
        pids = workers_of(tmp_path)
        # As a terminal does: to all that were started in it.
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(60) == 130
    assert pids
    assert not out.exists()
    until_gone(pids)
    if engine != "prism":
        assert jobs_at(request.getfixturevalue(engine)) == []
    committed(convert(source, tmp_path / "here", *ROWS), tmp_path / "here")
    committed(convert(source, out, *ROWS, *flags), out)
    same(out, tmp_path / "here")


@pytest.mark.parametrize("engine", ["flink", "prism"])
def test_who_cannot_wait(
    engine: str, data: Folder, tmp_path: Folder, request: pytest.FixtureRequest
) -> None:
    """A second Ctrl-C does not wait: no job server is left, nothing is published."""
    flags = flags_for(engine, request)
    source, out = data / "rows.csv", tmp_path / "there"
    with begun(source, out, *ROWS, *flags) as process:
        until(lambda: segments(out) > 0, process)
        servers = children_of(process.pid)
        assert servers
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.2)
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(10) == 130
    try:
        until_gone(servers)
        time.sleep(2)
        assert not out.exists()
    finally:
        if engine == "flink":
            # Prism ended with its server; a cluster has not been asked to stop.
            cancel_jobs(request.getfixturevalue(engine))
    assert not out.exists()


@pytest.mark.parametrize("engine", ["flink", "spark"])
def test_killed_worker_is_replaced(
    engine: str, data: Folder, tmp_path: Folder, request: pytest.FixtureRequest
) -> None:
    """A task manager or executor killed in mid-job: the same bytes, no litter."""
    flags = flags_for(engine, request)
    source, out = data / "rows.csv", tmp_path / "there"
    committed(convert(source, tmp_path / "here", *ROWS), tmp_path / "here")
    with begun(source, out, *ROWS, *flags) as process:
        until(lambda: segments(out) > 0, process)
        os.kill(victim(engine), signal.SIGKILL)
        code = process.wait(600)
    assert code == 0, said(out)
    same(out, tmp_path / "here")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def victim(engine: str) -> int:
    """Returns the process to kill: of Flink a task manager, of Spark an executor."""
    # Another test may have lost a task manager, and noted the one in its place.
    found = read_cluster(engine, NAME)
    assert found is not None
    _, *workers = (each.pid for each in found.processes if each.is_alive)
    return workers[-1] if engine == "flink" else children_of(workers[-1])[0]


def apps_at(spark: Cluster) -> list[dict[str, str]]:
    """Returns the applications that a Spark has not ended."""
    with urllib.request.urlopen(f"{spark.web}/json/") as answer:
        found: list[dict[str, str]] = json.load(answer)["activeapps"]
    return found


def jobs_at(cluster: Cluster) -> list[str]:
    """Returns the jobs that a cluster has not ended."""
    if cluster.engine == "spark":
        return [each["id"] for each in apps_at(cluster)]
    with urllib.request.urlopen(f"{cluster.web}/jobs/overview") as answer:
        seen = json.load(answer)
    ended = ("CANCELED", "FINISHED", "FAILED")
    return [each["jid"] for each in seen["jobs"] if each["state"] not in ended]


def cancel_jobs(cluster: Cluster) -> None:
    """Cancels abandoned jobs of Flink; returns when they have ended."""
    for job in jobs_at(cluster):
        place = f"{cluster.web}/jobs/{job}?mode=cancel"
        asked = urllib.request.Request(place, method="PATCH")
        # It may have ended by itself meanwhile.
        with contextlib.suppress(urllib.error.HTTPError):
            urllib.request.urlopen(asked).close()
    end = time.monotonic() + 60
    while jobs_at(cluster):
        assert time.monotonic() < end, "a job that was cancelled goes on"
        time.sleep(0.2)


@contextlib.contextmanager
def begun(
    source: Folder, output: Folder, *flags: str
) -> "Iterator[subprocess.Popen[bytes]]":
    """Starts the program and ends it, whatever happens."""
    with output.with_name("errors.txt").open("w") as errors:
        process = subprocess.Popen(
            program("convert", source, output, *flags),
            stdout=subprocess.DEVNULL,
            stderr=errors,
            cwd=ROOT,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def said(output: Folder) -> str:
    """Returns what the program that was started last has said of errors."""
    return output.with_name("errors.txt").read_text()


def until(holds: Callable[[], bool], process: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + 120
    while not holds():
        assert process.poll() is None, "the process ended before that"
        assert time.monotonic() < end
        time.sleep(0.02)


def segments(output: Folder) -> int:
    """Returns how many files of segments a run has made so far."""
    work = output.with_name(f".{output.name}.beam-tfrecord")
    return len(list(work.glob("*/segments/*")))


def workers_of(folder: Folder) -> list[int]:
    """Returns the workers that have signed on for a job with its output in a folder."""
    found = folder.glob(".*/*/reports-*/*.worker")
    return [int(path.stem.rpartition("-")[2]) for path in found]


def until_gone(pids: list[int]) -> None:
    end = time.monotonic() + 30
    while any(Folder(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < end, "workers of a cancelled job still run"
        time.sleep(0.1)
