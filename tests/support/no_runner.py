"""Conversions without Beam's runner, for folders of tests that it has no part in."""

import pytest


@pytest.fixture(autouse=True)
def no_runner(without_runner: None) -> None:
    """What is read, refused and written is the same, and takes less time."""
