"""The output directory on a disk: what may be there, and its replacement in one step.

The dataset is built in the sibling `.<directory>.beam-tfrecord/`, on the same file
system, and published by a rename that replaces nothing (a fresh target) or by an
exchange of the two directories (an overwrite). Nothing is deleted but what an old
manifest names, by its exact name.
"""

import contextlib
import dataclasses
import errno
import functools
import hashlib
import json
import os
import re
import stat

from transforms.core.manifest import DERIVED_FOLDERS, MANIFEST_NAME, Manifest
from transforms.errors import StorageError, TargetError
from transforms.publishing.own_folder import OwnFolder
from transforms.publishing.published import (
    SHARED,
    Target,
    bytes_or_none,
    holds_others,
    manifest_to_replace,
    overtaken,
)
from transforms.storage import folders
from transforms.storage.files import storage
from transforms.storage.folders import rename
from transforms.storage.paths import absolute, work_folder
from transforms.storage.retry import OvertakenError, persistently
from transforms.work.receipts import count_finished
from transforms.work.store import Store

# What the note on a publication, and the folder that it replaces, add to the name of
# the new one.
_NOTE, _ASIDE = ".publishing", ".old"
_WORK = re.compile(rf"({SHARED})?[0-9a-f]{{32}}")


@dataclasses.dataclass(frozen=True, slots=True)
class LocalTarget(Target):
    """A target on a disk, and the work folder beside it.

    Attributes:
      directory: the target.
    """

    directory: str

    def state(self) -> str:
        try:
            names = storage(self.directory).names_with(DERIVED_FOLDERS)
            if not names:
                return ""
            data = storage(os.path.join(self.directory, MANIFEST_NAME)).read_bytes()
            status = persistently(lambda: os.stat(self.directory), path=self.directory)
        except FileNotFoundError:
            return ""
        except OSError as error:
            return f"unreadable: {error.errno}"
        listed = "\0".join(names).encode("utf-8", "surrogateescape")
        digest = hashlib.sha256(data + listed)
        # The inode too: the same dataset, published again, is another state.
        return f"{status.st_ino}-{digest.hexdigest()}"

    def check_contents(self) -> Manifest | None:
        given, directory = self.directory, os.path.abspath(self.directory)
        is_text = given.encode(errors="replace").decode() == given
        if not is_text or "\0" in given or not (given and os.path.basename(directory)):
            raise _unfit_output(given, "is no path of a folder, in UTF-8")
        if storage(absolute(os.curdir)).is_inside(given):
            # It would be pulled from under the shell.
            raise _unfit_output(given, "is the current folder or above it")
        existing = os.path.dirname(directory)
        while not storage(existing).exists():
            existing = os.path.dirname(existing)
        if not storage(existing).is_folder() or not os.access(
            existing, os.W_OK | os.X_OK
        ):
            raise _unfit_output(existing, "is no folder that is writable")
        self.own.check()
        if not storage(directory).exists():
            return None
        if not storage(directory).is_folder() or os.path.islink(directory):
            raise _unfit_output(directory, "is a file or a link")
        names = storage(directory).names_with(DERIVED_FOLDERS)
        if not names:
            return None
        manifest = manifest_to_replace(directory) if MANIFEST_NAME in names else None
        named = manifest.file_names if manifest else ()
        if foreign := sorted({*names} - {*named}):
            raise holds_others(directory, manifest, foreign)
        return manifest

    def check_replaceable(self) -> None:
        """Checks what the exchange of the two folders needs, of this user."""
        directory = os.path.abspath(self.directory)
        _check_writable(directory)
        parent, own = os.stat(os.path.dirname(directory)), os.stat(directory)
        movers = (0, parent.st_uid, own.st_uid)
        if parent.st_mode & stat.S_ISVTX and os.geteuid() not in movers:
            raise _not_changeable(
                directory, "may be moved by its owner alone (sticky bit)"
            )

    def publish(self, store: Store, manifest: Manifest, *, seen: str) -> None:
        """Adds the manifest to the dataset in a work folder, and publishes it."""
        path = os.path.join(store.dataset, MANIFEST_NAME)
        storage(path).write_file(manifest.to_bytes(), attempts=store.attempts)
        storage(store.dataset).sync_directory()
        for name in DERIVED_FOLDERS:
            with contextlib.suppress(FileNotFoundError):
                storage(os.path.join(store.dataset, name)).sync_directory()
        with self.own.publishing():
            publish(store.dataset, self.directory, seen=seen)

    def held(self) -> contextlib.AbstractContextManager[None]:
        return self.own.held()

    def recover(self) -> None:
        if self.own.check():
            with contextlib.suppress(TargetError), self.own.held():
                self._recover_all()

    def make_shared(self, store: Store) -> None:
        make = functools.partial(os.mkdir, store.folder)
        while not storage(store.folder).is_folder():
            self.own.make()
            # Another run may remove the folder in between, as long as it is empty.
            with contextlib.suppress(FileNotFoundError, FileExistsError):
                persistently(make, path=store.folder)
        for folder in (store.attempts, store.segments, store.rejects, store.dataset):
            folders.make(folder)

    def open_plan(self, store: Store) -> Store:
        self.make_shared(store)
        return store

    def end_shared(self, store: Store) -> None:
        store.remove_tree(store.folder)
        self.own.remove_unused()

    def work_path(self, digest: str, *, seen: str) -> str:
        return os.path.join(work_folder(self.directory), digest)

    def open_store(
        self, store: Store, *, job: str, seen: str, alone: bool = False
    ) -> Store:
        recover(store.dataset, self.directory)
        return store

    def remove_others(self, store: Store) -> bool:
        discarded = False
        for other in self._stores():
            # Nobody knows whether a shared one is dead.
            if other.name != store.name and not other.name.startswith(SHARED):
                discarded = discarded or any(count_finished(other))
                self.own.remove_run(other.name)
        return discarded

    def leave(self, store: Store, *, seen: str) -> bool:
        is_useful = any(count_finished(store))
        store.remove_tree(store.attempts if is_useful else store.folder)
        return False

    def end(self, store: Store) -> None:
        # What the dataset has replaced; a stopped run may have left it.
        recover(store.dataset, self.directory)
        store.remove_tree(store.folder)

    def open_derived(self, store: Store, manifest: Manifest) -> Store:
        self.check_replaceable()
        # `recover` says nothing of what it cannot finish.
        self.end(store)
        store.make()
        return store

    def add_derived(self, store: Store, manifest: Manifest, *, seen: str) -> None:
        """Publishes the files of a store with those of the dataset, as hard links."""
        state, path = self.state(), os.path.join(self.directory, MANIFEST_NAME)
        if storage(path).look().version != seen:
            raise OvertakenError(path)
        for name in sorted({*manifest.file_names} - {MANIFEST_NAME}):
            added = os.path.join(store.dataset, name)
            if not storage(added).exists():
                folders.make(os.path.dirname(added))
                _link(os.path.join(self.directory, name), added)
        for name in ("", *DERIVED_FOLDERS):
            _copy_rights(
                *(os.path.join(at, name) for at in (self.directory, store.dataset))
            )
        self.publish(store, manifest, seen=state)

    def clear(self, *, sure: bool) -> None:
        if self.own.check():
            with self.own.held():
                self._recover_all()
                for name in self.own.run_names():
                    if sure or not name.startswith(SHARED):
                        self.own.remove_run(name)

    @property
    def own(self) -> OwnFolder:
        """The work folder."""
        return OwnFolder(work_folder(self.directory), _WORK)

    def _recover_all(self) -> None:
        """Finishes or undoes what runs were killed in the middle of publishing."""
        with self.own.publishing():
            for store in self._stores():
                for folder in _built(store):
                    recover(folder, self.directory)

    def _stores(self) -> list[Store]:
        folder = work_folder(self.directory)
        return [Store(os.path.join(folder, name)) for name in self.own.run_names()]


