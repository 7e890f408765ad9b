"""A target in an object store: files that are put once, and one swap of the manifest.

    <target>/manifest.json          put last, if it still is what the run has seen
    <target>/<pointers>             for readers that look there for files
    <target>/data-<job>-<word>/     the files of a dataset
    .<name>.beam-tfrecord/
      <work>-<word>/                unfinished work; see `transforms.work.store`
      uses/<data folder>            the note of the runs that put files there

A data folder is named by a digest of all that decides the bytes of its files, and by a
word for the manifest that the run has seen when it started. So runs of one job put
equal files under equal names, and may be at work at the same time; runs of other jobs
have other folders. No file there is ever replaced: it is put only if it is absent, and
what is there already must be equal (`transforms.storage.remote`). The manifest
decides: of two runs the first to put it has won, for the other has seen an older one.

Only three things are removed: what the replaced manifest names, after the new one is
put; the work of the run itself, after that; and what `clean` is asked to. A run that
fails removes nothing, for another run of its job may be about to publish it.

`clean` takes what is old. A run may go on with old files, so both write the note first,
on the condition that it is as they have read it. Where `clean` was first, the run goes
to another folder, or fails; where the run was, `clean` leaves the folder. A run renews
its note before it looks at its files for the last time. Only a run that sleeps between
that look and its manifest for longer than `clean --older-than` is not seen.

Nothing else is known of other runs: there are no leases, and nobody waits for the dead.
"""

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import re
import secrets
import time
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from transforms.core.manifest import (
    DERIVED_FOLDERS,
    MANIFEST_NAME,
    Manifest,
    is_data_folder,
)
from transforms.errors import DamageError, RaceError, TargetError
from transforms.publishing.published import (
    SHARED,
    Target,
    holds_others,
    manifest_to_replace,
    overtaken,
)
from transforms.sidecars.tfds import pointers_to
from transforms.storage.buckets import Upload
from transforms.storage.entries import SECOND_NS, Found, OvertakenError
from transforms.storage.files import storage
from transforms.storage.paths import split_remote, work_folder
from transforms.storage.retry import asked
from transforms.storage.stores import bucket_of, walk
from transforms.work.receipts import count_finished
from transforms.work.store import Store

_USES = "uses"
_WORK = re.compile(rf"[0-9a-f]{{32}}(-[0-9a-f]{{12}})?|{SHARED}[0-9a-f]{{32}}")
# Stores that are trees of files (HDFS) do rename: a killed run may leave such a file.
_PARTIAL = re.compile(r"\..+\.[0-9a-f]{12}\.tmp")
_WORD_BYTES = 6
# A file that seems foreign may belong to a run that has just published; so look again.
_LOOKS = 3


