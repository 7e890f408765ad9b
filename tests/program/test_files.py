"""Tests of `unit/test_files.py` that start processes."""

import pathlib
import subprocess
import sys

import pytest

from tests.support.full_disk import FULL_DISK

Folder = pathlib.Path


@pytest.fixture
def attempts(tmp_path: Folder) -> Folder:
    folder = tmp_path / "attempts"
    folder.mkdir()
    return folder


def test_create_notices_a_short_write(tmp_path: Folder, attempts: Folder) -> None:
    """When the disk is full in the middle of a write, no shorter file appears.

    `write(2)` then returns how much it took, and fails at the next call only.
    """
    path = tmp_path / "file"
    done = subprocess.run([sys.executable, "-c", FULL_DISK, str(path), str(attempts)])
    assert not path.exists() or path.stat().st_size == 1500
    assert done.returncode == 7
