"""The README's paths from nothing to a verified dataset, one for each engine."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

from tests.clusters.runs import ROOT, skip_without_job_server

_BLOCK = re.compile(r"^```sh (?P<engine>\w+)\n(?P<text>.*?)^```$", re.M | re.S)


def paths() -> dict[str, str]:
    """Returns the commands by engine."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return {m["engine"]: m["text"] for m in _BLOCK.finditer(text)}


def test_each_engine_has_its_path() -> None:
    """None is left out."""
    assert sorted(paths()) == ["flink", "prism", "spark"]


@pytest.mark.parametrize("engine", ["flink", "prism", "spark"])
def test_the_path_works(engine: str, request: pytest.FixtureRequest) -> None:
    """Every line succeeds, in the checkout, as it stands."""
    request.getfixturevalue(engine)
    skip_without_job_server(engine)
    programs = pathlib.Path(sys.executable).parent
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", paths()[engine]],
        cwd=ROOT,
        env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "sound: 84 records" in done.stdout, done.stdout
