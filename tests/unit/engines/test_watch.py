"""What a submitter makes of reports and words of an engine; how a run is stopped."""

import os
import pathlib
import time
from collections.abc import Iterator, Sequence

import pytest

from beam_pipeline.engines.beam_errors import (
    Failure,
    JobWatch,
    last_words,
    lasting,
    translated,
)
from transforms.errors import (
    BeamTFRecordError,
    RejectLimitError,
    StorageError,
    WorkerError,
)
from transforms.storage.visibility import Worker
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
    return JobWatch("flink", reports, said.append), said


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


def test_silence_is_told_and_ends_nothing(reports: Reports, clock: Clock) -> None:
    """After 60 s a line says what to check, once; a report must change to count."""
    watch, said = watch_of(reports)
    clock.now += 59
    watch.look()
    assert said == []
    for _ in range(1_000):
        clock.now += 2
        watch.look()
    (line,) = said
    assert line.startswith("no worker of flink has reported for 61 s; ")
    reports.sign_on(WORKER)
    watch.read()
    for seconds in (0, 59, 2, 61):
        clock.now += seconds
        watch.read()
        watch.look()
    assert said == [line, line]
    (path,) = [e.path for e in reports.entries() if e.path.endswith(".worker")]
    os.utime(os.path.join(reports.folder, path), (5, 5))
    watch.read()
    clock.now += 61
    watch.look()
    assert said == [line] * 3


def test_what_the_engine_says_ends_the_job() -> None:
    """However often it would try again."""
    watch = JobWatch(
        *("flink", Reports("/none", ""), lambda _text: None),
        ask=lambda: [(1.0, WorkerError("not started"))],
    )
    with watch.watching():
        until = time.monotonic() + 30
        while not watch._engines and time.monotonic() < until:
            time.sleep(0.01)
    with pytest.raises(WorkerError, match="not started"):
        watch.look()


def failures(*errors: BeamTFRecordError) -> list[Failure]:
    return [(float(number), error) for number, error in enumerate(errors)]


def test_failures_end_a_job_by_their_type() -> None:
    """Only faults of storage may pass; whatever else a worker raises ends the job."""
    assert lasting([]) is None
    assert lasting(failures(StorageError("disk"))) is None
    limit = RejectLimitError("At most 1%")
    assert lasting(failures(StorageError("disk"), limit)) is limit
    assert lasting(failures(limit, StorageError("full"))) is limit
    assert lasting(failures(StorageError("no"), WorkerError("old"))) is not None


@pytest.mark.parametrize(
    ("seconds", "lasts"),
    [
        # A task in each of eight slots, at once; then the engine's next try as well.
        ([0.0] * 8, False),
        ([0, 0, 0, 0, 10, 10, 10, 10], False),
        # A full disk: try after try.
        ([*range(0, 62, 2)], True),
        # A store that stays away; an attempt may itself retry for minutes.
        ([0, 30, 60, 90], True),
        ([0, 90, 180, 270], True),
        ([0, 70, 71], False),
        # One that has passed, and minutes later a task in each of three slots.
        ([0, 250, 250, 251], False),
        # Two faults that have passed, hours apart, and one of another day.
        ([0, 1, 2, 9_000, 9_001, 9_002, 90_000], False),
    ],
)
def test_faults_of_storage_that_do_not_pass(
    seconds: Sequence[float], lasts: bool
) -> None:
    """Who goes on meeting one for a minute is not left to the engine's patience."""
    errors = [StorageError(f"full {number}") for number in range(len(seconds))]
    error = lasting(list(zip(seconds, errors, strict=True)))
    assert str(error) == (f"full {len(seconds) - 1}" if lasts else "None")


# As Spark 3.5.0 and Beam's job server of it print them.
_KILLED = (
    "26/11/22 01:58:02 ERROR StandaloneSchedulerBackend: Application has been killed. "
    "Reason: Master removed our application: FAILED"
)
_STOPPED = (
    "java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext."
)
_FAILED = f"The pipeline failed: {_STOPPED} Nothing was committed."


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ([], ""),
        (["Starting", " Listening "], "Listening"),
        (
            ["java.io.IOException: No space", "Stopping"],
            "java.io.IOException: No space",
        ),
        ([_KILLED, _STOPPED], _KILLED),
        ([_STOPPED, "Stopping"], ""),
    ],
)
def test_the_last_fault_with_details_is_reported(lines: list[str], told: str) -> None:
    """Of a job server: neither what the error says already, nor what comes after."""
    assert last_words(lines, _FAILED).rpartition("words: ")[2] == told


def test_an_exception_of_any_name_leaves_nothing_committed() -> None:
    """What a user's own step raises while the graph is built has no traceback."""

    class BadRow(Exception):  # noqa: N818 - as users name theirs
        pass

    error = translated(BadRow("row 17 has a wrong price"))
    assert "BadRow" in str(error)
    assert "row 17 has a wrong price" in str(error)
    assert "Nothing was committed" in str(error)
