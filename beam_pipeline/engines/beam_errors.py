"""Errors of a job in our own words, as Beam and engines have them.

JobWatch    while it runs: an error of ours in a failed task ends it, unless it may pass
translated  when it has failed: our own error in what Beam raises
"""

import contextlib
import dataclasses
import math
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping

from beam_pipeline.version import __version__
from transforms import errors
from transforms.errors import BeamTFRecordError, StorageError, WorkerError
from transforms.storage.files import storage
from transforms.work.worker_check import Reports

_REST = r"(?P<message>.*?)(?: \[while running '(?P<stage>[^']*)'\])?$"
_OUR_ERROR = re.compile(r"transforms\.errors\.(?P<type>\w+): " + _REST, re.MULTILINE)
# Of a worker whose interpreter has no such version of this program, or none at all.
_NO_PROGRAM = re.compile(
    r"^(?:ModuleNotFoundError: No module named |AttributeError: Can't get attribute |"
    r"ImportError: cannot import name ).*'(?:transforms|beam_pipeline)\b.*$",
    re.MULTILINE,
)
# All that Flink says where a worker has raised such an error before it took data: Flink
# has waited three minutes for it to take some.
_NO_DATA = "No client connected within timeout"
# What follows the frames of a traceback: an exception of any name, with words or none.
_RAISED = re.compile(
    r"(?:^|: )Traceback \(most recent call last\):\n(?:[ \t].*\n)+"
    r"(?P<type>[A-Za-z_][\w.]*)(?::[ ]|(?=[ ]\[)|$)" + _REST,
    re.MULTILINE,
)
# What Beam raises in this process, which has no traceback in its words.
_OWN_WORDS = re.compile(r"(?P<type>\w+): " + _REST, re.DOTALL)
# Between two questions, to the engine and to the store.
_ASK_SECONDS = 2.0
# Workers that have not reported for this long are told of: four stamps are missing.
_SILENT_SECONDS = 60.0
# Faults of storage are lasting if more than a few recur for this long, ...
_FEW = 3
_LASTING_SECONDS = 60.0
# ... with at most this between: an attempt may itself retry for minutes.
_APART_SECONDS = 120.0


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
    return _without_program(lacking[0].strip()) if lacking else None


def _without_program(words: str) -> WorkerError:
    """Returns the error of a worker that lacks this program, with its words."""
    return WorkerError(
        f"Every worker must have beam-tfrecord {__version__}, as the job's "
        f"submitter; one has another version or none: {words}. "
        f"Install it in the workers' image: pip install 'beam-tfrecord=="
        f"{__version__}', with [s3], [gcs] or [azure] for the output's store; "
        f"nothing was committed."
    )


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
                    error = _without_program(_NO_DATA)
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
