"""A target in an object store: held, checked, published.

Nothing can be renamed there, so files are put where they stay, and `manifest.json`
comes last, on the condition that it is still what the run has seen at its start. Until
then what lies there is no dataset; afterwards it is one, whole.

    <target>/manifest.json
    <target>/<files>               of a dataset where none stood before
    <target>/data-<job>/<files>    of a dataset that has replaced one, which its
                                   manifest names, and TFDS's files beside that
    .<name>.beam-tfrecord/         the work folder; see `transforms.work_folder`
      holder, others/<run>         the runs at work; see `transforms.bucket_runs`
      places/<folder>              the work of each job that puts files into a folder
      names/<work>/<file>          what a job may have put into the target itself
      publishing/<folder>          the manifest that its job is replacing

Locks that end with their process do not exist there. A run whose process is gone from
this machine is dead, and its work is taken over; of one on another machine nothing is
known, and so it is left alone: the later run works apart, in folders that end in a word
of its own, and the manifest decides which of the two has won.
"""

import functools
import json
from collections.abc import Mapping
from typing import Any

from transforms import files, object_clients
from transforms.bucket_runs import (
    HOLDER,
    OTHERS,
    forget,
    names_in,
    others,
    refuse_living,
)
from transforms.core.manifest import MANIFEST_NAME, Manifest
from transforms.errors import CommitError, DamageError, TargetError
from transforms.file_systems import asked
from transforms.object_store import OvertakenError
from transforms.paths import split_remote, work_folder
from transforms.versions import put_if, version_of

__all__ = [
    "check_contents",
    "check_replaceable",
    "clear",
    "place_of",
    "publish",
    "recover",
    "remove_job",
    "remove_notes",
    "remove_work",
    "state",
]

_NAMES = "names"
_PLACES = "places"
_PUBLISHING = "publishing"
# How many foreign names an error shows.
_SHOWN = 5


def state(directory: str) -> str:
    """Returns a word for the dataset that stands there now; "" for none."""
    return version_of(_manifest_path(directory))


def check_contents(directory: str) -> Manifest | None:
    """Returns the manifest of the dataset at the target; None where nothing stands.

    Raises:
      TargetError: it holds anything but a dataset of ours, what its manifest names,
        and what runs of ours are putting there; or it cannot be written safely.
    """
    place, key = split_remote(directory)
    if not key.strip("/"):
        raise TargetError(
            f"The output must be a folder in a bucket, as in {place}/dataset; found "
            f"{directory!r}."
        )
    names = names_in(directory)
    manifest = None
    if MANIFEST_NAME in names:
        path = _manifest_path(directory)
        try:
            manifest = Manifest.from_bytes(files.read_bytes(path), path)
        except (DamageError, OSError) as error:
            raise TargetError(
                f"What stands at {directory!r} cannot be replaced safely: {error} "
                f"Move it away, or choose another output."
            ) from error
    foreign = sorted(set(names) - _known(directory, manifest))
    if foreign:
        what = "what its manifest names" if manifest else "a dataset of this tool"
        raise TargetError(
            f"The output may hold only {what}; {directory!r} holds {_shown(foreign)}. "
            f"Move that away, or choose another output."
        )
    return manifest


def _known(directory: str, manifest: Manifest | None) -> set[str]:
    """Returns the names in a target that are ours: of its dataset, and of runs."""
    folder = work_folder(directory)
    known = set(names_in(f"{folder}/{_PLACES}"))
    known |= {name for _, name in _announced(folder)}
    if manifest is not None:
        known |= {MANIFEST_NAME, *manifest.root_names}
        known |= {manifest.folder} - {""}
    return known


def check_replaceable(directory: str) -> None:
    """Raises TargetError where a dataset cannot be replaced safely."""
    if object_clients.client_of(directory) is None:
        raise _wants_extra(directory, "Replacing a dataset")


