"""A target in an object store: hold it, check it, publish to it.

Nothing can be renamed there, so files are put where they stay, and `manifest.json`
comes last, on the condition that it is still what the run has seen at its start. Until
then what is there is no dataset; afterwards it is one, whole.

    <target>/manifest.json
    <target>/<files>               of a dataset where none stood before
    <target>/data-<job>-<word>/    of a dataset that has replaced one: its files,
                                   which its manifest names; TFDS's beside that
    .<name>.beam-tfrecord/         the work folder; see `work_folder`
      holder, others/<run>         the runs at work; see `bucket_runs`
      places/<folder>              the work of each job that puts files into a folder
      names/<work>/<file>          what a job may have put into the target itself
      publishing/<folder>          the manifest that its job is replacing; see
                                   `transforms.publishing.bucket.publication`
      <work>/                      the work of a job; see `transforms.work.store`

Nothing can be renamed together with a marker, so what is ours in the work folder is
known by the forms of these names alone. Anything else there is left.

No two datasets ever use one such folder: the word is of what the dataset replaces, and
so a run that begins again finds what it has finished. Files of the target itself may be
written where no dataset is and no other run is at work, which is looked at in the
reverse order: another run may have come, published and gone since this one has looked
at the target for the first time.

Locks that end with their process do not exist there. A run whose process is gone from
this machine is dead, and its work is taken over; of one on another machine nothing is
known, and so it is left alone: the later run works apart, in folders that end in a word
of its own, and the manifest decides which of the two has won.
"""

import contextlib
import dataclasses
import functools
import hashlib
import re

from transforms import files
from transforms.core.manifest import MANIFEST_NAME, Manifest
from transforms.errors import DamageError, TargetError, first_few
from transforms.publishing.bucket.publication import (
    PUBLISHING,
    manifest_path,
    mend_pointers,
    names_being_replaced,
    overtaken,
    published,
    recover,
)
from transforms.publishing.bucket.runs import (
    HOLDER,
    OTHERS,
    forget_dead,
    held,
    names_in,
    others,
)
from transforms.publishing.bucket.versions import version_of
from transforms.storage import object_clients
from transforms.storage.file_systems import asked
from transforms.storage.paths import split_remote, work_folder

__all__ = [
    "check_contents",
    "check_replaceable",
    "check_work_folder",
    "clear",
    "foreign_names",
    "place_of",
    "remove_job",
    "remove_notes",
    "remove_work",
    "state",
    "works_in",
]

_NAMES = "names"
_PLACES = "places"
_WORK = re.compile(r"[0-9a-f]{32}(-[0-9a-f]{12})?")
# Where a file is renamed when it is whole, a killed run may leave it under such a name.
_PARTIAL = re.compile(r"\.(holder|manifest\.json)\.[0-9a-f]{12}\.tmp")
_WORD_BYTES = 6
# What seems to be foreign may be a run's that has just ended.
_LOOKS = 3
# How many foreign names an error shows.
_SHOWN = 5


def state(directory: str) -> str:
    """Returns a word for the dataset that is there now; "" for none."""
    return version_of(manifest_path(directory))


