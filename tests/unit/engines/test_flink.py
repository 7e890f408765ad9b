"""Jobs of a Flink, asked for as its REST interface has them."""

import http.server
import json
import threading
from collections.abc import Iterator

import pytest

from beam_pipeline.engines import checks, submit
from beam_pipeline.engines.submit import in_text
from transforms.errors import RejectLimitError, UsageError


class _Flink(http.server.ThreadingHTTPServer):
    """Answers as Flink's job manager does; a cancelled job takes a while to end."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.master = f"127.0.0.1:{self.server_port}"
        self.jobs = {"a": ["ours", "RUNNING"], "b": ["other", "RUNNING"]}
        self.asked: list[str] = []
        self.thrown: list[str] = []
        self.overview: dict[str, object] = {}


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Flink

    def do_GET(self) -> None:
        if self.path == "/jobs/a/exceptions":
            entries = [
                {"timestamp": 1500, "stacktrace": trace} for trace in self.server.thrown
            ]
            return self._answer({"exceptionHistory": {"entries": entries}})
        if self.path == "/overview":
            return self._answer(self.server.overview)
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
def server() -> Iterator[_Flink]:
    with _Flink() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("other", [["other", "RUNNING"], ["ours", "FINISHED"]])
def test_the_job_of_a_name_is_cancelled(server: _Flink, other: list[str]) -> None:
    """It is waited for until it has ended; no other job is touched."""
    server.jobs["b"] = other
    submit._cancel_on_flink(server.master, "ours")
    assert server.jobs == {"a": ["ours", "CANCELED"], "b": other}
    assert set(server.asked) == {"/jobs/a?mode=cancel"}


def test_jobs_that_cannot_be_distinguished_continue(server: _Flink) -> None:
    """Another user's job may have the name that a user gives."""
    server.jobs["b"][0] = "ours"
    submit._cancel_on_flink(f"http://{server.master}", "ours")
    assert server.asked == []


def test_what_tasks_have_raised(server: _Flink) -> None:
    """Of the job of a name alone; it may name an error of ours."""
    trace = (
        "java.lang.RuntimeException: Error received from SDK harness for "
        "instruction 3: Traceback\ntransforms.errors.RejectLimitError: At most 1% "
        "[while running 'Commit']\n\n\tat java.base"
    )
    server.thrown = [trace]
    server.thrown.append("newer")
    server.thrown.reverse()
    seen = submit._flink_traces(server.master, "ours")
    assert seen == [(1.5, trace), (1.5, "newer")]
    error = in_text(trace)
    assert isinstance(error, RejectLimitError)
    assert str(error) == "At most 1%"


def test_sizes(server: _Flink) -> None:
    """Slots, and those of each machine; other versions, and no slots, are refused."""
    overview = {"flink-version": "1.20.3", "taskmanagers": 2, "slots-total": 5}
    server.overview = overview
    assert checks.flink_size(server.master) == (5, 3)
    for wrong, said in (
        ({"flink-version": "1.19.1"}, r"version 1\.19\.1"),
        ({"slots-total": 0}, "has 0 slots"),
    ):
        server.overview = {**overview, **wrong}
        with pytest.raises(UsageError, match=said):
            checks.flink_size(server.master)
    server.overview = {}
    with pytest.raises(UsageError, match="No Flink 1\\.20 "):
        checks.flink_size(server.master)
