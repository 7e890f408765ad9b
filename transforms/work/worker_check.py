"""What is asked of a worker before it touches data, and the stamp that it leaves.

A worker is a process that an engine has started, on any machine, from any image. All
that it has from the submitter is the job; so the job brings what is asked of it, and
the first bundle of each process checks that: its versions, what it sees, and its way to
the store. What does not fit is raised there, and travels as the error of the task.

Stamps are empty files in the work folder of the run's target:

    <work folder>/<job>/reports-<run>/
      submitter                  the run is on; removed first when it ends
      <host>-<process>.worker    a worker process, renewed every 15 s, busy or not

Submitter and workers may share nothing but the target's store, so this is how the
submitter knows that somebody is at work. No file appears once the run has ended: a
renewal needs a file that is there.

A renewal needs Python's lock for a moment. C code that holds it for longer than half a
minute delays the stamp; that is told, and ends nothing.
"""

import contextlib
import dataclasses
import os
import re
import threading
import time
from collections.abc import Callable, Mapping

from transforms.errors import (
    CommitError,
    StorageError,
    TargetError,
    WorkerError,
    first_few,
)
from transforms.storage import folders, visibility
from transforms.storage.files import storage
from transforms.storage.paths import Access, is_remote
from transforms.storage.protocol import StoredPath
from transforms.storage.retry import OvertakenError, reason_of
from transforms.storage.stores import extra_of
from transforms.storage.visibility import Witness, Worker

RENEWED_SECONDS = 15.0
"""A stamp that is much older is of a process that is dead, cut off, or stopped."""

_UNSAFE = re.compile(r"[^A-Za-z0-9.-]")

PROGRAM = "beam-tfrecord"
"""What the versions call this program."""
# Packages that pip installs; the other versions come with them, or with Python.
_PACKAGES = ("pyarrow", "pillow", "pillow-heif")
_SHOWN = 4
# Variables that say how stores are reached, and as whom.
_VARIABLES = re.compile(
    r"AWS_(ACCESS|CONFIG|DEFAULT_REGION|ENDPOINT|PROFILE|REGION|SECRET|SESSION|SHARED)"
    r"\w*|AZURE_STORAGE_\w+|GOOGLE_APPLICATION_CREDENTIALS|STORAGE_EMULATOR_HOST|"
    r"HADOOP_CONF_DIR|ARROW_LIBHDFS_DIR|CLASSPATH"
)

# (process, folder of the run, ...) of what was checked; a source has no folder.
_checked: set[tuple[object, ...]] = set()
_lock = threading.Lock()


@dataclasses.dataclass(frozen=True, slots=True)
class Reports:
    """The stamps of one run.

    Attributes:
      folder: of them; local, or in an object store.
      attempts: folder of unfinished files; without meaning in an object store.
      access: how its store is reached, wherever this is sent.
    """

    folder: str
    attempts: str
    access: Access = dataclasses.field(default_factory=Access)

    @property
    def _submitter(self) -> StoredPath:
        return storage(os.path.join(self.folder, "submitter"))

    def begin(self) -> None:
        """Makes the folder, and the submitter's stamp.

        Raises:
          OSError, StorageError: it cannot be made.
        """
        if not is_remote(self.folder):
            folders.make(self.folder)
        self._submitter.write_file(b"", attempts=self.attempts, durable=False)

    def end(self) -> None:
        """Removes all stamps of the run; from then on no worker can add any."""
        self._submitter.remove_file()
        storage(self.folder).remove_tree()

    def sign_on(self, worker: Worker) -> bool:
        """Writes the stamp of this process, and renews it until the run ends.

        Returns whether the run goes on; nothing is written where it has ended.

        Raises:
          OSError, StorageError: the store does not answer.
          TargetError: its client is not installed.
        """
        if not self._submitter.look().version:
            return False
        name = f"{_UNSAFE.sub('_', worker.host)}-{worker.process}.worker"
        stamp = storage(os.path.join(self.folder, name))
        stamp.write_file(b"", attempts=self.attempts, durable=False)

        def work() -> None:
            while True:
                time.sleep(RENEWED_SECONDS)
                # It may pass; until it does the submitter sees no newer stamp.
                with contextlib.suppress(OSError, StorageError, OvertakenError):
                    if not (version := stamp.look().version):
                        return
                    stamp.put_if(b"", version, attempts=self.attempts)

        threading.Thread(target=work, name="reports", daemon=True).start()
        return True


