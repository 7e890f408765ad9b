"""What the pages of a Spark driver say, as those of Spark 3.5.0 have answered."""

import http.server
import json
import logging
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from beam_pipeline.engines import spark_jobs
from beam_pipeline.engines.engine import Place
from beam_pipeline.engines.engine_words import EngineWords, ServerWords
from beam_pipeline.engines.presets import SPARK
from beam_pipeline.engines.spark_jobs import reach_master, words_of_job
from transforms.errors import UsageError, WorkerError

NAME = "beam-tfrecord-223e96e3988f"
APP = "app-20261124095331-0000"
API = "/api/v1/applications"
MASTER = "spark://127.0.0.1:7077"

# Recorded, without what is not read; traces are cut.
APPS = [{"id": APP, "name": f"{NAME}_38254e24-68e5-4297-9a3a-3b82860fff17"}]
MACHINES = [{"id": "driver", "isActive": True}, {"id": "0", "isActive": True}]
RUNNING = {"stageId": 0, "attemptId": 0, "status": "ACTIVE", "numFailedTasks": 0}
FAILING = {**RUNNING, "numFailedTasks": 1}
DIED = {
    "taskId": 8,
    "launchTime": "2026-11-24T09:55:59.358GMT",
    "duration": 3173,
    "status": "FAILED",
    "errorMessage": (
        "org.apache.beam.vendor.guava.v32_1_2_jre.com.google.common.util.concurrent."
        "UncheckedExecutionException: java.lang.IllegalStateException: Process died "
        "with exit code 7\n\tat org.apache.beam.vendor.guava.v32_1_2_jre.com.google."
        "common.cache.LocalCache$Segment.get(LocalCache.java:2086)\nCaused by: java."
        "lang.IllegalStateException: Process died with exit code 7\n\tat org.apache."
        "beam.runners.fnexecution.environment.ProcessManager$RunningProcess."
        "isAliveOrThrow(ProcessManager.java:74)\n"
    ),
}
OTHER_VERSION = {
    "taskId": 7,
    "launchTime": "2026-11-24T09:55:13.875GMT",
    "duration": 2909,
    "status": "FAILED",
    "errorMessage": (
        "java.util.concurrent.ExecutionException: java.lang.RuntimeException: Error "
        "received from SDK harness for instruction 1: Traceback (most recent call "
        'last):\n  File "apache_beam/runners/common.py", line 1512, in apache_beam.'
        "runners.common.DoFnRunner.process\ntransforms.errors.WorkerError: Every "
        "worker must have the versions that the job was submitted with\n\nDuring "
        "handling of the above exception, another exception occurred:\n"
    ),
}
LOST = {
    **DIED,
    "launchTime": "2026-11-24T09:56:59.000GMT",
    "errorMessage": "ExecutorLostFailure (executor 0 exited caused by one of the "
    "running tasks) Reason: Command exited with code 137",
}


