"""What dead runs have left at a target in an object store; `clean` takes what is old.

A run may go on with old files, so both write the note of the data folder first, on the
condition that it is as they have read it. Where `clean` was first, the run goes to
another folder, or fails; where the run was, `clean` leaves the folder.
"""

import dataclasses
import json
import os
import re
import time
from collections.abc import Iterable, Sequence

from transforms.core.manifest import is_data_folder
from transforms.publishing.bucket import USES, BucketTarget, names_in, new_word
from transforms.publishing.published import SHARED
from transforms.storage.entries import SECOND_NS, Found, OvertakenError
from transforms.storage.files import storage
from transforms.storage.stores import bucket_of, walk

_WORK = re.compile(rf"[0-9a-f]{{32}}(-[0-9a-f]{{12}})?|{SHARED}[0-9a-f]{{32}}")
# Stores that are trees of files (HDFS) do rename: a killed run may leave such a file.
_PARTIAL = re.compile(r"\..+\.[0-9a-f]{12}\.tmp")


@dataclasses.dataclass(frozen=True, slots=True)
class Leftover:
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


def foreign_names(there: BucketTarget) -> list[str]:
    """Returns the names of what is not ours in the work folder, in byte order."""
    return [
        name
        for name in names_in(there.work)
        if name != USES and not _WORK.fullmatch(name)
        if not _PARTIAL.fullmatch(name)
    ]


def leftovers(there: BucketTarget) -> list[Leftover]:
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
    folders: dict[str, list[str]] = {
        name: [] for name in works if _WORK.fullmatch(name) or _PARTIAL.fullmatch(name)
    }
    for name in sorted(filter(is_data_folder, notes)):
        note = there.note(name)
        if note is not None:
            folders.setdefault(str(note.get("work", "")), []).append(name)

    def left(path: str, work: str, names: Sequence[str]) -> Leftover:
        files = [*works.get(work, ())]
        for name in names:
            files += data.get(name, ())
            files += [notes[name]] if name in notes else []
        newest = max(file.modified_ns for file in files) / SECOND_NS
        return Leftover(
            path,
            sum(file.size for file in files),
            max(time.time() - newest, 0.0),
            tuple(names),
            frozenset(notes.keys() & {*names}),
        )

    out = [
        left(f"{there.work}/{work}", work, names)
        for work, names in sorted(folders.items())
    ]
    out += [
        left(f"{there.directory}/{name}", "", [name])
        for name in sorted(filter(is_data_folder, data.keys() - notes.keys()))
    ]
    return out


def remove(there: BucketTarget, left: Leftover, *, older_than: float) -> bool:
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
    elif parent == there.work and _WORK.fullmatch(work):
        storage(left.path).remove_tree()
    for name in left.folders:
        storage(there.note_path(name)).remove_file()
    there.remove_empty()
    return True


def _grouped(folder: str, found: Iterable[Found]) -> dict[str, list[Found]]:
    """Returns files by the first name of their paths in a folder."""
    out: dict[str, list[Found]] = {}
    for entry in found:
        name = entry.path.removeprefix(f"{folder}/").partition("/")[0]
        out.setdefault(name, []).append(entry)
    return out