@dataclasses.dataclass(frozen=True, slots=True)
class WorkerRules:
    """What a job asks of its workers.

    Attributes:
      wanted: name -> version, of this program and of what decides the job's bytes.
      find: returns those of the process that calls it.
      reports: where workers leave stamps; None where nobody reads them.
      elsewhere: whether the workers' machines share no disk with the submitter's.
      witnesses: of paths of the submitter's disk that all workers must see.
      named: whether errors name the worker; the submitter's own process is none.
      variables: names of the variables that tell the submitter how stores are reached.
    """

    wanted: Mapping[str, str]
    find: Callable[[], Mapping[str, str]]
    reports: Reports | None = None
    elsewhere: bool = False
    witnesses: tuple[Witness, ...] = ()
    named: bool = True
    variables: tuple[str, ...] = dataclasses.field(
        default_factory=lambda: tuple(filter(_VARIABLES.fullmatch, os.environ))
    )

    def install(self, folder: str) -> str:
        """Returns the end of a message: what to install in the workers' image.

        Args:
          folder: of the work, which says what extra a worker needs.
        """
        extra = extra_of(folder)
        names = {PROGRAM: f"{PROGRAM}[{extra}]" if extra else PROGRAM}
        names |= {name: name for name in _PACKAGES if name in self.wanted}
        pinned = (f"'{title}=={self.wanted[name]}'" for name, title in names.items())
        return f"workers' image: pip install {' '.join(pinned)}; nothing was committed."


def check_worker(rules: WorkerRules | None, *, folder: str = "") -> None:
    """Checks this process once a run, and lets it leave a stamp from then on.

    Args:
      rules: of the job; None where it starts its workers on its machine.
      folder: of the run's work, where nobody reads stamps.

    Raises:
      WorkerError: the machine or the image does not fit the job.
      StorageError: the store does not answer, which may pass.
      CommitError: the run has ended.
    """
    if rules is None:
        return
    reports = rules.reports
    run_folder = folder if reports is None else reports.folder
    run = os.getpid(), run_folder, *rules.wanted.items(), *rules.witnesses
    with _lock:
        if run in _checked:
            return
        worker = Worker.this()
        if rules.named:
            visibility.become(elsewhere=rules.elsewhere)
        _check_versions(rules, run_folder, worker)
        for witness in rules.witnesses:
            witness.check()
        if reports is not None:
            _sign_on(rules, reports, worker)
        _checked.add(run)


def _check_versions(rules: WorkerRules, folder: str, worker: Worker) -> None:
    """Raises WorkerError where a version of this process differs from the job's."""
    wanted, found = rules.wanted, rules.find()
    names = sorted({name for name, _ in wanted.items() ^ found.items()})
    if not names:
        return
    differing = [
        f"{name} {found.get(name, 'none')} and not {wanted.get(name, 'none')}"
        for name in names
    ]
    raise WorkerError(
        f"Every worker must have the versions that the job was submitted with, for "
        f"they decide bytes; {worker.in_words()} has {first_few(differing, _SHOWN)}. "
        f"Install the same in the {rules.install(folder)}"
    )


def _sign_on(rules: WorkerRules, reports: Reports, worker: Worker) -> None:
    """Leaves a stamp by the store's own client; raises where that is refused."""
    try:
        if reports.sign_on(worker):
            return
    except TargetError as error:
        raise WorkerError(
            f"Every worker must write with the store's own client; "
            f"{worker.in_words()} does not have it. Install it in the "
            f"{rules.install(reports.folder)}"
        ) from error
    except (OSError, StorageError) as error:
        raise unreachable(rules, reports.folder, error) from error
    raise CommitError("The run has ended; nothing was committed. Run again.")


def unreachable(
    rules: WorkerRules, folder: str, error: OSError | StorageError
) -> WorkerError | StorageError:
    """Returns the error of a worker that does not reach the store.

    Without rights, or a variable that the submitter has, it never will; otherwise it
    may pass.

    Args:
      rules: of the job.
      folder: in the store, that it has asked for.
      error: what it has found.
    """
    missing = [name for name in rules.variables if not os.environ.get(name)]
    lacks = is_remote(folder) and ", ".join(missing)
    kind = WorkerError if lacks or isinstance(error, PermissionError) else StorageError
    return kind(
        f"Every worker must reach the output's store; {Worker.this().in_words()} does "
        f"not reach {folder!r}: {reason_of(error)}. Look after its network; give it "
        f"{f'{lacks}, as the submitter has it,' if lacks else 'credentials'} in the "
        f"environment of the pool, of the image or of --environment_config, or by the "
        f"role of its machine; and run again."
    )