def place_of(
    directory: str, *, apart: str, job: str, work: str, seen: str
) -> tuple[str, str]:
    """Returns the folder that a job puts its files into, and that of notes on them.

    Where a job has a folder of its own there are no notes on files, but one on that.

    Args:
      directory: the target.
      apart: see `held`.
      job: its digest.
      work: the name of its work folder.
      seen: the state of the target when the run started.
    """
    folder = work_folder(directory)
    if not apart and not seen:
        return directory, f"{folder}/{_NAMES}/{work}"
    name = f"data-{job}-{apart}" if apart else f"data-{job}"
    files.write_file(f"{folder}/{_PLACES}/{name}", work.encode(), attempts="")
    return f"{directory}/{name}", ""


def _announced(folder: str) -> list[tuple[str, str]]:
    """Returns (work digest, file) of all that may have been put into a target."""
    works = names_in(f"{folder}/{_NAMES}")
    return [(w, name) for w in works for name in names_in(f"{folder}/{_NAMES}/{w}")]


def remove_work(directory: str, *, but: str = "") -> None:
    """Removes what dead runs have put into a target and its work folder.

    The dataset stays; and so does all, where another machine's run may be at work.

    Args:
      directory: the target.
      but: the work whose own stays.
    """
    folder = work_folder(directory)
    places, announced, names = _places(folder), _announced(folder), names_in(folder)
    # First listed, then asked: whose work was listed has said before that it is there.
    if OTHERS in names and others(folder):
        return
    kept = _kept(directory)
    for name, work in places:
        if not but or work != but:
            _remove_place(directory, name, kept)
    for work, name in announced:
        if work != but:
            if name not in kept:
                files.remove_file(f"{directory}/{name}")
            files.remove_file(f"{folder}/{_NAMES}/{work}/{name}")
    for name in names:
        if name not in (HOLDER, OTHERS, _PLACES, _NAMES, but):
            files.remove_tree(f"{folder}/{name}")
    if (client := object_clients.client_of(directory)) is not None:
        for place in (directory, folder):
            prefix = f"{split_remote(place)[1]}/"
            asked(place, functools.partial(client.give_up_uploads, prefix))


def _places(folder: str) -> list[tuple[str, str]]:
    """Returns (folder in the target, work) of jobs that have folders of their own."""
    return [
        (name, files.read_bytes(f"{folder}/{_PLACES}/{name}").decode())
        for name in names_in(f"{folder}/{_PLACES}")
    ]


def _remove_place(directory: str, name: str, kept: set[str]) -> None:
    if name not in kept:
        files.remove_tree(f"{directory}/{name}")
    files.remove_file(f"{work_folder(directory)}/{_PLACES}/{name}")


def remove_job(directory: str, work: str) -> None:
    """Removes all that the runs of one work have put there, but the dataset."""
    folder = work_folder(directory)
    kept = _kept(directory)
    for name, whose in _places(folder):
        if whose == work:
            _remove_place(directory, name, kept)
    for name in names_in(f"{folder}/{_NAMES}/{work}"):
        if name not in kept:
            files.remove_file(f"{directory}/{name}")
    files.remove_tree(f"{folder}/{_NAMES}/{work}")
    files.remove_tree(f"{folder}/{work}")


def remove_notes(directory: str, work: str) -> None:
    """Removes the notes on what one work has put there: it belongs to the dataset."""
    folder = work_folder(directory)
    for name, whose in _places(folder):
        if whose == work:
            files.remove_file(f"{folder}/{_PLACES}/{name}")
    files.remove_tree(f"{folder}/{_NAMES}/{work}")


def clear(directory: str, *, sure: bool) -> None:
    """Removes all unfinished work on a target; a begun publication is ended first.

    Args:
      directory: the target.
      sure: whether what other machines have begun is known to be dead. If not,
        nothing is done where there is any.

    Raises:
      TargetError: a run on this machine is at work there.
    """
    folder = work_folder(directory)
    if names_in(folder) and refuse_living(folder, sure=sure):
        recover(directory)
        forget(folder)
        remove_work(directory)


