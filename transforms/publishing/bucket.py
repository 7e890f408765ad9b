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
put; the work of the run itself, after that; and what the command `clean` is asked to.
A run that fails removes nothing, for another run of its job may be about to publish it.
A run renews its note before it looks at its files for the last time. Only a run that
sleeps between that look and its manifest for longer than `clean --older-than` is not
seen.

Nothing else is known of other runs: there are no leases, and nobody waits for the dead.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import secrets
from typing import Any

from transforms.core.files import is_data_folder
from transforms.core.manifest import DERIVED_FOLDERS, MANIFEST_NAME, Manifest
from transforms.errors import DamageError, RaceError, TargetError
from transforms.publishing.published import (
    SHARED,
    Target,
    bytes_or_none,
    holds_others,
    manifest_or_none,
    manifest_to_replace,
    overtaken,
)
from transforms.sidecars.tfds import pointers_to
from transforms.storage.files import storage
from transforms.storage.paths import split_remote, work_folder
from transforms.storage.retry import OvertakenError
from transforms.storage.stores import bucket_of, walk
from transforms.work.store import Store

USES = "uses"
_WORD_BYTES = 6
# A file that seems foreign may belong to a run that has just published; so look again.
_LOOKS = 3


@dataclasses.dataclass(frozen=True, slots=True)
class BucketTarget(Target):
    """A target in an object store, and the work folder beside it.

    Nothing is known of other runs, nor whether they are dead: so nothing is held, and
    only `clean` takes what others have left.

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
        names: set[str] = set()
        with contextlib.suppress(FileNotFoundError):
            names = {*storage(self.directory).names_with(DERIVED_FOLDERS)}
        names = {name for name in names if not is_data_folder(name)}
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
            manifest = manifest_or_none(self.directory)
            if manifest is not None and manifest.folder:
                note = self.note(manifest.folder)
                if note is not None and note.get("publishes"):
                    self.settle()
                    storage(self.note_path(manifest.folder)).remove_file()

    def work_path(self, digest: str, *, seen: str) -> str:
        return f"{self.work}/{digest}-{_hash_word(seen)}"

    def open_store(
        self, store: Store, *, job: str, seen: str, alone: bool = False
    ) -> Store:
        token = new_word()
        word = _hash_word(f"{seen} {token}" if alone else seen)
        if self.state() != seen:
            there = manifest_or_none(self.directory)
            if there is None or there.folder != f"data-{job}-{word}":
                raise overtaken(self.directory)
            # Another run of this job was quicker, which the commit finds.
        folder = store.folder
        while not self._claim(name := f"data-{job}-{word}", os.path.basename(folder)):
            # `clean` removes the folder, and the work of the runs that used it.
            word = _hash_word(word)
            folder = f"{self.work}/{store.name[:32]}-{word}"
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
        for name in storage(f"{self.work}/{USES}").names_if_there():
            if name.startswith(own):
                storage(self.note_path(name)).remove_file()

    def publish(self, store: Store, manifest: Manifest, *, seen: str) -> None:
        former = manifest_or_none(self.directory) if seen else None
        manifest = self._complete(manifest, store.place, former)
        is_put = False
        if self._claim(store.place, store.name, again=True, publishes=True):
            with contextlib.suppress(OvertakenError):
                self._swap(manifest, seen)
                is_put = True
        if not is_put:
            there = manifest_or_none(self.directory)
            own = (store.place, manifest.run.get("job"))
            if there is None or (there.folder, there.run.get("job")) != own:
                if self.state() != seen:
                    raise overtaken(self.directory)
                raise self._is_removed(store.place)
            # Another run of the same job was quicker.
            self.settle()
            return
        self.settle()
        if former is not None and former.folder not in ("", manifest.folder):
            for name in sorted({*former.file_names} - {MANIFEST_NAME}):
                storage(f"{self.directory}/{former.folder}/{name}").remove_file()

    def end(self, store: Store) -> None:
        store.remove_tree(store.folder)
        storage(self.note_path(store.place)).remove_file()
        self.remove_empty()

    def leave(self, store: Store, *, seen: str) -> bool:
        return self.state() != seen

    def open_derived(self, store: Store, manifest: Manifest) -> Store:
        if manifest.folder and not self._claim(manifest.folder, store.name):
            raise self._is_removed(manifest.folder)
        return dataclasses.replace(
            store, placed=manifest.path(self.directory, "").rstrip("/")
        )

    def add_derived(self, store: Store, manifest: Manifest, *, seen: str) -> None:
        if manifest.folder and not self._claim(manifest.folder, store.name, again=True):
            raise OvertakenError(manifest.folder)
        self._swap(manifest, seen)

    @property
    def work(self) -> str:
        return work_folder(self.directory)

    @property
    def _manifest(self) -> str:
        return f"{self.directory}/{MANIFEST_NAME}"

    def note_path(self, name: str) -> str:
        """Returns the path of the note on a data folder."""
        return f"{self.work}/{USES}/{name}"

    def note(self, name: str) -> dict[str, Any] | None:
        data = bytes_or_none(self.note_path(name))
        if data is None:
            return None
        # What is no note of ours may be of a run: it is only as old as it is.
        with contextlib.suppress(ValueError):
            if isinstance(note := json.loads(data), dict):
                return note
        return {}

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
        path, version = self.note_path(name), ""
        facts: dict[str, Any] = {"work": work, "run": new_word()}
        if publishes:
            facts["publishes"] = True
        while True:
            if version or not again:
                with contextlib.suppress(OvertakenError):
                    storage(path).put_if(
                        json.dumps(facts).encode(), version, attempts=self.work
                    )
                    return True
            version, note = storage(path).look().version, self.note(name)
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
            storage(self._manifest).put_if(data, seen, attempts=self.work)
        except OvertakenError:
            # The first try may have put it, and only its answer was lost.
            if bytes_or_none(self._manifest) != data:
                raise

    def settle(self) -> None:
        """Writes the pointers of the current manifest, and removes replaced files.

        Again where another run has published in between: its pointers may be written
        over by now.
        """
        ended, current = None, bytes_or_none(self._manifest)
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
                        pointers[name], attempts=self.work
                    )
            ended, current = current, bytes_or_none(self._manifest)

    def named(self) -> set[str]:
        """Returns the paths of all that the current manifest names."""
        manifest = manifest_or_none(self.directory)
        if manifest is None:
            return set()
        own = {manifest.path(self.directory, name) for name in manifest.file_names}
        root = (MANIFEST_NAME, *manifest.root_names, *manifest.replaced_names)
        return own | {f"{self.directory}/{name}" for name in root}

    def _is_removed(self, name: str) -> RaceError:
        return RaceError(
            f"The files of a run must stay until it has published them; in "
            f"{f'{self.directory}/{name}'!r} some are missing, or 'beam-tfrecord "
            f"clean' removes them. Nothing was committed; run again."
        )

    def remove_empty(self) -> None:
        if not bucket_of(self.work).flat:
            for folder in (f"{self.work}/{USES}", self.work):
                if not storage(folder).names_if_there():
                    storage(folder).remove_tree()


def _hash_word(text: str) -> str:
    """Returns a short hash of a text in hex, for the name of a folder."""
    return hashlib.blake2b(text.encode(), digest_size=_WORD_BYTES).hexdigest()


def new_word() -> str:
    """Returns a word that no other object holds."""
    # The version that S3 tells of an object is a digest of its content.
    return secrets.token_hex(_WORD_BYTES)
