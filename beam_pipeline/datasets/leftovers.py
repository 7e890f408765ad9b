"""What interrupted runs leave behind: next to a target, or in a folder of shards.

.<name>.beam-tfrecord/    unfinished work on the target <name> beside it, or on
                          files of a `WriteTFRecords` (`transforms.tfrecord.renaming`)
<name>.rejects.jsonl      the rejects of a run that tolerated fewer, and beside it
                          <name>.rejects.items where the items were kept
"""

import dataclasses
import os
import re
from collections.abc import Sequence

from transforms import files
from transforms.errors import TargetError
from transforms.publishing import own_folder, target, work_folder
from transforms.publishing.bucket.runs import State
from transforms.storage.paths import WORK_SUFFIX, absolute, is_remote
from transforms.storage.remote_look import walk
from transforms.tfrecord import renaming
from transforms.work import reject_files

_HIDDEN = re.compile(
    rf"\.(?P<name>.+)(?:{WORK_SUFFIX}|{own_folder.NEW_SUFFIX})", re.DOTALL
)
# Those with most to lose first. `state_of` gives no other states.
_PIPELINES = {
    State.HERE: "rows of a pipeline whose program is running",
    State.UNKNOWN: "rows of a pipeline, which may be running",
    State.GONE: "rows of a pipeline that has ended",
}
MAY_RUN = (State.HERE, State.UNKNOWN)
"""States of pipelines that fail if their rows are removed."""


@dataclasses.dataclass(frozen=True, slots=True)
class Leftover:
    """Something that a dead run has left.

    Attributes:
      path: of it.
      kind: "work on a dataset", "unfinished files", "rejects of a failed run", one of
        `_PIPELINES`, or "" where it holds no work.
      bytes: it takes.
      blocks, shards: finished ones, of work on a dataset.
      foreign: names in it that no run of ours has made; they stay.
      not_ours: why it is foreign, though its name is that of a leftover; it stays.
      pipeline: what is known of the pipelines whose rows it holds, and as long as one
        of them may be running; None for none.
    """

    path: str
    kind: str
    bytes: int = 0
    blocks: int = 0
    shards: int = 0
    foreign: tuple[str, ...] = ()
    not_ours: str = ""
    pipeline: State | None = None


def find(directory: str) -> list[Leftover]:
    """Returns what was left of runs on this target, and on those in this folder."""
    directory = absolute(directory)
    own = target.work_folder(directory)
    found = [
        _unfinished(path, directory)
        for path in (own, own_folder.new_path(own))
        if _is_there(path)
    ]
    rejects = target.rejects_path(directory)
    found.extend(
        _rejects(path)
        for path in (rejects, reject_files.items_beside(rejects))
        if _is_there(path) or files.is_file(path)
    )
    if files.is_folder(directory):
        for name in files.names_in(directory):
            path = os.path.join(directory, name)
            if (known := _HIDDEN.fullmatch(name)) and _is_there(path):
                of = os.path.join(directory, known["name"])
                found.append(_unfinished(path, of))
    return found


def _rejects(path: str) -> Leftover:
    try:
        reject_files.check_left(path)
    except TargetError as error:
        return Leftover(path, "", not_ours=str(error))
    return Leftover(path, "rejects of a failed run", files.size_of(path))


def _is_there(folder: str) -> bool:
    # A link exists even if its target does not; it is reported as not ours.
    return files.is_folder(folder) if is_remote(folder) else files.exists(folder)


def remove(leftover: Leftover, *, pipelines: bool) -> bool:
    """Removes it; returns False, with nothing changed, where a run is at work.

    What a run was killed in the middle of publishing is published, or undone, first.
    Foreign files in it stay.

    Args:
      leftover: what to remove.
      pipelines: whether all pipelines that write there are known to have ended.
    """
    if leftover.kind == "rejects of a failed run":
        files.remove_file(leftover.path)
        return True
    try:
        if leftover.kind == "unfinished files":
            renaming.clear_dead_runs(leftover.path)
        else:
            parent, name = os.path.split(leftover.path)
            known = _HIDDEN.fullmatch(name)
            assert known is not None
            of = os.path.join(parent, known["name"])
            # One may have started since it was found.
            if not pipelines and _worst(work_folder.pipelines(of)) in MAY_RUN:
                return False
            work_folder.clear(of)
    except TargetError:
        return False
    return True


def _unfinished(folder: str, of: str) -> Leftover:
    """Returns what is in a work folder of the target `of`."""
    try:
        work_folder.check(of)
    except TargetError as error:
        try:
            # Runs of the two kinds differ in the forms of their names.
            renaming.check_work_folder(folder)
        except TargetError:
            return Leftover(folder, "", not_ours=str(error))
    size = _size(folder)
    if not is_remote(folder) and renaming.holds_runs(folder):
        foreign = tuple(renaming.foreign_names(folder))
        return Leftover(folder, "unfinished files", size, foreign=foreign)
    runs, blocks, shards = work_folder.finished(of)
    kind = "work on a dataset" if runs else ""
    pipeline = _worst(work_folder.pipelines(of))
    if pipeline is not None:
        kind = _PIPELINES[pipeline]
    foreign = tuple(work_folder.foreign_names(of))
    return Leftover(folder, kind, size, blocks, shards, foreign, pipeline=pipeline)


def _worst(states: Sequence[State]) -> State | None:
    """Returns the state of which there is most to lose; None for no pipelines."""
    found = [state for state in _PIPELINES if state in states]
    return found[0] if found else None


def _size(folder: str) -> int:
    if is_remote(folder):
        return sum(found.size for found in walk(folder))
    return sum(
        os.lstat(os.path.join(parent, name)).st_size
        for parent, _, names in os.walk(folder)
        for name in names
    )
