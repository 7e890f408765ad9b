"""The command `index`: where each record is, for readers that look records up.

OUT/index/SHARD.u64                       see `transforms.core.tfrecord.record_index`
OUT/index/SHARD.idx                       the same as text, for DALI and vahidk
OUT/catalogue/SPLIT-00000-of-0000N.pq     with --catalogue: a row for each record

In a committed dataset all stays as it is, but its manifest. On a disk the files are
written in the work folder beside the dataset, and renamed when all of them are whole;
in a bucket each is put in its place, and noted there before. The manifest that names
them replaces the old one last, in one step. What a killed run has
left is finished, taken over or removed by the next run, of `index` or any other, and by
`clean`; see `transforms.publishing.derived_files`.
"""

import contextlib
import dataclasses
import functools
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence

import google_crc32c

from beam_pipeline.datasets.derived_files import NotIndexedError, indexes_of
from beam_pipeline.reading.reading_plan import Found, find_records
from beam_pipeline.terminal import printing
from beam_pipeline.terminal.printing import print_text, printable
from beam_pipeline.terminal.reading_progress import shown_reading
from beam_pipeline.terminal.words import count_text
from transforms.core.catalogue import catalogue_features
from transforms.core.manifest import MANIFEST_NAME, DerivedFile, FileFacts, Manifest
from transforms.core.schema import Feature, Kind
from transforms.core.tfrecord.record_index import text_index_file
from transforms.errors import BusyError, TargetError, UsageError
from transforms.formats.tfrecord_files.typed_rows import Shard
from transforms.publishing import target
from transforms.publishing.derived_files import taken_name
from transforms.reading.catalogue_of_shards import write_catalogue
from transforms.sidecars.render import render_sidecars
from transforms.storage import folders
from transforms.storage.entries import OvertakenError
from transforms.storage.files import storage
from transforms.storage.paths import absolute, is_remote, plain
from transforms.storage.retry import storing
from transforms.work.store import Store

_MAKER = "beam-tfrecord"
_WORK = hashlib.blake2b(b"derived files", digest_size=16).hexdigest()


class _Deriving:
    """Writes derived files of one dataset.

    Attributes:
      manifest: of the dataset, as it was at the start.
      attempts: a folder for temporary files.
      replaced: names of files that may be replaced.
      has_written: whether files are written that the dataset lacks, or has damaged.
    """

    def __init__(
        self,
        directory: str,
        manifest: Manifest,
        store: Store,
        *,
        version: str,
        overwrite: bool,
    ) -> None:
        self.manifest = manifest
        self.attempts = store.attempts
        self.replaced = {facts.file for facts in manifest.derived}
        self.has_written = False
        self._store = store
        self._directory = directory
        self._version = version
        self._overwrite = overwrite
        self._facts: dict[str, FileFacts] = {}

    def write(self, name: str, data: bytes) -> None:
        """Writes a derived file.

        Raises:
          TargetError: a file of others has its name.
        """
        path = self.manifest.path(self._directory, name)
        if not storage(path).exists() or storage(path).read_bytes() != data:
            storage(self.free_path_of(name)).write_file(data, attempts=self.attempts)
        self.add([FileFacts(name, len(data), google_crc32c.value(data))])

    def free_path_of(self, name: str) -> str:
        """Returns where a derived file is to be written; its folder is there.

        Raises:
          TargetError: a file of others has its name.
        """
        self.has_written = True
        path = self.manifest.path(self._directory, name)
        if self._store.placed:
            self._make_room(name, path)
        elif name not in self.replaced:
            if not storage(path).exists():
                self._store.announce(name)
            elif self._overwrite:
                self.replaced.add(name)
            else:
                raise taken_name(path)
        return os.path.join(self._store.dataset, name)

    def _make_room(self, name: str, path: str) -> None:
        """Removes a file in an object store that may be replaced.

        What a run of the same kind has left may be equal; who writes it looks.
        """
        named = {facts.file: facts for facts in self.manifest.derived}.get(name)
        if not storage(path).exists() or not (named or self._overwrite):
            return
        if named and not self._overwrite and storage(path).size_of() == named.bytes:
            crc = google_crc32c.value(storage(path).read_bytes())
            if crc == named.crc32c:
                raise taken_name(path)
        storage(path).remove_file()

    def add(self, facts: Sequence[FileFacts]) -> None:
        """Notes files that are written."""
        self._facts |= {file.file: file for file in facts}

    def finished(self) -> Manifest:
        """Returns the manifest with what was written."""
        made = {
            name: DerivedFile(name, facts.bytes, facts.crc32c, _MAKER, self._version)
            for name, facts in self._facts.items()
        }
        merged = {facts.file: facts for facts in self.manifest.derived} | made
        derived = tuple(merged[name] for name in sorted(merged))
        return dataclasses.replace(self.manifest, derived=derived)


