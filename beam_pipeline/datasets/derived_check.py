"""Compare a dataset's indexes and catalogue with its shards, while those are read."""

import contextlib
import itertools
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from beam_pipeline.datasets.dataset import Dataset
from transforms.core.manifest import ShardFacts, SplitFacts
from transforms.core.tfrecord import PayloadBatch
from transforms.core.tfrecord.record_index import (
    index_file,
    text_index,
    text_index_file,
)
from transforms.errors import DamageError, SourceError
from transforms.storage.files import storage

if TYPE_CHECKING:
    from transforms.reading.catalogue_of_shards import CatalogueCheck

_Longs = npt.NDArray[np.int64]


class ShardCheck:
    """Compares the indexes and the rows of one shard.

    Args:
      shard: what the manifest says of it.
      indexes: what the index files hold, by their names.
      rows: compares records with the catalogue; None for none.
      catalogue: name of the part that they are in, or of the first part.
    """

    def __init__(
        self,
        shard: ShardFacts,
        indexes: Mapping[str, bytes],
        rows: Callable[[PayloadBatch], None] | None,
        catalogue: str,
    ) -> None:
        self._shard = shard
        self._indexes = indexes
        self._rows = rows
        self._catalogue = catalogue
        self._offsets: list[_Longs] = []
        self._faults: list[tuple[str, str]] = []

    def see(self, batch: PayloadBatch) -> None:
        """Compares the next records of the shard."""
        if self._indexes:
            self._offsets.append(batch.offsets)
        if self._rows is None:
            return
        try:
            self._rows(batch)
        except DamageError as error:
            self._faults.append((self._catalogue, str(error)))
            self._rows = None

    def faults(self) -> list[tuple[str, str]]:
        """Returns (derived file, what is wrong with it), once the shard is read."""
        ends = np.array([self._shard.bytes], np.int64)
        offsets = np.concatenate([*self._offsets, ends])
        faults = [*self._faults]
        for name, data in self._indexes.items():
            is_text = name == text_index_file(self._shard.file)
            expected = text_index(offsets) if is_text else offsets.tobytes()
            if data != expected:
                record = _first_other(data, expected, is_text=is_text)
                faults.append(
                    (
                        name,
                        f"must say where the records of {self._shard.file!r} are; from "
                        f"record {record:,} on it does not.",
                    )
                )
        return faults


def _first_other(data: bytes, expected: bytes, *, is_text: bool) -> int:
    """Returns the first record of which an index says something else."""
    size = min(len(data), len(expected))
    one, other = (
        np.frombuffer(content, np.uint8, size) for content in (data, expected)
    )
    differs = np.flatnonzero(one != other)
    offset = int(differs[0]) if len(differs) else size
    return expected[:offset].count(b"\n") if is_text else offset // 8


class DerivedChecks:
    """Compares the indexes and the catalogue of one dataset.

        checks = DerivedChecks(dataset, sound)
        check = checks.of_shard(split, number)
        reader.verify(check.see)
        check.faults()

    Args:
      dataset: that they are of.
      sound: the derived files that are as the manifest states.
    """

    def __init__(self, dataset: Dataset, sound: Collection[str]) -> None:
        self._dataset = dataset
        self._sound = frozenset(sound)
        self._places: dict[str, list[int]] = {}
        self._parts: dict[str, tuple[str, ...]] = {}
        self._catalogues: dict[str, CatalogueCheck | None] = {}

    def of_shard(self, split: SplitFacts, number: int) -> ShardCheck:
        """Returns the check of a shard, by its number in its split."""
        shard = split.shards[number]
        path = self._dataset.path(shard.file)
        manifest = self._dataset.manifest
        indexes = {}
        for name in (index_file(shard.file), text_index_file(shard.file)):
            # What cannot be read is found by those who read it whole.
            with contextlib.suppress(OSError, SourceError):
                # Version 0.2 wrote indexes of gzip files, which nothing reads now.
                if name in self._sound and manifest.compression == "none":
                    indexes[name] = storage(self._dataset.path(name)).read_bytes()
        catalogue = self._catalogue(split)
        rows = None
        if catalogue is not None:
            rows = catalogue.of_shard(
                number,
                path,
                first=self._firsts(split)[number],
                records=shard.records,
            )
        parts = self._parts_of(split)
        return ShardCheck(shard, indexes, rows, parts[0] if parts else "")

    def of_split(self, split: SplitFacts) -> list[tuple[str, str]]:
        """Returns (part, what is wrong) where a catalogue has another length."""
        catalogue = self._catalogue(split)
        if catalogue is None:
            return []
        try:
            catalogue.check_length(split.records)
        except DamageError as error:
            return [(self._parts_of(split)[0], str(error))]
        return []

    def _firsts(self, split: SplitFacts) -> list[int]:
        """Returns the place in its split of each shard's first record."""
        if split.name not in self._places:
            counts = [shard.records for shard in split.shards]
            self._places[split.name] = [0, *itertools.accumulate(counts)]
        return self._places[split.name]

    def _parts_of(self, split: SplitFacts) -> tuple[str, ...]:
        # All derived files are looked through for it: not once for each shard.
        if split.name not in self._parts:
            parts = self._dataset.manifest.catalogue_parts(split.name)
            self._parts[split.name] = parts
        return self._parts[split.name]

    def _catalogue(self, split: SplitFacts) -> "CatalogueCheck | None":
        if split.name not in self._catalogues:
            self._catalogues[split.name] = self._opened(split)
        return self._catalogues[split.name]

    def _opened(self, split: SplitFacts) -> "CatalogueCheck | None":
        manifest, parts = self._dataset.manifest, self._parts_of(split)
        if not parts or not self._sound.issuperset(parts):
            return None
        # Loaded where there is a catalogue: Parquet takes 0.1 s.
        from transforms.reading.catalogue import Catalogue
        from transforms.reading.catalogue_of_shards import CatalogueCheck

        catalogue = Catalogue([self._dataset.path(part) for part in parts])
        return CatalogueCheck(catalogue, compression=manifest.compression)
