"""What the submitter makes of workers' reports, and of an engine's own words."""

import os
import pathlib
import time
from collections.abc import Iterator

import pytest

from beam_pipeline.engines import job_watch
from beam_pipeline.engines.beam_errors import INSTALL, translated
from beam_pipeline.engines.engine_words import (
    EngineWords,
    ServerWords,
    last_error,
    words_of_server,
)
from beam_pipeline.engines.job_watch import JobWatch
from transforms.core.this_worker import Worker
from transforms.errors import BeamTFRecordError, RejectLimitError, WorkerError
from transforms.work.reports import Reports

Folder = pathlib.Path
WORKER = Worker("pod", "12", "1.0", "3.11", "Linux x86_64", "c0ffee")


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


def watch_of(
    reports: Reports, timeout: float | None = 300
) -> tuple[JobWatch, list[str]]:
    said: list[str] = []
    return JobWatch("flink", reports, said.append, timeout=timeout), said


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
    watch._words = EngineWords(failures=((1.0, WorkerError("no keys")),))
    with pytest.raises(WorkerError, match="no keys"):
        watch.look()


def test_silence_is_told_and_ends_the_job(reports: Reports, clock: Clock) -> None:
    """After 30 s it is said, with the engine's words; the timeout ends the job."""
    watch, said = watch_of(reports)
    clock.now += 29
    watch.look()
    assert said == []
    watch._words = EngineWords(error="java.net.ConnectException: refused")
    clock.now += 2
    watch.look()
    watch.look()
    assert said == [
        "flink runs tasks of the job, but no worker has reported for 31 s; its latest "
        "error: java.net.ConnectException: refused. Workers need the program: "
        f"{INSTALL}."
    ]
    reports.sign_on(WORKER)
    watch.read()
    watch.look()
    assert said[1:] == ["flink: workers report again"]
    clock.now += 299
    watch.look()
    clock.now += 1
    with pytest.raises(BeamTFRecordError, match=r"none has for 300 s .*refused\.") as e:
        watch.look()
    assert e.value.exit_code == 1
    assert "the next run goes on from here" in str(e.value)
    # The worker that had reported has the program.
    assert INSTALL not in str(e.value)


def test_the_page_of_a_job_is_named_once(reports: Reports, clock: Clock) -> None:
    """Who looks for the job at the engine need not guess which it is."""
    watch, said = watch_of(reports)
    watch.look()
    watch._words = EngineWords(page="http://flink/#/job/running/a")
    watch.look()
    watch.look()
    assert said == ["flink runs the job: http://flink/#/job/running/a"]


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
    clock.now += 31
    watch.read()
    watch.look()
    assert len(said) == 1
    os.utime(os.path.join(reports.folder, name), (5, 5))
    watch.read()
    watch.look()
    assert len(said) == 2


def test_waiting_ends_nothing(reports: Reports, clock: Clock) -> None:
    """A job in a queue is shown as such, once, however long it takes."""
    watch, said = watch_of(reports)
    watch._words = EngineWords(waits="waits for slots")
    for _ in range(1_000):
        clock.now += 10
        watch.look()
    assert said == ["flink: waits for slots"]
    watch._words = EngineWords()
    clock.now += 29
    watch.look()
    assert len(said) == 1


def test_machines_that_take_minutes_to_start(reports: Reports, clock: Clock) -> None:
    """Without a timeout nothing is said before the first worker has reported."""
    watch, said = watch_of(reports, timeout=None)
    clock.now += 10_000
    watch.look()
    assert said == []
    reports.sign_on(WORKER)
    watch.read()
    clock.now += 10_000
    watch.look()
    assert len(said) == 1


def test_the_submitter_reports_too(
    reports: Reports, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its report is renewed while the job is watched."""
    monkeypatch.setattr(job_watch, "RENEWED_SECONDS", 0.0)
    monkeypatch.setattr(job_watch, "_NEAR_SECONDS", 0.01)
    os.utime(reports.submitter, (0, 0))
    watch, _ = watch_of(reports)
    with watch.watching():
        for _ in range(500):
            if os.stat(reports.submitter).st_mtime:
                break
            time.sleep(0.01)
    assert os.stat(reports.submitter).st_mtime


_CONNECT = "Caused by: java.net.ConnectException"
_NETTY = "Caused by: netty.AnnotatedConnectException"


@pytest.mark.parametrize(
    ("causes", "said"),
    [
        ([f"{_CONNECT}: refused: here:17500"], f"{_CONNECT}: refused: here:17500"),
        (["Caused by: a.SomeError: Ended: so", f"{_CONNECT}: so"], f"{_CONNECT}: so"),
        (["Caused by: a.SomeError: Ended", _CONNECT], _CONNECT),
        # The outer one says where.
        (
            [f"{_NETTY}: refused: here/127.0.0.1:9", f"{_CONNECT}: refused"],
            f"{_NETTY}: refused: here/127.0.0.1:9",
        ),
    ],
)
def test_the_innermost_error_of_a_trace(causes: list[str], said: str) -> None:
    """The last cause says what happened; a trace without one has none."""
    trace = [
        "java.lang.Exception: The user defined 'open()' method caused an exception",
        "    at org.apache.flink.Task.run(Task.java:1)",
        "Caused by: java.util.concurrent.ExecutionException: outer",
        *causes,
        "    ... 3 more",
    ]
    assert last_error(trace) == said.removeprefix("Caused by: ")
    assert last_error(["nothing"]) == ""


def test_what_a_job_server_prints_of_waiting() -> None:
    """Spark says every 15 s that a job has no machines."""
    server = ServerWords()
    assert words_of_server("", "", server) == EngineWords()
    server.lines.append(
        "26 WARN TaskSchedulerImpl: Initial job has not accepted any "
        "resources; check your cluster UI"
    )
    assert words_of_server("", "", server).waits == "waits for machines"
    server.lines.append("26 ERROR Executor: java.io.IOException: gone")
    found = words_of_server("", "", server)
    assert (found.waits, found.error[:8]) == ("", "26 ERROR")