def check_contents(directory: str) -> Manifest | None:
    """Returns the manifest of the dataset at the target, or None.

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
    for _ in range(_LOOKS):
        manifest, foreign = _contents(directory)
        if not foreign:
            return manifest
    what = "what its manifest names" if manifest else "a dataset of this tool"
    shown = first_few([*map(repr, foreign)], _SHOWN)
    raise TargetError(
        f"The output may hold only {what}; {directory!r} holds {shown}. "
        f"Move that away, or choose another output."
    )


def _contents(directory: str) -> tuple[Manifest | None, list[str]]:
    """Returns the manifest of a target, if any, and the names of foreign files."""
    names = names_in(directory)
    manifest = None
    if MANIFEST_NAME in names:
        try:
            manifest = published(directory)
        except (DamageError, OSError) as error:
            raise TargetError(
                f"What is at {directory!r} cannot be replaced safely: {error} "
                f"Move it away, or choose another output."
            ) from error
    return manifest, sorted(set(names) - _known(directory, manifest))


def _known(directory: str, manifest: Manifest | None) -> set[str]:
    """Returns the names in a target that are ours: of its dataset, and of runs."""
    notes = _notes(directory)
    known = {*notes.places, *(name for _, name in notes.announced)}
    known |= names_being_replaced(directory, notes.begun)
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
      directory: the target, which the run holds.
      apart: see `transforms.publishing.bucket.runs.held`.
      job: its digest.
      work: the name of its work folder.
      seen: the state of the target when the run started.

    Raises:
      CommitError: another run has published since; nothing has been written.
    """
    if state(directory) != seen:
        # It has come and gone: what it has put must not be written over.
        raise overtaken(directory)
    folder = work_folder(directory)
    if not apart and not seen:
        return directory, f"{folder}/{_NAMES}/{work}"
    word = apart or hashlib.blake2b(seen.encode(), digest_size=_WORD_BYTES).hexdigest()
    name = f"data-{job}-{word}"
    files.write_file(f"{folder}/{_PLACES}/{name}", work.encode(), attempts="")
    return f"{directory}/{name}", ""


@dataclasses.dataclass(frozen=True, slots=True)
class _Notes:
    """What runs have said of their work.

    Attributes:
      places: names of folders in the target that jobs put their files into.
      announced: (work digest, file) of all that may have been put into the target.
      begun: names of notes on publications.
    """

    places: list[str]
    announced: list[tuple[str, str]]
    begun: list[str]


def _notes(directory: str) -> _Notes:
    """Returns the notes in a work folder: most are empty, each list is a request."""
    folder = work_folder(directory)
    there = names_in(folder)
    _check_ours(folder, there)

    def below(name: str) -> list[str]:
        return names_in(f"{folder}/{name}") if name in there else []

    return _Notes(below(_PLACES), _announced(folder, below(_NAMES)), below(PUBLISHING))


def check_work_folder(directory: str) -> None:
    """Raises TargetError where the work folder of a target holds only foreign files."""
    folder = work_folder(directory)
    _check_ours(folder, names_in(folder))


def _check_ours(folder: str, names: list[str]) -> None:
    foreign = [name for name in names if not _is_ours(name)]
    shown = [name for name in foreign if not files.is_hidden(name)]
    if shown and len(foreign) == len(names):
        raise TargetError(
            f"The work folder beside the output must be one that beam-tfrecord has "
            f"made; {folder!r} was made by something else: it holds "
            f"{first_few([*map(repr, shown)], _SHOWN)}. Move it away, or choose "
            f"another output."
        )
    is_tree = object_clients.client_of(folder) is None
    if not names and is_tree and files.is_file(folder):
        raise TargetError(
            f"The work folder beside the output must be a folder; {folder!r} is a "
            f"file. Move it away, or choose another output."
        )


def _is_ours(name: str) -> bool:
    fixed = (HOLDER, OTHERS, _PLACES, _NAMES, PUBLISHING)
    return name in fixed or any(form.fullmatch(name) for form in (_WORK, _PARTIAL))


def foreign_names(folder: str) -> list[str]:
    """Returns the names of what is not ours in a work folder."""
    return [name for name in names_in(folder) if not _is_ours(name)]


def works_in(folder: str) -> list[str]:
    """Lists the folders in a work folder, one for each job."""
    return [name for name in names_in(folder) if _WORK.fullmatch(name)]


def _announced(folder: str, works: list[str]) -> list[tuple[str, str]]:
    return [(w, name) for w in works for name in names_in(f"{folder}/{_NAMES}/{w}")]


