"""Tests of `unit/test_layers.py` that start processes."""

import pathlib
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


@pytest.mark.parametrize("command", ["plan", "convert"])
def test_a_second_run_does_without_pandas(command: str, tmp_path: pathlib.Path) -> None:
    """Neither a plan nor a run that has nothing to do loads pandas for Arrow."""
    source = tmp_path / "a.csv"
    source.write_text("x\n1\n")
    target = str(tmp_path / "out")
    for flags in ([], ["-X", "importtime"]):
        run = subprocess.run(
            [sys.executable, *flags, "-m", "beam_pipeline", command, source, target],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
    assert "pyarrow.lib" in run.stderr
    assert "pandas.core" not in run.stderr
