"""A target in an object store: hold it, check it, publish to it.

Nothing can be renamed there, so files are put where they stay, and `manifest.json`
comes last, on the condition that it is still what the run has seen at its start. Before
that there is no dataset; afterwards there is a whole one.

    <target>/manifest.json
    <target>/<files>               of a dataset that replaces none
    <target>/data-<job>-<word>/    of a dataset that has replaced one: its files,
                                   which its manifest names; TFDS's beside that
    .<name>.beam-tfrecord/         the work folder; see `work_folder`
      holder, others/<run>         the runs at work; see `bucket_runs`
      places/<folder>              the work of each job that puts files into a folder
      names/<work>/<file>          what a job may have put into the target itself, or
                                   into the folder of the dataset that is there
      publishing/<folder>          the manifest that its job is replacing; see
                                   `transforms.publishing.bucket.publication`
      <work>/                      the work of a job; see `transforms.work.store`

Nothing can be renamed together with a marker, so our files in the work folder are known
by the forms of these names alone. Anything else is left there.

No two datasets ever share a folder `data-...`: its word is a digest of what the dataset
replaces, so a run that begins again finds what it has finished. Files are put into the
target itself only where there is no dataset and no other run is at work. These two are
checked in the reverse order: another run may have come, published and ended since this
one has looked
at the target for the first time.

Locks that end with their process do not exist there. A run whose process is gone from
this machine is dead, and its work is taken over. One on another machine renews its
note; see `transforms.work.lease`. Once that has expired, a run of the same job goes on
with its work: both would write the same files. Any other run works apart, in folders
that end in a word of its own. The manifest decides which of the two has won, and what
an expired run has left is removed only after that.
"""

import contextlib
import dataclasses
import functools
import hashlib
import re
import secrets
from collections.abc import Callable, Collection

from transforms import files
from transforms.core.manifest import MANIFEST_NAME, Manifest, is_data_folder
from transforms.errors import DamageError, TargetError, first_few
from transforms.publishing.bucket.publication import (
    PUBLISHING,
    manifest_path,
    names_being_replaced,
    overtaken,
    publish,
    published,
    recover,
    rewrite_pointers,
)
from transforms.publishing.bucket.runs import (
    HOLDER,
    OTHERS,
    Hold,
    beside,
    forget_dead,
    forget_expired,
    forget_job,
    held,
    names_in,
    names_with,
    note_job,
)
from transforms.storage import object_clients
from transforms.storage.file_systems import asked
from transforms.storage.object_store import OvertakenError
from transforms.storage.paths import split_remote, work_folder
from transforms.work.receipts import count_finished
from transforms.work.store import Store
from transforms.work.versions import look_at, put_if, version_of

SHARED = "rows-"
"""How the names of shared runs begin; see `transforms.publishing.shared_run`."""

_NAMES = "names"
_PLACES = "places"
_WORK = re.compile(rf"[0-9a-f]{{32}}(-[0-9a-f]{{12}})?|{SHARED}[0-9a-f]{{32}}")
# Stores that are trees of files (HDFS) do rename: a killed run may leave such a file.
_PARTIAL = re.compile(r"\.(holder|manifest\.json)\.[0-9a-f]{12}\.tmp")
_WORD_BYTES = 6
# A file that seems foreign may belong to a run that has just ended; so look again.
_LOOKS = 3
# How many foreign names an error shows.
_SHOWN = 5


