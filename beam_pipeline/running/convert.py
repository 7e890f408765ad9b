"""Run a plan to its commit: in this process, in worker processes, or on an engine."""

import contextlib
import dataclasses
import functools
import json
import logging
import os
import secrets
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
    shared_change,
)
from beam_pipeline.engines.checks import values_of
from beam_pipeline.engines.presets import SERVICE_TIMEOUT, Engine, engine_of
from beam_pipeline.engines.submit import RunHooks, run_on_engine, translated, watched
from beam_pipeline.graph import Job, build, make_job, views_made_once
from beam_pipeline.planning.plan import Plan
from beam_pipeline.planning.sizes import check_room
from beam_pipeline.planning.splits import sha256_of
from beam_pipeline.running.workers import WorkerPool, collected_retries, local_workers
from beam_pipeline.settings.spec import Spec
from beam_pipeline.version import deciding_versions
from transforms.core.arrays import return_freed_memory
from transforms.core.manifest import Manifest
from transforms.core.schema import Kind
from transforms.errors import (
    BeamTFRecordError,
    BusyError,
    RaceError,
    SpecError,
    StorageError,
    bounded,
    closest,
    no_memory,
)
from transforms.formats.input_files import write_listing
from transforms.publishing import target
from transforms.shards import decoders
from transforms.storage.buckets import may_fork
from transforms.storage.files import storage
from transforms.storage.folders import exclusive_lock
from transforms.storage.paths import is_remote
from transforms.storage.visibility import Witness, python_command
from transforms.work.split_tables import install_lock, new_lock_in
from transforms.work.store import Store
from transforms.work.worker_check import Reports, WorkerRules

_WORD_BYTES = 6


@contextlib.contextmanager
def open_work_folder(
    plan: Plan,
    *,
    say: Callable[[str], None] = lambda _text: None,
) -> Iterator[tuple[Store, bool]]:
    """Prepares the target's work folder; yields it, and whether it has finished work.

    See `transforms.publishing.target.at_work`.

    Args:
      plan: of the job.
      say: called with what was found.
    """
    keeps_items = plan.spec.keep_rejected_bytes
    with target.at_work(
        target.at(plan.directory),
        Store(plan.work_folder, inline=plan.inline, keep_items=keeps_items),
        job=plan.digest,
        seen=plan.seen,
        # Own steps may do something else in each run.
        alone=plan.request.steps,
        say=say,
    ) as (store, resumes):
        write_listing(plan.planned.listing, store.listing, attempts=store.attempts)
        plan.splits.store_tables(store)
        yield store, resumes


def find_engine(spec: Spec, beam_flags: Sequence[str]) -> Engine | None:
    """Returns the engine of a job, None for this machine; checks both before planning.

    Raises:
      SpecError: the runner, or a flag, is not known.
      TargetError, UsageError: the engine cannot take the job.
    """
    engine = engine_of(values_of(beam_flags).get("runner") or spec.runner)
    if beam_flags:
        check_beam_flags(beam_flags, engine)
    if engine is not None:
        engine.check(spec, beam_flags)
    return engine


def convert_plan(
    plan: Plan,
    *,
    beam_flags: Sequence[str] = (),
    between: beam.PTransform | None = None,
    watch: Callable[[], None] = lambda: None,
    say: Callable[[str], None] = lambda _text: None,
) -> Manifest:
    """Runs a plan to its commit and returns the manifest of the dataset.

    Args:
      plan: from `make_plan`.
      beam_flags: Beam's own flags.
      between: own steps from Batch to Batch, at most one for each, between read and
        place. They may change and drop rows (`Batch.filter`), and add some
        (`Batch.take`) where a key column tells them apart; the account counts both.
      watch: called ten times a second meanwhile.
      say: called with what a person should know at the start.

    Raises:
      SpecError: Beam does not know one of the flags.
      UsageError: what the engine needs is not there.
      BeamTFRecordError: the run failed and nothing was committed.
    """
    engine = find_engine(plan.spec, beam_flags)
    return run_plan(plan, engine, RunHooks(beam_flags, between, watch, say))


def run_plan(plan: Plan, engine: Engine | None, hooks: RunHooks) -> Manifest:
    """Runs a plan as `convert_plan` does, on an engine that was found before.

    Args:
      plan: of the job.
      engine: from `find_engine`.
      hooks: all but `abandon`, which is the work folder's.
    """
    if hooks.between is not None:
        plan = _with_steps(plan, hooks.between)
    check_room(plan.spec, plan.needed_bytes)
    with _lock_held(plan), _opened(plan, engine, hooks) as job:
        store = job.plan.store
        spec = plan.spec
        if hooks.between is None:
            # An engine's processes take seconds to start, as own steps may take.
            spec = spec.model_copy(update={"workers": plan.tasks or "auto"})
        try:
            hooks = dataclasses.replace(hooks, abandon=store.abandon)
            run_job(job, hooks, workers=plan.workers, engine=engine, spec=spec)
        except BaseException as error:
            there, is_error = target.at(plan.directory), isinstance(error, Exception)
            if not (store.placed and is_error) or not target.has_published(
                there, store, job=plan.digest, seen=plan.seen
            ):
                if isinstance(error, BeamTFRecordError):
                    error.account = _account(store)
                raise
            # Another run of the job was quicker, and has removed the work of both.
            hooks.say(
                f"the dataset was published by a run of this very job; what failed "
                f"here after that: {bounded(str(error))}"
            )
        if plan.splits.lock_path:
            install_lock(new_lock_in(store), plan.splits.lock_path)
        return target.read_manifest(plan.directory)