def run(
    path: str,
    output: str,
    *,
    version: str,
    text: bool = False,
    catalogue: bool = False,
    overwrite: bool = False,
    quiet: bool = False,
) -> int:
    """Writes the indexes of TFRecord files; returns 0.

    Those of a dataset become part of it: its manifest names them then.

    Args:
      path: of a dataset, or of TFRecord files: a folder, a glob or one file.
      output: a folder; empty for that of the files.
      version: of this program, which manifests state.
      text: whether a dataset without images is indexed as text, too.
      catalogue: whether to write the catalogue of a dataset, too.
      overwrite: whether to replace indexes that differ.
      quiet: print errors only.

    Raises:
      UsageError: nothing is there that can be read, or the output must be named.
      TargetError: another index is there already.
      TFRecordError: a file is damaged.
    """
    source = find_records(path, {})
    if source.parts:
        raise UsageError(
            f"Parts of a dataset have indexes of their own, and {path!r} consists of "
            f"parts. Name one of them: {os.path.join(path, source.parts[0])!r}."
        )
    features, left_out = catalogue_features(source.features if catalogue else ())
    if source.edition.manifest and not output:
        with _deriving(
            os.path.dirname(source.edition.manifest),
            version=version,
            overwrite=overwrite,
        ) as work:
            written, notes = _add_indexes(source, work, text=text)
            if catalogue:
                parts = _add_catalogue(source, features, work)
                written += f", {count_text(parts, 'catalogue part')}"
        _tell(written, [*notes, *left_out], quiet=quiet)
        return 0
    output = output or _beside(path, source)
    dataset = os.path.dirname(source.edition.manifest)
    if dataset and storage(absolute(plain(output))).is_inside(dataset):
        raise TargetError(
            f"The folder of a dataset holds only what its manifest names; {output!r} "
            f"is in {dataset!r}. Name another folder with -o."
        )
    shards = [shard for _, shard in source.shards]
    names = [os.path.basename(shard.path) for shard in shards]
    if len(set(names)) < len(names):
        raise UsageError(
            f"Files that are indexed together must have names of their own; those of "
            f"{path!r} have not. Index one folder at a time."
        )

    def write(file: str, data: bytes) -> None:
        _write(os.path.join(output, file), data, overwrite=overwrite)

    records, notes = _index_all(shards, write, text=True)
    which = f"{len(shards) - len(notes):,} of {count_text(len(shards), 'file')}"
    written = (
        f"indexed {count_text(records, 'record')} of {which} in {printable(output)}"
    )
    if catalogue:
        if not source.edition.manifest:
            raise UsageError(
                f"A catalogue needs a dataset of this program, whose manifest knows "
                f"the features; {path!r} has none. Convert it first."
            )
        folder = os.path.join(output, "catalogue")
        _make(folder)
        path_of = functools.partial(os.path.join, output)
        facts = _catalogue(source, source.splits, features, path_of, folder)
        written += f", {count_text(len(facts), 'catalogue part')}"
    _tell(written, [*notes, *left_out], quiet=quiet)
    return 0


def _add_indexes(found: Found, work: _Deriving, *, text: bool) -> tuple[str, list[str]]:
    """Adds indexes and the schema; returns what was done, and notes on other files."""
    text = text or any(feature.kind is Kind.IMAGE for feature in found.features)
    records, notes = _index_all(
        [shard for _, shard in found.shards], work.write, text=text
    )
    for file, data in render_sidecars(work.manifest).derived.items():
        work.write(file, data)
    folder = printable(os.path.dirname(found.edition.manifest))
    return f"indexed {count_text(records, 'record')} of {folder}", notes