def _built(store: Store) -> list[str]:
    """Returns the folders that a run may have been publishing."""
    if not store.name.startswith(SHARED):
        return [store.dataset]
    names = storage(store.dataset).names_if_there()
    noted = [name for name in names if name.endswith(_NOTE)]
    return [os.path.join(store.dataset, name.removesuffix(_NOTE)) for name in noted]


def _unfit_output(path: str, why: str) -> TargetError:
    """Returns the error about an output path that cannot hold a dataset."""
    return TargetError(
        f"The output must be a folder of its own, or a new one in a folder that is "
        f"writable, because it is replaced as a whole; {path!r} {why}. Choose another "
        f"output."
    )


def _link(path: str, link: str) -> None:
    """Gives a file of a dataset a second name; TargetError where it can have none."""
    try:
        with contextlib.suppress(FileExistsError):
            persistently(lambda: os.link(path, link), path=link)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EMLINK):
            raise
        raise TargetError(
            f"To add files to a dataset, those that it has must get hard links; "
            f"{path!r} cannot: {error.strerror}. Convert again with the files that "
            f"are to be added, or index a copy."
        ) from error


def _copy_rights(folder: str, new: str) -> None:
    """Gives a folder owner and rights of the one that it replaces, if there is one."""
    with contextlib.suppress(FileNotFoundError):
        status = os.stat(folder)
        with contextlib.suppress(PermissionError):
            os.chown(new, status.st_uid, status.st_gid)
        os.chmod(new, stat.S_IMODE(status.st_mode))


def _check_writable(directory: str) -> None:
    """Raises TargetError where files of a dataset can be neither added nor removed."""
    needs = os.R_OK | os.W_OK | os.X_OK
    effective = os.access in os.supports_effective_ids
    inner = [os.path.join(directory, name) for name in DERIVED_FOLDERS]
    for path in (directory, *inner):
        if os.path.isdir(path) and not os.access(path, needs, effective_ids=effective):
            raise _not_changeable(path, "is not writable")


def _not_changeable(folder: str, why: str) -> TargetError:
    """Returns the error about a dataset that this user may not replace or change."""
    return TargetError(
        f"The dataset at the output must be one that this user may change; {folder!r}, "
        f"of user {os.stat(folder).st_uid}, {why}. Choose another output, or run as "
        f"its owner."
    )