@dataclasses.dataclass(frozen=True, slots=True)
class BucketTarget:
    """A target in an object store, and the work folder beside it.

    The methods do what the functions of `transforms.publishing.target` and
    `transforms.publishing.work_folder` say.

    Attributes:
      directory: the target.
    """

    directory: str

    def state(self) -> str:
        return version_of(manifest_path(self.directory))

    def check_contents(self) -> Manifest | None:
        place, key = split_remote(self.directory)
        if not key.strip("/"):
            raise TargetError(
                f"The output must be a folder in a bucket, as in {place}/dataset; "
                f"found {self.directory!r}."
            )
        for _ in range(_LOOKS):
            manifest, foreign = _contents(self.directory)
            if not foreign:
                return manifest
        what = "what its manifest names" if manifest else "a dataset of this tool"
        shown = first_few([*map(repr, foreign)], _SHOWN)
        raise TargetError(
            f"The output may hold only {what}; {self.directory!r} holds {shown}. "
            f"Move that away, or choose another output."
        )

    def check_replaceable(self) -> None:
        if object_clients.client_of(self.directory) is None:
            raise _wants_extra(self.directory, "Replacing a dataset")

    def publish(self, store: Store, manifest: Manifest, *, seen: str) -> None:
        """Puts the manifest; the files that it names are in their place."""
        publish(manifest, self.directory, seen=seen)

    def check_work_folder(self) -> None:
        _check_ours(self._folder, names_in(self._folder))

    def held(
        self, job: str = "", say: Callable[[str], None] = lambda _text: None
    ) -> contextlib.AbstractContextManager[Hold]:
        """Holds the work folder; see `transforms.publishing.bucket.runs.held`."""
        return held(self.directory, job, say)

    def recover(self) -> None:
        """Does nothing: `remove_others` and `clear` do it, once no run is at work."""

    def check_shared(self) -> None:
        if object_clients.client_of(self.directory) is None:
            raise _wants_extra(self.directory, "Writing the rows of a pipeline")

    def make_shared(self, store: Store) -> None:
        """Notes the run, so that others leave its work alone."""
        note_job(self.directory, "WriteDataset", engine="a pipeline", token=store.name)

    def open_plan(self, store: Store) -> Store:
        name = f"data-{store.name.removeprefix(SHARED)}-{store.plan}"
        note = f"{self._folder}/{_PLACES}/{name}"
        files.write_file(note, store.name.encode(), attempts="")
        return dataclasses.replace(
            store, placed=f"{self.directory}/{name}", token=store.plan
        )

    def end_shared(self, store: Store) -> None:
        places = [name for name, whose in _places(self._folder) if whose == store.name]
        recover(self.directory, places)
        self._remove_job(store.name)
        forget_job(self.directory, store.name)

    def open_store(self, store: Store, *, hold: Hold, job: str, seen: str) -> Store:
        if self.state() != seen:
            # Another run has published since; its files must not be written over.
            raise overtaken(self.directory)
        apart = hold.apart
        folder = f"{store.folder}-{apart}" if apart else store.folder
        work, token = folder.rpartition("/")[2], secrets.token_hex(_WORD_BYTES)
        if not apart and not seen:
            placed, notes = self.directory, f"{self._folder}/{_NAMES}/{work}"
        else:
            word = hashlib.blake2b(seen.encode(), digest_size=_WORD_BYTES).hexdigest()
            name = f"data-{job}-{apart or word}"
            placed, notes = f"{self.directory}/{name}", ""
            note = f"{self._folder}/{_PLACES}/{name}"
            files.write_file(note, work.encode(), attempts="")
        return dataclasses.replace(
            *(store,),
            folder=folder,
            placed=placed,
            notes=notes,
            token=token,
            lease=hold.lease,
        )

    def remove_others(self, store: Store, hold: Hold) -> tuple[bool, list[str]]:
        # It does not say what it removes or finds: that would take more requests.
        if hold.former is None:
            remove_work(self.directory, hold, work=store.name, place=store.place)
        return False, []

    def leave(self, store: Store, *, hold: Hold, seen: str) -> bool:
        has_changed = self.state() != seen
        if hold.is_lost:
            return has_changed
        is_useless = hold.former is None and not any(count_finished(store))
        if has_changed or hold.apart or is_useless:
            self._remove_job(store.name)
        return has_changed

    def end_publication(self, store: Store, hold: Hold) -> bool:
        """Does what is left to do once the manifest is put.

        Returns whether the work is still this run's: not where its lease was taken.
        """
        recover(self.directory, [store.place or store.name])
        if hold.is_lost:
            return False
        remove_work(self.directory, hold, work=store.name, place=store.place)
        return True

    def forget(self, store: Store) -> None:
        """Removes the notes on what a job has put there: it belongs to the dataset."""
        if store.place:
            files.remove_file(f"{self._folder}/{_PLACES}/{store.place}")
        else:
            files.remove_tree(f"{self._folder}/{_NAMES}/{store.name}")

    def open_derived(self, store: Store, manifest: Manifest, hold: Hold) -> Store:
        parts = [self._folder, _NAMES, store.name, manifest.folder]
        return dataclasses.replace(
            *(store,),
            placed=manifest.path(self.directory, "").rstrip("/"),
            notes="/".join(part for part in parts if part),
            lease=hold.lease,
        )

    def add_derived(
        self, store: Store, manifest: Manifest, *, seen: str, replaced: Collection[str]
    ) -> None:
        path, data = manifest_path(self.directory), manifest.to_bytes()
        try:
            put_if(path, data, seen)
        except OvertakenError:
            # The first try may have put it, and only its answer was lost.
            if files.read_bytes(path) != data:
                raise
        self.forget(store)

    def leave_derived(self, store: Store, *, hold: Hold) -> None:
        if not hold.is_lost:
            self._remove_job(store.name)

    def work_names(self) -> list[str]:
        """Lists the folders in the work folder, one for each job."""
        return [name for name in names_in(self._folder) if _WORK.fullmatch(name)]

    def foreign_names(self) -> list[str]:
        """Returns the names of what is not ours in the work folder."""
        return [name for name in names_in(self._folder) if not _is_ours(name)]

    def clear(self, *, sure: bool) -> None:
        self.check_work_folder()
        manifest = look_at(manifest_path(self.directory))
        if names_in(self._folder) and forget_dead(self._folder, manifest, sure=sure):
            with self.held() as hold:
                if not hold.apart:
                    remove_work(self.directory, hold)
        if sure and not names_in(self._folder):
            # Some stores keep a folder that is empty.
            files.remove_tree(self._folder)

    @property
    def _folder(self) -> str:
        return work_folder(self.directory)

    def _remove_job(self, work: str) -> None:
        """Removes all that the runs of one work have put there, but the dataset."""
        kept = _kept(self.directory)
        for name, whose in _places(self._folder):
            if whose == work:
                _remove_place(self.directory, name, kept)
        _remove_announced(self.directory, work, kept)
        files.remove_tree(f"{self._folder}/{work}")


