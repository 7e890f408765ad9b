"""The command `index`: where each record is, for readers that look records up.

OUT/index/SHARD.u64                       see `transforms.core.tfrecord.walk`
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
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence

import google_crc32c

from beam_pipeline.commands.progress import shown_reading
from beam_pipeline.datasets.derived_files import NotIndexedError, indexes_of
from beam_pipeline.reading.reading_plan import Readable, find_records
from beam_pipeline.terminal import printing
from beam_pipeline.terminal.console import print_line
from beam_pipeline.terminal.words import count_text
from beam_pipeline.version import __version__
from transforms.core.catalogue import catalogue_features
from transforms.core.manifest import MANIFEST_NAME, DerivedFile, FileFacts, Manifest
from transforms.core.schema import Kind
from transforms.core.tfrecord.walk import text_index_file
from transforms.errors import BusyError, TargetError, UsageError
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
        overwrite: bool,
    ) -> None:
        self.manifest = manifest
        self.attempts = store.attempts
        self.replaced = {facts.file for facts in manifest.derived}
        self.has_written = False
        self._store = store
        self._directory = directory
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
            name: DerivedFile(name, facts.bytes, facts.crc32c, _MAKER, __version__)
            for name, facts in self._facts.items()
        }
        merged = {facts.file: facts for facts in self.manifest.derived} | made
        derived = tuple(merged[name] for name in sorted(merged))
        return dataclasses.replace(self.manifest, derived=derived)


class _Beside:
    """Writes the same files into a folder of their own.

    Args:
      output: the folder.
      overwrite: whether files there that differ are replaced.
    """

    def __init__(self, output: str, *, overwrite: bool) -> None:
        self._output, self._overwrite = output, overwrite
        self.attempts = os.path.join(output, "catalogue")

    def write(self, name: str, data: bytes) -> None:
        """Writes a file under a temporary name, and gives it its own when it is whole.

        Raises:
          TargetError: another one is there.
        """
        path = os.path.join(self._output, name)
        if storage(path).exists():
            if storage(path).read_bytes() == data:
                return
            if not self._overwrite:
                raise TargetError(
                    f"An index must be new, or the one that is there; {path!r} "
                    f"differs. Give --overwrite to replace it."
                )
        _make(os.path.dirname(path))
        storage(path).write_file(data, attempts=os.path.dirname(path))

    def free_path_of(self, name: str) -> str:
        """Returns where a part of a catalogue is to be written; its folder is there."""
        _make(self.attempts)
        return os.path.join(self._output, name)

    def add(self, facts: Sequence[FileFacts]) -> None:
        """Does nothing: no manifest names the files."""


def run(
    path: str,
    output: str,
    *,
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
      text: whether a dataset without images is indexed as text, too.
      catalogue: whether to write the catalogue of a dataset, too.
      overwrite: whether to replace indexes that differ.
      quiet: print errors only.

    Raises:
      UsageError: nothing is there that can be read, or the output must be named.
      TargetError: another index is there already.
      TFRecordError: a file is damaged.
    """
    source, output = find_records(path, {}), plain(output)
    if source.parts:
        raise UsageError(
            f"Parts of a dataset have indexes of their own, and {path!r} consists of "
            f"parts. Name one of them: {os.path.join(path, source.parts[0])!r}."
        )
    dataset = os.path.dirname(source.edition.manifest)
    if catalogue and not dataset:
        raise UsageError(
            f"A catalogue needs a dataset of this program, whose manifest knows the "
            f"features; {path!r} has none. Convert it first."
        )
    writer: contextlib.AbstractContextManager[_Deriving | _Beside]
    if dataset and not output:
        writer = _deriving(dataset, overwrite=overwrite)
        text = text or any(feature.kind is Kind.IMAGE for feature in source.features)
    else:
        output, text = output or _folder_of(path, source), True
        _check_output(path, output, dataset, source)
        writer = contextlib.nullcontext(_Beside(output, overwrite=overwrite))
    features, left_out = catalogue_features(source.features if catalogue else ())
    with writer as work:
        count, records, notes = _index_all(source, work.write, text=text)
        splits = source.splits
        if isinstance(work, _Deriving):
            for file, data in render_sidecars(work.manifest).derived.items():
                work.write(file, data)
            # One that the conversion has written knows where each record comes from.
            splits = tuple(s for s in splits if not work.manifest.catalogue_parts(s))
        parts: list[FileFacts] = []
        for split in splits if catalogue else ():
            shards = [shard for name, shard in source.shards if name == split]
            if shards:
                parts += write_catalogue(
                    *(work.free_path_of, split, shards, features),
                    attempts=work.attempts,
                )
        work.add(parts)
    for note in [*notes, *left_out]:
        printing.say(f"note: {note}")
    if not quiet:
        files = count_text(len(source.shards), "file")
        written = (
            f"indexed {count_text(records, 'record')} of {count:,} of {files} in "
            f"{output or dataset}"
        )
        if catalogue:
            written += f", {count_text(len(parts), 'catalogue part')}"
        print_line(written)
    return 0


def _check_output(path: str, output: str, dataset: str, source: Readable) -> None:
    """Raises where indexes must not be in a folder, or would have one name."""
    if dataset and storage(absolute(output)).is_inside(dataset):
        raise TargetError(
            f"The folder of a dataset holds only what its manifest names; {output!r} "
            f"is in {dataset!r}. Name another folder with -o."
        )
    names = [os.path.basename(shard.path) for _, shard in source.shards]
    if len(set(names)) < len(names):
        raise UsageError(
            f"Files that are indexed together must have names of their own; those of "
            f"{path!r} have not. Index one folder at a time."
        )


def _index_all(
    source: Readable, write: Callable[[str, bytes], None], *, text: bool
) -> tuple[int, int, list[str]]:
    """Writes the indexes of files.

    Args:
      source: the files.
      write: takes the name of an index, and its bytes.
      text: whether files are indexed as text, too.

    Returns:
      How many files have indexes, their records, and notes on other files.
    """
    shards = [shard for _, shard in source.shards]
    sizes = [shard.bytes or storage(shard.path).size_of() for shard in shards]
    records, notes = 0, []
    with shown_reading(sum(sizes), "indexing") as add:
        for shard, size in zip(shards, sizes, strict=True):
            name = os.path.basename(shard.path)
            try:
                contents, count = indexes_of(shard.path, name)
            except NotIndexedError as error:
                notes.append(str(error))
                continue
            finally:
                add(size)
            records += count
            for file, data in contents.items():
                if text or file != text_index_file(name):
                    write(file, data)
    return len(shards) - len(notes), records, notes


def _folder_of(path: str, source: Readable) -> str:
    """Returns the folder of the files, if it is the same for all."""
    places = {os.path.dirname(shard.path) for _, shard in source.shards}
    if len(places) != 1:
        raise UsageError(
            f"The indexes of {path!r} need a folder of their own, for the folders of "
            f"the files differ. Name one: -o DIR."
        )
    return places.pop()


def _make(folder: str) -> None:
    # An object store has no folders.
    if not is_remote(folder):
        folders.make(folder)


@contextlib.contextmanager
def _deriving(directory: str, *, overwrite: bool) -> Iterator[_Deriving]:
    """Gives what writes derived files of a dataset, and replaces its manifest after.

    Args:
      directory: of the dataset.
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
            work = _Deriving(directory, manifest, store, overwrite=overwrite)
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