class _Driver(http.server.ThreadingHTTPServer):
    """Answers as the driver's pages do."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        tasks = f"{API}/{APP}/stages/0/0/taskList?status=failed&length=20"
        self.answers: dict[str, Any] = {
            API: APPS,
            f"{API}/{APP}/stages?status=active&status=failed": [RUNNING],
            f"{API}/{APP}/executors": MACHINES,
            tasks: [],
        }

    def fail(self, *tasks: dict[str, Any]) -> None:
        stages, found = list(self.answers)[1], list(self.answers)[3]
        self.answers |= {stages: [FAILING], found: list(tasks)}


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Driver

    def do_GET(self) -> None:
        data = json.dumps(self.server.answers[self.path]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *arguments: object) -> None:
        """Prints nothing."""


@pytest.fixture
def driver() -> Iterator[_Driver]:
    """A driver with an application of ours."""
    with _Driver() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def server(driver: _Driver, monkeypatch: pytest.MonkeyPatch) -> ServerWords:
    """The output of a job server, long enough after its start."""
    monkeypatch.setattr(spark_jobs, "_FIRST_SECONDS", 0.0)
    words = ServerWords()
    port = driver.server_address[1]
    say(words, f"INFO Utils: Successfully started service 'SparkUI' on port {port}.")
    for number in range(1000):
        say(words, f"INFO line {number}")
    return words


def say(words: ServerWords, line: str) -> None:
    words.emit(logging.LogRecord("", logging.INFO, "", 0, line, (), None))


def test_a_job_that_runs(driver: _Driver, server: ServerWords) -> None:
    """Nothing is said of it, nor of one of another name."""
    assert words_of_job(MASTER, NAME, server) == EngineWords()
    assert server.pages == f"http://127.0.0.1:{driver.server_address[1]}{API}/{APP}"
    server.pages = ""
    assert words_of_job(MASTER, "beam-tfrecord-2", server) == EngineWords()
    assert server.pages == ""


def test_a_job_without_machines(driver: _Driver, server: ServerWords) -> None:
    """It waits, unless the driver runs the tasks itself."""
    driver.answers[f"{API}/{APP}/executors"] = MACHINES[:1]
    assert words_of_job(MASTER, NAME, server).waits == "waits for machines"
    assert words_of_job("local[2]", NAME, server).waits == ""


def test_tasks_that_have_failed(driver: _Driver, server: ServerWords) -> None:
    """The reason of the last one is the error, and those of ours are failures."""
    driver.fail(DIED, OTHER_VERSION)
    words = words_of_job(MASTER, NAME, server)
    cause = "java.lang.IllegalStateException: Process died with exit code 7"
    assert words.error == cause
    ((seconds, error),) = words.failures
    assert isinstance(error, WorkerError)
    assert "Every worker must have the versions" in str(error)
    assert round(seconds, 3) == 1795514116.784
    driver.fail(LOST, DIED)
    words = words_of_job(MASTER, NAME, server)
    assert words.error.startswith("ExecutorLostFailure (executor 0 exited")
    assert words.failures == ()


def test_pages_that_do_not_answer(driver: _Driver, server: ServerWords) -> None:
    """What the job server prints is all that is known then."""
    say(server, "WARN TaskSchedulerImpl: Initial job has not accepted any resources;")
    driver.answers[API] = "starts"
    server.port = "1"
    assert words_of_job(MASTER, NAME, server).waits == "waits for machines"
    assert words_of_job(MASTER, NAME, ServerWords()) == EngineWords()


def test_a_job_server_that_runs_already(
    driver: _Driver, server: ServerWords, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pages are looked for at Spark's usual ports of its host."""
    driver.fail(DIED)
    ports = (1, driver.server_address[1])
    monkeypatch.setattr(spark_jobs, "_USUAL_PORTS", ports)
    words = words_of_job(MASTER, NAME, ServerWords("127.0.0.1:8099"))
    assert "Process died with exit code 7" in words.error


def test_the_first_seconds(
    server: ServerWords, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A short job is not kept by questions."""
    monkeypatch.setattr(spark_jobs, "_FIRST_SECONDS", 1000.0)
    assert words_of_job(MASTER, NAME, server) == EngineWords()
    assert server.pages == ""


def test_pages_of_a_driver_here() -> None:
    """They are open to this machine alone, and end no job."""
    place = Place("/w", "", master=MASTER, job_name=NAME)
    flags = SPARK.presets(place)
    assert SPARK.server_variables(place) == {"SPARK_LOCAL_IP": "127.0.0.1"}
    for each in (f"--job_name={NAME}", "-Dspark.ui.killEnabled=false"):
        assert any(flag.endswith(each) for flag in flags)
    far = Place("/w", "", master="spark://far.example:7077")
    assert SPARK.server_variables(far) == {}


def test_a_master_at_which_nobody_answers() -> None:
    """It is refused at once; Spark would try for a minute, and not name the cause."""
    with socket.create_server(("localhost", 0)) as server:
        port = server.getsockname()[1]
        reach_master(f"spark://localhost:{port}")
        reach_master(f"spark://localhost,localhost:{port}")
    for wrong, said in (
        (f"spark://localhost:{port}", "refused"),
        ("spark://localhost", "must end with a port"),
    ):
        with pytest.raises(UsageError, match=f"a Spark at {wrong!r}.*{said}"):
            reach_master(wrong)
    for others in ("local[2]", "yarn", "k8s://https://far.example"):
        reach_master(others)
