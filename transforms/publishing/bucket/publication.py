"""Publish a dataset in an object store: the manifest, then the clean-up.

    <target>/manifest.json                       put last, on a condition
    <target>/<pointers>                          for readers that look there for files
    .<name>.beam-tfrecord/publishing/<folder>    {"former": the manifest that is being
                                                 replaced, "names": of the pointers}

The steps after the manifest may run late, when another manifest has replaced it. So a
run writes the pointers of the current manifest, then checks that it is still current.
It removes only names that no later dataset uses, or that are written again in the same
way. A note is removed when everything in it is done: by the run that wrote it, or by
one that holds the work folder and knows that the writer is dead. See
`transforms.publishing.bucket.target`.
"""

import dataclasses
import json
from collections.abc import Iterable
from typing import Self

from transforms import files
from transforms.core.manifest import MANIFEST_NAME, Manifest
from transforms.errors import RaceError
from transforms.sidecars.tfds import pointers_to
from transforms.storage.object_store import OvertakenError
from transforms.storage.paths import work_folder
from transforms.work.versions import put_if

PUBLISHING = "publishing"


def manifest_path(directory: str) -> str:
    """Returns where the manifest of a target is."""
    return f"{directory}/{MANIFEST_NAME}"


def published(directory: str) -> Manifest | None:
    """Returns the current manifest, or None. Raises DamageError."""
    data = _at(manifest_path(directory))
    return None if data is None else _manifest(data, directory)


def publish(manifest: Manifest, directory: str, *, seen: str) -> None:
    """Puts the manifest of a dataset whose files are all there.

    Args:
      manifest: of the dataset; it says in which folder they are.
      directory: the target.
      seen: its state when the run started; see `target.state`.

    Raises:
      RaceError: another run has published meanwhile; its dataset stays.
    """
    path, data = manifest_path(directory), manifest.to_bytes()
    noted = _note_path(directory, manifest.folder)
    note = _Note((_at(path) or b"") if seen else b"", manifest.root_names)
    if manifest.folder:
        # Before the manifest, or nobody would know of the old files after a kill.
        note.write(noted)
    try:
        put_if(path, data, seen, attempts=work_folder(directory))
    except OvertakenError as error:
        # The first try may have put it, and only its answer was lost.
        if _at(path) != data:
            if manifest.folder:
                files.remove_file(noted)
            raise overtaken(directory) from error
    if manifest.folder:
        _end(directory, noted, note)


def overtaken(directory: str) -> RaceError:
    """Returns the error of a run that another run has overtaken."""
    return RaceError(
        f"The target must be as it was when the run started; {directory!r} was "
        f"written by another run since. The dataset of that run stays, and this one "
        f"has committed nothing; run again."
    )


def recover(directory: str, names: Iterable[str]) -> None:
    """Finishes publications that were begun; drops the notes of those that failed.

    Args:
      directory: the target.
      names: of their notes; each was written by a dead run, or by this one.
    """
    for name in names:
        path = _note_path(directory, name)
        note = _Note.read(path)
        if note is None:
            continue
        current = _at(manifest_path(directory))
        if current is None or current == note.former:
            files.remove_file(path)
        else:
            _end(directory, path, note)


def names_being_replaced(directory: str, begun: Iterable[str]) -> set[str]:
    """Returns the names in a target that belong to manifests being replaced.

    Args:
      directory: the target.
      begun: names of the notes on publications.
    """
    names: set[str] = set()
    for name in begun:
        note = _Note.read(_note_path(directory, name))
        if note is not None:
            names |= {*note.names}
            if note.former:
                manifest = _manifest(note.former, directory)
                names |= {*manifest.root_names, manifest.folder} - {""}
    return names


def rewrite_pointers(directory: str, work: str) -> None:
    """Writes the pointers of the current dataset again, if it has any.

    For a run that has removed its own files from the target itself. Another run may
    have published meanwhile, and some of its pointers have the same names.

    Args:
      directory: the target.
      work: of the run; its name is that of the note.
    """
    manifest = published(directory)
    if manifest is not None and manifest.folder:
        path, note = _note_path(directory, work), _Note(b"", manifest.root_names)
        note.write(path)
        _end(directory, path, note)


@dataclasses.dataclass(frozen=True, slots=True)
class _Note:
    """What a publication does.

    Attributes:
      former: the manifest that it replaces; empty for none.
      names: what it puts into the target itself, beside the manifest.
    """

    former: bytes
    names: tuple[str, ...]

    def write(self, path: str) -> None:
        facts = {"former": self.former.decode(), "names": self.names}
        files.write_file(path, json.dumps(facts).encode(), attempts="")

    @classmethod
    def read(cls, path: str) -> Self | None:
        if (data := _at(path)) is None:
            return None
        facts = json.loads(data)
        return cls(facts["former"].encode(), tuple(facts["names"]))


def _end(directory: str, noted: str, note: _Note) -> None:
    """Writes the pointers of the current manifest; removes what it has replaced.

    Args:
      directory: the target.
      noted: the path of the note, which is removed last.
      note: its content.
    """
    path = manifest_path(directory)
    former = _manifest(note.former, directory) if note.former else None
    old = {*note.names, *(former.root_names if former is not None else ())}
    ended, current = None, _at(path)
    # Again where another run has published in between: its pointers may be written
    # over by now.
    while current is not None and current != ended:
        manifest = _manifest(current, directory)
        if manifest.folder and not {*manifest.root_names} <= {*note.names}:
            # Noted first: where this run dies now, the next one must know these names.
            old |= {*manifest.root_names}
            note = _Note(note.former, tuple(sorted({*note.names, *old})))
            note.write(noted)
        for name in sorted(old - {*manifest.root_names}):
            files.remove_file(f"{directory}/{name}")
        if former is not None and former.folder not in ("", manifest.folder):
            for name in sorted(former.file_names):
                files.remove_file(f"{directory}/{former.folder}/{name}")
        if manifest.folder:
            pointers = pointers_to(manifest.folder, manifest)
            for name in sorted(pointers.keys() & {*manifest.root_names}):
                files.write_file(f"{directory}/{name}", pointers[name], attempts="")
        ended, current = current, _at(path)
    files.remove_file(noted)


def _note_path(directory: str, name: str) -> str:
    return f"{work_folder(directory)}/{PUBLISHING}/{name}".rstrip("/")


def _manifest(data: bytes, directory: str) -> Manifest:
    return Manifest.from_bytes(data, manifest_path(directory))


def _at(path: str) -> bytes | None:
    try:
        return files.read_bytes(path)
    except FileNotFoundError:
        return None