def publish(folder: str, target: str, *, seen: str) -> None:
    """Makes a finished folder the target, in one step.

    Where the system has no exchange of two folders, the old one is moved aside first:
    there is none for a moment, and `recover` finishes it.

    Args:
      folder: the dataset, whole and synced; on the target's file system.
      target: the output directory.
      seen: what `state` said of it when the run started.

    Raises:
      CommitError: the target is no longer what it was; nothing has changed.
      StorageError: a step failed though it was tried again. Where that was the sync
        of the name, the dataset is published all the same, whole.
    """
    # The current folder cannot be renamed as ".", only by its own name.
    target = os.path.abspath(target)
    if LocalTarget(target).state() != seen:
        raise overtaken(target)
    if not seen:
        folders.move_new(folder, target)
        _confirm(target)
        return
    # After a kill only this note tells the next run which of the two is the old one.
    _write_note(folder, target)
    try:
        if folders.exchange(folder, target):
            rename(folder, folder + _ASIDE)
        else:
            rename(target, folder + _ASIDE)
            rename(folder, target)
        _confirm(target)
    except (OSError, StorageError):
        # Nearly always only the note is removed. But a change may have been made though
        # it was reported as failed (a network file system); that is finished.
        with contextlib.suppress(OSError, StorageError):
            recover(folder, target)
        with contextlib.suppress(OSError, StorageError):
            if not storage(target).exists():
                rename(folder + _ASIDE, target)
        raise
    _clear_aside(folder, target)


def recover(folder: str, target: str) -> None:
    """Finishes or undoes a publication that was killed; safe to call at any time.

    Args:
      folder: the dataset that was being published, or what is left of it.
      target: the output directory.
    """
    target = os.path.abspath(target)
    noted = _noted(folder)
    if noted is None:
        return
    old, new = noted
    aside = folder + _ASIDE
    current = _manifest_digest(target)
    former = hashlib.sha256(old).hexdigest()
    stands = [storage(path).exists() for path in (target, folder, aside)]
    if stands == [False, True, True]:
        # Only the way without an exchange leaves no target.
        rename(folder, target)
        _confirm(target)
        current = new
    if current == new:
        if not storage(aside).exists() and _manifest_digest(folder) == former:
            rename(folder, aside)
        if storage(aside).exists():
            _clear_aside(folder, target)
    storage(folder + _NOTE).remove_file()


def _confirm(target: str) -> None:
    """Makes the name of a published dataset survive a power loss."""
    try:
        storage(os.path.dirname(target)).sync_directory()
    except (OSError, StorageError) as error:
        cause = error.__cause__ if isinstance(error, StorageError) else error
        raise StorageError(
            f"The disk must confirm that a published dataset would survive a power "
            f"loss; it has not: {cause or error}. The dataset is at {target!r}, "
            f"whole; look after the disk, and check it with `beam-tfrecord verify`."
        ) from error


def _clear_aside(folder: str, target: str) -> None:
    """Removes the old files, each by its name, and the folder that held them."""
    aside = folder + _ASIDE
    noted = _noted(folder)
    named = () if noted is None else Manifest.from_bytes(noted[0]).file_names
    for name in named:
        storage(os.path.join(aside, name)).remove_file(below=os.path.dirname(target))
    # Files that somebody put into the target just before the exchange go back there.
    for name in storage(aside).names_with(DERIVED_FOLDERS):
        if not storage(os.path.join(target, name)).exists():
            folders.make(os.path.dirname(os.path.join(target, name)))
            rename(os.path.join(aside, name), os.path.join(target, name))
    for name in DERIVED_FOLDERS:
        folders.remove_empty(os.path.join(aside, name))
    if not folders.remove_empty(aside):
        # A file of somebody else whose name the new dataset uses: keep its folder.
        stranded = f"{target}.{os.path.basename(aside)}"
        folders.move_new(aside, stranded)
    storage(folder + _NOTE).remove_file()


def _write_note(folder: str, target: str) -> None:
    """Stores the old manifest and the new one's digest, by which `recover` decides."""
    old, new = (
        storage(os.path.join(directory, MANIFEST_NAME)).read_bytes()
        for directory in (target, folder)
    )
    parts = {"old": old.decode(), "new": hashlib.sha256(new).hexdigest()}
    attempts = os.path.dirname(folder)
    data = json.dumps(parts).encode()
    storage(folder + _NOTE).write_file(data, attempts=attempts)
    # The note must be on the disk before the folders change: a power loss may keep
    # a later change and lose an earlier one.
    storage(attempts).sync_directory()


def _noted(folder: str) -> tuple[bytes, str] | None:
    """Returns the old manifest, and the digest of the new one."""
    if (data := bytes_or_none(folder + _NOTE)) is None:
        return None
    parts = json.loads(data)
    return parts["old"].encode(), parts["new"]


def _manifest_digest(folder: str) -> str | None:
    """Returns the sha256 of a folder's manifest in hex; None where it has none."""
    try:
        data = storage(os.path.join(folder, MANIFEST_NAME)).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return hashlib.sha256(data).hexdigest()
