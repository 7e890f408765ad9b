"""The command `clean`: list and remove what interrupted runs left behind.

That is next to a target, or in a folder of shards:

.<name>.beam-tfrecord/    unfinished work on the target <name> beside it, or on
                          files of a `WriteTFRecords` (`transforms.tfrecord.renaming`)
<name>/data-<job>-<word>/ in a bucket: files of a dataset that was not published, or
                          was replaced
<name>.rejects.jsonl      the rejects of a run that tolerated fewer, and beside it
                          <name>.rejects.items where the items were kept
"""

import dataclasses
import functools
import os
import re
from collections.abc import Callable

from beam_pipeline.terminal.console import new_table, print_line, print_table
from beam_pipeline.terminal.printing import printable
from beam_pipeline.terminal.words import count_text, size_text
from transforms.errors import TargetError
from transforms.publishing import target
from transforms.publishing.bucket import BucketTarget
from transforms.publishing.local import LocalTarget
from transforms.publishing.published import SHARED
from transforms.storage.files import storage
from transforms.storage.paths import (
    WORK_SUFFIX,
    absolute,
    is_remote,
    relative,
    work_folder,
)
from transforms.tfrecord import renaming
from transforms.work import reject_files

_IN_USE = "in use by a run"
# Of rows of a pipeline.
_UNSURE = "left; once the pipeline has ended, --pipelines removes it"
# How many names of foreign files a line shows.
_SHOWN = 3
_HIDDEN = re.compile(rf"\.(?P<name>.+){WORK_SUFFIX}", re.DOTALL)
_DAY_SECONDS = 86400.0
_PIPELINES = "rows of a pipeline, which may be running"


@dataclasses.dataclass(frozen=True, slots=True)
class _Leftover:
    """Something that a dead run has left.

    Attributes:
      path: of it.
      kind: "work on a dataset", "unfinished files", "rejects of a failed run",
        `_PIPELINES`, or "" where it holds no work.
      bytes: it takes.
      blocks, shards: finished ones, of work on a dataset.
      foreign: names in it that no run of ours has made; they stay.
      not_ours: why it is foreign, though its name is that of a leftover; it stays.
      days: since something of it was put into a bucket; None on a disk.
      remove: removes it from a bucket; returns whether it could.
    """

    path: str
    kind: str
    bytes: int = 0
    blocks: int = 0
    shards: int = 0
    foreign: tuple[str, ...] = ()
    not_ours: str = ""
    days: float | None = None
    remove: Callable[[], bool] = lambda: False


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
    found = _find(directory, older_than)
    if not found and not storage(directory).is_folder():
        raise TargetError(
            f"{directory!r} must be a folder, or an output that was never finished; "
            f"there is nothing of that name. Correct the path."
        )
    outcomes = [
        _outcome(each, dry_run=dry_run, pipelines=pipelines, older_than=older_than)
        for each in found
    ]
    if not quiet:
        _show(found, outcomes, directory)
    for each in found:
        if each.not_ours:
            raise TargetError(each.not_ours)
    return 1 if {_IN_USE, _UNSURE} & {*outcomes} else 0


def _outcome(
    each: _Leftover, *, dry_run: bool, pipelines: bool, older_than: float
) -> str:
    """Removes a leftover, unless it is to be listed only; returns what became of it."""
    if each.not_ours:
        return "not ours, left"
    if each.days is not None:
        if each.days < older_than:
            return f"left, not {older_than:g} days old"
        if dry_run:
            return "would be removed"
        return "removed" if each.remove() else _IN_USE
    held = ", ".join(map(repr, each.foreign[:_SHOWN]))
    if held and not each.kind:
        return f"left, for it holds {held}"
    if each.kind == _PIPELINES and not pipelines:
        return _UNSURE
    if dry_run:
        return f"would be removed, but for {held}" if held else "would be removed"
    if not _remove(each, pipelines=pipelines):
        return _IN_USE
    if held:
        return f"removed, but for {held}"
    return "emptied, cannot be removed" if storage(each.path).exists() else "removed"


def _show(found: list[_Leftover], outcomes: list[str], directory: str) -> None:
    if not found:
        print_line(f"nothing was left of dead runs at {printable(directory)}")
        return
    # Relative paths fit a line; all are next to the target or in the folder.
    parent = os.path.dirname(absolute(directory))
    table = new_table("left", "size", "holds", "", right=("size",))
    for each, outcome in zip(found, outcomes, strict=True):
        name = printable(relative(each.path, parent))
        size = "" if each.not_ours else size_text(each.bytes)
        table.add_row(name, size, _holds(each), printable(outcome))
    print_table(table, apart=False)


