"""Reports of the processes of a run, in a folder of its work folder."""

import logging
import os
import pathlib
import time

import pytest

from transforms.storage.visibility import Worker
from transforms.work import reports as reports_module
from transforms.work.reports import FailureReports, Reports

Folder = pathlib.Path
WORKER = Worker("a/host of 'mine'", "12")


@pytest.fixture
def reports(tmp_path: Folder) -> Reports:
    """Reports of a run that is on."""
    (tmp_path / "attempts").mkdir()
    found = Reports(str(tmp_path / "reports" / "run"), str(tmp_path / "attempts"))
    found.begin()
    return found


def names(reports: Reports) -> list[str]:
    return [entry.path for entry in reports.entries()]


def test_a_worker_renews_its_report(
    reports: Reports, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a thread of its own, until the run ends; then nothing comes back."""
    monkeypatch.setattr(reports_module, "RENEWED_SECONDS", 0.02)
    reports.sign_on(WORKER)
    name = "a_host_of__mine_-12.worker"
    assert names(reports) == [name, "submitter"]
    path = os.path.join(reports.folder, name)
    os.utime(path, (0, 0))
    for _ in range(500):
        if os.stat(path).st_mtime:
            break
        time.sleep(0.01)
    assert os.stat(path).st_mtime
    reports.end()
    time.sleep(0.1)
    assert not os.path.exists(os.path.dirname(reports.folder))


def test_what_is_not_there_is_not_renewed(reports: Reports) -> None:
    """A renewal makes no file: the run has ended."""
    assert reports.renew(reports.submitter)
    assert not reports.renew(os.path.join(reports.folder, "gone.worker"))
    assert names(reports) == ["submitter"]


def test_failures_of_ours_are_left(reports: Reports) -> None:
    """The end of the text names the error; what is not ours is the engine's part."""
    handler = FailureReports(reports, WORKER)

    def emit(text: str) -> None:
        handler.emit(logging.LogRecord("sdk", logging.ERROR, "", 1, text, (), None))

    emit("Traceback\nValueError: not ours")
    assert names(reports) == ["submitter"]
    emit("x" * 100_000 + "\ntransforms.errors.StorageError: full")
    (name,) = [name for name in names(reports) if name.endswith(".failure")]
    assert name.endswith("-a_host_of__mine_-12.failure")
    text = reports.read(name)
    assert len(text) == 1 << 16
    assert text.endswith("transforms.errors.StorageError: full")
    reports.end()
    emit("transforms.errors.StorageError: after the end")
    assert names(reports) == []
