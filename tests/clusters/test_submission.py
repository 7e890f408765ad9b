"""A job server that does not start; a script replaces it."""

import pathlib

from tests.clusters.runs import convert

Folder = pathlib.Path

_BROKEN = """#!/bin/sh
echo "Error: there is no such thing as a jar"
exit 1
"""


def test_what_the_job_server_says_is_reported(data: Folder, tmp_path: Folder) -> None:
    """Its own words are in the terminal, and nothing is left."""
    launcher, jar = tmp_path / "launcher", tmp_path / "server.jar"
    launcher.write_text(_BROKEN)
    launcher.chmod(0o755)
    jar.touch()
    flags = [
        "--flink_master=[local]",
        f"--flink_job_server_jar={jar}",
        f"--job_server_java_launcher={launcher}",
    ]
    out = tmp_path / "out"
    done = convert(data / "rows.csv", out, "--runner", "flink", beam_flags=flags)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith(
        "Error: there is no such thing as a jar"
    )
    assert {path.name for path in tmp_path.iterdir()} == {launcher.name, jar.name}
