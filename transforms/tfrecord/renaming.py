"""The final names of one write: their template, the work folder before, the renaming.

All of them are whole and synced before the first one is renamed, and a lock is held
while names change. A run that dies in between leaves new files under some names, and
the others in its work folder: a second attempt goes on with them, and the next run
replaces them all.

The work folder `.<name of the files>.beam-tfrecord/` is beside the files; see
`transforms.publishing.own_folder`.

    <run>/attempts   files that are being written, under names of their attempt
    <run>/segments   records; see `transforms.work.store`
    <run>/dataset    finished files
"""

import contextlib
import dataclasses
import errno
import hashlib
import operator
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence

from transforms.core.tfrecord.compression import Compression
from transforms.core.tfrecord.reader import TFRecordReader
from transforms.core.tfrecord.writer import FrameFacts
from transforms.errors import (
    CommitError,
    ConservationError,
    SourceError,
    StorageError,
    TargetError,
    TFRecordError,
)
from transforms.publishing.own_folder import OwnFolder
from transforms.storage.files import storage
from transforms.storage.folders import rename
from transforms.storage.paths import WORK_SUFFIX
from transforms.storage.retry import persistently
from transforms.work.store import Store

_RUN = re.compile(r"[0-9a-f]{16}")


@dataclasses.dataclass(frozen=True, slots=True)
class RenamedFiles:
    """The files of one write: their names, and the work folder beside them."""

    prefix: str
    template: str
    suffix: str
    compression: Compression
    directory: str
    run: str

    def path(self, index: int, count: int) -> str:
        """Returns the path of shard `index` of `count`."""
        return os.path.join(self.directory, os.path.basename(self.shown(index, count)))

    def shown(self, index: int, count: int) -> str:
        """Returns the path as the user would write it."""
        return self.prefix + fill_template(self.template, index, count) + self.suffix

    @property
    def hidden(self) -> str:
        """The folder of all unfinished work on files of these names."""
        stem = os.path.basename(self.prefix) + self.template + self.suffix
        name = f".{stem}{WORK_SUFFIX}"
        if len(os.fsencode(name)) > 255:
            digest = hashlib.blake2b(stem.encode(), digest_size=16).hexdigest()
            name = f".{digest}{WORK_SUFFIX}"
        return os.path.join(self.directory, name)

    @property
    def own(self) -> OwnFolder:
        """The same, with what holds, checks and removes it."""
        return own_folder(self.hidden)

    @property
    def store(self) -> Store:
        """The part of the work folder that belongs to this run."""
        return Store(os.path.join(self.hidden, self.run))

    def finished(self, index: int) -> str:
        """Returns where a file is until it gets its name."""
        return os.path.join(self.store.dataset, str(index))

    def make_work(self) -> Store:
        """Returns the store, whose folders are made if they are missing.

        Raises:
          TargetError: the work folder is not ours.
        """
        if not os.path.isdir(self.store.dataset):
            # Another run may just have removed the folder because it was empty.
            persistently(self._make, also={errno.ENOENT})
        return self.store

    def _make(self) -> None:
        store = self.store
        self.own.make()
        for folder in (store.folder, store.attempts, store.segments, store.dataset):
            with contextlib.suppress(FileExistsError):
                os.mkdir(folder)


def own_folder(hidden: str) -> OwnFolder:
    """Returns the hidden folder of one write, until its files are renamed."""
    return OwnFolder(hidden, _RUN)


def fill_template(template: str, index: int, count: int) -> str:
    """Fills the numbers into a shard name template, by the rules of Beam's sinks.

    The first run of S and all runs equal to it become the index, padded to its
    length; the first run of N likewise the count.
    """
    for letter, number in (("S", index), ("N", count)):
        if match := re.search(f"{letter}+", template):
            template = template.replace(match[0], f"{number:0{len(match[0])}d}")
    return template


@dataclasses.dataclass(frozen=True, slots=True)
class WritePlan:
    """What must be known before files are renamed: the sums of all records.

    Attributes:
      shards: how many files.
      parts: of each file, of which one at a time is loaded.
      records, payload_bytes: of all files.
    """

    shards: int
    parts: int
    records: int
    payload_bytes: int


WrittenShard = tuple[int, FrameFacts]
"""The number and the facts of a finished file in the work folder."""


