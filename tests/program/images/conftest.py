"""What these tests look at is the same without Beam's runner, which takes longer."""

import pytest


@pytest.fixture(autouse=True)
def no_runner(without_runner: None) -> None:
    """Runs conversions by the stages' own code."""