@contextlib.contextmanager
def _lock_held(plan: Plan) -> Iterator[None]:
    """Keeps the lock as the plan has read it until the run has written it.

    Raises:
      RaceError: another run with that lock is at work, or has written it.
    """
    path = plan.splits.lock_path
    if not path:
        yield
        return
    why = ""
    with contextlib.ExitStack() as stack:
        if not is_remote(path):
            folder, own = os.path.split(path)
            hold = os.path.join(folder, f".{own}.beam-tfrecord")
            try:
                stack.enter_context(exclusive_lock(hold))
                stack.callback(storage(hold).remove_file, below=folder)
            except BusyError:
                why = "is in use by another run"
        if not why and sha256_of(path) != plan.splits.lock_digest:
            why = "has changed since; another run has written it"
        if why:
            raise RaceError(
                f"A lock must stay as it was when the run began; {path!r} {why}. "
                f"Nothing was committed. Run again."
            )
        yield


def _with_steps(plan: Plan, between: object) -> Plan:
    """Returns a plan whose dataset says that own steps have made it.

    Raises:
      SpecError: `between` is no PTransform.
      TargetError: the plan was made over a dataset that needed no run, and with own
        steps it does; nobody has said that it may be replaced.
    """
    request = dataclasses.replace(plan.request, steps=True)
    if not isinstance(between, beam.PTransform):
        raise SpecError(
            f"between must be a PTransform, as in between=beam.Map(function); found a "
            f"{type(between).__name__}."
        )
    if not plan.spec.overwrite:
        manifest = target.at(plan.directory).check_contents()
        if manifest is not None:
            why = request.differs_from(manifest)
            raise target.taken(plan.directory, manifest, why)
    return dataclasses.replace(plan, request=request)


def _account(store: Store) -> Mapping[str, Any] | None:
    """Returns the account of items that a refused commit has left; None without one."""
    with contextlib.suppress(OSError, StorageError, ValueError):
        account: dict[str, Any] = json.loads(storage(store.account).read_bytes())
        return account
    return None


@contextlib.contextmanager
def _opened(plan: Plan, engine: Engine | None, hooks: RunHooks) -> Iterator[Job]:
    """Yields the job of a plan, its work folder made; see `run_plan`."""
    with open_work_folder(plan, say=hooks.say) as (store, resumes):
        if engine is None:
            yield make_job(plan, store, resumes=resumes)
            return
        spec, name = plan.spec, f"reports-{secrets.token_hex(_WORD_BYTES)}"
        reports = Reports(os.path.join(store.folder, name), store.attempts)
        find = functools.partial(
            deciding_versions,
            images=bool(plan.planned.schema.of_kind(Kind.IMAGE)),
            compressed=spec.compression != "none",
        )
        # What is written must be seen, too.
        work = () if is_remote(store.folder) else (Witness(store.folder),)
        read = plan.planned.witnesses(plan.inputs.root, spec.images_folder)
        elsewhere = engine.workers(hooks.beam_flags) is not None
        rules = WorkerRules(
            wanted=find(),
            find=find,
            reports=reports,
            elsewhere=elsewhere and not spec.shared_output,
            witnesses=(*work, *read),
        )
        reports.begin()
        try:
            store = dataclasses.replace(store, rules=rules)
            yield make_job(plan, store, resumes=resumes)
        finally:
            # What stays is removed with the rest of the job's work.
            with contextlib.suppress(OSError, StorageError):
                reports.end()


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
    typed = values_of(flags).keys()
    names = set(PipelineOptions([]).get_all_options())
    if engine is None or engine.is_service:
        names -= _WITH_SERVERS
    if engine is not None:
        names |= {flag.partition("=")[0][2:] for flag in engine.given}
    given = PipelineOptions(list(flags)).get_all_options(
        drop_default=True, retain_unknown_options=True
    )
    # Beam drops what equals its default, as a local master does.
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
    spec: Spec | None = None,
) -> None:
    """Runs the job and returns when it is committed.

    Args:
      job: planned, with its work folder made.
      hooks: where the caller takes part.
      workers: processes; 1 runs everything in this one, and so does a process that
        may not fork and knows no interpreter to start.
      engine: that runs it; None for the runner inside Beam.
      spec: of the job, for the engine.

    Raises:
      BeamTFRecordError: the run failed and nothing was committed.
    """
    rules = job.plan.store.rules
    if engine and spec and rules and rules.reports:
        with collected_retries(), _quiet_beam(), plain_labels():
            add = functools.partial(build, job=job, between=hooks.between)
            run_on_engine(engine, spec, add, hooks, rules.reports)
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


def _pool(
    workers: int, log: IO[bytes]
) -> contextlib.AbstractContextManager[WorkerPool | None]:
    """Gives the worker processes of a run; None where this one does the work."""
    forks = is_own_process() and may_fork()
    if workers == 1 or not (forks or python_command()[0]):
        return contextlib.nullcontext()
    return local_workers(workers, forks=forks, log=log)


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
