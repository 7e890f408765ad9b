"""Watch a run, and stop it promptly even when its object store does not answer.

On an engine a thread asks the store for what workers report, and the engine, a few
seconds apart, so that neither of them delays the program when it does not answer. What
it has found is looked at ten times a second. A worker that does not reach the store is
heard through the engine alone.
"""

import contextlib
import dataclasses
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from beam_pipeline.engines.beam_errors import in_text
from transforms.errors import BeamTFRecordError, StorageError
from transforms.storage.paths import is_remote
from transforms.work.reports import FAILURE, WORKER, Reports

# How often a run is looked at: for progress, and for dead workers.
_LOOK_SECONDS = 0.1

# A healthy store answers within this; an unreachable one must not delay the stop.
_FIRST_SECONDS = 1.0


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
    # Of Beam's type, which takes long to load.
    between: Any = None
    watch: Callable[[], None] = lambda: None
    say: Callable[[str], None] = lambda _text: None
    abandon: Callable[[], None] = lambda: None


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
        thread.start()
    except RuntimeError:
        # The system has no thread left, which may be what stops the run.
        end()
        work()
        return
    try:
        thread.join(_FIRST_SECONDS)
    finally:
        end()
        thread.join()


def watched(
    run: Callable[[], object],
    done: threading.Event,
    look: Callable[[], None],
    *,
    abandon: Callable[[], None],
    end: Callable[[], None],
) -> BaseException | None:
    """Runs a job in a thread, so that this one can watch and be interrupted.

    Returns what the job raised; None for nothing. Raises what `look` does, and what a
    signal raises meanwhile, once the run is stopped.

    Args:
      run: submits the job, and waits for its end.
      done: set when it has ended.
      look: called ten times a second.
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
            look()
    except BaseException:
        stop(abandon, end)
        raise
    return failures[0] if failures else None


# Between two questions, to a disk and to an object store.
_NEAR_SECONDS = 0.5
_FAR_SECONDS = 3.0
# Workers that have not reported for this long are told of: four reports are missing.
_SILENT_SECONDS = 60.0
# Faults of storage are lasting if more than a few recur for this long, ...
_FEW = 3
_LASTING_SECONDS = 60.0
# ... with at most this between: an attempt may itself retry for minutes.
_APART_SECONDS = 120.0

# When, in seconds since 1970, and the error or the text of what a task has raised.
Failure = tuple[float, BeamTFRecordError]
Trace = tuple[float, str]


@dataclasses.dataclass
class JobWatch:
    """Watches a job while it runs.

    Attributes:
      name: of the engine.
      reports: of the run.
      say: takes what a person should know.
      check: what to look after where workers are silent, as words of a message.
      ask: returns what tasks have raised, as the engine says; any error means that it
        does not.
      explain: returns the error that a text names, which ends the job; None for none.
    """

    name: str
    reports: Reports
    say: Callable[[str], None]
    check: str = "its machines start workers"
    ask: Callable[[], Sequence[Trace]] = tuple
    explain: Callable[[str], BeamTFRecordError | None] = in_text
    _failures: dict[str, Failure] = dataclasses.field(default_factory=dict)
    _engines: list[Failure] = dataclasses.field(default_factory=list)
    _workers: dict[str, int] = dataclasses.field(default_factory=dict)
    # Since when no worker has reported; infinite once that has been said.
    _heard: float = dataclasses.field(default_factory=lambda: time.monotonic())

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Asks the store and the engine meanwhile."""
        ended = threading.Event()
        far = is_remote(self.reports.folder)

        def work() -> None:
            while not ended.wait(_FAR_SECONDS if far else _NEAR_SECONDS):
                self.read()
                with contextlib.suppress(Exception):
                    self._engines = [
                        (seconds, error)
                        for seconds, trace in self.ask()
                        if (error := self.explain(trace)) is not None
                    ]

        threading.Thread(target=work, name="job watch", daemon=True).start()
        try:
            yield
        finally:
            ended.set()

    def read(self) -> None:
        """Reads what workers have reported since the last time."""
        with contextlib.suppress(OSError, StorageError):
            for entry in self.reports.entries():
                name = entry.path
                if name.endswith(WORKER):
                    if self._workers.get(name) != entry.modified_ns:
                        self._workers[name] = entry.modified_ns
                        self._heard = time.monotonic()
                elif name.endswith(FAILURE) and name not in self._failures:
                    error = in_text(self.reports.read(name))
                    if error is not None:
                        self._failures[name] = entry.modified_ns / 1e9, error

    def latest(self) -> BeamTFRecordError | None:
        """Returns the last of our errors that workers have reported, if any."""
        self.read()
        failures = sorted(self._failures.values(), key=lambda each: each[0])
        return failures[-1][1] if failures else None

    def look(self) -> None:
        """Says a line where workers are silent.

        Raises:
          BeamTFRecordError: a worker has met what no retry can help.
        """
        # The engine's account of the same failures would count them twice.
        failures = [*self._failures.values()] or self._engines
        if (error := lasting(failures)) is not None:
            raise error
        silent = time.monotonic() - self._heard
        if silent >= _SILENT_SECONDS:
            self._heard = math.inf
            self.say(
                f"no worker of {self.name} has reported for {silent:.0f} s; check that "
                f"{self.check}"
            )


def lasting(failures: Sequence[Failure]) -> BeamTFRecordError | None:
    """Returns the last error that retries cannot fix, if any.

    A fault of storage may pass, so it counts only if it recurs for a while. An engine
    may retry a hundred times, and would report it only after that.

    Args:
      failures: (seconds, error), in any order.
    """
    ordered = sorted(failures, key=lambda each: each[0], reverse=True)
    for _, error in ordered:
        if not isinstance(error, StorageError):
            return error
    recent: list[float] = []
    for at, _ in ordered:
        if recent and recent[-1] - at > _APART_SECONDS:
            # An earlier fault, which has passed.
            break
        recent.append(at)
    if len(recent) > _FEW and recent[0] - recent[-1] >= _LASTING_SECONDS:
        return ordered[0][1]
    return None
