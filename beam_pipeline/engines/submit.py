"""Submit a job to an engine, watch it, and stop it, also where nobody answers.

A thread asks the store for the stamps of workers, and the engine for failed tasks, so
that neither of them delays the program when it does not answer. What Beam, engines and
workers raise becomes an error of ours that is in it, or else one with theirs in a line.
"""

import contextlib
import dataclasses
import functools
import math
import os
import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions, PortableOptions

from beam_pipeline.beam_internals.engine_worker import write_worker
from beam_pipeline.engines.checks import WITHIN_SERVER, ask_flink
from beam_pipeline.engines.job_server import job_server, last_words
from beam_pipeline.engines.presets import Engine
from beam_pipeline.settings.spec import Spec
from beam_pipeline.version import __version__
from transforms import errors
from transforms.errors import BeamTFRecordError, StorageError, WorkerError
from transforms.storage.files import storage
from transforms.work.worker_check import Reports

# Between two questions, to the engine and to the store.
_ASK_SECONDS = 2.0
# Workers that have not reported for this long are told of: four stamps are missing.
_SILENT_SECONDS = 60.0
# Faults of storage are lasting if more than a few recur for this long, ...
_FEW = 3
_LASTING_SECONDS = 60.0
# ... with at most this between: an attempt may itself retry for minutes.
_APART_SECONDS = 120.0
# All that Flink says where a worker has raised such an error before it took data: Flink
# has waited three minutes for it to take some.
_NO_DATA = "No client connected within timeout"

# Adds the stages of a job to a pipeline.
AddStages = Callable[[beam.Pipeline], object]

# How often a run is looked at: for progress, and for dead workers.
_LOOK_SECONDS = 0.1
# A healthy store answers within this; an unreachable one must not delay the stop.
_FIRST_SECONDS = 1.0
# How long the engine may take to cancel a job, and that to end.
_CANCEL_SECONDS = 40.0
_END_SECONDS = 20.0
_ENDED = ("CANCELED", "FAILED", "FINISHED")


def is_lasting(times: Iterable[float]) -> bool:
    """Whether faults of storage at these seconds do not go away."""
    recent: list[float] = []
    for at in sorted(times):
        if recent and at - recent[-1] > _APART_SECONDS:
            # The earlier faults have passed.
            recent = []
        recent.append(at)
    return len(recent) > _FEW and recent[-1] - recent[0] >= _LASTING_SECONDS


@dataclasses.dataclass
class JobWatch:
    """Watches a job while it runs.

    Attributes:
      name: of the engine.
      reports: of the run.
      say: takes what a person should know.
      ask: returns seconds and traceback of each task that has failed, the oldest first,
        as the engine has them; any error means that it does not answer.
      cancel: cancels the job at the engine, where Beam's own way is not enough.
      failure: the first error of ours, in the engine's account, that ends the job.
    """

    name: str
    reports: Reports
    say: Callable[[str], None]
    ask: Callable[[], Iterable[tuple[float, str]]] = lambda: ()
    cancel: Callable[[], object] = lambda: None
    failure: BeamTFRecordError | None = None
    # When faults of storage were.
    _faults: set[float] = dataclasses.field(default_factory=set)
    _stamps: Mapping[str, int] = dataclasses.field(default_factory=dict)
    # Since when no worker has left a stamp; infinite once that has been said.
    _heard: float = dataclasses.field(default_factory=lambda: time.monotonic())

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Polls the run's stamps and the engine for failures while the block runs."""
        ended = threading.Event()

        def work() -> None:
            while not ended.wait(_ASK_SECONDS):
                self.read()

        threading.Thread(target=work, name="job watch", daemon=True).start()
        try:
            yield
        finally:
            ended.set()

    def read(self) -> None:
        """Reads what the engine says of failed tasks, and the stamps of workers."""
        with contextlib.suppress(Exception):
            for at, traceback in self.ask():
                error = in_text(traceback)
                # A worker that is lost later has left a stamp, or another has.
                if _NO_DATA in traceback and not self._stamps:
                    error = without_program(_NO_DATA)
                if isinstance(error, StorageError):
                    self._faults.add(at)
                    if not is_lasting(self._faults):
                        continue
                self.failure = self.failure or error
        folder = self.reports.folder
        with contextlib.suppress(OSError, StorageError):
            files = storage(folder).entries_in(folder)
            stamps = {file.path: file.modified_ns for file in files}
            if stamps != self._stamps:
                self._stamps = stamps
                self._heard = time.monotonic()

    def look(self) -> None:
        """Says a line where workers are silent.

        Raises:
          BeamTFRecordError: a task has failed. The engine, which may try a hundred
            times, is not waited for.
        """
        if self.failure is not None:
            raise self.failure
        silent = time.monotonic() - self._heard
        if silent >= _SILENT_SECONDS:
            self._heard = math.inf
            self.say(
                f"no worker of {self.name} has reported for {silent:.0f} s; unless its "
                f"machines are still starting, check that it has free slots, that "
                f"these start workers (a pool must run on each of them), and that the "
                f"workers have beam-tfrecord {__version__} and reach the output's "
                f"store; Ctrl-C ends the job"
            )


