"""The command `clean`: list and remove what interrupted runs left behind.

That is next to a target, or in a folder of shards:

.<name>.beam-tfrecord/    unfinished work on the target <name> beside it, or on
                          files of a `WriteTFRecords` (`transforms.tfrecord.renaming`)
<name>/data-<job>-<word>/ in a bucket: files of a dataset that was not published, or
                          was replaced
<name>.rejects.jsonl      the rejects of a run that tolerated fewer, and beside it
                          <name>.rejects.items where the items were kept

In a bucket a run may go on with old files, so both write the note of the data folder
first, on the condition that it is as they have read it. Where `clean` was first, the
run goes to another folder, or fails; where the run was, `clean` leaves the folder.
"""

import dataclasses
import functools
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Sequence

from beam_pipeline.terminal import print_line, print_table, size_text
from transforms.core.files import is_data_folder
from transforms.errors import TargetError, first_few
from transforms.publishing import target
from transforms.publishing.bucket import USES, BucketTarget, new_word
from transforms.publishing.local import LocalTarget
from transforms.publishing.own_folder import OwnFolder
from transforms.publishing.published import SHARED
from transforms.storage.files import storage
from transforms.storage.paths import (
    SECOND_NS,
    WORK_SUFFIX,
    FileEntry,
    absolute,
    is_remote,
    relative,
    work_folder,
)
from transforms.storage.retry import OvertakenError
from transforms.storage.stores import bucket_of, walk
from transforms.tfrecord import renaming
from transforms.work.rejects import check_left, items_beside

_WORK_NAME = re.compile(rf"[0-9a-f]{{32}}(-[0-9a-f]{{12}})?|{SHARED}[0-9a-f]{{32}}")
# Stores that are trees of files (HDFS) do rename: a killed run may leave such a file.
_PARTIAL = re.compile(r"\..+\.[0-9a-f]{12}\.tmp")
_IN_USE = "in use by a run"
# How many names of foreign files a line shows.
_SHOWN = 3
# Of rows of a pipeline.
_UNSURE = "left; once the pipeline has ended, --pipelines removes it"
_HIDDEN = re.compile(rf"\.(?P<name>.+){WORK_SUFFIX}", re.DOTALL)
_DAY_SECONDS = 86400.0
_WORK = "work on a dataset"
_REJECTS = "rejects of a failed run"


@dataclasses.dataclass(frozen=True, slots=True)
class _BucketWork:
    """What may be left of one job: its work, and data folders that runs of it used.

    Attributes:
      path: of the work, or of a data folder that no note names.
      bytes: of all of it that no manifest names.
      age: seconds since something of it was put.
      folders: names of the data folders.
      noted: those of them that have a note.
    """

    path: str
    bytes: int
    age: float
    folders: tuple[str, ...] = ()
    noted: frozenset[str] = frozenset()


def _is_work(name: str) -> bool:
    """Whether a name in a work folder is that of a run's work."""
    return bool(_WORK_NAME.fullmatch(name) or _PARTIAL.fullmatch(name))


def foreign_names(there: BucketTarget) -> list[str]:
    """Returns the names of what is not ours in the work folder, in byte order."""
    names = storage(there.work).names_if_there()
    return [name for name in names if name != USES and not _is_work(name)]


def leftovers(there: BucketTarget) -> list[_BucketWork]:
    """Returns what runs have put there that the manifest does not name."""
    listed = [*walk(there.directory)]
    works = _grouped(there.work, walk(there.work))
    # Read after the listing: what was published meanwhile must not be in it.
    named = there.named()
    data = _grouped(
        there.directory, (entry for entry in listed if entry.path not in named)
    )
    notes = {os.path.basename(entry.path): entry for entry in works.pop(USES, ())}
    # The data folders of each job, by its work.
    folders: dict[str, list[str]] = {name: [] for name in filter(_is_work, works)}
    for name in sorted(filter(is_data_folder, notes)):
        note = there.note(name)
        if note is not None:
            folders.setdefault(str(note.get("work", "")), []).append(name)

    def left(path: str, work: str, names: Sequence[str]) -> _BucketWork:
        files = [*works.get(work, ())]
        for name in names:
            files += data.get(name, ())
            files += [notes[name]] if name in notes else []
        newest = max(file.modified_ns for file in files) / SECOND_NS
        return _BucketWork(
            path,
            sum(file.size for file in files),
            max(time.time() - newest, 0.0),
            tuple(names),
            frozenset(notes.keys() & {*names}),
        )

    jobs = sorted(folders.items())
    out = [left(f"{there.work}/{work}", work, names) for work, names in jobs]
    unnoted = sorted(filter(is_data_folder, data.keys() - notes.keys()))
    return out + [left(f"{there.directory}/{name}", "", [name]) for name in unnoted]


