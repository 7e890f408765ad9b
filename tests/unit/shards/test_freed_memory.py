"""Freed memory goes back to the system."""

import pathlib
import sys

import numpy as np
import pyarrow as pa
import pytest

from transforms.shards.allocation import return_freed_memory


def _resident() -> int:
    """Returns the resident pages of this process."""
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1])


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_freed_memory_is_returned() -> None:
    """What Arrow and Python have freed is no longer resident."""
    texts = [bytes(1_000) for _ in range(50_000)]
    array = pa.array(np.arange(10_000_000)).take(pa.array(np.arange(5_000_000)))
    full = _resident()
    # An object that stays at the end keeps the C library from shrinking by itself.
    stays = bytes(1_000)
    del texts, array
    return_freed_memory()
    assert len(stays) == 1_000
    assert (full - _resident()) * 4_096 > 80_000_000
