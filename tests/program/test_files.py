"""Tests of `unit/test_files.py` that start processes."""

import os
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


def test_read_bytes_does_not_wait_for_a_writer(tmp_path: Folder) -> None:
    """A named pipe among the files is an error, not a run that never ends."""
    os.mkfifo(tmp_path / "a.jpg")
    code = (
        "import sys; from transforms.storage.files import storage; "
        "storage(sys.argv[1]).read_bytes()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "a.jpg")], stderr=subprocess.PIPE
    )
    try:
        _, errors = process.communicate(timeout=5)
    finally:
        process.kill()
        process.communicate()
    assert b"Error" in errors
