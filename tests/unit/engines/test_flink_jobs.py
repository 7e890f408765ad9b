"""Jobs of a Flink, asked for as its REST interface has them."""

import http.server
import json
import threading
from collections.abc import Iterator

import pytest

from beam_pipeline.engines.engine_words import EngineWords, ServerWords
from beam_pipeline.engines.flink_jobs import cancel_job, words_of_job
from transforms.errors import RejectLimitError

NOW = 2_000_000_000


class _Flink(http.server.ThreadingHTTPServer):
    """Answers as Flink's job manager does; a cancelled job takes a while to end."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.jobs = {"a": ["ours", "RUNNING"], "b": ["other", "RUNNING"]}
        self.asked: list[str] = []
        self.tasks = {"SCHEDULED": 2}
        self.thrown: list[tuple[int, str]] = []


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Flink

    def do_GET(self) -> None:
        if self.path.endswith("/exceptions"):
            entries = [
                {"timestamp": seconds * 1000, "stacktrace": trace}
                for seconds, trace in self.server.thrown
            ]
            return self._answer({"exceptionHistory": {"entries": entries}})
        if self.path != "/jobs/overview":
            state = self.server.jobs[self.path.rpartition("/")[2]][1]
            vertices = [{"tasks": self.server.tasks}, {"tasks": {"FINISHED": 1}}]
            job = {"state": state, "now": NOW * 1000, "vertices": vertices}
            return self._answer(job)
        jobs = [
            {"jid": jid, "name": name, "state": state}
            for jid, (name, state) in self.server.jobs.items()
        ]
        self._answer({"jobs": jobs})

    def do_PATCH(self) -> None:
        self.server.asked.append(self.path)
        job = self.server.jobs[self.path.split("/")[2].partition("?")[0]]
        job[1] = "CANCELED" if job[1] == "CANCELLING" else "CANCELLING"
        self._answer({})

    def _answer(self, value: object) -> None:
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *arguments: object) -> None:
        """Says nothing."""


@pytest.fixture
def flink() -> Iterator[_Flink]:
    with _Flink() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def test_the_job_of_a_name_alone_is_cancelled(flink: _Flink) -> None:
    """It is waited for until it has ended."""
    cancel_job(f"127.0.0.1:{flink.server_port}", "ours")
    assert flink.jobs == {"a": ["ours", "CANCELED"], "b": ["other", "RUNNING"]}
    assert set(flink.asked) == {"/jobs/a?mode=cancel"}


def test_jobs_that_cannot_be_distinguished_continue(flink: _Flink) -> None:
    """Another user's job may have the name that a user gives."""
    flink.jobs["b"][0] = "ours"
    cancel_job(f"http://127.0.0.1:{flink.server_port}", "ours")
    cancel_job("[local]", "ours")
    assert flink.asked == []


def test_jobs_that_have_ended_are_not_asked_for(flink: _Flink) -> None:
    """An older job of the name is no other one."""
    flink.jobs["b"] = ["ours", "FINISHED"]
    cancel_job(f"127.0.0.1:{flink.server_port}", "ours")
    assert flink.jobs == {"a": ["ours", "CANCELED"], "b": ["ours", "FINISHED"]}


def words(flink: _Flink) -> EngineWords:
    return words_of_job(f"127.0.0.1:{flink.server_port}", "ours", ServerWords())


def test_a_job_without_a_running_task_waits(flink: _Flink) -> None:
    """Before it is there it waits to be submitted, then for slots."""
    assert words(flink).waits == "waits for slots"
    flink.tasks = {"RUNNING": 1}
    running = words(flink)
    assert running.page.endswith("/#/job/running/a")
    assert running == EngineWords(page=running.page)
    flink.jobs["a"][1] = "FINISHED"
    assert words(flink) == EngineWords()
    flink.jobs["a"][0] = "another"
    assert words(flink).waits == "waits to be submitted"
    flink.jobs["a"][0] = "ours"
    flink.jobs["a"][1] = flink.jobs["b"][1] = "RUNNING"
    flink.jobs["b"][0] = "ours"
    # Nobody knows which of them it is.
    assert words(flink) == EngineWords()


def test_a_job_that_is_restarted_does_not_wait(flink: _Flink) -> None:
    """A pool that is gone lets no task run for long, and is no queue."""
    trace = "java.lang.Exception: outer\n\tat x\nCaused by: java.io.IOException: gone"
    flink.thrown = [(NOW - 5, trace)]
    assert words(flink).error == "java.io.IOException: gone"
    assert words(flink).waits == ""
    flink.thrown = [(NOW - 90, trace)]
    assert words(flink).waits == "waits for slots"
    flink.jobs["a"][1] = "RESTARTING"
    assert words(flink).waits == ""


def test_errors_of_ours_come_by_flink(flink: _Flink) -> None:
    """A worker that cannot report is heard: its traceback is in Flink's."""
    flink.thrown = [
        (
            NOW - 5,
            "java.lang.RuntimeException: Error received from SDK harness for "
            "instruction 3: Traceback\ntransforms.errors.RejectLimitError: At most 1% "
            "[while running 'Commit']\n\n\tat java.base",
        )
    ]
    ((seconds, error),) = words(flink).failures
    assert seconds == NOW - 5
    assert isinstance(error, RejectLimitError)
    assert str(error) == "At most 1%"