def _contents(directory: str) -> tuple[Manifest | None, list[str]]:
    """Returns the manifest of a target, if any, and the names of foreign files."""
    names = names_with(directory)
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


@dataclasses.dataclass(frozen=True, slots=True)
class _Notes:
    """Notes that runs have left on their work.

    Attributes:
      places: names of folders in the target that jobs put their files into.
      announced: (work digest, file) of all that may have been put into the target.
      begun: names of notes on publications.
    """

    places: list[str]
    announced: list[tuple[str, str]]
    begun: list[str]


def _notes(directory: str) -> _Notes:
    """Returns the notes in a work folder.

    Each list is a request, and most are empty: folders that are not there are skipped.
    """
    folder = work_folder(directory)
    there = names_in(folder)
    _check_ours(folder, there)

    def below(name: str) -> list[str]:
        return names_in(f"{folder}/{name}") if name in there else []

    return _Notes(below(_PLACES), _announced(folder, below(_NAMES)), below(PUBLISHING))


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


def _announced(folder: str, works: list[str]) -> list[tuple[str, str]]:
    return [(w, name) for w in works for name in _announced_by(folder, w)]


def _announced_by(folder: str, work: str) -> list[str]:
    """Returns the names of what one work may have put into the target."""
    notes, found = f"{folder}/{_NAMES}/{work}", []
    for name in names_with(notes):
        # Derived files of a dataset that has replaced one are in its folder.
        inner = names_with(f"{notes}/{name}") if is_data_folder(name) else []
        found += [f"{name}/{each}" for each in inner] or [name]
    return found


def remove_work(directory: str, hold: Hold, *, work: str = "", place: str = "") -> None:
    """Removes what dead runs have put into a target and its work folder.

    The dataset stays, and its publication is finished. Nothing is done where another
    run may be at work. One whose lease has expired may be in the middle of a last
    write, so what was noted of its files stays, for the next run or `clean`.

    Args:
      directory: the target.
      hold: of the run that asks.
      work: the name of a work whose files stay; empty for none.
      place: the folder that its files go to; empty for the target itself.
    """
    folder = work_folder(directory)
    notes, uploads = _notes(directory), _uploads(directory)
    names = names_in(folder)
    # The order matters: a run notes itself before it puts anything. So every run whose
    # files are in these lists is among the runs that are looked up now.
    expired = False
    if {OTHERS, HOLDER} & {*names}:
        manifest = look_at(manifest_path(directory))
        expired = forget_expired(folder, hold, manifest)
        if beside(folder, hold):
            return
    recover(directory, notes.begun)
    places = [name for name in notes.places if name != place]
    works = sorted({whose for whose, _ in notes.announced if place or whose != work})
    kept = _kept(directory) if places or works else set()
    for name in places:
        _remove_place(directory, name, kept, keep_note=bool(expired))
    for whose in works:
        _remove_announced(directory, whose, kept, keep_note=bool(expired))
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
    # Rejects of a failed run are beside the target.
    ours = (f"{key}/", f"{key}.rejects.", f"{work}/")
    return [(name, upload) for name, upload in found if name.startswith(ours)]


def _places(folder: str) -> list[tuple[str, str]]:
    """Returns (folder in the target, work) of jobs that have folders of their own."""
    found = []
    for name in names_in(f"{folder}/{_PLACES}"):
        # A run that ends meanwhile removes its note.
        with contextlib.suppress(FileNotFoundError):
            work = files.read_bytes(f"{folder}/{_PLACES}/{name}").decode()
            found.append((name, work))
    return found


def _remove_place(
    directory: str, name: str, kept: set[str], *, keep_note: bool = False
) -> None:
    if name not in kept:
        files.remove_tree(f"{directory}/{name}")
    if not keep_note:
        files.remove_file(f"{work_folder(directory)}/{_PLACES}/{name}")


def _remove_announced(
    directory: str, work: str, kept: set[str], *, keep_note: bool = False
) -> None:
    """Removes what one work has put into the target itself, and then the notes."""
    folder = work_folder(directory)
    names = _announced_by(folder, work)
    for name in names:
        if name not in kept:
            files.remove_file(f"{directory}/{name}")
    if names:
        rewrite_pointers(directory, work)
        if not keep_note:
            files.remove_tree(f"{folder}/{_NAMES}/{work}")


def _kept(directory: str) -> set[str]:
    """Returns the names in a target that belong to its dataset."""
    manifest = published(directory)
    if manifest is None:
        return set()
    named = (manifest.path("", name) for name in manifest.file_names)
    return {*manifest.root_names, *named, manifest.folder, MANIFEST_NAME}


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