def remove_work(directory: str, *, work: str = "", place: str = "") -> None:
    """Removes what dead runs have put into a target and its work folder.

    The dataset stays, and what its publication has left to do is done; and so does
    all, where another machine's run may be at work.

    Args:
      directory: the target, which the run holds.
      work: what stays, of one work; empty for none.
      place: the folder that its files go to; empty for the target itself.
    """
    folder = work_folder(directory)
    notes, uploads = _notes(directory), _uploads(directory)
    names = names_in(folder)
    # First listed, then asked: whose work was listed has said before that it is there.
    if OTHERS in names and others(folder):
        return
    recover(directory, notes.begun)
    places = [name for name in notes.places if name != place]
    works = sorted({whose for whose, _ in notes.announced if place or whose != work})
    kept = _kept(directory) if places or works else set()
    for name in places:
        _remove_place(directory, name, kept)
    for whose in works:
        _remove_announced(directory, whose, kept)
    for name in names:
        if name != work and _WORK.fullmatch(name):
            files.remove_tree(f"{folder}/{name}")
        elif _PARTIAL.fullmatch(name):
            files.remove_file(f"{folder}/{name}")
    client = object_clients.client_of(directory)
    for key, upload in uploads:
        if client is not None:
            asked(directory, functools.partial(client.give_up, key, upload))


def _uploads(directory: str) -> list[tuple[str, str]]:
    """Returns the unfinished uploads of runs on a target; see `Client.uploads`."""
    client = object_clients.client_of(directory)
    if client is None:
        return []
    key, work = (split_remote(each)[1] for each in (directory, work_folder(directory)))
    found = [
        each
        for prefix in (key, f"{work}/")
        for each in asked(directory, functools.partial(client.uploads, prefix))
    ]
    # Of rejects too, which are beside the target.
    ours = (f"{key}/", f"{key}.rejects.", f"{work}/")
    return [(name, upload) for name, upload in found if name.startswith(ours)]


def _places(folder: str) -> list[tuple[str, str]]:
    """Returns (folder in the target, work) of jobs that have folders of their own."""
    found = []
    for name in names_in(f"{folder}/{_PLACES}"):
        # Those of runs that end meanwhile go.
        with contextlib.suppress(FileNotFoundError):
            work = files.read_bytes(f"{folder}/{_PLACES}/{name}").decode()
            found.append((name, work))
    return found


def _remove_place(directory: str, name: str, kept: set[str]) -> None:
    if name not in kept:
        files.remove_tree(f"{directory}/{name}")
    files.remove_file(f"{work_folder(directory)}/{_PLACES}/{name}")


def _remove_announced(directory: str, work: str, kept: set[str]) -> None:
    """Removes what one work has put into the target itself, and then the notes."""
    notes = f"{work_folder(directory)}/{_NAMES}/{work}"
    names = names_in(notes)
    for name in names:
        if name not in kept:
            files.remove_file(f"{directory}/{name}")
    if names:
        mend_pointers(directory, work)
        files.remove_tree(notes)


def remove_job(directory: str, work: str) -> None:
    """Removes all that the runs of one work have put there, but the dataset."""
    folder = work_folder(directory)
    kept = _kept(directory)
    for name, whose in _places(folder):
        if whose == work:
            _remove_place(directory, name, kept)
    _remove_announced(directory, work, kept)
    files.remove_tree(f"{folder}/{work}")


def remove_notes(directory: str, work: str, *, place: str) -> None:
    """Removes the notes on what one work has put there: it belongs to the dataset.

    Args:
      directory: the target.
      work: that has published.
      place: see `remove_work`.
    """
    folder = work_folder(directory)
    if place:
        files.remove_file(f"{folder}/{_PLACES}/{place}")
    else:
        files.remove_tree(f"{folder}/{_NAMES}/{work}")


def clear(directory: str, *, sure: bool) -> None:
    """Removes all unfinished work on a target; a begun publication is ended first.

    Args:
      directory: the target.
      sure: whether what other machines have begun is known to be dead. If not,
        nothing is done where there is any.

    Raises:
      TargetError: a run on this machine is at work there, or the work folder holds
        only foreign files.
    """
    folder = work_folder(directory)
    check_work_folder(directory)
    if names_in(folder) and forget_dead(folder, sure=sure):
        with held(directory) as apart:
            if not apart:
                remove_work(directory)
    if sure and not names_in(folder):
        # Some stores keep a folder that is empty.
        files.remove_tree(folder)


def _kept(directory: str) -> set[str]:
    """Returns the names in a target that belong to its dataset."""
    manifest = published(directory)
    if manifest is None:
        return set()
    return {*manifest.root_names, manifest.folder, MANIFEST_NAME}


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
