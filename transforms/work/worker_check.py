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
from collections.abc import Callable, Mapping, Sequence

from transforms.errors import (
    CommitError,
    StorageError,
    TargetError,
    WorkerError,
    first_few,
)
from transforms.storage import folders, visibility
from transforms.storage.entries import OvertakenError
from transforms.storage.files import storage
from transforms.storage.paths import Access, is_remote
from transforms.storage.protocol import StoredPath
from transforms.storage.retry import reason_of
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
    r"AWS_(ACCESS_KEY_ID|SECRET_ACCESS_KEY|SESSION_TOKEN|PROFILE|CONFIG_FILE|"
    r"SHARED_CREDENTIALS_FILE|(DEFAULT_)?REGION|ENDPOINT_URL(_S3)?)|"
    r"GOOGLE_APPLICATION_CREDENTIALS|STORAGE_EMULATOR_HOST|"
    r"AZURE_STORAGE_(ACCOUNT(_NAME|_KEY)?|KEY|SAS_TOKEN)|"
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

    def is_on(self) -> bool:
        """Whether the run goes on, as far as the store says.

        Raises:
          OSError, StorageError: the store does not answer.
          TargetError: its client is not installed.
        """
        return self._submitter.look().version != ""

    def sign_on(self, worker: Worker) -> None:
        """Writes the stamp of this process, and renews it until the run ends.

        Raises:
          OSError, StorageError: it cannot be written.
        """
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
        default_factory=lambda: tuple(
            name
            for name, value in os.environ.items()
            if value and _VARIABLES.fullmatch(name)
        )
    )

    def install(self, folder: str, names: Sequence[str] = ()) -> str:
        """Returns the end of a message: what to install in the workers' image.

        Args:
          folder: of the work, which says what extra a worker needs.
          names: of versions that differ.
        """
        extra = extra_of(folder)
        packages = [f"{PROGRAM}[{extra}]" if extra else PROGRAM]
        packages += [
            name for name in names if name in _PACKAGES and name in self.wanted
        ]
        pinned = (
            f"'{each}=={self.wanted[each.partition('[')[0]]}'" for each in packages
        )
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
        _check_paths(rules.witnesses, worker)
        if reports is not None:
            _check_store(rules, reports, worker)
            reports.sign_on(worker)
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
        f"Install the same in the {rules.install(folder, names)}"
    )


def _check_paths(witnesses: Sequence[Witness], worker: Worker) -> None:
    """Raises WorkerError for a path that is not there, whatever the job says of it."""
    for witness in witnesses:
        if not witness.is_seen():
            other = os.path.exists(witness.path)
            lacks = f"{witness.file!r} of {witness.size:,} bytes"
            why = f": what is there has no {lacks}" if other else ""
            raise WorkerError(
                f"Every worker must see what the job reads and writes; "
                f"{witness.path!r} is not visible to {worker.in_words()}{why}. Put it "
                f"into an object store, and let workers be started where they run, by "
                f"Beam's --environment_type; or put it, and TMPDIR, onto a disk that "
                f"all machines see under this very path, and say --shared-output. "
                f"Nothing was committed."
            )


def _check_store(rules: WorkerRules, reports: Reports, worker: Worker) -> None:
    """Raises unless the work folder answers, by the store's own client."""
    try:
        if reports.is_on():
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
    said = (
        f"Every worker must reach the output's store; {Worker.this().in_words()} does "
        f"not reach {folder!r}: {reason_of(error)}."
    )
    if not lacks and not isinstance(error, PermissionError):
        return StorageError(f"{said} Look after the workers' network, and run again.")
    return WorkerError(
        f"{said} Give the workers {lacks or 'credentials of their own'}, "
        f"{'set where the job was submitted, ' if lacks else ''}in the environment of "
        f"the pool, the image or --environment_config, or by the role of their "
        f"machine, and run again."
    )
