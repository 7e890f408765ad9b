"""Tests of `unit/core/test_schema.py` that start processes."""

import subprocess
import sys


def test_reading_a_manifest_needs_no_arrow() -> None:
    """The schema and the manifest load without Arrow, which takes a while."""
    code = "import sys, transforms.core.manifest; sys.exit('pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
