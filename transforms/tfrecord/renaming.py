"""Rename all files of one write to their final names, or none of them.

Finished files are renamed one by one while a lock is held. A journal names them, so
that after a failure, or a kill, the former files can be put back.

The work folder `.<name of the files>.beam-tfrecord/` is beside the files; see
`transforms.publishing.own_folder`. Its lock is held while names change.

    <run>/attempts   files that are being written, under names of their attempt
    <run>/runs       spilled runs
    <run>/shards     finished files
    <run>/old        former files of the final names, until all are renamed
    <run>/journal    what is being renamed; where it exists, the renaming is under way
"""

import contextlib
import dataclasses
import errno
import hashlib
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence

from transforms import files
from transforms.core.tfrecord import FileFacts, verify_file
from transforms.core.tfrecord.compression import Compression
from transforms.errors import (
    CommitError,
    ConservationError,
    SourceError,
    StorageError,
    TargetError,
    TFRecordError,
)
from transforms.publishing.own_folder import OwnFolder
from transforms.storage.paths import WORK_SUFFIX

_RUN = re.compile(r"[0-9a-f]{16}")
_PARTS = frozenset(("attempts", "runs", "shards", "old", "journal"))


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """The files of one write: their names, and the work folder beside them."""

    prefix: str
    template: str
    suffix: str
    compression: Compression
    directory: str
    run: str

    def name(self, index: int, count: int) -> str:
        """Returns the name of shard `index` of `count`."""
        return os.path.basename(self.prefix) + self._ending(index, count)

    def path(self, index: int, count: int) -> str:
        """Returns the path of shard `index` of `count`."""
        return os.path.join(self.directory, self.name(index, count))

    def shown(self, index: int, count: int) -> str:
        """Returns the path as the user would write it."""
        return self.prefix + self._ending(index, count)

    def _ending(self, index: int, count: int) -> str:
        return fill_template(self.template, index, count) + self.suffix

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
    def work(self) -> str:
        """The part of the work folder that belongs to this run."""
        return os.path.join(self.hidden, self.run)

    def part(self, name: str) -> str:
        """Returns a folder of this run, made if it is missing.

        Raises:
          TargetError: the work folder is not ours.
        """
        path = os.path.join(self.work, name)
        if not os.path.isdir(path):
            _own(self.hidden).make()
            for folder in (self.work, path):
                with contextlib.suppress(FileExistsError):
                    os.mkdir(folder)
        return path

    def remove_work(self) -> None:
        """Removes what this run has made in the work folder."""
        _own(self.hidden).remove_run(self.run)


def _own(hidden: str) -> OwnFolder:
    return OwnFolder(hidden, _RUN, _PARTS)


def fill_template(template: str, index: int, count: int) -> str:
    """Returns the template with numbers in it, by the rules of Beam's sinks.

    The first run of S and all runs equal to it become the index, padded to its
    length; the first run of N likewise the count.
    """
    for letter, number in (("S", index), ("N", count)):
        if found := re.search(f"{letter}+", template):
            template = template.replace(found[0], f"{number:0{len(found[0])}d}")
    return template


@dataclasses.dataclass(frozen=True, slots=True)
class WritePlan:
    """What is known once all records have been seen."""

    shards: int
    records: int
    payload_bytes: int


@dataclasses.dataclass(frozen=True, slots=True)
class WrittenShard:
    """A finished file in the work folder."""

    index: int
    facts: FileFacts


# Beam reads these annotations to check the pipeline's types; do not quote them.
def publish(
    plan: WritePlan, written: Iterable[WrittenShard], target: Target
) -> list[str]:
    """Gives every file its final name, or none; returns the names.

    A second attempt after success finds its own files and changes nothing.
    """
    shards = sorted(written, key=lambda shard: shard.index)
    paths = {shard.index: target.path(shard.index, plan.shards) for shard in shards}
    with abandoning(target):
        _check_sums(shards, plan)
        if os.path.isdir(target.work):
            with locked(target):
                clear_other_runs(target)
                _rename_all(paths, target)
        elif not all(_holds(paths[shard.index], shard) for shard in shards):
            raise CommitError(
                f"The work folder of this run must be there until its end, but "
                f"{target.work!r} was removed, perhaps by a later run with the same "
                f"prefix. Run again."
            )
        abandon(target)
    return [target.shown(shard.index, plan.shards) for shard in shards]


def _check_sums(shards: Sequence[WrittenShard], plan: WritePlan) -> None:
    records = sum(shard.facts.records for shard in shards)
    payload_bytes = sum(shard.facts.payload_bytes for shard in shards)
    indexes = [shard.index for shard in shards]
    if (
        indexes != list(range(plan.shards))
        or records != plan.records
        or payload_bytes != plan.payload_bytes
    ):
        raise ConservationError(
            f"Nothing may be lost or doubled, but {plan.records:,} records of "
            f"{plan.payload_bytes:,} bytes came in for {plan.shards:,} files, and "
            f"{records:,} of {payload_bytes:,} were written to {len(shards):,}. "
            f"Nothing was published."
        )


def _holds(path: str, shard: WrittenShard) -> bool:
    try:
        return verify_file(path, allow_empty=True) == shard.facts
    except (TFRecordError, SourceError):
        return False


