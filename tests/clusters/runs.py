"""Runs of the program on an engine, and what must hold of them."""

import pathlib
import subprocess
from collections.abc import Sequence

import pytest

from beam_pipeline.engines.presets import ENGINES, brought
from tests.support import outputs
from tests.support.outputs import contents
from tests.support.segments import IN_FILES, program

Folder = pathlib.Path

ROOT = Folder(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "cluster"
NAME = "tests"
# Several shards and blocks; rows wait in files, as they do for large jobs.
ROWS = (IN_FILES, "--shards", "4")
_RUN_SECONDS = 300


def flags_for(engine: str, request: pytest.FixtureRequest) -> list[str]:
    """Returns a command's last flags: those of an engine, which is started for it.

    If the job server is not available, the test is skipped and says so.
    """
    found = request.getfixturevalue(engine)
    # All slots, which small jobs do not use by themselves.
    flags = ["--runner", engine, "--workers=4"]
    if found is None:
        return flags
    skip_without_job_server(engine)
    name = {"flink": "flink_master", "spark": "spark_master_url"}[engine]
    return [*flags, "--", f"--{name}={found.master}"]


def skip_without_job_server(engine: str) -> None:
    """Skips a test whose engine was started if Beam's job server is not available."""
    if not brought(ENGINES[engine].program):
        pytest.skip(f"Beam's job server for {engine} could not be downloaded")


def convert(
    source: Folder, output: Folder, *flags: str, beam_flags: Sequence[str] = ()
) -> "subprocess.CompletedProcess[str]":
    """Runs the program to its end."""
    beam = ["--", *beam_flags] if beam_flags else []
    return subprocess.run(
        program("convert", source, output, *flags, *beam),
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        timeout=_RUN_SECONDS,
    )


def committed(done: "subprocess.CompletedProcess[str]", output: Folder) -> None:
    """Asserts that a run has committed, and has left nothing else."""
    assert done.returncode == 0, done.stderr
    own = (output.name, f".{output.name}")
    names = {path.name for path in output.parent.iterdir()}
    assert {name for name in names if name.startswith(own)} == {output.name}


def same(dataset: Folder, expected: Folder) -> None:
    """Asserts that two datasets hold the same bytes, but for how they were made.

    One from a bucket has its files in a folder that its manifest names.
    """
    folder = outputs.manifest(dataset)["run"].get("folder", "")
    files, wanted = contents(dataset / folder), contents(expected)
    assert files.keys() == wanted.keys()
    assert outputs.dataset(dataset) == outputs.dataset(expected)
    assert files == wanted
