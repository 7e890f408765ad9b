"""A small stand-in for Dataflow's API, which runs the jobs that it is given.

What it gets is what Google would get: the job as JSON, and the staged graph in a
bucket. Each worker's environment is replaced by the interpreter that the stand-in was
given, and the graph is run by it, with Beam's own local runner.
"""

import http.server
import json
import os
import pathlib
import re
import subprocess
import threading
import urllib.parse
import urllib.request
from typing import Any

_JOB = re.compile(r"/v1b3/projects/([^/]+)/locations/([^/]+)/jobs(?:/([^/?]+))?(/\w+)?")
_REPLAY = """
import sys
import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability import python_urns
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

graph = beam_runner_api_pb2.Pipeline()
graph.ParseFromString(sys.stdin.buffer.read())
for environment in graph.components.environments.values():
    environment.urn = python_urns.EMBEDDED_PYTHON
    environment.payload = b""
    del environment.dependencies[:]
FnApiRunner().run_via_runner_api(graph, PipelineOptions([])).wait_until_finish()
"""


class Service(http.server.ThreadingHTTPServer):
    """Takes jobs, and runs each in a process of its own.

    Attributes:
      jobs: by id, as the API shows them.
      messages: by id, as well.
      package: the program, as jobs are given it.
    """

    daemon_threads = True

    def __init__(
        self,
        folder: pathlib.Path,
        *,
        python: str,
        storage: str,
    ) -> None:
        """Makes the service.

        Args:
          folder: where jobs run.
          python: what runs them.
          storage: URL of the emulator of Google's store.
        """
        super().__init__(("127.0.0.1", 0), _Handler)
        self._folder = folder
        self._python = python
        self._storage = storage
        self.package = pathlib.Path()
        self.jobs: dict[str, dict[str, Any]] = {}
        self.messages: dict[str, list[dict[str, str]]] = {}
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def endpoint(self) -> str:
        """Its URL, in the words by which Beam takes it for no server of Google's."""
        return f"http://localhost:{self.server_port}"

    def take(self, job: dict[str, Any]) -> dict[str, Any]:
        """Notes a job and starts it; returns it as the API does."""
        name = f"2026-01-01_00_00_00-{len(self.jobs) + 1:06d}"
        self.jobs[name] = {**job, "id": name, "currentState": "JOB_STATE_RUNNING"}
        self.messages[name] = []
        threading.Thread(target=self._run, args=(name,), daemon=True).start()
        return self.jobs[name]

    def cancel(self, name: str) -> dict[str, Any]:
        """Ends a job."""
        self.jobs[name]["currentState"] = "JOB_STATE_CANCELLED"
        if name in self._running:
            self._running[name].kill()
        return self.jobs[name]

    def _run(self, name: str) -> None:
        options = self.jobs[name]["environment"]["sdkPipelineOptions"]["options"]
        graph = fetched(self._storage, options["pipelineUrl"])
        process = subprocess.Popen(
            [self._python, "-c", _REPLAY],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            # No more than a worker has: no module path but its own.
            cwd=self._folder,
            env={**_without_modules(), "STORAGE_EMULATOR_HOST": self._storage},
        )
        self._running[name] = process
        _, said = process.communicate(graph)
        job = self.jobs[name]
        if job["currentState"] != "JOB_STATE_RUNNING":
            return
        if process.returncode:
            self.messages[name].append(
                {
                    "id": "1",
                    "time": "2026-01-01T00:00:01Z",
                    "messageImportance": "JOB_MESSAGE_ERROR",
                    "messageText": said.decode(errors="replace")[-8000:],
                }
            )
        job["currentState"] = (
            "JOB_STATE_FAILED" if process.returncode else "JOB_STATE_DONE"
        )


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Service

    def _answer(self, result: object, status: int = 200) -> None:
        data = json.dumps(result).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _body(self) -> dict[str, Any]:
        length = int(self.headers.get("Content-Length") or 0)
        found: dict[str, Any] = json.loads(self.rfile.read(length) or b"{}")
        return found

    def _named(self) -> tuple[str | None, str | None] | None:
        found = _JOB.fullmatch(urllib.parse.urlsplit(self.path).path)
        return None if found is None else (found[3], found[4])

    def do_POST(self) -> None:
        body, named = self._body(), self._named()
        if named != (None, None):
            self._answer({"error": {"code": 404, "message": self.path}}, 404)
        elif body.get("name") == "refused":
            error = {"code": 403, "message": "the account may not", "status": "DENIED"}
            self._answer({"error": error}, 403)
        else:
            self._answer(self.server.take(body))

    def do_GET(self) -> None:
        named = self._named()
        if named is None or named[0] not in self.server.jobs:
            self._answer({"error": {"code": 404, "message": self.path}}, 404)
        elif named[1] == "/messages":
            self._answer({"jobMessages": self.server.messages[named[0]]})
        else:
            self._answer(self.server.jobs[named[0]])

    def do_PUT(self) -> None:
        named, body = self._named(), self._body()
        assert named is not None
        assert named[0] is not None
        assert body["requestedState"] in ("JOB_STATE_CANCELLED", 5)
        self._answer(self.server.cancel(named[0]))

    def log_message(self, *arguments: object) -> None:
        """Says nothing."""


def _without_modules() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}


def fetched(storage: str, url: str) -> bytes:
    """Returns an object of an emulator of Google's store."""
    bucket, _, key = url.removeprefix("gs://").partition("/")
    path = f"{storage}/storage/v1/b/{bucket}/o/{urllib.parse.quote(key, safe='')}"
    with urllib.request.urlopen(f"{path}?alt=media") as answer:
        data: bytes = answer.read()
    return data
