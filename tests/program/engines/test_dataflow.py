"""Tests of `unit/engines/test_dataflow.py` that start processes."""

import importlib.metadata
import importlib.util
import os
import pathlib
import subprocess
import sys
import tarfile

import pytest

from beam_pipeline.engines.dataflow_submission import (
    required_here,
    write_source_distribution,
)
from tests.support.engines import PACKAGES

Folder = pathlib.Path


def test_source_distribution_is_one(tmp_path: Folder) -> None:
    """Its setup.py says packages and requirements, without anything of ours around."""
    path = write_source_distribution(str(tmp_path))
    with tarfile.open(path) as archive:
        archive.extractall(tmp_path, filter="data")
    folder = path.removesuffix(".tar.gz")
    done = subprocess.run(
        [sys.executable, "setup.py", "--quiet", "egg_info"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if importlib.util.find_spec("setuptools") is None:
        pytest.skip("setuptools is not installed here; pip brings its own")
    assert done.returncode == 0, done.stderr
    facts = os.path.join(folder, "beam_tfrecord.egg-info")
    required = Folder(facts, "requires.txt").read_text().split()
    assert sorted(required) == sorted(required_here())
    tops = Folder(facts, "top_level.txt").read_text().split()
    assert tops == list(PACKAGES)
