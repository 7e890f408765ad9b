"""Tests of `unit/core/image/test_image.py` that start processes."""

import sys


def test_the_check_needs_neither_beam_nor_tensorflow() -> None:
    """Importing the check imports no engine: it is pure."""
    import subprocess

    code = (
        "import sys, transforms.core.image.check; "
        "sys.exit(bool({'apache_beam', 'tensorflow'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
