"""Tests of `unit/planning/test_plan.py` that start processes."""

import pathlib
import subprocess
import sys

from tests.support.plans import everything, write_numbers

Folder = pathlib.Path


def test_the_command_writes_nothing_and_loads_no_beam(tmp_path: Folder) -> None:
    """`beam-tfrecord plan` prints what would happen, from a process without Beam."""
    source = write_numbers(tmp_path / "rows.csv")
    before = everything(tmp_path)
    code = (
        "import sys\n"
        "from beam_pipeline import cli\n"
        "try:\n"
        "    cli.main(sys.argv[1:])\n"
        "finally:\n"
        "    assert 'apache_beam' not in sys.modules\n"
        "    assert 'tensorflow' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "plan", str(source), str(tmp_path / "out")],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "nothing was written" in done.stdout
    assert everything(tmp_path) == before
