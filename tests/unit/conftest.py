"""Unit tests are pure: here they start no process, and Beam and TensorFlow stay out."""

import sys
from collections.abc import Iterator

import pytest

_STARTS = ("subprocess.Popen", "os.fork", "os.posix_spawn", "os.system")
# A hook cannot be taken out again, so that one serves all tests.
_started: list[str] = []


def _note(event: str, arguments: tuple[object, ...]) -> None:
    if event in _STARTS:
        _started.append(f"{event}{arguments[:1]}")


sys.addaudithook(_note)


@pytest.fixture(autouse=True)
def _pure() -> Iterator[None]:
    """Fails a test that starts a process or loads TensorFlow."""
    _started.clear()
    loaded = "tensorflow" in sys.modules
    yield
    assert _started == [], "a test that starts processes belongs into tests/program"
    assert loaded or "tensorflow" not in sys.modules, "its place is tests/readers"
