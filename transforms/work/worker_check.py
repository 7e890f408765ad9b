"""What is asked of a worker before it touches data, and what it reports from then on.

A worker is a process that an engine has started, on any machine, from any image. All
that it has from the submitter is the job; so the job brings what is asked of it, and
the first bundle of each process checks that: its versions, and its way to the store.
What does not fit is raised there, and travels as the error of the task.

Reports are files in the work folder of the run's target:

    <work folder>/<job>/reports/<run>/
      submitter          the run is on; removed first when it ends
      <worker>.worker    a worker process, renewed every 15 s, busy or not
      <number>-<worker>.failure    what Beam has logged of a failed task

Submitter and workers may share nothing but the target's store, so this is how a worker
tells what an engine reports late or never. No file appears once the run has ended:
a renewal only touches a file that is there.

A renewal needs Python's lock for a moment. C code that holds it for longer than half a
minute delays the report; that is told, and ends nothing before the job's timeout.
"""

import dataclasses
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from transforms.errors import (
    BeamTFRecordError,
    CommitError,
    StorageError,
    WorkerError,
    first_few,
)
from transforms.storage import folders, visibility
from transforms.storage.entries import FileEntry, OvertakenError
from transforms.storage.files import storage
from transforms.storage.paths import Access, is_remote
from transforms.storage.retry import reason_of
from transforms.storage.stores import client_of, extra_of
from transforms.storage.visibility import Witness, Worker

WORKER = ".worker"
FAILURE = ".failure"
RENEWED_SECONDS = 15.0
"""A report that is much older is of a process that is dead, cut off, or stopped."""

_SUBMITTER = "submitter"
# The end of a traceback is kept, because it names the error.
_TEXT_BYTES = 1 << 16
# A store that does not answer must not keep the failure from the engine.
_LEAVE_SECONDS = 5.0
# How a traceback names an error of ours.
_OURS = "transforms.errors."
# A worker may just be leaving a report when the folder is removed.
_REMOVALS = 3
_UNSAFE = re.compile(r"[^A-Za-z0-9.-]")

_log = logging.getLogger(__name__)

PROGRAM = "beam-tfrecord"
"""What the versions call this program."""
# Beam logs there what a failed task has raised.
_BEAM_LOGGER = "apache_beam"
# Packages that pip installs; the other versions come with them, or with Python.
_PACKAGES = (PROGRAM, "pyarrow", "pillow", "pillow-heif")
_SHOWN = 4
# Variables that say how stores are reached, and as whom.
_VARIABLES = (
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"),
    *("AWS_PROFILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"),
    *("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"),
    *("GOOGLE_APPLICATION_CREDENTIALS", "STORAGE_EMULATOR_HOST"),
    *("AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_KEY"),
    *("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_SAS_TOKEN"),
    *("HADOOP_CONF_DIR", "ARROW_LIBHDFS_DIR", "CLASSPATH"),
)

# (process, folder of the run, ...) of what was checked; a source has no folder.
_checked: set[tuple[object, ...]] = set()
_lock = threading.Lock()


