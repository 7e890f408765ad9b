"""Unit tests are pure: no process, no pipeline, no TensorFlow."""

import pathlib
import sys
from collections.abc import Iterator
from typing import NoReturn

import numpy.testing  # noqa: F401 - NumPy 2.0 starts lscpu as it is loaded
import pytest

from transforms.work.worker_check import Reports

_STARTS = ("subprocess.Popen", "os.fork", "os.posix_spawn", "os.system")
# A hook cannot be taken out again, so that one serves all tests.
_started: list[str] = []


def _note(event: str, arguments: tuple[object, ...]) -> None:
    if event in _STARTS:
        _started.append(f"{event}{arguments[:1]}")


sys.addaudithook(_note)


def _no_run(*_: object, **__: object) -> NoReturn:
    pytest.fail("a test that runs a pipeline belongs into tests/program")


@pytest.fixture(autouse=True)
def _pure(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fails a test that starts a process, runs a pipeline or loads TensorFlow."""
    _started.clear()
    if beam := sys.modules.get("apache_beam"):
        monkeypatch.setattr(beam.Pipeline, "run", _no_run)
    loaded = "tensorflow" in sys.modules
    yield
    assert _started == [], "a test that starts processes belongs into tests/program"
    assert loaded or "tensorflow" not in sys.modules, "its place is tests/readers"


@pytest.fixture
def reports(tmp_path: pathlib.Path) -> Iterator[Reports]:
    """Reports of a run that is on; nothing of them outlives it."""
    (tmp_path / "attempts").mkdir()
    folder = tmp_path / ".out.beam-tfrecord" / "job" / "reports-run"
    begun = Reports(str(folder), str(tmp_path / "attempts"))
    begun.begin()
    yield begun
    begun.end()
    assert not folder.exists()
