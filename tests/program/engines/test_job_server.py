"""Job servers of a run: they start, or say why not, and end with it."""

import pathlib
import socket
import sys

import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from beam_pipeline.engines import submit
from beam_pipeline.engines.checks import why_silent
from beam_pipeline.engines.presets import ENGINES
from transforms.errors import BeamTFRecordError, UsageError

Folder = pathlib.Path
_LISTENS = """
import socket, sys, time
server = socket.create_server(("localhost", int(sys.argv[1])))
print("listening", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("content", [None, b"PK\x05\x06" + bytes(18)])
def test_prism_that_is_no_program(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch, content: bytes | None
) -> None:
    """A folder, and a zip without it: an error with the flag that names another one."""
    monkeypatch.setattr(
        "apache_beam.runners.portability.prism_runner.PrismJobServer.BIN_CACHE",
        str(tmp_path / "cache"),
    )
    path = tmp_path / "prism.zip"
    path.mkdir() if content is None else path.write_bytes(content)
    options = PipelineOptions([f"--prism_location={path}"])
    with pytest.raises(UsageError, match=r"--prism_location"):
        submit._server(ENGINES["prism"], options)


def test_java_that_is_not_there(tmp_path: Folder) -> None:
    """An error of ours, with what to install."""
    command = ["/nowhere/bin/java"]
    with (
        pytest.raises(UsageError, match=r"'/nowhere/bin/java'.*need Java 17"),
        submit._job_server(command, "localhost:1", str(tmp_path / "log")),
    ):
        pytest.fail("it has started")


def test_one_that_ends_early(tmp_path: Folder) -> None:
    """The error has its last words."""
    command = ["sh", "-c", "echo Error: no such jar; exit 3"]
    with (
        pytest.raises(BeamTFRecordError, match=r"ended with 3.*Error: no such jar"),
        submit._job_server(command, "localhost:1", str(tmp_path / "log")),
    ):
        pytest.fail("it listens")


def test_one_that_listens(tmp_path: Folder) -> None:
    """It is waited for, and ends with the run."""
    with socket.create_server(("localhost", 0)) as free:
        port = free.getsockname()[1]
    endpoint, log = f"localhost:{port}", str(tmp_path / "log")
    command = [sys.executable, "-c", _LISTENS, str(port)]
    with submit._job_server(command, endpoint, log):
        assert not why_silent(endpoint)
        assert pathlib.Path(log).read_text() == "listening\n"
    assert why_silent(endpoint)