@dataclasses.dataclass(frozen=True, slots=True)
class Reports:
    """The reports of one run.

    Attributes:
      folder: of them; local, or in an object store.
      attempts: folder of unfinished files; without meaning in an object store.
      access: how its store is reached, wherever the reports are sent.
    """

    folder: str
    attempts: str
    access: Access = dataclasses.field(default_factory=Access)

    @property
    def submitter(self) -> str:
        """The file of the process that has submitted the job."""
        return os.path.join(self.folder, _SUBMITTER)

    def begin(self) -> None:
        """Makes the folder, and the submitter's own report.

        Raises:
          OSError, StorageError: it cannot be made.
        """
        if not is_remote(self.folder):
            folders.make(self.folder)
        self._write(self.submitter, b"")

    def end(self) -> None:
        """Removes all reports of the run; from then on no worker can add any."""
        storage(self.submitter).remove_file()
        for left in range(_REMOVALS)[::-1]:
            try:
                storage(self.folder).remove_tree()
            except OSError:
                if not left:
                    raise
            else:
                break
        parent = os.path.dirname(self.folder)
        if not is_remote(parent):
            folders.remove_empty(parent)

    def is_on(self) -> bool:
        """Whether the run goes on, as far as the store says.

        Raises:
          OSError, StorageError: the store does not answer.
          TargetError: its client is not installed.
        """
        return storage(self.submitter).look().version != ""

    def sign_on(self, worker: Worker) -> None:
        """Writes the report of a worker, and renews it until the run ends.

        Args:
          worker: this process.

        Raises:
          OSError, StorageError: it cannot be written.
        """
        path = os.path.join(self.folder, f"{_word(worker)}{WORKER}")
        self._write(path, b"")

        def work() -> None:
            is_there = True
            while is_there:
                time.sleep(RENEWED_SECONDS)
                try:
                    is_there = self.renew(path)
                except (OSError, StorageError) as error:
                    # It may pass; until it does the submitter sees no report.
                    _log.debug("a report was not renewed: %s", error)

        threading.Thread(target=work, name="reports", daemon=True).start()

    def renew(self, path: str) -> bool:
        """Makes a report the newest; returns False where it is there no more.

        Raises:
          OSError, StorageError: the store does not answer.
        """
        try:
            if not is_remote(path):
                os.utime(path)
                return True
            version = storage(path).look().version
            if version:
                storage(path).put_if(b"", version)
        except (FileNotFoundError, OvertakenError):
            return False
        return version != ""

    def leave_failure(self, worker: Worker, text: str) -> None:
        """Leaves the text of a failure; gives up after a few seconds."""

        def work() -> None:
            try:
                if self.is_on():
                    name = f"{time.time_ns():020d}-{_word(worker)}{FAILURE}"
                    data = text.encode("utf-8", "replace")[-_TEXT_BYTES:]
                    self._write(os.path.join(self.folder, name), data)
            except (OSError, BeamTFRecordError) as error:
                # Only the engine's own message remains.
                _log.debug("a failure was not reported: %s", error)

        thread = threading.Thread(target=work, name="failure", daemon=True)
        thread.start()
        thread.join(_LEAVE_SECONDS)

    def entries(self) -> list[FileEntry]:
        """Returns all reports that are there, by name.

        Raises:
          OSError, StorageError: the store does not answer.
        """
        try:
            entries = storage(self.folder).entries_in(self.folder)
        except FileNotFoundError:
            return []
        return sorted(entries, key=lambda entry: entry.path)

    def read(self, name: str) -> str:
        """Returns the text of a report.

        Raises:
          OSError, StorageError: it cannot be read.
        """
        data = storage(os.path.join(self.folder, name)).read_bytes()
        return data.decode("utf-8", "replace")

    def _write(self, path: str, data: bytes) -> None:
        storage(path).write_file(data, attempts=self.attempts, durable=False)


class FailureReports(logging.Handler):
    """Takes what Beam's worker logs of failed tasks, and leaves it as reports.

    Attributes:
      reports: where it leaves it.
    """

    def __init__(self, reports: Reports, worker: Worker) -> None:
        super().__init__(logging.ERROR)
        self.reports = reports
        self._worker = worker

    def emit(self, record: logging.LogRecord) -> None:
        """Leaves a failure that names an error of ours."""
        text = record.getMessage()
        if _OURS in text:
            self.reports.leave_failure(self._worker, text)


def _word(worker: Worker) -> str:
    """Returns what no other worker process has in its file names."""
    return f"{_UNSAFE.sub('_', worker.host)}-{worker.process}"


@dataclasses.dataclass(frozen=True, slots=True)
class VersionRules:
    """The versions that all workers of a job must have.

    Attributes:
      wanted: name -> version, of this program and of what decides bytes.
      find: returns those of the process that calls it.
      free: names among them that decide nothing in this job.
    """

    wanted: Mapping[str, str]
    find: Callable[[], Mapping[str, str]]
    free: frozenset[str] = frozenset()

    def check(self, folder: str) -> None:
        """Raises WorkerError where a version of this process differs from the job's.

        Args:
          folder: of the work, which says what extra a worker needs.
        """
        expected, actual = self._deciding(self.wanted), self._deciding(self.find())
        names = [
            name
            for name in sorted(expected.keys() | actual.keys())
            if expected.get(name) != actual.get(name)
        ]
        if not names:
            return
        differing = [
            f"{name} {actual.get(name, 'none')} and not {expected.get(name, 'none')}"
            for name in names
        ]
        raise WorkerError(
            f"Every worker must have the versions that the job was submitted with, for "
            f"they decide bytes; {Worker.this().in_words()} has "
            f"{first_few(differing, _SHOWN)}. Install the same in the workers' image: "
            f"{self.install(names, folder)}; nothing was committed."
        )

    def install(self, names: Sequence[str], folder: str) -> str:
        """Returns the command that installs this program, and others of these names."""
        extra = extra_of(folder)
        program = f"{PROGRAM}[{extra}]" if extra else PROGRAM
        packages = [f"{program}=={self.wanted[PROGRAM]}"]
        packages += [
            f"{name}=={self.wanted[name]}"
            for name in names
            if name in _PACKAGES[1:] and name in self.wanted
        ]
        return f"pip install {' '.join(map(repr, packages))}"

    def _deciding(self, versions: Mapping[str, str]) -> dict[str, str]:
        return {name: versions[name] for name in versions.keys() - self.free}


@dataclasses.dataclass(frozen=True, slots=True)
class WorkerRules:
    """What a job asks of its workers.

    Attributes:
      versions: that they must have.
      reports: where workers report; None where nobody reads that.
      elsewhere: whether the workers' machines share no disk with the submitter's.
      witnesses: of paths of the submitter's disk that all workers must see.
      variables: names of the variables that tell the submitter how stores are reached.
      named: whether errors name the worker; the submitter's own process is none.
    """

    versions: VersionRules
    reports: Reports | None = None
    elsewhere: bool = False
    witnesses: tuple[Witness, ...] = ()
    variables: tuple[str, ...] = ()
    named: bool = True


