"""What these tests look at is the same without Beam's runner."""

from typing import Any

import pytest

from tests.support.no_runner import no_runner

__all__ = ["no_runner"]


@pytest.fixture(scope="session")
def tf() -> Any:
    return pytest.importorskip("tensorflow")