def _kept(directory: str) -> set[str]:
    """Returns the names in a target that belong to its dataset."""
    path = _manifest_path(directory)
    try:
        manifest = Manifest.from_bytes(files.read_bytes(path), path)
    except FileNotFoundError:
        return set()
    return {*manifest.root_names, manifest.folder, MANIFEST_NAME}


def publish(
    manifest: Manifest,
    directory: str,
    *,
    place: str,
    seen: str,
    pointers: Mapping[str, bytes],
) -> None:
    """Puts the manifest of a dataset whose files are all there.

    Args:
      manifest: of the dataset.
      directory: the target.
      place: the folder in it that the files are in; empty for none.
      seen: what `state` was when the run started.
      pointers: file name -> content: what other readers need in the target itself to
        find files in a folder below it.

    Raises:
      CommitError: another run has published meanwhile; its dataset stands.
    """
    path, data = _manifest_path(directory), manifest.to_bytes()
    noted = f"{work_folder(directory)}/{_PUBLISHING}/{place}"
    note = {
        "former": (_at(path) or b"").decode() if seen else "",
        "new": data.decode(),
        "pointers": {name: text.decode() for name, text in pointers.items()},
    }
    if place:
        files.write_file(noted, json.dumps(note).encode(), attempts="")
    try:
        put_if(path, data, seen)
    except OvertakenError as error:
        # The answer to a first try may have been lost.
        if _at(path) != data:
            if place:
                files.remove_file(noted)
            raise CommitError(
                f"The target must be as it was when the run started; {directory!r} was "
                f"written by another run since. Its dataset stands; run again."
            ) from error
    if place:
        _end_publication(directory, note)
        files.remove_file(noted)


def recover(directory: str) -> None:
    """Ends what publications have begun; safe to call at any time."""
    folder = f"{work_folder(directory)}/{_PUBLISHING}"
    for name in names_in(folder):
        noted = _at(f"{folder}/{name}")
        note = json.loads(noted) if noted else {}
        stands = _at(_manifest_path(directory))
        # Where the old manifest stands, it may be about to be replaced.
        if note and stands is not None and stands.decode() != note["former"]:
            _end_publication(directory, note)
            files.remove_file(f"{folder}/{name}")


def _end_publication(directory: str, note: Mapping[str, Any]) -> None:
    """Puts what belongs to the manifest that stands, and removes what it replaced."""
    path = _manifest_path(directory)
    stands = files.read_bytes(path)
    manifest = Manifest.from_bytes(stands, path)
    if stands.decode() == note["new"]:
        for name, text in sorted(note["pointers"].items()):
            files.write_file(f"{directory}/{name}", text.encode(), attempts="")
    if not note["former"]:
        return
    former = Manifest.from_bytes(note["former"].encode(), path)
    kept = {*manifest.root_names, MANIFEST_NAME}
    for name in former.root_names:
        if name not in kept:
            files.remove_file(f"{directory}/{name}")
    if former.folder:
        same = former.folder == manifest.folder
        stay = {*manifest.file_names} if same else set()
        for name in sorted({*former.file_names} - stay):
            files.remove_file(f"{directory}/{former.folder}/{name}")


def _at(path: str) -> bytes | None:
    try:
        return files.read_bytes(path)
    except FileNotFoundError:
        return None


def _wants_extra(path: str, what: str) -> TargetError:
    extra = object_clients.extra_of(path)
    advice = (
        f"Install it with pip install 'beam-tfrecord[{extra}]', or choose"
        if extra
        else "Choose"
    )
    return TargetError(
        f"{what} needs a store that writes on a condition, and its own client; "
        f"{split_remote(path)[0]!r} is reached without one. {advice} another output."
    )


def _manifest_path(directory: str) -> str:
    return f"{directory}/{MANIFEST_NAME}"


def _shown(names: list[str]) -> str:
    more = len(names) - _SHOWN
    shown = ", ".join(repr(name) for name in names[:_SHOWN])
    return f"{shown} and {more} more" if more > 0 else shown
