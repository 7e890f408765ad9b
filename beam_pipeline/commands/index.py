"""The command `index`: where each record is, for readers that look records up.

index/SHARD.u64                       see `transforms.core.tfrecord.index`
index/SHARD.idx                       the same as text, for DALI and vahidk
catalogue/SPLIT-00000-of-0000N.pq     with --catalogue: a row for each record

In a committed dataset all stays as it is, but its manifest. On a disk the files are
written in the work folder beside the dataset, get hard links to its files beside them,
and replace it in one step, as another conversion does; in a bucket each is put in its
place, and noted there before, and the manifest that names them is replaced last. What a
killed run has left is finished, taken over or removed by the next run, of `index` or
any other, and by `clean`; see `transforms.publishing`.
"""

import contextlib
import dataclasses
import functools
import hashlib
import os
from collections.abc import Callable, Iterator

import google_crc32c

from beam_pipeline import terminal
from beam_pipeline.commands.progress import shown_reading
from beam_pipeline.datasets.derived_files import indexes_of
from beam_pipeline.datasets.reading_plan import Readable, find_records
from beam_pipeline.terminal import count_text, print_line
from beam_pipeline.version import __version__
from transforms.core.catalogue import catalogue_features
from transforms.core.manifest import MANIFEST_NAME, DerivedFile, FileFacts, Manifest
from transforms.core.schema import Kind
from transforms.core.tfrecord.index import text_index_file
from transforms.errors import BusyError, TargetError, UsageError
from transforms.publishing import target
from transforms.reading.catalogue_of_shards import write_catalogue
from transforms.sidecars.text_protos import render_sidecars
from transforms.storage.files import storage
from transforms.storage.folders import make
from transforms.storage.paths import absolute, is_remote, plain
from transforms.storage.retry import OvertakenError, storing
from transforms.work.store import Store

_MAKER = "beam-tfrecord"
_WORK = hashlib.blake2b(b"derived files", digest_size=16).hexdigest()


