"""Tests of `unit/core/image/test_image_policy.py` that start processes."""

import pathlib
import subprocess
import sys


def test_the_policy_imports_no_engine() -> None:
    """Neither Beam nor TensorFlow, nor anything that reads files."""
    code = (
        "import sys, transforms.core.image.policy; "
        "sys.exit(bool({'apache_beam', 'tensorflow'} & set(sys.modules)))"
    )
    root = pathlib.Path(__file__).parents[4]
    assert (
        subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode
        == 0
    )
