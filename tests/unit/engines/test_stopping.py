"""A run that is stopped ends what it has started, whatever its store says to that."""

import os
import pathlib
import stat
import tempfile
import threading
from collections.abc import Callable
from typing import Any

import pytest

from beam_pipeline.engines.presets import ENGINES, Engine
from beam_pipeline.engines.submit import (
    JobWatch,
    RunHooks,
    run_on_engine,
    run_watched,
    stop,
)
from beam_pipeline.running import convert
from beam_pipeline.settings.spec import make_spec
from transforms.errors import StorageError, UsageError
from transforms.storage import stores
from transforms.storage.retry import RetryPolicy
from transforms.work.store import Store
from transforms.work.worker_check import Reports


class Job:
    """A job that works until it is cancelled; pipeline and result in one."""

    def __init__(self) -> None:
        self.cancelled = threading.Event()

    def run(self) -> "Job":
        return self

    def wait_until_finish(self) -> None:
        self.cancelled.wait(30)

    def cancel(self) -> None:
        self.cancelled.set()

    close = cancel

    def failure(self) -> None:
        """No worker is."""


def on_engine(job: Any, watch: Callable[[], None], abandon: Callable[[], None]) -> None:
    nobody = JobWatch("flink", Reports("/none", ""), print)
    run_watched(job, nobody, RunHooks(watch=watch, abandon=abandon))


def here(job: Any, watch: Callable[[], None], abandon: Callable[[], None]) -> None:
    convert._run_watched(job, job, [watch], abandon)


def interrupted() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("run", [on_engine, here])
@pytest.mark.parametrize("error", [StorageError("away"), OSError(28, "full")])
def test_a_store_that_refuses_does_not_keep_the_job(
    run: Callable[..., None], error: Exception
) -> None:
    """Ctrl-C stays Ctrl-C, and the engine or the workers are ended."""
    job = Job()

    def abandon() -> None:
        raise error

    with pytest.raises(KeyboardInterrupt):
        run(job, interrupted, abandon)
    assert job.cancelled.is_set()


def test_a_store_that_is_slow_is_not_waited_for() -> None:
    """What would go on publishing is ended while the store is still asked."""
    ended = threading.Event()
    seen = []
    stop(lambda: seen.append(ended.wait(20)), ended.set)
    assert seen == [True]


def test_a_store_that_answers_comes_first() -> None:
    """Where nothing is wrong, nothing may be published before anything is ended."""
    order: list[str] = []
    stop(lambda: order.append("abandoned"), lambda: order.append("ended"))
    assert order == ["abandoned", "ended"]


def test_threads_of_this_process_stop_in_any_case(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The run's token is set before the store is asked for anything."""
    store = Store("s3://bucket/w", placed="s3://bucket/out/a", token="of this test")
    known = []

    def client_of(path: str, attempts: str) -> None:
        known.append(store.is_abandoned)
        raise ConnectionRefusedError(111, "refused", path)

    monkeypatch.setattr(stores, "client_of", client_of)
    monkeypatch.setattr("transforms.storage.retry.POLICY", RetryPolicy(attempts=1))
    with pytest.raises((OSError, StorageError)):
        store.abandon()
    assert known == [True]
    assert store.is_abandoned


def test_the_file_that_starts_a_worker_is_in_tmpdir_meanwhile(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that runs as another user reaches it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def flags(_engine: Engine, _settings: Any, _flags: Any, room: str) -> list[str]:
        assert os.path.dirname(room) == str(tmp_path)
        modes = {room: 0o711, os.path.join(room, "worker"): 0o755}
        for path, mode in modes.items():
            assert stat.S_IMODE(os.stat(path).st_mode) == mode
        raise UsageError("nothing is there")

    monkeypatch.setattr(Engine, "flags", flags)
    spec = make_spec({"source": "rows.csv", "output": "out", "runner": "prism"})
    with pytest.raises(UsageError, match="nothing is there"):
        run_on_engine(ENGINES["prism"], spec, print, RunHooks(), Reports("", ""))
    assert [*tmp_path.iterdir()] == []
