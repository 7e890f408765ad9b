"""The command `index`: where each record is, for readers that look records up.

OUT/index/SHARD.u64                       see `transforms.core.tfrecord.record_index`
OUT/index/SHARD.idx                       the same as text, for DALI and vahidk
OUT/catalogue/SPLIT-00000-of-0000N.pq     with --catalogue: a row for each record
"""

import functools
import os
import sys
from collections.abc import Callable, Sequence
from typing import TextIO

from beam_pipeline.datasets.derive import Deriving, deriving
from beam_pipeline.datasets.shard_indexes import NotIndexedError, indexes_of
from beam_pipeline.reading.reading_plan import Found, find_records
from beam_pipeline.terminal import printing
from beam_pipeline.terminal.printing import print_text, printable
from beam_pipeline.terminal.reading_progress import Progress, shown_reading
from beam_pipeline.terminal.words import count_text
from transforms import files
from transforms.core.catalogue import catalogue_features
from transforms.core.schema import Feature, Kind
from transforms.core.tfrecord.record_index import text_index_file
from transforms.errors import TargetError, UsageError
from transforms.formats.tfrecord_files.shards import Shard
from transforms.reading.catalogue_of_shards import write_catalogue
from transforms.sidecars.table import render_sidecars
from transforms.storage import folders
from transforms.storage.paths import absolute, is_remote, plain


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
    found = find_records(path, {})
    features, left_out = catalogue_features(found.features if catalogue else ())
    if found.edition.manifest and not output:
        with deriving(
            os.path.dirname(found.edition.manifest),
            version=version,
            overwrite=overwrite,
        ) as work:
            written, notes = _add_indexes(found, work, text=text)
            if catalogue:
                parts = _add_catalogue(found, features, work)
                written += f", {count_text(parts, 'catalogue part')}"
        _tell(written, [*notes, *left_out], quiet=quiet)
        return 0
    output = output or _beside(path, found)
    dataset = os.path.dirname(found.edition.manifest)
    if dataset and files.is_inside(absolute(plain(output)), dataset):
        raise TargetError(
            f"The folder of a dataset holds only what its manifest names; {output!r} "
            f"is in {dataset!r}. Name another folder with -o."
        )
    shards = [shard for _, shard in found.shards]
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
        parts = _catalogue(path, found, features, output)
        written += f", {count_text(parts, 'catalogue part')}"
    _tell(written, [*notes, *left_out], quiet=quiet)
    return 0


def _add_indexes(found: Found, work: Deriving, *, text: bool) -> tuple[str, list[str]]:
    """Adds indexes and the schema; returns what was done, and notes on other files."""
    text = text or any(each.kind is Kind.IMAGE for each in found.features)
    records, notes = _index_all(
        [shard for _, shard in found.shards], work.write, text=text
    )
    for file, data in render_sidecars(work.manifest).derived.items():
        work.write(file, data)
    place = printable(os.path.dirname(found.edition.manifest))
    return f"indexed {count_text(records, 'record')} of {place}", notes


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
    sizes = [shard.bytes or files.size_of(shard.path) for shard in shards]
    with shown_reading(_terminal(), sum(sizes), "indexing") as bar:
        for shard in shards:
            name = os.path.basename(shard.path)
            try:
                contents, count = _indexes(shard, name, bar)
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


def _add_catalogue(found: Found, features: Sequence[Feature], work: Deriving) -> int:
    """Adds the catalogue of splits that have none; returns the number of its parts.

    One that the conversion has written knows more: where each record comes from.
    """
    count = 0
    for split in found.splits:
        if work.manifest.catalogue_parts(split):
            continue
        shards = [shard for name, shard in found.shards if name == split]
        facts = write_catalogue(
            work.free_path_of, split, shards, features, attempts=work.attempts
        )
        work.add(facts)
        count += len(facts)
    return count


def _terminal() -> TextIO | None:
    return sys.stderr if sys.stderr.isatty() else None


def _beside(path: str, found: Found) -> str:
    """Returns the folder of the files, if it is the same for all."""
    places = {os.path.dirname(shard.path) for _, shard in found.shards}
    if len(places) != 1:
        raise UsageError(
            f"The indexes of {path!r} need a folder of their own, for the folders of "
            f"the files differ. Name one: -o DIR."
        )
    return places.pop()


def _indexes(shard: Shard, name: str, bar: Progress) -> tuple[dict[str, bytes], int]:
    """Returns the indexes of a file and its records; see `indexes_of`."""

    def read(start: int, stop: int) -> bytes:
        bar.add(stop - start)
        return files.read_range(shard.path, start, stop)

    return indexes_of(shard.path, name, read)


def _write(path: str, data: bytes, *, overwrite: bool) -> None:
    """Writes a file under a temporary name, and gives it its own when it is whole.

    Raises:
      TargetError: another one is there.
    """
    if files.exists(path):
        if files.read_bytes(path) == data:
            return
        if not overwrite:
            raise TargetError(
                f"An index must be new, or the one that is there; {path!r} differs. "
                f"Give --overwrite to replace it."
            )
    _make(os.path.dirname(path))
    files.write_file(path, data, attempts=os.path.dirname(path))


def _make(folder: str) -> None:
    # An object store has no folders.
    if not is_remote(folder):
        folders.make(folder)


def _catalogue(
    path: str, found: Found, features: Sequence[Feature], output: str
) -> int:
    """Writes the catalogue of each split; returns the number of its parts.

    Raises:
      UsageError: there is no metadata that states the features.
    """
    if not found.edition.manifest:
        raise UsageError(
            f"A catalogue needs a dataset of this program, whose manifest knows the "
            f"features; {path!r} has none. Convert it first."
        )
    by_split: dict[str, Sequence[Shard]] = {
        split: [shard for name, shard in found.shards if name == split]
        for split in found.splits
    }
    folder = os.path.join(output, "catalogue")
    _make(folder)
    path_of = functools.partial(os.path.join, output)
    return sum(
        len(write_catalogue(path_of, split, shards, features, attempts=folder))
        for split, shards in by_split.items()
        if shards
    )
