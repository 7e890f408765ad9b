"""Submit a job to an engine, watch it, cancel it, and explain its failure."""

import contextlib
import ctypes
import dataclasses
import functools
import importlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import (
    GoogleCloudOptions,
    PipelineOptions,
    PortableOptions,
)

from beam_pipeline.engines.beam_errors import (
    in_text,
    telling,
    translated,
    with_words_of,
)
from beam_pipeline.engines.checks import not_started
from beam_pipeline.engines.engine import (
    AddStages,
    Engine,
    RunHooks,
    WorkerPlace,
    silence_check,
)
from beam_pipeline.engines.watch import JobWatch, watched
from beam_pipeline.engines.worker import write_worker
from transforms.errors import BeamTFRecordError
from transforms.storage import paths
from transforms.storage.files import storage
from transforms.work.reports import Reports

_LOOK_SECONDS = 0.1
# Random, so that no two jobs share a name: Flink cancels by it.
_NAME_BYTES = 6
# How long the engine may take to confirm that the job is cancelled.
_CANCEL_SECONDS = 20.0
# After it a job server is ended by force.
_END_SECONDS = 5.0
_LOG_BYTES = 1 << 16
_PR_SET_PDEATHSIG = 1
# Loaded before the fork: between fork and exec a child may call hardly anything.
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def run_on_engine(
    engine: Engine,
    place: WorkerPlace,
    add_stages: AddStages,
    hooks: RunHooks,
    *,
    work_folder: str,
    reports: Reports,
) -> None:
    """Runs a pipeline through a job server and returns when it is done.

    At its end it says what the engine has counted.

    Args:
      engine: that has a job server.
      place: from `Engine.place`.
      add_stages: adds everything to the pipeline.
      hooks: Beam's own flags, which win over the presets, and who watches.
      work_folder: of the job; for what starts its workers.
      reports: of the run, by its workers.

    Raises:
      BeamTFRecordError: it failed; the job is cancelled.
    """
    with _room(work_folder) as room:
        place = dataclasses.replace(
            place,
            worker=os.path.join(room, "worker"),
            artifacts=os.path.join(room, "artifacts"),
            job_name=f"{place.job_name}-{secrets.token_hex(_NAME_BYTES)}",
        )
        options = PipelineOptions([*engine.presets(place), *hooks.beam_flags])
        with _job_server(engine, place, options, room) as said:
            pipeline = beam.Pipeline(runner=new_runner(engine.runner), options=options)
            name = options.view_as(GoogleCloudOptions).job_name
            cancel = functools.partial(engine.cancel, place.master, name)
            check = silence_check(hooks.beam_flags)
            watch = JobWatch(
                *(engine.name, reports, hooks.say, check),
                ask=functools.partial(engine.traces, place.master, name),
                explain=lambda text: (
                    in_text(text) or not_started(engine.name, place, text)
                ),
            )
            try:
                add_stages(pipeline)
                with watch.watching():
                    counters = run_watched(pipeline, watch.look, hooks, cancel)
            except BeamTFRecordError:
                raise
            except Exception as failure:
                lines = said()
                error = (
                    watch.latest()
                    or not_started(
                        engine.name, place, "\n".join([str(failure), *lines])
                    )
                    or translated(failure)
                )
                raise with_words_of(lines, error) from failure
            finally:
                storage(pipeline.local_tempdir).remove_tree()
    if counters:
        hooks.say(f"{engine.name} has counted: {counters}")


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
        write_worker(os.path.join(room, "worker"))
        yield room


@contextlib.contextmanager
def _job_server(
    engine: Engine, place: WorkerPlace, options: PipelineOptions, room: str
) -> Iterator[Callable[[], list[str]]]:
    """Starts a job server, unless one runs already, and ends it.

    It has a session of its own: Ctrl-C in a terminal would reach it too, and end it
    before the job could be cancelled through it. Yields what returns its last lines.

    Raises:
      BeamTFRecordError: it has ended before it has listened.
    """
    if place.job_endpoint:
        yield list
        return
    log = os.path.join(room, "job-server.log")
    flags = options.get_all_options()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = flags["job_port"] or free.getsockname()[1]
    with open(log, "wb") as out:
        server = subprocess.Popen(
            engine.server(flags, port),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            # Safe with threads: it calls one C function, which is loaded already.
            preexec_fn=_end_with_parent,
        )
    try:
        while not _listens(port):
            if server.poll() is not None:
                line = telling(_last_lines(log), "")
                raise BeamTFRecordError(
                    f"The job server of {engine.name} must listen until the job ends; "
                    f"it has ended with {server.returncode}. Its last words: {line}"
                )
            time.sleep(_LOOK_SECONDS)
        options.view_as(PortableOptions).job_endpoint = f"localhost:{port}"
        yield functools.partial(_last_lines, log)
    finally:
        server.terminate()
        try:
            server.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _end_with_parent() -> None:
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _listens(port: int) -> bool:
    try:
        with socket.create_connection(("localhost", port)):
            return True
    except OSError:
        return False


