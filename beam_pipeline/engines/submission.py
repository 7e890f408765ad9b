"""Submit a job to an engine, watch it, cancel it, and explain its failure."""

import contextlib
import dataclasses
import functools
import os
import secrets
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions

from beam_pipeline.beam_internals.runners import runner_of
from beam_pipeline.engines import worker_boot
from beam_pipeline.engines.beam_errors import translated
from beam_pipeline.engines.engine import AddStages, Engine, Place, RunHooks
from beam_pipeline.engines.engine_words import server_words, with_words_of
from beam_pipeline.engines.job_watch import JobWatch
from beam_pipeline.engines.places import not_started
from beam_pipeline.engines.stopping import watched
from beam_pipeline.engines.worker_boot import write_worker
from beam_pipeline.engines.workers import starts_in_words
from transforms import files
from transforms.errors import BeamTFRecordError
from transforms.storage import paths
from transforms.work.reports import Reports

_LOOK_SECONDS = 0.2
# Random, so that no two jobs share a name: Flink cancels by it.
_NAME_BYTES = 6
# How long the engine may take to confirm that the job is cancelled.
_CANCEL_SECONDS = 20.0
# A worker may exit just before the engine reports the end of the job.
_LEAVE_SECONDS = 5.0


def run_on_engine(
    engine: Engine,
    place: Place,
    add_stages: AddStages,
    hooks: RunHooks,
    *,
    work_folder: str,
    reports: Reports,
) -> None:
    """Runs a pipeline through a job server and returns when it is done.

    At its end it says what the engine has counted. See `Engine.run`.
    """
    with _room(work_folder) as room:
        place = dataclasses.replace(
            place,
            worker=room.worker,
            artifacts=room.artifacts,
            job_name=f"{place.job_name}-{secrets.token_hex(_NAME_BYTES)}",
        )
        flags = [*engine.presets(place), *hooks.beam_flags]
        with (
            runner_of(engine.runner, engine.server_variables(place)) as runner,
            server_words(engine.server_logger, place.job_endpoint) as server,
        ):
            pipeline = beam.Pipeline(runner=runner, options=PipelineOptions(flags))
            name = pipeline.options.view_as(GoogleCloudOptions).job_name
            cancel = functools.partial(engine.cancel or _nothing, place.master)
            watch = JobWatch(
                engine.name,
                reports,
                hooks.say,
                functools.partial(engine.words, place.master, name, server),
                explain=functools.partial(not_started, engine.name, place),
                timeout=place.worker_timeout,
                starts=starts_in_words([*(place.environment or ()), *hooks.beam_flags]),
            )
            look = _Looker(engine, room.started, watch).look
            try:
                add_stages(pipeline)
                hooks.submits(name)
                with watch.watching():
                    counters = run_watched(pipeline, look, hooks, lambda: cancel(name))
            except BeamTFRecordError:
                raise
            except Exception as failure:
                said = "\n".join([str(failure), *server.lines])
                error = (
                    watch.latest()
                    or not_started(engine.name, place, said)
                    or translated(failure)
                )
                raise with_words_of(server, error) from failure
            finally:
                files.remove_tree(pipeline.local_tempdir)
    if counters:
        hooks.say(f"{engine.name} has counted: {counters}")


