"""What dead runs have left: beside a target, and in the folder of a write.

.<name>.beam-tfrecord/    unfinished work on the target <name> beside it, or on
                          files of a `WriteTFRecords` (`transforms.publishing.renaming`)
<name>.rejects.jsonl      the rejects of a run that tolerated fewer, and beside it
                          <name>.rejects.items where the items were kept
"""

import dataclasses
import os
import re

from transforms import files, reject_files
from transforms.errors import TargetError
from transforms.publishing import renaming, target, work_folder
from transforms.storage import remote
from transforms.storage.paths import absolute, is_remote

__all__ = ["Leftover", "find", "remove"]

_HIDDEN = re.compile(r"\.(?P<name>.+)\.beam-tfrecord", re.DOTALL)


@dataclasses.dataclass(frozen=True, slots=True)
class Leftover:
    """Something that a dead run has left.

    Attributes:
      path: of it.
      kind: "unfinished dataset", "unfinished files" or "rejects of a failed run".
      bytes: it takes.
      blocks, shards: finished ones, of an unfinished dataset.
    """

    path: str
    kind: str
    bytes: int
    blocks: int = 0
    shards: int = 0


def find(directory: str) -> list[Leftover]:
    """Returns what was left of runs on this target, and on those in this folder."""
    directory = absolute(directory)
    found = []
    if files.is_folder(own := target.work_folder(directory)):
        found.append(_unfinished(own))
    rejects = target.rejects_path(directory)
    for path in (rejects, reject_files.items_beside(rejects)):
        if files.is_file(path):
            size = files.size_of(path)
            found.append(Leftover(path, "rejects of a failed run", size))
    if files.is_folder(directory):
        for name in files.names_in(directory):
            path = os.path.join(directory, name)
            if _HIDDEN.fullmatch(name) and files.is_folder(path):
                found.append(_unfinished(path))
    return found


def remove(leftover: Leftover) -> bool:
    """Removes it; returns False, with nothing changed, where a run is at work.

    What a run was killed in the middle of publishing is published, or undone, first.
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
            work_folder.clear(os.path.join(parent, known["name"]))
    except TargetError:
        return False
    return True


def _unfinished(folder: str) -> Leftover:
    if not is_remote(folder) and renaming.is_work_folder(folder):
        return Leftover(folder, "unfinished files", _size(folder))
    blocks, shards = work_folder.finished(folder)
    return Leftover(folder, "unfinished dataset", _size(folder), blocks, shards)


def _size(folder: str) -> int:
    if is_remote(folder):
        return sum(found.size for found in remote.walk(folder))
    return sum(
        os.lstat(os.path.join(parent, name)).st_size
        for parent, _, names in os.walk(folder)
        for name in names
    )
