"""What a submitter makes of reports and words of an engine; how a run is stopped."""

import os
import pathlib
import time
from collections.abc import Sequence

import pytest

from beam_pipeline.engines.job_server import last_words
from beam_pipeline.engines.submit import JobWatch, is_lasting, translated
from transforms.errors import RejectLimitError, StorageError, WorkerError
from transforms.storage.visibility import Worker
from transforms.work.worker_check import Reports

Folder = pathlib.Path
WORKER = Worker("pod", "12")


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


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
    """The first one, as it was raised; a fault of storage may pass."""
    watch, _ = watch_of(reports)
    failed = [(1.0, "transforms.errors.StorageError: away")]
    watch.ask = lambda: failed
    watch.read()
    watch.look()
    for text in ("At most 1%", "another"):
        failed.append((2.0, f"transforms.errors.RejectLimitError: {text}"))
        watch.read()
    with pytest.raises(RejectLimitError, match="At most 1%"):
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
    (path,) = pathlib.Path(reports.folder).glob("*.worker")
    os.utime(path, (5, 5))
    watch.read()
    clock.now += 61
    watch.look()
    assert said == [line] * 3


def test_what_the_engine_says_ends_the_job() -> None:
    """However often it would try again."""
    watch = JobWatch(
        *("flink", Reports("/none", ""), lambda _text: None),
        ask=lambda: [(1.0, "at java\ntransforms.errors.WorkerError: not it\nat java")],
    )
    with watch.watching():
        until = time.monotonic() + 30
        while watch.failure is None and time.monotonic() < until:
            time.sleep(0.01)
    with pytest.raises(WorkerError, match="not it"):
        watch.look()


def test_workers_that_take_no_data_lack_the_program(reports: Reports) -> None:
    """Unless one has had it: a worker that is lost takes no data, either."""
    failed = [(1.0, "java.lang.RuntimeException: No client connected within timeout")]
    watch, _ = watch_of(reports)
    reports.sign_on(WORKER)
    watch.read()
    watch.ask = lambda: failed
    watch.read()
    watch.look()
    watch = JobWatch("flink", Reports("/none", ""), print, ask=lambda: failed)
    watch.read()
    with pytest.raises(WorkerError, match="pip install 'beam-tfrecord=="):
        watch.look()


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
    seconds: Sequence[float], lasts: bool, reports: Reports
) -> None:
    """Who goes on meeting one for a minute is not left to the engine's patience."""
    assert is_lasting(seconds) == lasts
    watch, _ = watch_of(reports)
    watch.ask = lambda: [(at, "transforms.errors.StorageError: full") for at in seconds]
    watch.read()
    assert isinstance(watch.failure, StorageError) == lasts


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
        (["Starting", " Listening "], ""),
        (
            ["java.io.IOException: No space", "Stopping"],
            "java.io.IOException: No space",
        ),
        ([_KILLED, _STOPPED], _KILLED),
        ([_STOPPED, "Stopping"], ""),
    ],
)
def test_the_last_fault_with_details_is_reported(
    lines: list[str], told: str, tmp_path: Folder
) -> None:
    """Of a job server: neither what the error says already, nor what comes after."""
    log = tmp_path / "log"
    log.write_text("\n".join(lines))
    assert last_words(str(log), _FAILED).rpartition("words: ")[2] == told


def test_an_exception_of_any_name_leaves_nothing_committed() -> None:
    """What a user's own step raises while the graph is built has no traceback."""

    class BadRow(Exception):  # noqa: N818 - as users name theirs
        pass

    error = translated(BadRow("row 17 has a wrong price"))
    assert "BadRow" in str(error)
    assert "row 17 has a wrong price" in str(error)
    assert "Nothing was committed" in str(error)


@pytest.mark.parametrize("said", ["no price", "no price\nin row 17", ""])
def test_a_step_that_fails_in_this_process(said: str) -> None:
    """Beam adds the stage to the words of the exception, and no traceback."""
    error = str(translated(ValueError(f"{said} [while running 'Own/Price']")))
    assert "in 'Own/Price'" in error
    assert " ".join(said.split()) in error
    assert "ValueError" in error
    assert "while running" not in error
