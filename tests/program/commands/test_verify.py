"""Tests of `unit/commands/test_verify.py` that start processes."""

import subprocess
import sys


def test_starts_without_what_is_slow() -> None:
    """A small file is checked before those could be imported."""
    code = """
import sys
import beam_pipeline.commands.verify
slow = {"rich", "pydantic", "click", "pandas", "apache_beam", "pyarrow", "PIL"}
print(sorted(slow & sys.modules.keys()))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
