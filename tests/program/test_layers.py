"""Tests of `unit/test_layers.py` that start processes."""

import subprocess
import sys

import pytest

from tests.support.product_code import ROOT


@pytest.mark.parametrize(
    "module",
    [
        "beam_pipeline.cli",
        "beam_pipeline.commands.convert",
        "beam_pipeline.planning.plan",
        "beam_pipeline.commands.report",
        "transforms.formats.images",
        "transforms.formats.csv.reader",
        "transforms.publishing.target",
        "transforms.work.store",
        "transforms.tfrecord.renaming",
    ],
)
def test_beam_is_not_loaded_by(module: str) -> None:
    """What answers before a job runs does not wait for Beam."""
    code = f"import sys, {module}; sys.exit('apache_beam' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0