@dataclasses.dataclass(frozen=True, slots=True)
class Leftover:
    """What may be left of one job: its work, and data folders that runs of it used.

    Attributes:
      path: of the work, or of a data folder that no note names.
      bytes: of all of it that no manifest names.
      age: seconds since something of it was put.
      blocks, shards: finished ones that the work holds.
      folders: names of the data folders.
      noted: those of them that have a note.
      uploads: (key, word) of uploads in parts that were not finished.
    """

    path: str
    bytes: int
    age: float
    blocks: int = 0
    shards: int = 0
    folders: tuple[str, ...] = ()
    noted: frozenset[str] = frozenset()
    uploads: tuple[tuple[str, str], ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class BucketTarget(Target):
    """A target in an object store, and the work folder beside it.

    Nothing is known of other runs, nor whether they are dead: so nothing is held, and
    only `remove` takes what others have left.

    Attributes:
      directory: the target.
    """

    directory: str

    def state(self) -> str:
        return storage(self._manifest).look().version

    def check_contents(self) -> Manifest | None:
        # Raises where the client of the store is not installed.
        bucket_of(self.directory)
        place, key = split_remote(self.directory)
        if not key.strip("/"):
            raise TargetError(
                f"The output must be a folder in a bucket, as in {place}/dataset; "
                f"found {self.directory!r}."
            )
        for _ in range(_LOOKS):
            manifest, foreign = self._contents()
            if not foreign:
                return manifest
        raise holds_others(self.directory, manifest, foreign)

    def _contents(self) -> tuple[Manifest | None, list[str]]:
        """Returns the manifest, if any, and the names of foreign files."""
        names = {name for name in self._names() if not is_data_folder(name)}
        manifest = None
        if MANIFEST_NAME in names:
            manifest = manifest_to_replace(self.directory)
            names -= {MANIFEST_NAME, *manifest.root_names, *manifest.replaced_names}
        return manifest, sorted(names)

    def check_replaceable(self) -> None:
        if not bucket_of(self.directory).conditional:
            raise TargetError(
                f"To replace a dataset, or to write the rows of a pipeline, needs a "
                f"store that writes on a condition; "
                f"{split_remote(self.directory)[0]!r} does not. Choose another output."
            )

    def recover(self) -> None:
        """Writes the pointers of a dataset whose run was killed before it could."""
        with contextlib.suppress(DamageError, OSError):
            manifest = self._published()
            if manifest is not None and manifest.folder:
                note = self._note(manifest.folder)
                if note is not None and note.get("publishes"):
                    self._settle()
                    storage(self._use(manifest.folder)).remove_file()

    def work_path(self, digest: str, *, seen: str) -> str:
        return f"{self._folder}/{digest}-{_word_of(seen)}"

    def open_store(
        self, store: Store, *, job: str, seen: str, alone: bool = False
    ) -> Store:
        token = _new_word()
        word = _word_of(f"{seen} {token}" if alone else seen)
        if self.state() != seen:
            there = self._published()
            if there is None or there.folder != f"data-{job}-{word}":
                raise overtaken(self.directory)
            # Another run of this job was quicker, which the commit finds.
        folder = store.folder
        while not self._claim(name := f"data-{job}-{word}", os.path.basename(folder)):
            # `clean` removes the folder, and the work of the runs that used it.
            word = _word_of(word)
            folder = f"{self._folder}/{store.name[:32]}-{word}"
        placed = f"{self.directory}/{name}"
        return dataclasses.replace(store, folder=folder, placed=placed, token=token)

    def open_plan(self, store: Store) -> Store:
        name = f"data-{store.name.removeprefix(SHARED)}-{store.plan}"
        if not self._claim(name, store.name):
            raise self._is_removed(name)
        return dataclasses.replace(
            store, placed=f"{self.directory}/{name}", token=store.plan
        )

    def end_shared(self, store: Store) -> None:
        store.remove_tree(store.folder)
        own = f"data-{store.name.removeprefix(SHARED)}-"
        for name in _names_in(f"{self._folder}/{_USES}"):
            if name.startswith(own):
                storage(self._use(name)).remove_file()

    def publish(self, store: Store, manifest: Manifest, *, seen: str) -> None:
        former = self._published() if seen else None
        manifest = self._complete(manifest, store.place, former)
        is_put = False
        if self._claim(store.place, store.name, again=True, publishes=True):
            with contextlib.suppress(OvertakenError):
                self._swap(manifest, seen)
                is_put = True
        if not is_put:
            there = self._published()
            if there is None or not _is_same(there, manifest):
                if self.state() != seen:
                    raise overtaken(self.directory)
                raise self._is_removed(store.place)
            # Another run of the same job was quicker.
            self._settle()
            return
        self._settle()
        if former is not None and former.folder not in ("", manifest.folder):
            for name in sorted({*former.file_names} - {MANIFEST_NAME}):
                storage(f"{self.directory}/{former.folder}/{name}").remove_file()

    def end(self, store: Store) -> None:
        store.remove_tree(store.folder)
        storage(self._use(store.place)).remove_file()
        self._remove_empty()

    def leave(self, store: Store, *, seen: str) -> bool:
        return self.state() != seen

    def open_derived(self, store: Store, manifest: Manifest) -> Store:
        if manifest.folder and not self._claim(manifest.folder, store.name):
            raise self._is_removed(manifest.folder)
        return dataclasses.replace(
            store, placed=manifest.path(self.directory, "").rstrip("/")
        )

    def add_derived(
        self, store: Store, manifest: Manifest, *, seen: str, replaced: Collection[str]
    ) -> None:
        if manifest.folder and not self._claim(manifest.folder, store.name, again=True):
            raise OvertakenError(manifest.folder)
        self._swap(manifest, seen)

    def leave_derived(self, store: Store) -> None:
        if store.place and is_data_folder(store.place):
            storage(self._use(store.place)).remove_file()
        self._remove_empty()

    def foreign_names(self) -> list[str]:
        return [
            name
            for name in _names_in(self._folder)
            if name != _USES and not _WORK.fullmatch(name)
            if not _PARTIAL.fullmatch(name)
        ]

    def leftovers(self) -> list[Leftover]:
        """Returns what runs have put there that the manifest does not name."""
        listed = [*walk(self.directory)]
        works = _grouped(self._folder, walk(self._folder))
        uploads = self._uploads()
        # Read after the listing: what was published meanwhile must not be in it.
        named = self._named()
        data = _grouped(
            self.directory, (entry for entry in listed if entry.path not in named)
        )
        notes = {os.path.basename(entry.path): entry for entry in works.pop(_USES, ())}
        # The data folders of each job, by its work.
        folders: dict[str, list[str]] = {
            name: []
            for name in works
            if _WORK.fullmatch(name) or _PARTIAL.fullmatch(name)
        }
        for name in sorted(filter(is_data_folder, notes)):
            note = self._note(name)
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
                *(count_finished(Store(path)) if work else (0, 0)),
                tuple(names),
                frozenset(notes.keys() & {*names}),
            )

        out = [
            left(f"{self._folder}/{work}", work, names)
            for work, names in sorted(folders.items())
        ]
        out += [
            left(f"{self.directory}/{name}", "", [name])
            for name in sorted(filter(is_data_folder, data.keys() - notes.keys()))
        ]
        if uploads:
            begun = max(entry[2] for entry in uploads)
            words = tuple((key, word) for key, word, _ in uploads)
            path = f"{self._folder}/uploads"
            out.append(Leftover(path, 0, time.time() - begun, uploads=words))
        return out

    def remove(self, left: Leftover, *, older_than: float) -> bool:
        """Removes a leftover; returns False where a run has begun to use it.

        Args:
          left: as `leftovers` has given it.
          older_than: seconds since something of it was put.
        """
        if left.age < older_than:
            return False
        bucket = bucket_of(self.directory)
        for name in left.folders:
            path = self._use(name)
            look = storage(path).look()
            # HDFS has no clock to tell the age by.
            is_young = bucket.conditional and look.age < older_than
            if bool(look.version) != (name in left.noted) or (
                look.version and is_young
            ):
                return False
            note = {"work": os.path.basename(left.path), "removed": _new_word()}
            try:
                storage(path).put_if(
                    json.dumps(note).encode(), look.version, attempts=self._folder
                )
            except OvertakenError:
                return False
        # Nobody can publish these folders any more; one that is published stays.
        named = self._named()
        for name in left.folders:
            folder = f"{self.directory}/{name}"
            if any(path.startswith(f"{folder}/") for path in named):
                for entry in [*walk(folder)]:
                    if entry.path not in named:
                        storage(entry.path).remove_file()
            else:
                storage(folder).remove_tree()
        parent, work = os.path.split(left.path)
        if parent == self._folder and _PARTIAL.fullmatch(work):
            storage(left.path).remove_file()
        elif parent == self._folder and _WORK.fullmatch(work):
            storage(left.path).remove_tree()
        for name in left.folders:
            storage(self._use(name)).remove_file()
        for key, word in left.uploads:
            asked(self.directory, functools.partial(bucket.give_up, key, word))
        self._remove_empty()
        return True

    def mend(self) -> None:
        """Writes the pointers of the dataset again, if it has any."""
        manifest = self._published()
        if manifest is not None and manifest.folder:
            self._settle()

    @property
    def _folder(self) -> str:
        return work_folder(self.directory)

    @property
    def _manifest(self) -> str:
        return f"{self.directory}/{MANIFEST_NAME}"

    def _use(self, name: str) -> str:
        """Returns the path of the note on a data folder."""
        return f"{self._folder}/{_USES}/{name}"

    def _note(self, name: str) -> dict[str, Any] | None:
        data = _at(self._use(name))
        if data is None:
            return None
        # What is no note of ours may be of a run: it is only as old as it is.
        with contextlib.suppress(ValueError):
            if isinstance(note := json.loads(data), dict):
                return note
        return {}

    def _published(self) -> Manifest | None:
        """Returns the current manifest, or None. Raises DamageError."""
        data = _at(self._manifest)
        return None if data is None else Manifest.from_bytes(data, self._manifest)

    def _names(self) -> list[str]:
        try:
            return storage(self.directory).names_with(DERIVED_FOLDERS)
        except FileNotFoundError:
            return []

    def _claim(
        self, name: str, work: str, *, again: bool = False, publishes: bool = False
    ) -> bool:
        """Notes that a run puts files into a data folder.

        Args:
          name: of the folder.
          work: the name of the run's work.
          again: whether the run has noted it before; then the note must be there.
          publishes: whether the run is about to put the manifest.

        Returns:
          False where `clean` removes the folder, or its note is gone.
        """
        path, version = self._use(name), ""
        facts: dict[str, Any] = {"work": work, "run": _new_word()}
        if publishes:
            facts["publishes"] = True
        while True:
            if version or not again:
                with contextlib.suppress(OvertakenError):
                    storage(path).put_if(
                        json.dumps(facts).encode(), version, attempts=self._folder
                    )
                    return True
            version, note = storage(path).look().version, self._note(name)
            if (again and note is None) or (note is not None and "removed" in note):
                return False

    def _complete(
        self, manifest: Manifest, folder: str, former: Manifest | None
    ) -> Manifest:
        """Returns a manifest that says where its files and those that point there are.

        It names those of the replaced dataset as well: where this run is killed, the
        next one knows that they are no foreign files.
        """
        pointers = pointers_to(folder, manifest)
        run = {**manifest.run, "folder": folder, "pointers": sorted(pointers)}
        if former is not None:
            # The run of the replaced dataset may be about to write its pointers.
            old = {*former.root_names, *former.replaced_names} - pointers.keys()
            if old:
                run["replaced"] = sorted(old)
        return dataclasses.replace(manifest, run=run)

    def _missing(self, manifest: Manifest) -> list[str]:
        """Returns the files of a manifest that are not there in their sizes."""
        folder = manifest.path(self.directory, "").rstrip("/")
        sizes = {entry.path: entry.size for entry in walk(folder)}
        shards = [shard for split in manifest.splits for shard in split.shards]
        return [
            facts.file
            for facts in (*shards, *manifest.beside)
            if sizes.get(f"{folder}/{facts.file}") != facts.bytes
        ]

    def _swap(self, manifest: Manifest, seen: str) -> None:
        """Puts a manifest whose files are all there.

        Raises:
          OvertakenError: a file is missing, or there is another manifest than `seen`.
        """
        if missing := self._missing(manifest):
            raise OvertakenError(missing[0])
        data = manifest.to_bytes()
        try:
            storage(self._manifest).put_if(data, seen, attempts=self._folder)
        except OvertakenError:
            # The first try may have put it, and only its answer was lost.
            if _at(self._manifest) != data:
                raise

    def _settle(self) -> None:
        """Writes the pointers of the current manifest, and removes replaced files.

        Again where another run has published in between: its pointers may be written
        over by now.
        """
        ended, current = None, _at(self._manifest)
        written: set[str] = set()
        while current is not None and current != ended:
            manifest = Manifest.from_bytes(current, self._manifest)
            old = {*manifest.replaced_names, *written} - {*manifest.root_names}
            for name in sorted(old):
                storage(f"{self.directory}/{name}").remove_file()
            written |= {*manifest.root_names}
            if manifest.folder:
                pointers = pointers_to(manifest.folder, manifest)
                for name in sorted(pointers.keys() & {*manifest.root_names}):
                    storage(f"{self.directory}/{name}").write_file(
                        pointers[name], attempts=self._folder
                    )
            ended, current = current, _at(self._manifest)

    def _named(self) -> set[str]:
        """Returns the paths of all that the current manifest names."""
        manifest = self._published()
        if manifest is None:
            return set()
        own = {manifest.path(self.directory, name) for name in manifest.file_names}
        root = (MANIFEST_NAME, *manifest.root_names, *manifest.replaced_names)
        return own | {f"{self.directory}/{name}" for name in root}

    def _uploads(self) -> list[Upload]:
        """Returns the unfinished uploads of runs on the target."""
        bucket = bucket_of(self.directory)
        key = split_remote(self.directory)[1]
        work = split_remote(self._folder)[1]
        prefixes = (f"{key}/", f"{key}.rejects.", f"{work}/")
        return [
            upload
            for prefix in prefixes
            for upload in asked(
                self.directory, functools.partial(bucket.uploads, prefix)
            )
        ]

    def _is_removed(self, name: str) -> RaceError:
        return RaceError(
            f"The files of a run must stay until it has published them; in "
            f"{f'{self.directory}/{name}'!r} some are missing, or 'beam-tfrecord "
            f"clean' removes them. Nothing was committed; run again."
        )

    def _remove_empty(self) -> None:
        if not bucket_of(self._folder).flat:
            for folder in (f"{self._folder}/{_USES}", self._folder):
                if not _names_in(folder):
                    storage(folder).remove_tree()


def _grouped(folder: str, found: Iterable[Found]) -> dict[str, list[Found]]:
    """Returns files by the first name of their paths in a folder."""
    out: dict[str, list[Found]] = {}
    for entry in found:
        name = entry.path.removeprefix(f"{folder}/").partition("/")[0]
        out.setdefault(name, []).append(entry)
    return out


def _is_same(there: Manifest, manifest: Manifest) -> bool:
    """Whether a run of the same job, which has put the same files, has published."""
    same = there.run.get("job") == manifest.run.get("job")
    return same and there.folder == manifest.folder


def _word_of(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=_WORD_BYTES).hexdigest()


def _new_word() -> str:
    # The version that S3 tells of an object is a digest of its content.
    return secrets.token_hex(_WORD_BYTES)


def _names_in(folder: str) -> list[str]:
    """Returns the names of what is in a folder; none where there is no such."""
    try:
        return storage(folder).names_in()
    except FileNotFoundError:
        return []


def _at(path: str) -> bytes | None:
    try:
        return storage(path).read_bytes()
    except FileNotFoundError:
        return None