@dataclasses.dataclass(frozen=True)
class RunHooks:
    """Where the caller of a run takes part in it.

    Attributes:
      beam_flags: Beam's own flags; they win over ours.
      between: a PTransform, own steps from Batch to Batch; None for none. See
        `beam_pipeline.graph.build`.
      watch: called several times a second meanwhile, in the calling thread.
      say: called with what a person should know.
      abandon: called once when the run is stopped; after it nothing may be published.
    """

    beam_flags: Sequence[str] = ()
    between: Any = None
    watch: Callable[[], None] = lambda: None
    say: Callable[[str], None] = lambda _text: None
    abandon: Callable[[], None] = lambda: None


def run_on_engine(
    engine: Engine,
    settings: Spec,
    add_stages: AddStages,
    hooks: RunHooks,
    reports: Reports,
) -> None:
    """Runs a pipeline on an engine and returns when it is done.

    Args:
      engine: that runs it.
      settings: of the job.
      add_stages: adds everything to the pipeline.
      hooks: Beam's own flags, which win over the presets, and who watches.
      reports: of the run, by its workers.

    Raises:
      UsageError: what the engine needs is not there.
      BeamTFRecordError: it failed; the job is cancelled.
    """
    with contextlib.ExitStack() as stack:
        made = tempfile.TemporaryDirectory(prefix="beam-tfrecord-")
        room = stack.enter_context(made)
        # The engine may run as another user.
        os.chmod(room, 0o711)
        write_worker(os.path.join(room, "worker"))
        flags = engine.flags(settings, hooks.beam_flags, room)
        options = PipelineOptions([*flags, *hooks.beam_flags])
        log = os.path.join(room, "job-server.log")
        portable = options.view_as(PortableOptions)
        until_ready: Callable[[], None] | None = None
        if not (engine.is_service or portable.job_endpoint):
            server = job_server(engine, options, log)
            portable.job_endpoint, until_ready = stack.enter_context(server)
        watch = JobWatch(engine.name, reports, hooks.say)
        given = options.get_all_options()
        # The cluster of [local] and [auto] is in the job server, and ends with it.
        if engine.name == "flink" and given["flink_master"] not in WITHIN_SERVER:
            job = given["flink_master"], given["job_name"]
            watch.ask = functools.partial(_flink_traces, *job)
            watch.cancel = functools.partial(_cancel_on_flink, *job)
        try:
            pipeline = beam.Pipeline(engine.runner, options)
            stack.callback(storage(pipeline.local_tempdir).remove_tree)
            add_stages(pipeline)
            if until_ready is not None:
                until_ready()
            with watch.watching():
                run_watched(pipeline, watch, hooks)
        except BeamTFRecordError:
            raise
        except Exception as failure:
            error = watch.failure or translated(failure)
            if type(error) is BeamTFRecordError:
                # Of Beam or the engine: the job server may know more.
                error = BeamTFRecordError(f"{error}{last_words(log, str(error))}")
            raise error from failure


