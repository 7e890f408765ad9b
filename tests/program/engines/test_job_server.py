"""How `scripts/cluster` gets Beam's job servers; a script replaces Maven."""

import os
import pathlib
import subprocess
import sys

import pytest

from beam_pipeline.engines import checks

Folder = pathlib.Path

ROOT = Folder(__file__).parents[3]
ARTIFACT = "beam-runners-flink-1.20-job-server"
# Asks for a job server, and says where it is.
ASK = f"""
import sys
sys.path[:0] = [{str(ROOT / "scripts")!r}, {str(ROOT)!r}]
from clusters import job_server
from clusters.failure import Failure
job_server.beam_version = lambda: "9.9.9"
if len(sys.argv) > 1:
    job_server._PARTS = job_server.Path(sys.argv[1])
try:
    print(job_server.job_server("flink", {ARTIFACT!r}))
except Failure as failure:
    sys.exit(f"failure: {{failure}}")
"""
MAVEN = """#!/bin/sh
echo "$@" >>{log}
case "$*" in
*package*) mkdir target; cp pom.xml target/job-server.jar; exit 0 ;;
esac
echo "[ERROR] {says}"
exit 1
"""
NOT_FOUND = "org.apache.beam:x was not found in the registry"


class Asked:
    """Asks for a job server with a cache, and a Maven, of its own.

    Attributes:
      folder: of both.
    """

    def __init__(self, folder: Folder, says: str = NOT_FOUND) -> None:
        self.folder = folder
        program = folder / "bin" / "mvn"
        program.parent.mkdir()
        program.write_text(MAVEN.format(log=folder / "log", says=says))
        program.chmod(0o755)

    def ask(self, *arguments: object) -> "subprocess.CompletedProcess[str]":
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        return subprocess.run(
            [sys.executable, "-c", ASK, *map(str, arguments)],
            env={**os.environ, "PATH": path, "XDG_CACHE_HOME": str(self.folder)},
            capture_output=True,
            text=True,
            check=False,
        )

    @property
    def jars(self) -> list[str]:
        return sorted(
            path.name for path in (self.folder / "beam-tfrecord" / "jars").iterdir()
        )

    @property
    def calls(self) -> int:
        return len((self.folder / "log").read_text().splitlines())


def test_parts_have_a_name_of_their_own(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Maven says comes first; the jar is made once, and is what jobs find."""
    asked = Asked(tmp_path)
    done = asked.ask()
    assert done.returncode == 0, done.stderr
    assert NOT_FOUND in done.stderr
    (name,) = asked.jars
    assert name.startswith(f"{ARTIFACT}-9.9.9-of-2.")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = checks.find_jar(ARTIFACT, "9.9.9")
    assert str(found) == done.stdout.strip()
    assert checks.find_jar(ARTIFACT, "9.9.10") is None
    again = asked.ask()
    assert (again.stdout, again.stderr) == (done.stdout, "")
    assert asked.calls == 2


def test_the_published_one_comes_first(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was put at its path by hand is used first."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    asked = Asked(tmp_path)
    asked.ask()
    published = checks.jar_path(ARTIFACT, "9.9.9")
    published.touch()
    assert asked.ask().stdout.strip() == str(published)
    assert checks.find_jar(ARTIFACT, "9.9.9") == published


def test_a_damaged_download_is_no_missing_one(tmp_path: Folder) -> None:
    """Nothing is put together in place of what came with another checksum."""
    asked = Asked(tmp_path, "Checksum validation failed, expected '1' but is '2'")
    done = asked.ask()
    assert done.returncode == 1
    assert "expected '1' but is '2'" in done.stderr
    assert "look at where Maven downloads from" in done.stderr
    assert (asked.calls, asked.jars) == (1, [])
