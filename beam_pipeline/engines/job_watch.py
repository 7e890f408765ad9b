"""Watch a job on an engine: what its workers report, and what the engine says of it.

A thread asks the store and the engine, a few seconds apart, so that neither of them
delays the program when it does not answer. What it has found is looked at ten times a
second.
"""

import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from beam_pipeline.engines.beam_errors import INSTALL, in_text
from beam_pipeline.engines.engine_words import EngineWords
from transforms.errors import BeamTFRecordError, StorageError
from transforms.storage.paths import is_remote
from transforms.work.reports import FAILURE, RENEWED_SECONDS, WORKER, Reports

# Between two questions, to a disk and to an object store.
_NEAR_SECONDS = 0.5
_FAR_SECONDS = 3.0
# Workers that have not reported for this long are told of: two reports are missing.
_SILENT_SECONDS = 30.0
# And again after this long.
_AGAIN_SECONDS = 60.0
# How long an engine may keep a job waiting before that is told.
_WAITING_SECONDS = 15.0
# A fault of storage is lasting if it recurs for this long, more than a few times, ...
_LASTING_SECONDS = 60.0
_FEW = 3
# ... with at most this between: an attempt may itself retry for minutes.
_APART_SECONDS = 120.0

Failure = tuple[float, BeamTFRecordError]


def _nothing() -> EngineWords:
    return EngineWords()


def _unexplained(_error: str) -> None:
    """Nothing is known of an engine's error."""


@dataclasses.dataclass
class JobWatch:
    """Watches a job while it runs.

    Attributes:
      name: of the engine.
      reports: of the run.
      say: takes what a person should know.
      ask: returns what the engine says of the job; any error means that it does not.
      explain: makes an error that ends the job of an engine's latest one; None where
        retries may help.
      timeout: seconds without a report of a worker after which the job is ended; None
        for never.
      starts: what to look after where workers are silent, as words of a message.
    """

    name: str
    reports: Reports
    say: Callable[[str], None]
    ask: Callable[[], EngineWords] = _nothing
    explain: Callable[[str], BeamTFRecordError | None] = _unexplained
    timeout: float | None = None
    starts: str = "the workers' machines"
    _failures: dict[str, Failure] = dataclasses.field(default_factory=dict)
    _workers: dict[str, int] = dataclasses.field(default_factory=dict)
    _words: EngineWords = dataclasses.field(default_factory=EngineWords)
    # Since when no worker has reported, and since when the job waits.
    _heard: float = dataclasses.field(default_factory=lambda: time.monotonic())
    _waits_since: float | None = None
    _told: float = 0.0
    _told_waits: str = ""
    _told_page: bool = False

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Asks the store and the engine meanwhile."""
        ended = threading.Event()
        far = is_remote(self.reports.folder)
        pause = _FAR_SECONDS if far else _NEAR_SECONDS

        def work() -> None:
            renewed = time.monotonic()
            while not ended.wait(pause):
                if time.monotonic() - renewed >= RENEWED_SECONDS:
                    renewed = time.monotonic()
                    with contextlib.suppress(OSError, StorageError):
                        self.reports.renew(self.reports.submitter)
                self.read()
                with contextlib.suppress(Exception):
                    self._words = self.ask()

        thread = threading.Thread(target=work, name="job watch", daemon=True)
        thread.start()
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
        found = sorted(self._failures.values(), key=lambda each: each[0])
        return found[-1][1] if found else None

    def look(self) -> None:
        """Says what a person should know.

        Raises:
          BeamTFRecordError: a worker, or the engine, has met what no retry can help; or
            no worker has reported for the timeout.
        """
        # The engine's account of the same failures would count them twice.
        failures = [*self._failures.values()] or [*self._words.failures]
        if (error := lasting(failures)) is not None:
            raise error
        if (explained := self.explain(self._words.error)) is not None:
            raise explained
        if self._words.page and not self._told_page:
            self._told_page = True
            self.say(f"{self.name} runs the job: {self._words.page}")
        now = time.monotonic()
        if waits := self._words.waits:
            self._heard = now
            self._waits_since = self._waits_since or now
            long = now - self._waits_since >= _WAITING_SECONDS
            if long and waits != self._told_waits:
                self._told_waits = waits
                self.say(f"{self.name}: {waits}")
            return
        self._waits_since = None
        silent = now - self._heard
        if silent < _SILENT_SECONDS:
            if self._told:
                self._told = 0.0
                self.say(f"{self.name}: workers report again")
            return
        said = self._words.error
        latest = f"; its latest error: {said.rstrip('.')}" if said else ""
        # An engine may wait for minutes for a worker that could not load the program.
        need = "" if self._workers else f"Workers need the program: {INSTALL}."
        if self.timeout is not None and silent >= self.timeout:
            raise BeamTFRecordError(
                f"Workers must report while {self.name} runs tasks of the job; none "
                f"has for {silent:.0f} s (--worker-timeout){latest}. Look after "
                f"{self.starts}. {need}{need and ' '}Nothing was committed, and the "
                f"next run goes on from here."
            )
        if self.timeout is None and not self._workers:
            # Its machines take minutes to start.
            return
        if not self._told or now - self._told >= _AGAIN_SECONDS:
            self._told = now
            self.say(
                f"{self.name} runs tasks of the job, but no worker has reported for "
                f"{silent:.0f} s{latest}{need and f'. {need}'}"
            )


def lasting(failures: Sequence[Failure]) -> BeamTFRecordError | None:
    """Returns the last error that retries cannot fix, if any.

    A fault of storage may pass, so it counts only if it recurs for a while. An engine
    may retry a hundred times, and would report it only after that.

    Args:
      failures: (seconds, error), in any order.
    """
    found = sorted(failures, key=lambda each: each[0], reverse=True)
    for _, error in found:
        if not isinstance(error, StorageError):
            return error
    return found[0][1] if _goes_on([seconds for seconds, _ in found]) else None


def _goes_on(times: Sequence[float]) -> bool:
    """Whether faults of storage, the last first, recur often and long enough."""
    count, first = 0, times[0] if times else 0.0
    for each in times:
        if first - each > _APART_SECONDS:
            # An earlier fault, which has passed.
            break
        count, first = count + 1, each
    return count > _FEW and times[0] - first >= _LASTING_SECONDS