def remove(there: BucketTarget, left: _BucketWork, *, older_than: float) -> bool:
    """Removes a leftover; returns False where a run has begun to use it.

    Args:
      left: as `leftovers` has given it.
      older_than: seconds since something of it was put.
    """
    if left.age < older_than:
        return False
    bucket = bucket_of(there.directory)
    for name in left.folders:
        path = there.note_path(name)
        look = storage(path).look()
        # HDFS has no clock to tell the age by.
        is_young = bucket.conditional and look.age < older_than
        if bool(look.version) != (name in left.noted) or (look.version and is_young):
            return False
        note = {"work": os.path.basename(left.path), "removed": new_word()}
        try:
            storage(path).put_if(
                json.dumps(note).encode(), look.version, attempts=there.work
            )
        except OvertakenError:
            return False
    # Nobody can publish these folders any more; one that is published stays.
    named = there.named()
    for name in left.folders:
        folder = f"{there.directory}/{name}"
        if any(path.startswith(f"{folder}/") for path in named):
            for entry in [*walk(folder)]:
                if entry.path not in named:
                    storage(entry.path).remove_file()
        else:
            storage(folder).remove_tree()
    parent, work = os.path.split(left.path)
    if parent == there.work and _PARTIAL.fullmatch(work):
        storage(left.path).remove_file()
    elif parent == there.work and _WORK_NAME.fullmatch(work):
        storage(left.path).remove_tree()
    for name in left.folders:
        storage(there.note_path(name)).remove_file()
    there.remove_empty()
    return True


def _grouped(folder: str, found: Iterable[FileEntry]) -> dict[str, list[FileEntry]]:
    """Returns files by the first name of their paths in a folder."""
    out: dict[str, list[FileEntry]] = {}
    for entry in found:
        name = entry.path.removeprefix(f"{folder}/").partition("/")[0]
        out.setdefault(name, []).append(entry)
    return out


@dataclasses.dataclass(frozen=True, slots=True)
class _Leftover:
    """Something that a dead run has left.

    Attributes:
      path: of it.
      holds: what it is, for people; empty where it holds no work.
      bytes: it takes.
      not_ours: why it is foreign, though its name is that of a leftover; it stays.
      stays: why it must stay; empty for what may be removed.
      remove: removes it; returns False, or raises TargetError, with nothing changed,
        where a run is at work.
    """

    path: str
    holds: str
    bytes: int = 0
    not_ours: str = ""
    stays: str = ""
    remove: Callable[[], bool | None] = lambda: False


def run(
    directory: str, *, dry_run: bool, pipelines: bool, older_than: float, quiet: bool
) -> int:
    """Lists what dead runs have left of a target or in a folder, and removes it.

    Args:
      directory: an output of `convert` or `WriteTFRecords`, or a folder of such.
      dry_run: only list.
      pipelines: whether all pipelines that write there are known to have ended.
      older_than: days; in a bucket, what is younger stays.
      quiet: print errors only.

    Returns:
      0, or 1 when something could not be removed because a run is at work there, or
      may be.

    Raises:
      TargetError: there is neither the folder nor a leftover of it; or a file that is
        not ours has the name of a leftover. It stays; all others are removed.
    """
    leftovers = _find(directory, older_than, pipelines=pipelines)
    if not leftovers and not storage(directory).is_folder():
        raise TargetError(
            f"{directory!r} must be a folder, or an output that was never finished; "
            f"there is nothing of that name. Correct the path."
        )
    outcomes = [_outcome(leftover, dry_run=dry_run) for leftover in leftovers]
    if not quiet:
        _print_leftovers(leftovers, outcomes, directory)
    for leftover in leftovers:
        if leftover.not_ours:
            raise TargetError(leftover.not_ours)
    return 1 if {_IN_USE, _UNSURE} & {*outcomes} else 0


def _outcome(each: _Leftover, *, dry_run: bool) -> str:
    """Removes a leftover, unless it is to be listed only; returns what became of it."""
    if each.stays or each.not_ours:
        return each.stays or "not ours, left"
    if dry_run:
        return "would be removed"
    try:
        if each.remove() is False:
            return _IN_USE
    except TargetError:
        return _IN_USE
    is_left = not is_remote(each.path) and storage(each.path).exists()
    return "emptied; the folder stays" if is_left else "removed"