def store_variables() -> tuple[str, ...]:
    """Returns the names of the variables here that say how stores are reached."""
    return tuple(name for name in _VARIABLES if os.environ.get(name))


def check_worker(rules: WorkerRules | None, *, folder: str = "") -> None:
    """Checks this process once a run, and lets it report from then on.

    Args:
      rules: of the job; None where it starts its workers on its machine.
      folder: of the run's work, where nobody reads reports.

    Raises:
      WorkerError: the machine or the image does not fit the job.
      StorageError: the store does not answer, which may pass.
      CommitError: the run has ended.
    """
    if rules is None:
        return
    reports = rules.reports
    run_folder = folder if reports is None else reports.folder
    run = os.getpid(), run_folder, rules.versions.free, rules.witnesses
    if run in _checked:
        return
    with _lock:
        if run not in _checked:
            worker = Worker.this()
            if rules.named:
                visibility.become(elsewhere=rules.elsewhere)
            if reports is not None:
                _report_failures(reports, worker)
            rules.versions.check(run_folder)
            if reports is not None:
                _check_store(rules, reports, worker)
            _check_paths(rules.witnesses, worker)
            if reports is not None:
                reports.sign_on(worker)
            _checked.add(run)


def _report_failures(reports: Reports, worker: Worker) -> None:
    """Sees to it that the failures of this process are reported."""
    logger = logging.getLogger(_BEAM_LOGGER)
    for handler in logger.handlers:
        if isinstance(handler, FailureReports) and handler.reports == reports:
            return
    logger.addHandler(FailureReports(reports, worker))


def _check_paths(witnesses: Sequence[Witness], worker: Worker) -> None:
    """Raises WorkerError for a path that is not there, whatever the job says of it."""
    for witness in witnesses:
        if not witness.is_seen():
            other = os.path.exists(witness.path)
            lacks = f"{witness.file!r} of {witness.size:,} bytes"
            why = f": what is there has no {lacks}" if other else ""
            raise WorkerError(
                f"Every worker must see what the job reads; {witness.path!r} is not "
                f"visible to {worker.in_words()}{why}. Put it into an object store, "
                f"and let workers be started where they run, by Beam's "
                f"--environment_type; or put it, and TMPDIR, onto a disk that all "
                f"machines see under this very path, and say --shared-output. Nothing "
                f"was committed."
            )


def _check_store(rules: WorkerRules, reports: Reports, worker: Worker) -> None:
    """Raises unless the work folder answers, by the store's own client."""
    folder = reports.folder
    try:
        if is_remote(folder) and client_of(folder) is None:
            raise WorkerError(
                f"Every worker must write with the store's own client; "
                f"{worker.in_words()} does not have it. Install it in the workers' "
                f"image: {rules.versions.install((), folder)}; nothing was committed."
            )
        is_on = reports.is_on()
    except (OSError, StorageError) as error:
        raise unreachable(rules, folder, error) from error
    if is_on:
        return
    # They are in `<folder>/.<target>.beam-tfrecord/<job>/reports/<run>`.
    job = os.path.dirname(os.path.dirname(folder))
    if not is_remote(job) and not os.path.isdir(job):
        # A run that has ended may have removed it, too; then nobody reads this.
        raise WorkerError(
            f"{worker.in_words().capitalize()} must see the work folder of the job; "
            f"{job!r} is not visible there. Put the output into an object store, or "
            f"onto a disk that all machines share; nothing was committed."
        )
    raise CommitError("The run has ended; nothing was committed. Run again.")


def unreachable(
    rules: WorkerRules, folder: str, error: OSError | StorageError
) -> WorkerError | StorageError:
    """Returns the error of a worker that does not reach the store.

    Without a variable that the submitter has it never will; otherwise it may pass.

    Args:
      rules: of the job.
      folder: in the store, that it has asked for.
      error: what it has found.
    """
    missing = [name for name in rules.variables if not os.environ.get(name)]
    refused = isinstance(error, OSError) and not isinstance(error, ConnectionError)
    said = (
        f"Every worker must reach the output's store; "
        f"{Worker.this().in_words()} does not reach {folder!r}: "
        f"{reason_of(error)}."
    )
    if missing:
        return WorkerError(
            f"{said} Its environment lacks {', '.join(missing)}, set where the job was "
            f"submitted. Set that in the workers' environment (of the pool, the "
            f"image or --environment_config), and run again."
        )
    if refused and isinstance(error, PermissionError):
        return WorkerError(
            f"{said} Give the workers credentials of their own, in their environment "
            f"or by the role of their machine, and run again."
        )
    return StorageError(f"{said} Look after the workers' network, and run again.")
