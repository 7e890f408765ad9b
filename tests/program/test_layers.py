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


def test_a_quiet_conversion_does_without_rich() -> None:
    """Tables and bars are loaded where something is shown."""
    code = "import sys, beam_pipeline.commands.convert; sys.exit('rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


def test_beam_is_loaded_without_what_no_command_needs() -> None:
    """Beam starts a job without the libraries of its other sources."""
    code = """
import sys
from beam_pipeline.beam_internals import loading
loading.spare_imports()
with loading.beam_loading() as loaded:
    loaded()
assert "apache_beam" in sys.modules
sys.exit(", ".join(loading._NOT_NEEDED & sys.modules.keys()))
"""
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True
    )
    assert run.stderr.strip() == ""