def _last_lines(path: str) -> list[str]:
    """Returns the end of a log; a Java trace fits."""
    with open(path, "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _LOG_BYTES))
        return file.read().decode("utf-8", "replace").splitlines()


def new_runner(name: str) -> Any:
    """Returns a runner of Beam's, by its class: `module:name`."""
    module, _, kind = name.partition(":")
    return getattr(importlib.import_module(module), kind)()


def run_watched(
    pipeline: beam.Pipeline,
    look: Callable[[], None],
    hooks: RunHooks,
    cancel: Callable[[], None] = lambda: None,
    *,
    submitted: Callable[[Any], None] = lambda _result: None,
) -> str:
    """Runs a pipeline; returns in a line what the engine has counted.

    Args:
      pipeline: all of it.
      look: called several times a second; what it raises ends the job.
      hooks: `watch` is called likewise, `abandon` once when the run is stopped.
      cancel: cancels the job at the engine, where Beam's own way is not enough.
      submitted: called with Beam's result, once there is one.
    """
    results: list[Any] = []
    untold = [submitted]
    counters: list[str] = []
    done = threading.Event()

    def run() -> None:
        results.append(pipeline.run())
        results[0].wait_until_finish()
        # While the job server is there to be asked.
        counters.append(_counted(results[0]))

    def tell() -> None:
        if results and untold:
            untold.pop()(results[0])

    def look_both() -> None:
        tell()
        hooks.watch()
        look()

    def end() -> None:
        _end(results, done, cancel)

    failure = watched(run, done, look_both, abandon=hooks.abandon, end=end)
    tell()
    if failure is not None:
        raise failure
    return counters[0]


def _counted(result: Any) -> str:
    """Returns the counters of a job in a line; "" for none.

    Retried work may be counted twice; the exact counts are in the manifest.
    """
    try:
        counters = result.metrics().query()["counters"]
        counts = {
            f"{counter.key.metric.namespace}/{counter.key.metric.name}": int(
                counter.attempted if counter.committed is None else counter.committed
            )
            for counter in counters
            # Prism also reports counters of its own.
            if counter.key.metric.namespace != "beam"
        }
    except Exception:  # noqa: BLE001 - the job is done, with counters or without
        return ""
    return ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items()))


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


def run_on_dataflow(
    engine: Engine,
    place: WorkerPlace,
    add_stages: AddStages,
    hooks: RunHooks,
    *,
    reports: Reports,
) -> None:
    """As `run_on_engine`, on Dataflow; says the id of the job, too."""
    with _pipeline(engine, place, add_stages, hooks.beam_flags) as pipeline:
        check = "its machines, which take minutes to start, run: see the job's page"
        watch = JobWatch(engine.name, reports, hooks.say, check)
        with watch.watching():
            counters = run_watched(
                pipeline,
                watch.look,
                hooks,
                submitted=lambda result: hooks.say(_in_beams_words(result.job_id())),
            )
    if counters:
        hooks.say(f"{engine.name} has counted: {counters}")


def submit_to_dataflow(
    engine: Engine, place: WorkerPlace, add_stages: AddStages, hooks: RunHooks
) -> str:
    """Hands a pipeline over, and returns the id of its job.

    Raises:
      BeamTFRecordError: it was not taken.
    """
    with _pipeline(engine, place, add_stages, hooks.beam_flags) as pipeline:
        result: Any = pipeline.run()
        job: str = result.job_id()
        hooks.say(_in_beams_words(job))
        return job


@contextlib.contextmanager
def _pipeline(
    engine: Engine, place: WorkerPlace, add_stages: AddStages, beam_flags: Sequence[str]
) -> Iterator[beam.Pipeline]:
    """Yields the pipeline; translates errors into ours."""
    options = PipelineOptions([*engine.presets(place), *beam_flags])
    with contextlib.ExitStack() as stack:
        try:
            pipeline = beam.Pipeline(runner=new_runner(engine.runner), options=options)
            stack.callback(storage(pipeline.local_tempdir).remove_tree)
            add_stages(pipeline)
            yield pipeline
        except BeamTFRecordError:
            raise
        except Exception as failure:
            raise translated(failure) from failure


def _in_beams_words(job: str) -> str:
    """Returns the line that schedulers look for, Airflow's operator among them."""
    return f"Created job with id: [{job}]"