@dataclasses.dataclass
class _Deriving:
    """Writes derived files of one dataset.

    Attributes:
      directory: of the dataset.
      manifest: of the dataset, as it was at the start.
      store: where the files are until they are whole.
      overwrite: whether files of others that have their names are replaced.
      facts: of what is there in the end, by name.
      has_written: whether files are written that the dataset lacks, or has damaged.
    """

    directory: str
    manifest: Manifest
    store: Store
    overwrite: bool
    facts: dict[str, FileFacts] = dataclasses.field(default_factory=dict)
    has_written: bool = False

    @functools.cached_property
    def noted(self) -> dict[str, DerivedFile]:
        """The derived files that the manifest has, by name."""
        return {facts.file: facts for facts in self.manifest.derived}

    def write(self, name: str, data: bytes) -> None:
        """Writes a derived file, unless it is there.

        Raises:
          TargetError: a file of others has its name.
        """
        path = self.manifest.path(self.directory, name)
        if not storage(path).exists() or storage(path).read_bytes() != data:
            free = storage(self.free_path_of(name))
            free.write_file(data, attempts=self.store.attempts)
        self.facts[name] = FileFacts(name, len(data), google_crc32c.value(data))

    def free_path_of(self, name: str) -> str:
        """Returns where a derived file is to be written; its folder is there.

        Raises:
          TargetError: a file of others has its name.
        """
        self.has_written = True
        path = self.manifest.path(self.directory, name)
        if self.store.placed:
            self._make_room(name, path)
        else:
            if name not in self.noted and storage(path).exists():
                if not self.overwrite:
                    raise _taken_name(path)
                storage(path).remove_file()
            self.store.announce(name)
        return os.path.join(self.store.dataset, name)

    def _make_room(self, name: str, path: str) -> None:
        """Removes a file in an object store that may be replaced.

        What a run of the same kind has left may be equal; who writes it looks.
        """
        named = self.noted.get(name)
        if not storage(path).exists() or not (named or self.overwrite):
            return
        if named and not self.overwrite and storage(path).size_of() == named.bytes:
            crc = google_crc32c.value(storage(path).read_bytes())
            if crc == named.crc32c:
                raise _taken_name(path)
        storage(path).remove_file()

    def finished(self) -> Manifest:
        """Returns the manifest with what was written."""
        derived = self.noted | {
            name: DerivedFile(name, facts.bytes, facts.crc32c, _MAKER, __version__)
            for name, facts in self.facts.items()
        }
        by_name = tuple(derived[name] for name in sorted(derived))
        return dataclasses.replace(self.manifest, derived=by_name)


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
      output: a folder; empty for the folder of each file.
      text: whether a dataset without images is indexed as text, too.
      catalogue: whether to write the catalogue of a dataset, too.
      overwrite: whether to replace indexes that differ.
      quiet: print errors only.

    Raises:
      UsageError: nothing is there that can be read, or names are not distinct.
      TargetError: another index is there already.
      TFRecordError: a file is damaged.
    """
    if not is_remote(path) and not storage(path).exists():
        # A run that was killed may have moved the dataset aside.
        with contextlib.suppress(TargetError):
            target.at(path).recover()
    source, output = find_records(path, {}), plain(output)
    if source.parts:
        raise UsageError(
            f"Parts of a dataset have indexes of their own, and {path!r} consists of "
            f"parts. Name one of them: {os.path.join(path, source.parts[0])!r}."
        )
    dataset = os.path.dirname(source.edition.manifest)
    if catalogue and (output or not dataset):
        raise UsageError(
            f"A catalogue is written into a dataset of this program, whose manifest "
            f"knows the features; {output or path!r} is none. Leave out -o, or convert "
            f"the files first."
        )
    parts = 0
    if dataset and not output:
        with _deriving(dataset, overwrite=overwrite) as work:
            has_images = any(f.kind is Kind.IMAGE for f in source.features)
            indexed, notes = _index_all(
                source,
                lambda _path, name, data: work.write(name, data),
                text=text or has_images,
            )
            for file, data in render_sidecars(work.manifest).derived.items():
                work.write(file, data)
            if catalogue:
                parts, left_out = _write_catalogue(source, work)
                notes += left_out
    else:
        if output:
            _check_output(path, output, dataset, source)
        write = functools.partial(_write_beside, output=output, overwrite=overwrite)
        indexed, notes = _index_all(source, write, text=True)
    for note in notes:
        terminal.say(f"note: {note}")
    if not quiet:
        more = f", {count_text(parts, 'catalogue part')}" if catalogue else ""
        print_line(f"indexed {indexed} in {output or dataset or path}{more}")
    return 0


def _write_catalogue(source: Readable, work: _Deriving) -> tuple[int, list[str]]:
    """Writes the catalogue of splits that have none; returns its parts, and notes."""
    features, left_out = catalogue_features(source.features)
    parts = 0
    for split in source.splits:
        shards = [shard for name, shard in source.shards if name == split]
        # One that the conversion has written knows where each record comes from.
        if not shards or work.manifest.catalogue_parts(split):
            continue
        written = write_catalogue(
            *(work.free_path_of, split, shards, features), attempts=work.store.attempts
        )
        work.facts |= {facts.file: facts for facts in written}
        parts += len(written)
    return parts, [*left_out]


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
            f"Files that are indexed in one folder must have names of their own; those "
            f"of {path!r} have not. Leave out -o, or index one folder at a time."
        )


def _index_all(
    source: Readable, write: Callable[[str, str, bytes], None], *, text: bool
) -> tuple[str, list[str]]:
    """Writes the indexes of files.

    Args:
      source: the files.
      write: takes the path of a file, the name of an index of it, and its bytes.
      text: whether files are indexed as text, too.

    Returns:
      What has indexes, in words, and notes on other files.
    """
    shards = [shard for _, shard in source.shards]
    sizes = [shard.bytes or storage(shard.path).size_of() for shard in shards]
    records, notes = 0, []
    with shown_reading(sum(sizes)) as add:
        for shard, size in zip(shards, sizes, strict=True):
            name = os.path.basename(shard.path)
            contents, count = indexes_of(shard.path, name)
            add(size)
            if not contents:
                notes.append(
                    f"{shard.path}: compressed streams are read in order only, so they "
                    f"have no index"
                )
            records += count
            for file, data in contents.items():
                if text or file != text_index_file(name):
                    write(shard.path, file, data)
    files = count_text(len(shards), "file")
    of = f"{len(shards) - len(notes):,} of {files}"
    return f"{count_text(records, 'record')} of {of}", notes


def _write_beside(
    shard: str, name: str, data: bytes, *, output: str, overwrite: bool
) -> None:
    """Writes an index into a folder, or that of its file; it appears when it is whole.

    Raises:
      TargetError: another one is there.
    """
    path = os.path.join(output or os.path.dirname(shard), name)
    if storage(path).exists():
        if storage(path).read_bytes() == data:
            return
        if not overwrite:
            raise TargetError(
                f"{path!r} exists and differs from the new index. Give --overwrite to "
                f"replace it."
            )
    folder = os.path.dirname(path)
    # An object store has no folders.
    if not is_remote(folder):
        make(folder)
    storage(path).write_file(data, attempts=folder)


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
    if not is_remote(directory):
        # A link to it stays one.
        directory = os.path.realpath(directory)
    there = target.at(directory)
    there.recover()
    with storing(directory), there.held():
        seen = storage(os.path.join(directory, MANIFEST_NAME)).look().version
        manifest = target.read_manifest(directory)
        store = there.open_derived(Store(there.work_path(_WORK, seen="")), manifest)
        work = _Deriving(directory, manifest, store, overwrite)
        try:
            yield work
            finished = work.finished()
            if work.has_written or finished != manifest:
                there.add_derived(store, finished, seen=seen)
        except OvertakenError as error:
            raise BusyError(
                f"The dataset must stay as it was at the start; {directory!r} was "
                f"written by another run meanwhile, and is as that has left it. Run "
                f"again."
            ) from error
        finally:
            there.end(store)


def _taken_name(path: str) -> TargetError:
    """Returns the error of a derived file whose name a file of others has."""
    return TargetError(
        f"A derived file must be new, or one that the manifest names; {path!r} is "
        f"neither. Give --overwrite to replace it, or move it away."
    )