# Beam reads these annotations to check the pipeline's types; do not quote them.
def publish(
    plan: WritePlan, written: Iterable[WrittenShard], target: RenamedFiles
) -> list[str]:
    """Gives every file its final name; returns the names.

    A second attempt finds files that have their names already, and leaves them.

    Raises:
      CommitError: files could not be renamed, or a later run has removed them.
    """
    shards = sorted(written, key=operator.itemgetter(0))
    with contextlib.ExitStack() as lock:
        with abandoning(target):
            _check_sums(shards, plan)
            if os.path.isdir(target.store.folder):
                lock.enter_context(target.own.held())
                target.own.remove_runs(but=target.run)
            finished = _finished(shards, plan, target)
        try:
            for path, name in finished:
                rename(path, name)
            if finished:
                storage(target.directory).sync_directory()
        except (OSError, StorageError) as error:
            raise _unwritten(
                target,
                error,
                f"Some of them may have their names; the others are in "
                f"{target.store.folder!r}, and the next run replaces all of them.",
            ) from error
        abandon(target)
    return [target.shown(index, plan.shards) for index, _ in shards]


def _check_sums(shards: Sequence[WrittenShard], plan: WritePlan) -> None:
    """Raises ConservationError where records written are not those that came in."""
    records = sum(facts.records for _, facts in shards)
    payload_bytes = sum(facts.payload_bytes for _, facts in shards)
    written = records, payload_bytes, [index for index, _ in shards]
    if written != (plan.records, plan.payload_bytes, [*range(plan.shards)]):
        raise ConservationError(
            f"Nothing may be lost or doubled, but {plan.records:,} records of "
            f"{plan.payload_bytes:,} bytes came in for {plan.shards:,} files, and "
            f"{records:,} of {payload_bytes:,} were written to {len(shards):,}. "
            f"Nothing was published."
        )


def _finished(
    shards: Sequence[WrittenShard], plan: WritePlan, target: RenamedFiles
) -> list[tuple[str, str]]:
    """Returns path and final path of the files that do not have their names yet."""
    renames = []
    for index, facts in shards:
        path, name = target.finished(index), target.path(index, plan.shards)
        if os.path.exists(path):
            renames.append((path, name))
        elif not _is_published(name, facts):
            raise CommitError(
                f"The work folder of this run must be there until its end, but "
                f"{path!r} was removed, perhaps by a later run with the same prefix. "
                f"Run again."
            )
    return renames


def _is_published(path: str, facts: FrameFacts) -> bool:
    """Whether a final name has the file already, with each checksum verified."""
    try:
        reader = TFRecordReader(path, allow_empty=True)
        return reader.verify() == facts
    except (TFRecordError, SourceError):
        return False


def abandon(target: RenamedFiles) -> None:
    """Removes all that this run has in the work folder, and that if it is empty."""
    with contextlib.suppress(OSError, StorageError):
        target.own.remove_run(target.run)
        target.own.remove_unused()


@contextlib.contextmanager
def abandoning(target: RenamedFiles) -> Iterator[None]:
    """Gives up the run when what is done here fails for good.

    Raises:
      CommitError: in place of an OSError.
    """
    try:
        yield
    except BaseException as error:
        abandon(target)
        if isinstance(error, OSError | StorageError):
            outcome = "None of this run's files stays."
            raise _unwritten(target, error, outcome) from error
        raise


def _unwritten(
    target: RenamedFiles, error: OSError | StorageError, outcome: str
) -> CommitError:
    """Returns the error of files that could not be renamed; `outcome`: what stays."""
    detail = str(error)
    if isinstance(error, OSError):
        detail = (
            f"{error.strerror or error} ({error.filename or target.store.folder!r})."
        )
    return CommitError(
        f"The files {target.prefix!r}... could not be written: {detail} {outcome} "
        f"Remove the cause and run again."
    )


def check_target(target: RenamedFiles, numbers: Iterable[tuple[int, int]]) -> None:
    """Makes the folder of the files.

    Raises:
      TargetError: it cannot be written to, one of the names cannot be replaced, or
        the work folder is not ours.
    """
    path = target.directory
    try:
        os.makedirs(path, exist_ok=True)
        if not os.access(path, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        for index, count in numbers:
            path = target.path(index, count)
            with contextlib.suppress(FileNotFoundError):
                if stat.S_ISDIR(os.lstat(path).st_mode):
                    raise IsADirectoryError(errno.EISDIR, "it is a folder", path)
        target.own.check()
    except OSError as error:
        raise TargetError(
            f"It must be possible to write {path!r}; it is not: {error.strerror}. "
            f"Choose another file_path_prefix."
        ) from error