def _print_leftovers(
    found: list[_Leftover], outcomes: list[str], directory: str
) -> None:
    """Prints what dead runs have left, with size, content and what became of it."""
    if not found:
        print_line(f"no dead run has left anything at {directory!r}")
        return
    # Relative paths fit a line; all are next to the target or in the folder.
    parent = os.path.dirname(absolute(directory))
    rows = []
    for leftover, outcome in zip(found, outcomes, strict=True):
        size, holds = size_text(leftover.bytes), leftover.holds or "no work"
        if leftover.not_ours:
            size = holds = ""
        rows.append((relative(leftover.path, parent), size, holds, outcome))
    print_table(("left", "size", "holds", ""), rows, right=("size",), apart=False)


def _find(directory: str, older_than: float, *, pipelines: bool) -> list[_Leftover]:
    """Returns what was left of runs on this target, and on those in this folder."""
    directory = absolute(directory)

    def of_target(of: str) -> list[_Leftover]:
        if is_remote(of):
            return _in_bucket(of, older_than)
        folder = work_folder(of)
        if not storage(folder).exists():
            return []
        return [_unfinished(folder, of, pipelines=pipelines)]

    leftovers = of_target(directory)
    rejects = target.rejects_path(directory)
    for path in (rejects, items_beside(rejects)):
        if storage(path).exists():
            leftovers.append(_left_rejects(path))
    if storage(directory).is_folder():
        for name in storage(directory).names_in():
            if match := _HIDDEN.fullmatch(name):
                leftovers += of_target(os.path.join(directory, match["name"]))
    return leftovers


def _in_bucket(of: str, older_than: float) -> list[_Leftover]:
    """Returns what runs on a target in a bucket have left; writes pointers again."""
    there = BucketTarget(of)
    seconds = older_than * _DAY_SECONDS
    there.settle()
    out = []
    for left in leftovers(there):
        stays = f"left, not {older_than:g} days old" if left.age < seconds else ""
        end = functools.partial(remove, there, left, older_than=seconds)
        out.append(_Leftover(left.path, _WORK, left.bytes, stays=stays, remove=end))
    if foreign := foreign_names(there):
        out.append(_Leftover(work_folder(of), "", stays=_holding(foreign)))
    return out


def _holding(names: Iterable[str]) -> str:
    """Returns why a folder stays that has files which no run of ours has made."""
    return f"left, for it holds {first_few([*map(repr, names)], _SHOWN)}"


def _left_rejects(path: str) -> _Leftover:
    """Returns a file of rejects that a failed run has left beside its target."""
    try:
        check_left(path)
    except TargetError as error:
        return _Leftover(path, "", not_ours=str(error))
    file = storage(path)
    return _Leftover(path, _REJECTS, file.size_of(), remove=file.remove_file)


def _unfinished(folder: str, of: str, *, pipelines: bool) -> _Leftover:
    """Returns what is in a work folder of the target `of`.

    A dataset that a run was killed in the middle of publishing is published, or undone,
    before it is removed. Foreign files in it stay.
    """
    there, own = LocalTarget(of), renaming.own_folder(folder)
    try:
        there.own.check()
    except TargetError as error:
        try:
            # Runs of the two kinds differ in the forms of their names.
            own.check()
        except TargetError:
            return _Leftover(folder, "", not_ours=str(error))
    size = _disk_bytes(folder)
    if own.run_names():
        remove = functools.partial(_remove_runs, own)
        return _Leftover(folder, "unfinished files", size, remove=remove)
    runs, foreign = there.own.names()
    kind, stays = _WORK if runs else "", ""
    if any(name.startswith(SHARED) for name in runs):
        kind = "rows of a pipeline, which may be running"
        stays = "" if pipelines else _UNSURE
    elif foreign and not kind:
        return _Leftover(folder, "", size, stays=_holding(foreign))
    # A pipeline may have started since it was found.
    remove = functools.partial(target.at(of).clear, sure=pipelines)
    return _Leftover(folder, kind, size, stays=stays, remove=remove)


def _remove_runs(own: OwnFolder) -> None:
    """Removes the folders of runs; BusyError where one of them still works."""
    with own.held():
        own.remove_runs()


def _disk_bytes(folder: str) -> int:
    """Returns the bytes of all files below a folder on a disk."""
    return sum(
        os.lstat(os.path.join(parent, name)).st_size
        for parent, _, names in os.walk(folder)
        for name in names
    )
