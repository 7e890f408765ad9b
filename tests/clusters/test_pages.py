"""The docs' paths from nothing to a verified dataset, one for each engine."""

import os
import pathlib
import subprocess
import sys

import pytest

from tests.clusters.runs import ROOT, skip_without_job_server
from tests.support.pages import ENGINES, PAGES, blocks_of


def paths() -> dict[str, str]:
    """Returns the commands by engine, from all pages."""
    found = [
        (block.word, block.text)
        for page in PAGES
        for block in blocks_of(page)
        if block.language == "sh" and block.word in ENGINES
    ]
    assert len(dict(found)) == len(found)
    return dict(found)


def test_each_engine_has_its_path() -> None:
    """None is left out."""
    assert sorted(paths()) == sorted(ENGINES)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_path_works(engine: str, request: pytest.FixtureRequest) -> None:
    """Every line of the page succeeds in the checkout, unchanged."""
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
