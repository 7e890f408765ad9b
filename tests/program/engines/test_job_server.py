"""Job servers of a run: they start, or say why not, and end with it."""

import contextlib
import dataclasses
import os
import pathlib
import socket
import sys
import time
from collections.abc import Callable, Sequence

import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.prism_runner import PrismJobServer

from beam_pipeline.engines.checks import why_silent
from beam_pipeline.engines.job_server import job_server
from beam_pipeline.engines.presets import ENGINES
from tests.support.engines import put_jar, spec
from transforms.errors import BeamTFRecordError, UsageError

Folder = pathlib.Path

WITH_SERVERS = ("flink", "spark", "prism")
_LISTENS = """
import socket, sys, time
server = socket.create_server(("localhost", int(sys.argv[1])))
print("listening", flush=True)
time.sleep(60)
"""


def flags_of(name: str) -> list[str]:
    """Returns Beam's flags for a job within the job server, or on this machine."""
    flags = ["--flink_master=[local]", "--spark_master_url=local"]
    given = [flag for flag in flags if name in flag]
    return [*ENGINES[name].flags(spec(runner=name), given, "/room"), *given]


@pytest.mark.parametrize("name", WITH_SERVERS)
def test_commands_of_job_servers(
    name: str, tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flags of Beam name the program, and the port is the one that is asked for."""
    program, said = tmp_path / "server", tmp_path / "said"
    program.write_text(f'#!/bin/sh\necho "$0 $*" >{said}\n')
    program.chmod(0o755)
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_bytes(program.read_bytes())
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    own = ["--artifact_port=6", "--job_port=5"]
    (flag,) = [flag for flag in ENGINES[name].given if "{program}" in flag]
    named = flag.format(program=program)
    options = PipelineOptions([*flags_of(name), named, *own])
    with (
        job_server(ENGINES[name], options, str(tmp_path / "log")) as (_, until_ready),
        pytest.raises(BeamTFRecordError, match="has ended with 0"),
    ):
        until_ready()
    command = said.read_text().split()
    assert str(program) in command
    assert "5" in command
    if name != "prism":
        assert command[0] == str(java)
        assert command[command.index("--artifact-port") + 1] == "6"
        assert any("local" in word for word in command)


@pytest.mark.parametrize("name", WITH_SERVERS)
def test_a_job_server_that_cannot_be_had(
    name: str, tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beam looks for it on the network; the error names it, and the flag for others."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    options = PipelineOptions([*flags_of(name), f"--jar_cache_dir={tmp_path}"])
    monkeypatch.setattr(PrismJobServer, "BIN_CACHE", str(tmp_path))
    with (
        pytest.raises(UsageError, match=f"cluster {name} up.*--{name}_.*=PATH"),
        job_server(ENGINES[name], options, str(tmp_path / "log")),
    ):
        pytest.fail("it has started")


class Server:
    """A job server of a test, as Beam's classes are."""

    command: Sequence[str] = ()
    endpoint = "localhost:1"

    def __init__(self, options: PipelineOptions) -> None:
        """Takes the options of a job."""

    def subprocess_cmd_and_endpoint(self) -> tuple[Sequence[str], str]:
        return self.command, self.endpoint


def server_of(
    monkeypatch: pytest.MonkeyPatch, log: Folder, *command: str
) -> contextlib.AbstractContextManager[tuple[str, Callable[[], None]]]:
    """Returns the server that a command is."""
    monkeypatch.setattr(Server, "command", command)
    kind = f"{__name__}.{Server.__name__}"
    engine = dataclasses.replace(ENGINES["flink"], job_server=kind)
    return job_server(engine, PipelineOptions([]), str(log))


def test_java_that_is_not_there(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of ours, with what to install."""
    with (
        pytest.raises(UsageError, match=r"'/nowhere/bin/java'.*need Java 17"),
        server_of(monkeypatch, tmp_path / "log", "/nowhere/bin/java"),
    ):
        pytest.fail("it has started")


def test_one_that_ends_early(tmp_path: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has its last words."""
    command = ("sh", "-c", "echo Error: no such jar; exit 3")
    with (
        server_of(monkeypatch, tmp_path / "log", *command) as (_, until_ready),
        pytest.raises(BeamTFRecordError, match=r"ended with 3.*Error: no such jar"),
    ):
        until_ready()


def test_one_that_listens(tmp_path: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is waited for, and ends with the run."""
    with socket.create_server(("localhost", 0)) as free:
        port = free.getsockname()[1]
    monkeypatch.setattr(Server, "endpoint", f"localhost:{port}")
    command = (sys.executable, "-c", _LISTENS, str(port))
    with server_of(monkeypatch, tmp_path / "log", *command) as (endpoint, until_ready):
        until_ready()
        assert not why_silent(endpoint)
        assert (tmp_path / "log").read_text() == "listening\n"
    assert why_silent(endpoint)


def test_archives_of_classes(tmp_path: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first job of a jar of ours makes one; those after it start from that."""
    java = tmp_path / "java"
    java.write_text(
        "#!/bin/sh\n"
        'trap "touch ${1#*=}; exit" TERM\n'
        f'echo "$1" >{tmp_path}/option\n'
        "while sleep 0.1; do :; done\n"
    )
    java.chmod(0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    jar = put_jar("flink")

    def option(named: str, *, fails: bool = False) -> str:
        """Returns the first option of Java in a job."""
        said = tmp_path / "option"
        said.unlink(missing_ok=True)
        server = server_of(monkeypatch, tmp_path / "log", str(java), "-jar", named)
        with contextlib.suppress(ZeroDivisionError), server:
            while not (said.exists() and said.read_text()):
                time.sleep(0.01)
            if fails:
                raise ZeroDivisionError
        return said.read_text().partition("=")[0].strip()

    assert option(jar, fails=True) == "-XX:ArchiveClassesAtExit"
    assert option(jar) == "-XX:ArchiveClassesAtExit"
    assert option(jar) == "-XX:SharedArchiveFile"
    # Another file in its place, as old as it may be.
    os.utime(jar, (0, 0))
    assert option(jar) == "-XX:ArchiveClassesAtExit"
    assert option(jar) == "-XX:SharedArchiveFile"
    own = tmp_path / "own.jar"
    own.touch()
    assert option(str(own)) == "-jar"
    names = [path.name for path in pathlib.Path(jar).parent.iterdir()]
    assert sorted(names) == [pathlib.Path(jar).name, f"{pathlib.Path(jar).name}.jsa"]
