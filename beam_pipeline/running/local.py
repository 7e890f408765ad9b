"""Run and watch a job: in this process, in worker processes, or on an engine."""

import contextlib
import functools
import logging
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from beam_pipeline.beam_internals.loading import is_own_process
from beam_pipeline.beam_internals.local_runner import (
    THREAD_REFUSED,
    local_runner,
    noticed_refusals,
    plain_labels,
)
from beam_pipeline.engines.beam_errors import translated
from beam_pipeline.engines.checks import check_words
from beam_pipeline.engines.presets import SERVICE_TIMEOUT, Engine
from beam_pipeline.engines.submit import RunHooks, run_on_engine, watched
from beam_pipeline.graph import Job, build, views_made_once
from beam_pipeline.running.workers import (
    WorkerPool,
    collected_retries,
    local_workers,
)
from beam_pipeline.shared_change import shared_change
from transforms.errors import SpecError, closest, no_memory
from transforms.shards import decoders
from transforms.shards.allocation import return_freed_memory
from transforms.storage.buckets import may_fork
from transforms.storage.files import storage
from transforms.storage.visibility import python_command

# Flags for engines with a job server, or that leave a job alone: a local run and
# Dataflow would ignore them.
_WITH_SERVERS = {
    *("job_endpoint", "flink_master", "spark_master_url"),
    *("no_wait_until_finish", "template_location"),
}
# How long the pipeline's thread of a stopped run may take to end.
_STOP_SECONDS = 2.0


def check_beam_flags(flags: Sequence[str], engine: Engine | None = None) -> None:
    """Raises SpecError for a flag that Beam does not know; Beam itself ignores it.

    Args:
      flags: what follows `--` on the command line.
      engine: whose presets name some that only its job server knows; None for a local
        run.
    """
    check_words(flags)
    names = set(PipelineOptions([]).get_all_options())
    if engine is None or engine.is_service:
        names -= _WITH_SERVERS
    if engine is not None:
        names |= {flag.partition("=")[0][2:] for flag in engine.given}
    given = PipelineOptions(list(flags)).get_all_options(
        drop_default=True, retain_unknown_options=True
    )
    # Beam drops what equals its default, as a local master does.
    typed = {flag.partition("=")[0][2:] for flag in flags}
    if unknown := sorted((given.keys() | typed & _WITH_SERVERS) - names):
        near = closest(unknown[0], names)
        hint = f" Did you mean --{near}?" if near else ""
        raise SpecError(
            f"What follows -- must be flags of Beam that the runner "
            f"{'local' if engine is None else engine.name!r} takes; --{unknown[0]} is "
            f"none. Leave it out, or choose another with --runner.{hint}"
        )


def run_job(
    job: Job,
    hooks: RunHooks,
    *,
    workers: int,
    engine: Engine | None = None,
    place: Mapping[str, Any] | None = None,
) -> None:
    """Runs the job and returns when it is committed.

    Args:
      job: planned, with its work folder made.
      hooks: where the caller takes part.
      workers: processes; 1 runs everything in this one, and so does a process that
        may not fork and knows no interpreter to start.
      engine: that runs it; None for the runner inside Beam.
      place: of the engine.

    Raises:
      BeamTFRecordError: the run failed and nothing was committed.
    """
    rules = job.plan.store.rules
    if engine and place and rules and rules.reports:
        with collected_retries(), _quiet_beam(), plain_labels():
            add = functools.partial(build, job=job, between=hooks.between)
            run_on_engine(
                *(engine, place, add, hooks),
                work_folder=job.plan.store.folder,
                reports=rules.reports,
            )
        return
    flags = [f"--direct_num_workers={workers}", SERVICE_TIMEOUT, *hooks.beam_flags]
    # The sample, whose rows planning has looked at, takes up to 200 MB.
    return_freed_memory()
    with (
        collected_retries() as notes,
        _pool(workers, notes.log) as pool,
        _quiet_beam(),
        plain_labels(),
        noticed_refusals(),
        local_runner(pool) as runner,
    ):
        pipeline = beam.Pipeline(runner=runner, options=PipelineOptions(flags))
        watches = hooks.watch, notes.show
        try:
            with views_made_once(pipeline.options):
                try:
                    build(pipeline, job, between=hooks.between)
                except Exception as error:
                    raise translated(error) from error
                _run_watched(pipeline, pool, watches, hooks.abandon)
        finally:
            decoders.SHARED.end_idle()
            # Beam does not remove it where the run was stopped.
            storage(pipeline.local_tempdir).remove_tree()


@contextlib.contextmanager
def _pool(workers: int, log: IO[bytes]) -> Iterator[WorkerPool | None]:
    """Yields worker processes; None where this process does the work."""
    forks = is_own_process() and may_fork()
    if workers == 1 or not (forks or python_command()[0]):
        yield None
        return
    with local_workers(workers, forks=forks, log=log) as pool:
        yield pool


@shared_change
def _quiet_beam() -> Iterator[None]:
    """Keeps Beam's log lines off the terminal: failures are raised and shown once."""
    logger = logging.getLogger("apache_beam")
    root = logging.getLogger()
    before = logger.level, root.level
    # A handler of its own keeps Beam's flags from giving the root logger one for good.
    handler = logging.NullHandler()
    root.addHandler(handler)
    hook, threads = threading.excepthook, weakref.WeakSet(threading.enumerate())
    logger.setLevel(logging.CRITICAL + 1)
    root.setLevel(logging.CRITICAL + 1)
    threading.excepthook = lambda error: (
        hook(error) if error.thread in threads else None
    )
    try:
        yield
    except BaseException:
        # Beam's threads go on ending after a failure, each with a traceback.
        ours = weakref.WeakSet(set(threading.enumerate()) - set(threads))
        threading.excepthook = lambda error: (
            None if error.thread in ours else hook(error)
        )
        raise
    else:
        threading.excepthook = hook
    finally:
        root.removeHandler(handler)
        logger.setLevel(before[0])
        root.setLevel(before[1])


def _run_watched(
    pipeline: beam.Pipeline,
    pool: WorkerPool | None,
    watches: Sequence[Callable[[], None]],
    abandon: Callable[[], None],
) -> None:
    """Runs the pipeline; raises our own error where it or a worker fails."""
    done = threading.Event()

    def look() -> None:
        # First: workers end where this process cannot serve them.
        if THREAD_REFUSED.is_set() and not done.is_set():
            raise no_memory()
        dead = pool.failure() if pool is not None else None
        if dead is not None and not done.is_set():
            raise dead

    def end() -> None:
        decoders.SHARED.end()
        if pool is not None:
            pool.close()
        done.wait(_STOP_SECONDS)

    def run() -> None:
        pipeline.run().wait_until_finish()

    try:
        failure = watched(run, done, (*watches, look), abandon=abandon, end=end)
    except RuntimeError as error:
        # The thread of the job itself.
        failure = error
        if not THREAD_REFUSED.is_set():
            raise
    if failure is not None:
        # Of a killed worker the runner only reports a lost connection.
        if pool is not None and (dead := pool.failure(failed=True)):
            raise dead from failure
        if THREAD_REFUSED.is_set():
            raise no_memory() from failure
        raise translated(failure) from failure
