"""What the submitter makes of workers' reports, and of an engine's own words."""

import os
import pathlib
import sys
import time
from collections.abc import Iterator

import pyarrow.fs as pafs
import pytest

from beam_pipeline.engines.beam_errors import translated
from beam_pipeline.engines.watch import JobWatch
from transforms.core.this_worker import Worker
from transforms.errors import RejectLimitError, WorkerError
from transforms.storage import arrow, clients
from transforms.work.reports import Reports

Folder = pathlib.Path
WORKER = Worker("pod", "12")


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def reports(tmp_path: Folder) -> Iterator[Reports]:
    """Reports of a run that is on."""
    (tmp_path / "attempts").mkdir()
    found = Reports(str(tmp_path / "reports" / "run"), str(tmp_path / "attempts"))
    found.begin()
    yield found
    found.end()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of the watch."""
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock)
    return clock


def watch_of(reports: Reports) -> tuple[JobWatch, list[str]]:
    said: list[str] = []
    return JobWatch("flink", reports, said.append, "it is well"), said


def test_an_error_of_a_worker_ends_the_job(reports: Reports) -> None:
    """As it was raised; a worker that cannot report is heard through the engine."""
    watch, _ = watch_of(reports)
    watch.read()
    watch.look()
    assert watch.latest() is None
    reports.leave_failure(WORKER, "transforms.errors.RejectLimitError: At most 1%")
    watch.read()
    with pytest.raises(RejectLimitError, match="At most 1%"):
        watch.look()
    assert isinstance(watch.latest(), RejectLimitError)
    watch, _ = watch_of(Reports(reports.folder + "-of-none", ""))
    watch._engines = [(1.0, WorkerError("no keys"))]
    with pytest.raises(WorkerError, match="no keys"):
        watch.look()


def test_a_worker_without_the_client_of_the_store(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It can write nothing else there, but says so."""
    (tmp_path / "bucket" / "reports").mkdir(parents=True)
    system = pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem())

    def reached(path: str) -> tuple[pafs.FileSystem, str]:
        return system, path.removeprefix("s3://")

    monkeypatch.setattr(arrow, "file_system", reached)
    # On a busy machine it takes some seconds to find that there is no client.
    monkeypatch.setattr("transforms.work.reports._LEAVE_SECONDS", 60.0)
    reports = Reports("s3://bucket/reports", "")
    arrow.write(reports.submitter, b"")
    monkeypatch.setitem(sys.modules, "boto3", None)
    clients._connected.cache_clear()
    reports.leave_failure(WORKER, "transforms.errors.WorkerError: no client")
    watch, _ = watch_of(reports)
    watch.read()
    with pytest.raises(WorkerError, match="no client"):
        watch.look()
    clients._connected.cache_clear()


def test_silence_is_told_and_ends_nothing(reports: Reports, clock: Clock) -> None:
    """After 60 s a line says what to check, once."""
    watch, said = watch_of(reports)
    clock.now += 59
    watch.look()
    assert said == []
    for _ in range(1_000):
        clock.now += 2
        watch.look()
    assert said == ["no worker of flink has reported for 61 s; check that it is well"]
    reports.sign_on(WORKER)
    watch.read()
    watch.look()
    assert said[1:] == ["workers of flink report again"]


def test_a_job_that_somebody_else_has_cancelled() -> None:
    """The message is ours, in place of Java's."""
    failure = RuntimeError(
        "Pipeline beam-tfrecord-x failed in state FAILED: "
        "org.apache.flink.runtime.client.JobCancellationException: Job was cancelled."
    )
    assert "cancelled at the engine, not by this program" in str(translated(failure))


def test_an_old_report_is_silence(reports: Reports, clock: Clock) -> None:
    """It counts when a report changes, not that there is one."""
    watch, said = watch_of(reports)
    reports.sign_on(WORKER)
    (name,) = [e.path for e in reports.entries() if e.path.endswith(".worker")]
    watch.read()
    clock.now += 61
    watch.read()
    watch.look()
    assert len(said) == 1
    os.utime(os.path.join(reports.folder, name), (5, 5))
    watch.read()
    watch.look()
    assert len(said) == 2
