"""Derived files of a dataset: catalogues, indexes of shards, and whether they fit.

Imports nothing slow, for `verify`.
"""

import contextlib
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

import numpy as np

from beam_pipeline.datasets.dataset import Dataset
from transforms.core.manifest import SplitFacts
from transforms.core.tfrecord.compression import Compression, detect
from transforms.core.tfrecord.frame import HEADER_BYTES
from transforms.core.tfrecord.index import (
    index_file,
    scan_records,
    text_index,
    text_index_file,
)
from transforms.core.tfrecord.reader import PayloadBatch
from transforms.errors import DamageError, SourceError
from transforms.storage.files import storage

if TYPE_CHECKING:
    from transforms.reading.catalogue import Catalogue

Faults = list[tuple[str, str]]
"""(derived file, what is wrong with it)"""


def indexes_of(path: str, name: str) -> tuple[dict[str, bytes], int]:
    """Returns the indexes of a file, by their names, and how many records it has.

    A file that is compressed can only be read in order: it has no index.

    Args:
      path: of the file.
      name: what the indexes call it.

    Raises:
      TFRecordError: it is damaged.
      OSError: it cannot be read.
    """
    size = storage(path).size_of()
    read = storage(path).read_range
    head = read(0, min(size, HEADER_BYTES))
    if detect(head, path=path) is not Compression.NONE:
        return {}, 0
    offsets = scan_records(read, size, path=path)
    contents = {
        index_file(name): offsets.tobytes(),
        text_index_file(name): text_index(offsets),
    }
    return contents, len(offsets) - 1


def catalogues_of(dataset: Dataset) -> "dict[str, Catalogue]":
    """Returns the catalogue of each split; empty where a split has none.

    Raises:
      DamageError: a catalogue is damaged, or has other rows than the split.
      OSError: one cannot be read.
    """
    out = {}
    for split in dataset.manifest.splits:
        parts = dataset.manifest.catalogue_parts(split.name)
        if not parts:
            return {}
        out[split.name] = _open_catalogue(dataset, parts)
        out[split.name].check_length(split.records)
    return out


def _open_catalogue(dataset: Dataset, parts: Collection[str]) -> "Catalogue":
    """Opens the files of a split's catalogue as one."""
    # Loaded where there is a catalogue: Parquet takes 0.1 s.
    from transforms.reading.catalogue import Catalogue

    return Catalogue([*map(dataset.path, parts)])


class DerivedCheck:
    """Compares the indexes and the catalogue of a split with its shards, in order.

        check = DerivedCheck(dataset, split, sound)
        see, faults = check.next_shard()
        reader.verify(see)
        faults(), check.wrong_length()

    Args:
      dataset: that they are of.
      split: of the dataset.
      sound: the derived files that are as the manifest states.
    """

    def __init__(
        self, dataset: Dataset, split: SplitFacts, sound: Collection[str]
    ) -> None:
        self._dataset, self._split, self._sound = dataset, split, sound
        self._number = self._first = 0
        # Faults of a catalogue are named by its first part.
        self._part, self._catalogue = "", None
        parts = dataset.manifest.catalogue_parts(split.name)
        if parts and all(file in sound for file in parts):
            self._part, self._catalogue = parts[0], _open_catalogue(dataset, parts)

    def next_shard(self) -> tuple[Callable[[PayloadBatch], None], Callable[[], Faults]]:
        """Returns what takes the batches of the next shard, and then its faults."""
        shard = self._split.shards[self._number]
        path = self._dataset.path(shard.file)
        rows = None
        if self._catalogue is not None:
            from transforms.reading.catalogue_of_shards import comparison

            rows = comparison(
                *(self._catalogue, self._number, path, self._first, shard.records),
                compression=self._dataset.manifest.compression,
            )
        self._number, self._first = self._number + 1, self._first + shard.records
        indexes = []
        # Version 0.2 wrote indexes of gzip files, which nothing reads now.
        if self._dataset.manifest.compression == "none":
            names = (index_file(shard.file), text_index_file(shard.file))
            indexes = [name for name in names if name in self._sound]
        offsets = []
        faults: Faults = []

        def see(batch: PayloadBatch) -> None:
            if indexes:
                offsets.append(batch.offsets)
            if rows is not None and not faults:
                try:
                    rows(batch)
                except DamageError as error:
                    faults.append((self._part, str(error)))

        def found() -> Faults:
            every = np.concatenate([*offsets, np.array([shard.bytes], np.int64)])
            for name in indexes:
                is_text = name == text_index_file(shard.file)
                expected = text_index(every) if is_text else every.tobytes()
                # What cannot be read is found by those who read it whole.
                with contextlib.suppress(OSError, SourceError):
                    if storage(self._dataset.path(name)).read_bytes() != expected:
                        what = f"must say where the records of {shard.file!r} are."
                        faults.append((name, f"{what} It says something else."))
            return faults

        return see, found

    def wrong_length(self) -> Faults:
        """Returns the fault of a catalogue that has other rows than the split."""
        if self._catalogue is not None:
            try:
                self._catalogue.check_length(self._split.records)
            except DamageError as error:
                return [(self._part, str(error))]
        return []