def run_watched(pipeline: beam.Pipeline, watch: JobWatch, hooks: RunHooks) -> None:
    """Runs a pipeline to its end; says the id of a job on Dataflow.

    Args:
      pipeline: all of it.
      watch: asked several times a second; what it raises ends the job.
      hooks: `watch` is called likewise, `abandon` once when the run is stopped.
    """
    results: list[Any] = []
    done = threading.Event()

    def run() -> None:
        results.append(pipeline.run())
        if hasattr(results[0], "job_id"):
            # As schedulers such as Airflow look for it.
            hooks.say(f"Created job with id: [{results[0].job_id()}]")
        results[0].wait_until_finish()

    def cancel_all() -> None:
        # A job that is just being submitted would otherwise run on.
        while not results and not done.wait(_LOOK_SECONDS):
            pass
        for step in (watch.cancel, *(result.cancel for result in results)):
            with contextlib.suppress(Exception):
                step()

    def end() -> None:
        # In a thread: an engine that does not answer must not block.
        thread = threading.Thread(target=cancel_all, name="cancel", daemon=True)
        thread.start()
        thread.join(_CANCEL_SECONDS)
        done.wait(_END_SECONDS)

    looks = hooks.watch, watch.look
    failure = watched(run, done, looks, abandon=hooks.abandon, end=end)
    if failure is not None:
        raise failure


def watched(
    run: Callable[[], object],
    done: threading.Event,
    looks: Iterable[Callable[[], None]],
    *,
    abandon: Callable[[], None],
    end: Callable[[], None],
) -> BaseException | None:
    """Runs a job in a thread, so that this one can watch and be interrupted.

    Returns what the job raised; None for nothing. Raises what `looks` do, and what a
    signal raises meanwhile, once the run is stopped.

    Args:
      run: submits the job, and waits for its end.
      done: set when it has ended.
      looks: called ten times a second.
      abandon, end: see `stop`.
    """
    failures: list[BaseException] = []

    def work() -> None:
        try:
            run()
        except BaseException as error:  # noqa: BLE001 - returned by the watcher
            failures.append(error)
        finally:
            done.set()

    thread = threading.Thread(target=work, name="job", daemon=True)
    thread.start()
    try:
        while not done.wait(_LOOK_SECONDS):
            for look in looks:
                look()
    except BaseException:
        stop(abandon, end)
        raise
    return failures[0] if failures else None


def stop(abandon: Callable[[], None], end: Callable[[], None]) -> None:
    """Forbids a run to publish anything more, and ends its workers or its job.

    An unreachable store is retried for seconds before it fails. Neither the delay nor
    that error may hide the error that has stopped the run.

    Args:
      abandon: see `transforms.work.store.Store.abandon`; what it raises is dropped, for
        what is ended publishes nothing either.
      end: cancels the job, or ends the workers.
    """

    def work() -> None:
        with contextlib.suppress(OSError, StorageError):
            abandon()

    thread = threading.Thread(target=work, name="abandon", daemon=True)
    try:
        # Without a thread, whose lack may be what stops the run, the end comes first.
        with contextlib.suppress(RuntimeError):
            thread.start()
            thread.join(_FIRST_SECONDS)
    finally:
        end()
        if thread.ident is None:
            work()
        else:
            thread.join()


def _flink_job(master: str, name: str) -> str:
    """Returns the id of the job of a name that Flink has not ended; else "".

    If several have the name, it is of none: they may belong to others.
    """
    jobs = ask_flink(master, "jobs/overview")["jobs"]
    ours = [job for job in jobs if job["name"] == name and job["state"] not in _ENDED]
    return ours[0]["jid"] if len(ours) == 1 else ""