@dataclasses.dataclass(frozen=True)
class _Room:
    """Files of an engine's job that are neither segments nor shards.

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
    def started(self) -> str:
        """Folder where workers sign on."""
        return os.path.join(self.folder, "started")


@contextlib.contextmanager
def _room(work_folder: str) -> Iterator[_Room]:
    """Makes the folder in the work folder; removes it again, however the job ends."""
    with contextlib.ExitStack() as stack:
        base = work_folder
        if paths.is_remote(work_folder):
            # An engine starts executables of its machines only: where they are not
            # this one, `choose` has asked for a TMPDIR that they share.
            made = tempfile.TemporaryDirectory(prefix="beam-tfrecord-")
            base = stack.enter_context(made)
        room = _Room(os.path.join(base, "engine"))
        files.remove_tree(room.folder)
        stack.callback(files.remove_tree, room.folder)
        os.makedirs(room.artifacts)
        os.makedirs(room.started)
        write_worker(room.worker, started=room.started)
        yield room


def run_watched(
    pipeline: beam.Pipeline,
    look: Callable[[], None],
    hooks: RunHooks,
    cancel: Callable[[], None] = lambda: None,
) -> str:
    """Runs a pipeline; returns in a line what the engine has counted.

    Args:
      pipeline: all of it.
      look: called several times a second; what it raises ends the job.
      hooks: `watch` is called likewise, `abandon` once when the run is stopped.
      cancel: cancels the job at the engine, where Beam's own way is not enough.
    """
    results: list[Any] = []
    counters: list[str] = []
    done = threading.Event()

    def run() -> None:
        results.append(pipeline.run())
        results[0].wait_until_finish()
        # While the job server is there to be asked.
        counters.append(_counted(results[0]))

    def look_both() -> None:
        hooks.watch()
        look()

    def end() -> None:
        _end(results, done, cancel)

    failure = watched(run, done, look_both, abandon=hooks.abandon, end=end)
    if failure is not None:
        raise failure
    return counters[0]


def _counted(result: Any) -> str:
    """Returns the counters of a job in a line; "" for none.

    Retried work may be counted twice; the exact counts are in the manifest.
    """
    try:
        counters = result.metrics().query()["counters"]
        found = {
            f"{each.key.metric.namespace}/{each.key.metric.name}": int(
                each.attempted if each.committed is None else each.committed
            )
            for each in counters
            # Prism also reports counters of its own.
            if each.key.metric.namespace != "beam"
        }
    except Exception:  # noqa: BLE001 - the job is done, with counters or without
        return ""
    return ", ".join(f"{name} {count:,}" for name, count in sorted(found.items()))


@dataclasses.dataclass
class _Looker:
    """Looks at what becomes of the workers of a job, while it runs.

    Attributes:
      engine: of the job.
      started: folder where workers on this machine sign on.
      watch: of the job.
      missed: since when the first of the workers is gone.
    """

    engine: Engine
    started: str
    watch: JobWatch
    missed: float | None = None

    def look(self) -> None:
        """Raises an error that retries cannot fix, or for a worker that has died."""
        self.watch.look()
        if self.engine.survives_losses or not (
            gone := worker_boot.absent(self.started)
        ):
            return
        # Workers may exit before the engine reports the end of the job.
        now = time.monotonic()
        self.missed = self.missed or now
        if now - self.missed > _LEAVE_SECONDS:
            raise BeamTFRecordError(
                f"A worker process ({gone[0]}) has ended in the middle of the job, "
                f"perhaps for lack of memory, and {self.engine.name} does not make up "
                f"for that. Nothing was committed; run again, or without --runner."
            )


def _nothing(master: str, name: str) -> None:
    """Does nothing: cancelling through Beam is enough."""


def _end(
    results: Sequence[Any], done: threading.Event, cancel: Callable[[], None]
) -> None:
    """Cancels the job of a run that is stopped, once there is one."""
    end = time.monotonic() + _CANCEL_SECONDS
    # A job that is just being submitted would otherwise run on.
    while not results and time.monotonic() < end and not done.wait(_LOOK_SECONDS):
        pass
    if results and not done.is_set():
        _try(results[0].cancel)
        _try(cancel)
        done.wait(_CANCEL_SECONDS)


def _try(cancel: Callable[[], object]) -> None:
    """Cancels a job in a thread: an engine that does not answer must not block."""

    def work() -> None:
        with contextlib.suppress(Exception):
            cancel()

    thread = threading.Thread(target=work, name="cancel", daemon=True)
    thread.start()
    thread.join(_CANCEL_SECONDS)
