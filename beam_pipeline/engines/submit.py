"""Submit a job to an engine, watch it, cancel it, and explain its failure."""

import contextlib
import dataclasses
import functools
import importlib
import os
import secrets
import tempfile
import threading
from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import (
    GoogleCloudOptions,
    PipelineOptions,
    PortableOptions,
)

from beam_pipeline.engines import job_server
from beam_pipeline.engines.beam_errors import in_text, translated, with_words_of
from beam_pipeline.engines.checks import not_started, silence_check
from beam_pipeline.engines.presets import Engine, WorkerPlace, worker_file
from beam_pipeline.engines.watch import JobWatch, RunHooks, watched
from beam_pipeline.engines.worker import write_worker
from transforms.errors import BeamTFRecordError
from transforms.storage import paths
from transforms.storage.files import storage
from transforms.work.reports import Reports

# Adds the stages of a job to a pipeline.
AddStages = Callable[[beam.Pipeline], object]

_LOOK_SECONDS = 0.1
# Random, so that no two jobs share a name: Flink cancels by it.
_NAME_BYTES = 6
# How long the engine may take to cancel a job, and that to end.
_CANCEL_SECONDS = 40.0
_END_SECONDS = 20.0


def run_on_engine(
    engine: Engine,
    place: WorkerPlace,
    add_stages: AddStages,
    hooks: RunHooks,
    *,
    work_folder: str,
    reports: Reports,
) -> str:
    """Runs a pipeline on an engine and returns when it is done.

    Where nobody waits for the job, returns its id once it is submitted.

    Args:
      engine: that runs it.
      place: from `Engine.place`.
      add_stages: adds everything to the pipeline.
      hooks: Beam's own flags, which win over the presets, and who watches.
      work_folder: of the job; for what starts its workers.
      reports: of the run, by its workers.

    Raises:
      BeamTFRecordError: it failed; the job is cancelled.
    """
    with (
        _room(work_folder) as room,
        _options(engine, place, hooks, room) as (options, last_lines),
    ):
        name = options.view_as(GoogleCloudOptions).job_name
        worker = "" if place.starts_elsewhere else worker_file(room)
        unstarted = functools.partial(not_started, engine.name, worker)
        check = silence_check(engine.starts, hooks.beam_flags)
        watch = JobWatch(
            *(engine.name, reports, hooks.say, check),
            ask=functools.partial(engine.traces, place.master, name),
            explain=lambda text: in_text(text) or unstarted(text),
        )
        cancel = functools.partial(engine.cancel, place.master, name)
        try:
            with _pipeline(engine, options, add_stages) as pipeline, watch.watching():
                if engine.detaches(hooks.beam_flags):
                    return _say_id(pipeline.run(), hooks)
                run_watched(pipeline, watch.look, hooks, cancel)
        except BeamTFRecordError:
            raise
        except Exception as failure:
            lines = last_lines()
            said = "\n".join([str(failure), *lines])
            error = watch.latest() or unstarted(said) or translated(failure)
            raise with_words_of(lines, error) from failure
    return ""


@contextlib.contextmanager
def _room(work_folder: str) -> Iterator[str]:
    """Makes a folder with the file that starts workers, and removes it at the end."""
    with contextlib.ExitStack() as stack:
        base = work_folder
        if paths.is_remote(work_folder):
            # An engine starts executables of its machines only: where they are not
            # this one, the checks have asked for a TMPDIR that they share.
            made = tempfile.TemporaryDirectory(prefix="beam-tfrecord-")
            base = stack.enter_context(made)
        room = os.path.join(base, "engine")
        storage(room).remove_tree()
        stack.callback(storage(room).remove_tree)
        os.makedirs(os.path.join(room, "artifacts"))
        write_worker(worker_file(room))
        yield room


@contextlib.contextmanager
def _options(
    engine: Engine, place: WorkerPlace, hooks: RunHooks, room: str
) -> Iterator[tuple[PipelineOptions, Callable[[], list[str]]]]:
    """Yields the options of a job, and what returns its job server's last lines.

    The job server is started unless one runs already, or the engine has none.
    """
    name = f"{place.job_name}-{secrets.token_hex(_NAME_BYTES)}"
    place = dataclasses.replace(place, job_name=name)
    options = PipelineOptions([*engine.presets(place, room), *hooks.beam_flags])
    if place.job_endpoint or not engine.program_flag:
        yield options, list
        return
    flags = options.get_all_options()
    port = flags["job_port"] or job_server.free_port()
    command = engine.server(flags, port)
    with job_server.started(engine.name, command, port, room) as last_lines:
        options.view_as(PortableOptions).job_endpoint = f"localhost:{port}"
        yield options, last_lines


@contextlib.contextmanager
def _pipeline(
    engine: Engine, options: PipelineOptions, add_stages: AddStages
) -> Iterator[beam.Pipeline]:
    """Yields the whole pipeline; removes Beam's folder of it at the end."""
    module, _, kind = engine.runner.partition(":")
    runner = getattr(importlib.import_module(module), kind)()
    pipeline = beam.Pipeline(runner=runner, options=options)
    try:
        add_stages(pipeline)
        yield pipeline
    finally:
        storage(pipeline.local_tempdir).remove_tree()


def run_watched(
    pipeline: beam.Pipeline,
    look: Callable[[], None],
    hooks: RunHooks,
    cancel: Callable[[], None] = lambda: None,
) -> None:
    """Runs a pipeline to its end; says the id of a job on Dataflow.

    Args:
      pipeline: all of it.
      look: called several times a second; what it raises ends the job.
      hooks: `watch` is called likewise, `abandon` once when the run is stopped.
      cancel: cancels the job at the engine, where Beam's own way is not enough.
    """
    results: list[Any] = []
    done = threading.Event()

    def run() -> None:
        results.append(pipeline.run())
        if hasattr(results[0], "job_id"):
            _say_id(results[0], hooks)
        results[0].wait_until_finish()

    def look_both() -> None:
        hooks.watch()
        look()

    def cancel_all() -> None:
        # A job that is just being submitted would otherwise run on.
        while not results and not done.wait(_LOOK_SECONDS):
            pass
        for step in (cancel, *(result.cancel for result in results)):
            with contextlib.suppress(Exception):
                step()

    def end() -> None:
        # In a thread: an engine that does not answer must not block.
        thread = threading.Thread(target=cancel_all, name="cancel", daemon=True)
        thread.start()
        thread.join(_CANCEL_SECONDS)
        done.wait(_END_SECONDS)

    failure = watched(run, done, look_both, abandon=hooks.abandon, end=end)
    if failure is not None:
        raise failure


def _say_id(result: Any, hooks: RunHooks) -> str:
    """Says and returns the id of a job, as schedulers such as Airflow look for it."""
    job: str = result.job_id()
    hooks.say(f"Created job with id: [{job}]")
    return job