def _holds(each: _Leftover) -> str:
    if each.blocks or each.shards:
        return f"{count_text(each.blocks, 'block')}, {count_text(each.shards, 'shard')}"
    return "" if each.not_ours else each.kind or "no work"


def _find(directory: str, older_than: float) -> list[_Leftover]:
    """Returns what was left of runs on this target, and on those in this folder."""
    directory = absolute(directory)
    if is_remote(directory):
        found = _in_bucket(directory, older_than)
    else:
        own = work_folder(directory)
        found = [_unfinished(own, directory)] if storage(own).exists() else []
    rejects = target.rejects_path(directory)
    found.extend(
        _rejects(path)
        for path in (rejects, reject_files.items_beside(rejects))
        if storage(path).exists()
    )
    if storage(directory).is_folder():
        for name in storage(directory).names_in():
            path = os.path.join(directory, name)
            if known := _HIDDEN.fullmatch(name):
                of = os.path.join(directory, known["name"])
                found += (
                    _in_bucket(of, older_than)
                    if is_remote(of)
                    else [_unfinished(path, of)]
                )
    return found


def _in_bucket(of: str, older_than: float) -> list[_Leftover]:
    """Returns what runs on a target in a bucket have left; writes pointers again."""
    there = BucketTarget(of)
    seconds = older_than * _DAY_SECONDS
    there.mend()
    found = [
        _Leftover(
            left.path,
            "" if left.uploads else "work on a dataset",
            left.bytes,
            left.blocks,
            left.shards,
            days=left.age / _DAY_SECONDS,
            remove=functools.partial(there.remove, left, older_than=seconds),
        )
        for left in there.leftovers()
    ]
    if foreign := there.foreign_names():
        folder = work_folder(of)
        found.append(_Leftover(folder, "", foreign=tuple(foreign)))
    return found


def _rejects(path: str) -> _Leftover:
    try:
        reject_files.check_left(path)
    except TargetError as error:
        return _Leftover(path, "", not_ours=str(error))
    return _Leftover(path, "rejects of a failed run", storage(path).size_of())


def _remove(leftover: _Leftover, *, pipelines: bool) -> bool:
    """Removes it; returns False, with nothing changed, where a run is at work.

    A dataset that a run was killed in the middle of publishing is published, or undone,
    first. Foreign files in it stay.

    Args:
      leftover: what to remove.
      pipelines: whether all pipelines that write there are known to have ended.
    """
    if leftover.kind == "rejects of a failed run":
        storage(leftover.path).remove_file()
        return True
    try:
        if leftover.kind == "unfinished files":
            own = renaming.own_folder(leftover.path)
            with own.held():
                own.remove_runs()
        else:
            parent, name = os.path.split(leftover.path)
            known = _HIDDEN.fullmatch(name)
            assert known is not None
            of = os.path.join(parent, known["name"])
            # A pipeline may have started since it was found.
            target.at(of).clear(sure=pipelines)
    except TargetError:
        return False
    return True


def _unfinished(folder: str, of: str) -> _Leftover:
    """Returns what is in a work folder of the target `of`."""
    try:
        LocalTarget(of).check_work_folder()
    except TargetError as error:
        try:
            # Runs of the two kinds differ in the forms of their names.
            renaming.own_folder(folder).check()
        except TargetError:
            return _Leftover(folder, "", not_ours=str(error))
    size = _size(folder)
    files_of_runs = renaming.own_folder(folder)
    if files_of_runs.run_names():
        foreign = tuple(files_of_runs.foreign_names())
        return _Leftover(folder, "unfinished files", size, foreign=foreign)
    there = LocalTarget(of)
    runs, blocks, shards = there.finished()
    kind = "work on a dataset" if runs else ""
    if any(name.startswith(SHARED) for name in there.work_names()):
        kind = _PIPELINES
    foreign = tuple(there.foreign_names())
    return _Leftover(folder, kind, size, blocks, shards, foreign)


def _size(folder: str) -> int:
    return sum(
        os.lstat(os.path.join(parent, name)).st_size
        for parent, _, names in os.walk(folder)
        for name in names
    )
