"""What each command loads, and what it does without."""

import pathlib

import pytest

from tests.support.product_code import ROOT
from tests.support.runs import convert, python

# What answers before a job runs does not wait for these.
_SLOW = "apache_beam tensorflow pandas"
# Names are loaded when they are asked for.
_PACKAGES = "beam_pipeline", "transforms", "beam_tfrecord", "transforms.tfrecord"
_MODULES = {
    **dict.fromkeys(_PACKAGES, f"{_SLOW} pyarrow numpy pydantic click"),
    "beam_pipeline.cli": _SLOW,
    "beam_pipeline.commands.report": _SLOW,
    "beam_pipeline.commands.repair": f"{_SLOW} pyarrow",
    "beam_pipeline.commands.verify": f"{_SLOW} pyarrow pydantic click PIL",
    "transforms.core.tfrecord": f"{_SLOW} pyarrow pydantic google.protobuf",
    "transforms.formats.csv.reader": "apache_beam tensorflow",
    "transforms.work.store": "apache_beam tensorflow",
}


@pytest.mark.parametrize("module", _MODULES)
def test_nothing_slow_is_loaded_by(module: str) -> None:
    """Tables, bars and engines are loaded where something is shown or run."""
    code = f"import sys, {module} as module; dir(module); print(*sys.modules)"
    run = python("-c", code, cwd=ROOT, check=True)
    assert not {*_MODULES[module].split()} & {*run.stdout.split()}


def test_beam_is_loaded_without_what_no_command_needs() -> None:
    """Beam starts a job without the libraries of its other sources."""
    code = """
import sys
from beam_pipeline.beam_internals import loading
loading.spare_imports()
loading.beam_loading()()
assert "apache_beam" in sys.modules
sys.exit(", ".join(set(loading._SPARED) & sys.modules.keys()))
"""
    run = python("-c", code, cwd=ROOT)
    assert run.stderr.strip() == ""


@pytest.mark.parametrize("command", ["plan", "convert"])
def test_a_second_run_does_without_pandas(command: str, tmp_path: pathlib.Path) -> None:
    """Neither a plan nor a run that has nothing to do loads pandas for Arrow."""
    source = tmp_path / "a.csv"
    source.write_text("x\n1\n")
    target = str(tmp_path / "out")
    if command == "convert":
        convert(source, target)
    program = ("-X", "importtime", "-m", "beam_pipeline")
    run = python(*program, command, source, target, cwd=ROOT, check=True)
    assert "pyarrow.lib" in run.stderr
    assert "pandas.core" not in run.stderr
