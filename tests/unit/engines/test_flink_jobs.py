"""Jobs of a Flink, asked for as its REST interface has them."""

import http.server
import json
import threading
from collections.abc import Iterator

import pytest

from beam_pipeline.engines.beam_errors import in_text
from beam_pipeline.engines.masters import cancel_job, traces_of_job
from transforms.errors import RejectLimitError

NOW = 2_000_000_000


class _Flink(http.server.ThreadingHTTPServer):
    """Answers as Flink's job manager does; a cancelled job takes a while to end."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.jobs = {"a": ["ours", "RUNNING"], "b": ["other", "RUNNING"]}
        self.asked: list[str] = []
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


def test_what_tasks_have_raised(flink: _Flink) -> None:
    """When and what, of the job of a name alone; it may name an error of ours."""
    trace = (
        "java.lang.RuntimeException: Error received from SDK harness for "
        "instruction 3: Traceback\ntransforms.errors.RejectLimitError: At most 1% "
        "[while running 'Commit']\n\n\tat java.base"
    )
    flink.thrown = [(NOW, trace)]
    master = f"127.0.0.1:{flink.server_port}"
    assert traces_of_job(master, "ours") == [(NOW, trace)]
    error = in_text(trace)
    assert isinstance(error, RejectLimitError)
    assert str(error) == "At most 1%"
    assert traces_of_job(master, "none") == []
    assert traces_of_job("[local]", "ours") == []
