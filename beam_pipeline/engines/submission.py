"""Submits a job to an engine, watches it, cancels it, and says what went wrong."""

import contextlib
import dataclasses
import importlib
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability import job_server

from beam_pipeline.beam_errors import translated
from beam_pipeline.engines import failures
from beam_pipeline.engines.choice import Chosen
from beam_pipeline.engines.worker_boot import write_worker
from transforms import files, paths

__all__ = ["run_on_engine"]

_LOOK_SECONDS = 0.2
# How long the engine may take to confirm that the job is cancelled.
_CANCEL_SECONDS = 20.0


def run_on_engine(
    chosen: Chosen,
    add_stages: Callable[[beam.Pipeline], object],
    *,
    work_folder: str,
    beam_flags: Sequence[str],
    watch: Callable[[], None],
    abandon: Callable[[], None],
) -> None:
    """Runs a pipeline on an engine and returns when it is done.

    Args:
      chosen: the engine and its place.
      add_stages: adds everything to the pipeline.
      work_folder: of the job; for what its workers need and leave.
      beam_flags: Beam's own flags; they win over the presets.
      watch: called several times a second meanwhile, in the calling thread.
      abandon: called once when the run is stopped; after it nothing may be published.

    Raises:
      BeamTFRecordError: it failed; the job is cancelled.
    """
    with _room(work_folder) as room:
        place = dataclasses.replace(
            chosen.place, worker=room.worker, artifacts=room.artifacts
        )
        flags = [*chosen.engine.presets(place), *beam_flags]
        with _runner(chosen.engine.runner) as runner:
            pipeline = beam.Pipeline(runner=runner, options=PipelineOptions(flags))
            try:
                add_stages(pipeline)
                _run_watched(pipeline, room.failures, watch, abandon)
            finally:
                files.remove_tree(pipeline.local_tempdir)


@dataclasses.dataclass(frozen=True)
class _Room:
    """What an engine's job has beside its segments and shards.

    Attributes:
      folder: of all of it.
    """

    folder: str

    @property
    def worker(self) -> str:
        """The executable file that starts a worker."""
        return os.path.join(self.folder, "worker")

    @property
    def artifacts(self) -> str:
        """Folder of what the job server stages."""
        return os.path.join(self.folder, "artifacts")

    @property
    def failures(self) -> str:
        """Folder of what went wrong in workers."""
        return os.path.join(self.folder, "failures")


@contextlib.contextmanager
def _room(work_folder: str) -> Iterator[_Room]:
    """Makes the room in the work folder; it goes again, however the job ends."""
    with contextlib.ExitStack() as stack:
        base = work_folder
        if paths.is_remote(work_folder):
            # An engine starts executables of its machines only.
            made = tempfile.TemporaryDirectory(prefix="beam-tfrecord-")
            base = stack.enter_context(made)
        room = _Room(os.path.join(base, "engine"))
        files.remove_tree(room.folder)
        stack.callback(files.remove_tree, room.folder)
        os.makedirs(room.artifacts)
        os.makedirs(room.failures)
        write_worker(room.worker, failures=room.failures)
        yield room


class _NoSignals:
    """Stands in for the module `signal` where Beam starts a job server.

    Beam would take Ctrl-C for itself and end the server first, before the job could be
    cancelled through it; and it could start no server outside the main thread.
    """

    SIGINT = 0

    @staticmethod
    def getsignal(number: int) -> None:
        """Returns that nobody handles it."""

    @staticmethod
    def signal(number: int, handler: object) -> None:
        """Leaves it to who has it."""


@contextlib.contextmanager
def _runner(name: str) -> Iterator[Any]:
    """Yields Beam's runner; the job server that it starts ends with the context."""
    place, _, kind = name.partition(":")
    runner = getattr(importlib.import_module(place), kind)()
    start = runner.default_job_server
    servers: list[Any] = []

    def remembered(options: PipelineOptions) -> Any:
        server = start(options)
        servers.append(server)
        return server

    runner.default_job_server = remembered
    module: Any = job_server
    plain = module.signal
    module.signal = _NoSignals
    try:
        yield runner
    finally:
        module.signal = plain
        for server in servers:
            server.stop()


def _run_watched(
    pipeline: beam.Pipeline,
    folder: str,
    watch: Callable[[], None],
    abandon: Callable[[], None],
) -> None:
    """Submits in a thread, so that this one can watch and be interrupted."""
    results: list[Any] = []
    raised: list[BaseException] = []
    done = threading.Event()

    def run() -> None:
        try:
            results.append(pipeline.run())
            results[0].wait_until_finish()
        except BaseException as error:  # noqa: BLE001 - raised again by the watcher
            raised.append(error)
        finally:
            done.set()

    thread = threading.Thread(target=run, name="job", daemon=True)
    thread.start()
    try:
        while not done.wait(_LOOK_SECONDS):
            watch()
            # The engine would try again what cannot succeed.
            if (error := failures.lasting(folder)) is not None:
                raise error
    except BaseException:
        abandon()
        _end(results, done)
        raise
    if raised:
        error = failures.latest(folder)
        raise (error or translated(raised[0])) from raised[0]


def _end(results: Sequence[Any], done: threading.Event) -> None:
    """Cancels the job of a run that is stopped, once there is one."""
    end = time.monotonic() + _CANCEL_SECONDS
    # What is being submitted just now would run on without us.
    while not results and time.monotonic() < end and not done.wait(_LOOK_SECONDS):
        pass
    if results and not done.is_set():
        _cancel(results[0])
        done.wait(_CANCEL_SECONDS)


def _cancel(result: Any) -> None:
    """Cancels a job; an engine that does not answer does not hold us up."""

    def cancel() -> None:
        with contextlib.suppress(Exception):
            result.cancel()

    thread = threading.Thread(target=cancel, name="cancel", daemon=True)
    thread.start()
    thread.join(_CANCEL_SECONDS)
