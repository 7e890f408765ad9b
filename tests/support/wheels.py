"""A wheel of this project, built without a network."""

import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
_PACKAGES = ("beam_pipeline", "beam_tfrecord", "transforms", "tests")
_FILES = ("setup.py", "pyproject.toml", "README.md", "MANIFEST.in", "LICENSE")


def build_wheel(folder: pathlib.Path) -> pathlib.Path:
    """Returns a wheel, built in a folder from a copy of the sources."""
    for name in _PACKAGES:
        shutil.copytree(
            ROOT / name,
            folder / name,
            ignore=shutil.ignore_patterns("__pycache__", "corpus", "clusters"),
        )
    for name in _FILES:
        shutil.copy(ROOT / name, folder)
    program = "from setuptools import build_meta as b; print(b.build_wheel('out'))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (path,) = (folder / "out").glob("*.whl")
    return path