def _rename_all(paths: dict[int, str], target: Target) -> None:
    """Renames every finished file, after keeping aside what is there."""
    staged = {index: os.path.join(target.work, "shards", str(index)) for index in paths}
    old = target.part("old")
    journal = [
        (str(index), os.path.basename(path), _mark(os.lstat(staged[index])))
        for index, path in paths.items()
    ]
    with files.create(
        os.path.join(target.work, "journal"), attempts=target.part("attempts")
    ) as file:
        file.write(json.dumps(journal).encode())
    # The journal must survive a power loss that keeps some of the renames.
    files.sync_directory(target.work)
    try:
        for index, path in paths.items():
            _keep_aside(path, os.path.join(old, str(index)))
        for index, path in paths.items():
            files.rename(staged[index], path)
        # Before the journal goes: without it nobody could finish lost renames.
        files.sync_directory(target.directory)
        os.unlink(os.path.join(target.work, "journal"))
    except BaseException:
        _roll_back(target.work, target.directory)
        raise


def _keep_aside(path: str, aside: str) -> None:
    if not os.path.lexists(path):
        return
    try:
        # A second name instead of a rename: readers never find the first one missing.
        os.link(path, aside, follow_symlinks=False)
    except OSError:
        # The file system has no hard links, or forbids them for files of other users.
        os.rename(path, aside)


def _roll_back(work: str, directory: str) -> None:
    """Undoes the renames that the journal of a run names, as far as they went."""
    for number, name, mark in _journal(work):
        path, aside = os.path.join(directory, name), os.path.join(work, "old", number)
        ours = _is_marked(path, mark)
        if os.path.lexists(aside):
            if ours or not os.path.lexists(path):
                os.rename(aside, path)
        elif ours:
            os.unlink(path)
    files.sync_directory(directory)
    files.remove_file(os.path.join(work, "journal"))


def _journal(work: str) -> list[tuple[str, str, list[int]]]:
    try:
        return json.loads(files.read_bytes(os.path.join(work, "journal")))
    except FileNotFoundError:
        return []


def _mark(status: os.stat_result) -> list[int]:
    """Returns properties that a file keeps when it is renamed."""
    return [status.st_ino, status.st_size, status.st_mtime_ns]


def _is_marked(path: str, mark: list[int]) -> bool:
    try:
        return _mark(os.lstat(path)) == mark
    except FileNotFoundError:
        return False


def clear_other_runs(target: Target) -> None:
    """Removes what runs that were killed left; holds the lock.

    One that was killed while it renamed is undone, unless it had renamed them all.
    """
    _clear_runs(target.hidden, but=target.run)


def _clear_runs(hidden: str, *, but: str = "") -> None:
    directory, own = os.path.dirname(hidden), _own(hidden)
    for run in own.run_names():
        if run == but:
            continue
        work = os.path.join(hidden, run)
        renamed = [
            _is_marked(os.path.join(directory, name), mark)
            for _, name, mark in _journal(work)
        ]
        if not all(renamed):
            _roll_back(work, directory)
        own.remove_run(run)


def check_work_folder(hidden: str) -> None:
    """Raises TargetError where a folder is none that is drawn above."""
    _own(hidden).check()


def holds_runs(hidden: str) -> bool:
    """Whether a folder is one that is drawn above, and holds runs."""
    return bool(_own(hidden).run_names())


def foreign_names(hidden: str) -> list[str]:
    """Returns the names of what is not ours in a work folder."""
    return _own(hidden).foreign_names()


def clear_dead_runs(hidden: str) -> None:
    """Removes a work folder; what was killed while it renamed is undone.

    A run that is alive and has not begun to rename will fail, and say so.

    Raises:
      TargetError: a run is just renaming its files, or the folder is not ours.
    """
    with _own(hidden).held():
        _clear_runs(hidden)


@contextlib.contextmanager
def locked(target: Target) -> Iterator[None]:
    """Holds the work folder alone; removes lock and folder when nothing is left.

    Raises:
      TargetError: another process holds it, or it is not ours.
    """
    with _own(target.hidden).held():
        yield


def remove_empty_folders(target: Target) -> None:
    """Removes what a broken-off bundle made, unless others use it."""
    for name in ("attempts", "runs", ""):
        with contextlib.suppress(OSError):
            os.rmdir(os.path.join(target.work, name))
    _remove_unused(target)


def abandon(target: Target) -> bool:
    """Removes all that this run made; not, and False, while old files are there."""
    if os.path.exists(os.path.join(target.work, "journal")):
        return False
    with contextlib.suppress(OSError):
        target.remove_work()
    _remove_unused(target)
    return True


def _remove_unused(target: Target) -> None:
    with contextlib.suppress(OSError, StorageError):
        _own(target.hidden).remove_unused()


@contextlib.contextmanager
def abandoning(target: Target) -> Iterator[None]:
    """Gives up the run when what is done here fails for good.

    Raises:
      CommitError: in place of an OSError.
    """
    try:
        yield
    except (OSError, StorageError) as error:
        outcome = (
            "None of this run's files stays."
            if abandon(target)
            else f"Undoing its renames failed too: until the next run with the same "
            f"prefix puts them back, old files are in {target.work!r}."
        )
        found = str(error)
        if isinstance(error, OSError):
            found = f"{error.strerror or error} ({error.filename or target.work!r})."
        raise CommitError(
            f"The files {target.prefix!r}... could not be written: {found} {outcome} "
            f"Remove the cause and run again."
        ) from error
    except BaseException:
        abandon(target)
        raise


def check_target(target: Target, numbers: Iterable[tuple[int, int]]) -> None:
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
        _own(target.hidden).check()
    except OSError as error:
        raise TargetError(
            f"It must be possible to write {path!r}; it is not: {error.strerror}. "
            f"Choose another file_path_prefix."
        ) from error
