"""What the processes of a run report, as files in the work folder of its target.

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

from transforms.errors import BeamTFRecordError, StorageError
from transforms.storage import folders
from transforms.storage.entries import FileEntry, OvertakenError
from transforms.storage.files import storage
from transforms.storage.paths import Access, is_remote, split_remote
from transforms.storage.stores import bucket_of
from transforms.storage.visibility import Worker

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
        """Whether the run goes on, as far as the store says; asked once.

        Raises:
          OSError, StorageError: the store does not answer.
          TargetError: its client is not installed.
        """
        if not is_remote(self.folder):
            return storage(self.submitter).is_file()
        name = split_remote(self.submitter)[1]
        return bucket_of(self.folder).look(name).version != ""

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