def _index_all(
    shards: Sequence[Shard], write: Callable[[str, bytes], None], *, text: bool
) -> tuple[int, list[str]]:
    """Writes the indexes of files; returns their records, and notes on other files.

    Args:
      shards: the files.
      write: takes the name of an index, and its bytes.
      text: whether files are indexed as text, too.
    """
    records, notes = 0, []
    sizes = [shard.bytes or storage(shard.path).size_of() for shard in shards]
    with shown_reading(sum(sizes), "indexing") as bar:
        for shard in shards:
            name = os.path.basename(shard.path)
            try:
                read = functools.partial(bar.read_range, shard.path)
                contents, count = indexes_of(shard.path, name, read)
            except NotIndexedError as error:
                notes.append(str(error))
                continue
            records += count
            for file, data in contents.items():
                if text or file != text_index_file(name):
                    write(file, data)
    return records, notes


def _tell(written: str, notes: Sequence[str], *, quiet: bool) -> None:
    for note in notes:
        printing.say(f"note: {printable(note)}")
    if not quiet:
        print_text(written)


def _add_catalogue(found: Found, features: Sequence[Feature], work: _Deriving) -> int:
    """Adds the catalogue of splits that have none; returns the number of its parts.

    One that the conversion has written knows more: where each record comes from.
    """
    splits = [s for s in found.splits if not work.manifest.catalogue_parts(s)]
    parts = _catalogue(found, splits, features, work.free_path_of, work.attempts)
    work.add(parts)
    return len(parts)


def _catalogue(
    found: Found,
    splits: Sequence[str],
    features: Sequence[Feature],
    path_of: Callable[[str], str],
    attempts: str,
) -> list[FileFacts]:
    """Writes the catalogue of some splits; returns the facts of its parts."""
    facts: list[FileFacts] = []
    for split in splits:
        shards = [shard for name, shard in found.shards if name == split]
        if shards:
            facts += write_catalogue(
                path_of, split, shards, features, attempts=attempts
            )
    return facts


def _beside(path: str, found: Found) -> str:
    """Returns the folder of the files, if it is the same for all."""
    places = {os.path.dirname(shard.path) for _, shard in found.shards}
    if len(places) != 1:
        raise UsageError(
            f"The indexes of {path!r} need a folder of their own, for the folders of "
            f"the files differ. Name one: -o DIR."
        )
    return places.pop()


def _write(path: str, data: bytes, *, overwrite: bool) -> None:
    """Writes a file under a temporary name, and gives it its own when it is whole.

    Raises:
      TargetError: another one is there.
    """
    if storage(path).exists():
        if storage(path).read_bytes() == data:
            return
        if not overwrite:
            raise TargetError(
                f"An index must be new, or the one that is there; {path!r} differs. "
                f"Give --overwrite to replace it."
            )
    _make(os.path.dirname(path))
    storage(path).write_file(data, attempts=os.path.dirname(path))


def _make(folder: str) -> None:
    # An object store has no folders.
    if not is_remote(folder):
        folders.make(folder)


@contextlib.contextmanager
def _deriving(
    directory: str, *, version: str, overwrite: bool = False
) -> Iterator[_Deriving]:
    """Gives what writes derived files of a dataset, and replaces its manifest after.

    Args:
      directory: of the dataset.
      version: of this program, which the manifest states.
      overwrite: whether files of others that have their names are replaced.

    Raises:
      BusyError: the dataset was replaced meanwhile, or another run is at work.
      DamageError: the manifest is damaged.
      StorageError: a file could not be written.
    """
    there = target.at(directory)
    there.recover()
    with storing(directory), there.held():
        seen = storage(os.path.join(directory, MANIFEST_NAME)).look().version
        manifest = target.read_manifest(directory)
        folder = there.work_path(_WORK, seen="")
        store = there.open_derived(Store(folder), manifest)
        try:
            work = _Deriving(
                directory, manifest, store, version=version, overwrite=overwrite
            )
            yield work
            finished = work.finished()
            if work.has_written or finished != manifest:
                there.add_derived(store, finished, seen=seen, replaced=work.replaced)
        except OvertakenError as error:
            raise BusyError(
                f"The dataset must stay as it was at the start; {directory!r} was "
                f"written by another run meanwhile, and is as that has left it. Run "
                f"again."
            ) from error
        finally:
            there.leave_derived(store)
