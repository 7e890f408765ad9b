"""The presets of Flink and Spark up to the job server, for which Prism stands in.

What Beam's own runner classes do with our flags is real here: the job server is started
by the launcher that the flags name, staged to, submitted to, and ended. Only what takes
the job is another engine, so this needs neither Java nor a job server's jar.
"""

import importlib.metadata
import pathlib

import pytest
from clusters.notes import program_path

from tests.clusters.runs import ROWS, committed, convert, same

Folder = pathlib.Path

_LAUNCHER = """#!/bin/sh
while [ "$1" != --job-port ]; do shift; done
exec {prism} --job_port "$2" --serve_http=false --log_level warn
"""
_BROKEN = """#!/bin/sh
echo "Error: there is no such thing as a jar"
exit 1
"""
_WITHIN = {
    "flink": ("--flink-master=[local]", "--flink_job_server_jar"),
    "spark": ("--spark-master=local[2]", "--spark_job_server_jar"),
}


@pytest.mark.parametrize("engine", ["flink", "spark"])
def test_presets_reach_a_job_server(
    engine: str, data: Folder, tmp_path: Folder, prism: None
) -> None:
    """The job is taken, our workers work for it, and the bytes are those of here."""
    launcher = tmp_path / "launcher"
    version = importlib.metadata.version("apache-beam")
    launcher.write_text(_LAUNCHER.format(prism=program_path("prism", version)))
    launcher.chmod(0o755)
    jar = tmp_path / "server.jar"
    jar.touch()
    master, jar_flag = _WITHIN[engine]
    flags = [f"{jar_flag}={jar}", f"--job_server_java_launcher={launcher}"]
    source, here, there = data / "rows.csv", tmp_path / "here", tmp_path / "there"
    committed(convert(source, here, *ROWS), here)
    arguments = [*ROWS, "--runner", engine, master]
    committed(convert(source, there, *arguments, beam_flags=flags), there)
    same(there, here)


def test_what_the_job_server_says_is_reported(data: Folder, tmp_path: Folder) -> None:
    """A job server that does not start: its own words in the terminal, no litter."""
    launcher, jar = tmp_path / "launcher", tmp_path / "server.jar"
    launcher.write_text(_BROKEN)
    launcher.chmod(0o755)
    jar.touch()
    flags = [f"--flink_job_server_jar={jar}", f"--job_server_java_launcher={launcher}"]
    arguments = ["--runner", "flink", _WITHIN["flink"][0]]
    out = tmp_path / "out"
    done = convert(data / "rows.csv", out, *arguments, beam_flags=flags)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith(
        "Error: there is no such thing as a jar"
    )
    assert {path.name for path in tmp_path.iterdir()} == {launcher.name, jar.name}
