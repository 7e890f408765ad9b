"""What each command loads, and what it does without."""

import os
import pathlib
import subprocess
import sys

import pytest

from beam_pipeline.beam_internals import loading
from tests.support.product_code import ROOT

# What answers before a job runs does not wait for these.
_SLOW = "apache_beam tensorflow pandas"
_MODULES = {
    "beam_pipeline.cli": _SLOW,
    "beam_pipeline.commands.convert": _SLOW,
    "beam_pipeline.commands.report": _SLOW,
    "beam_pipeline.commands.repair": f"{_SLOW} pyarrow",
    "beam_pipeline.commands.verify": f"{_SLOW} pyarrow pydantic click PIL",
    "transforms.core.image.policy": _SLOW,
    "transforms.core.manifest": f"{_SLOW} pyarrow",
    "transforms.core.tfrecord": f"{_SLOW} pyarrow pydantic google.protobuf",
    "transforms.formats.csv.reader": "apache_beam tensorflow",
    "transforms.work.store": "apache_beam tensorflow",
}


@pytest.mark.parametrize("module", _MODULES)
def test_nothing_slow_is_loaded_by(module: str) -> None:
    """Tables, bars and engines are loaded where something is shown or run."""
    code = f"import sys, {module}; print(*sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True
    )
    assert not set(_MODULES[module].split()) & set(run.stdout.decode().split())


def test_beam_is_loaded_without_what_no_command_needs() -> None:
    """Beam starts a job without the libraries of its other sources."""
    code = """
import sys
from beam_pipeline.beam_internals import loading
loading.spare_imports()
with loading.beam_loading() as loaded:
    loaded()
assert "apache_beam" in sys.modules
sys.exit(", ".join(set(loading._SPARED) & sys.modules.keys()))
"""
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True
    )
    assert run.stderr.strip() == ""


@pytest.mark.parametrize(
    ("processor", "given", "disabled"),
    [
        ("ven0002fam0019mod0011", None, loading._AVX512),
        ("ven0002fam001Amod0024", None, None),
        ("ven0000fam0006mod008F", None, None),
        ("ven0002fam0019mod0011", "AVX2", "AVX2"),
    ],
)
def test_numpy_sorts_without_avx512_where_that_is_slow(
    processor: str, given: str | None, disabled: str | None, tmp_path: pathlib.Path
) -> None:
    """Of AMD's family 0x19 it is; a setting of the user's is kept."""
    file = tmp_path / "modalias"
    file.write_text(f"cpu:type:x86,{processor}:feature:,0000,0001\n")
    code = """
import os, sys
from beam_pipeline.beam_internals import loading
assert "numpy" not in sys.modules
loading._PROCESSOR = sys.argv[1]
loading.spare_imports()
import numpy
found = numpy._core._multiarray_umath.__cpu_features__
print(os.environ.get("NPY_DISABLE_CPU_FEATURES"))
print(found.get("X86_V4", False) or found["AVX512_SKX"])
"""
    environment = dict(os.environ)
    environment.pop("NPY_DISABLE_CPU_FEATURES", None)
    if given is not None:
        environment["NPY_DISABLE_CPU_FEATURES"] = given
    run = subprocess.run(
        [sys.executable, "-c", code, file],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    set_to, has_avx512 = run.stdout.split("\n")[:2]
    assert set_to == str(disabled)
    if disabled is not None and given is None:
        assert has_avx512 == "False"


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
