"""The environments of the libraries, which `make test-readers` makes."""

import json
import os
import pathlib
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]

ENVIRONMENTS = {
    "own": ROOT / ".venv",
    "tensorflow": ROOT / "bench/.venv",
    "ray": ROOT / "bench/.venv-ray",
    "torch": ROOT / "bench/.venv-torch",
}


def python_of(
    environment: str,
    *arguments: str,
    cwd: pathlib.Path = ROOT,
    variables: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs Python in an environment that has our packages on its path only."""
    python = ENVIRONMENTS[environment] / "bin/python"
    return subprocess.run(
        [str(python), *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), **(variables or {})},
        capture_output=True,
        encoding="utf-8",
        timeout=280,
    )


def rows_read(
    program: str, environment: str, folders: Sequence[str], variables: Mapping[str, str]
) -> dict[str, Any]:
    """Returns the versions and rows that a program of `readers` prints."""
    module = f"tests.opens_in.readers.{program}"
    done = python_of(environment, "-m", module, *folders, variables=variables)
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