def _cancel_on_flink(master: str, name: str) -> None:
    """Cancels the job of a name; Beam would only end its call to Flink."""
    end = time.monotonic() + _END_SECONDS
    while (job := _flink_job(master, name)) and time.monotonic() < end:
        ask_flink(master, f"jobs/{job}?mode=cancel", "PATCH")
        time.sleep(_LOOK_SECONDS)


def _flink_traces(master: str, name: str) -> list[tuple[float, str]]:
    """Returns when tasks of the job of a name have failed, and what they have raised.

    Flink may try a hundred times before it says so.
    """
    asked = ask_flink(master, f"jobs/{_flink_job(master, name)}/exceptions")
    entries = asked["exceptionHistory"]["entries"]
    return [(entry["timestamp"] / 1e3, entry["stacktrace"]) for entry in entries[::-1]]


_REST = r"(?P<message>.*?)(?: \[while running '(?P<stage>[^']*)'\])?$"
_OUR_ERROR = re.compile(r"transforms\.errors\.(?P<type>\w+): " + _REST, re.MULTILINE)
# Of a worker whose interpreter has no such version of this program, or none at all.
_NO_PROGRAM = re.compile(
    r"^(?:ModuleNotFoundError: No module named |AttributeError: Can't get attribute |"
    r"ImportError: cannot import name ).*'(?:transforms|beam_pipeline)\b.*$",
    re.MULTILINE,
)
# What follows the frames of a traceback: an exception of any name, with words or none.
_RAISED = re.compile(
    r"(?:^|: )Traceback \(most recent call last\):\n(?:[ \t].*\n)+"
    r"(?P<type>[A-Za-z_][\w.]*)(?::[ ]|(?=[ ]\[)|$)" + _REST,
    re.MULTILINE,
)
# What Beam raises in this process, which has no traceback in its words.
_OWN_WORDS = re.compile(r"(?P<type>\w+): " + _REST, re.DOTALL)


def translated(failure: BaseException) -> BeamTFRecordError:
    """Returns the error of ours that Beam has wrapped, else its error in one line."""
    seen: BaseException | None = failure
    while seen is not None:
        if isinstance(seen, BeamTFRecordError):
            kind = getattr(errors, type(seen).__name__, BeamTFRecordError)
            return kind(re.sub(r" \[while running '[^']*'\]$", "", str(seen)))
        seen = seen.__cause__
    text = str(failure)
    if ours := in_text(text):
        return ours
    *_, last = (
        *_OWN_WORDS.finditer(f"{type(failure).__name__}: {text}"),
        *_RAISED.finditer(text),
    )
    where = f" in {last['stage']!r}" if last["stage"] else ""
    words = ": ".join(filter(None, (last["type"], last["message"].rstrip(". \n"))))
    return BeamTFRecordError(
        f"The pipeline failed{where}: {words}. Nothing was committed."
    )


def in_text(traceback: str) -> BeamTFRecordError | None:
    """Returns the last of our errors that a traceback names, if any."""
    # The last error is the one that was raised; earlier ones are its causes.
    if matches := list(_OUR_ERROR.finditer(traceback)):
        kind = getattr(errors, matches[-1]["type"], BeamTFRecordError)
        return kind(matches[-1]["message"])
    lacking = _NO_PROGRAM.search(traceback)
    return without_program(lacking[0].strip()) if lacking else None


def without_program(words: str) -> WorkerError:
    """Returns the error of a worker that lacks this program, with its words."""
    return WorkerError(
        f"Every worker must have beam-tfrecord {__version__}, as the job's "
        f"submitter; one has another version or none: {words}. "
        f"Install it in the workers' image: pip install 'beam-tfrecord=="
        f"{__version__}', with [s3], [gcs] or [azure] for the output's store; "
        f"nothing was committed."
    )
