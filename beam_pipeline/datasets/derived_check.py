"""Compare a dataset's indexes and catalogue with its shards, while those are read."""

import contextlib
import itertools
from collections.abc import Collection
from typing import TYPE_CHECKING

from beam_pipeline.datasets.dataset import Dataset
from transforms import files
from transforms.core.manifest import SplitFacts
from transforms.core.tfrecord import PayloadBatch
from transforms.core.tfrecord.record_index import index_file, text_index_file
from transforms.errors import DamageError, SourceError
from transforms.reading.index_check import IndexCheck

if TYPE_CHECKING:
    from transforms.reading.catalogue_check import CatalogueCheck, ShardRowsCheck

__all__ = ["DerivedChecks", "ShardCheck"]


class ShardCheck:
    """Compares the indexes and the rows of one shard.

    Args:
      indexes: by their names.
      rows: of the catalogue; None for none.
      catalogue: name of the part that they are in, or of the first part.
    """

    def __init__(
        self,
        indexes: dict[str, IndexCheck],
        rows: "ShardRowsCheck | None",
        catalogue: str,
    ) -> None:
        self._indexes = indexes
        self._rows = rows
        self._catalogue = catalogue
        self._faults: list[tuple[str, str]] = []

    def see(self, batch: PayloadBatch) -> None:
        """Compares the next records of the shard."""
        for check in self._indexes.values():
            check.see(batch)
        if self._rows is None:
            return
        try:
            self._rows.see(batch)
        except DamageError as error:
            self._faults.append((self._catalogue, str(error)))
            self._rows = None

    def faults(self, shard: str, records: int) -> list[tuple[str, str]]:
        """Returns (derived file, what is wrong with it), once the shard is read.

        Args:
          shard: its name, for messages.
          records: that it has.
        """
        found = [*self._faults]
        for name, check in self._indexes.items():
            if fault := check.fault(records):
                found.append(
                    (name, f"must say where the records of {shard!r} are: {fault}.")
                )
        return found


class DerivedChecks:
    """Compares the indexes and the catalogue of one dataset.

        checks = DerivedChecks(dataset, sound)
        check = checks.of_shard(split, number)
        reader.verify(check.see)
        check.faults(shard.file, shard.records)

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
                    data = files.read_bytes(self._dataset.path(name))
                    indexes[name] = IndexCheck.of(data, name, size=shard.bytes)
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
        return ShardCheck(indexes, rows, parts[0] if parts else "")

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
            found = self._dataset.manifest.catalogue_parts(split.name)
            self._parts[split.name] = found
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
        from transforms.reading.catalogue_check import CatalogueCheck

        catalogue = Catalogue([self._dataset.path(part) for part in parts])
        return CatalogueCheck(catalogue, compression=manifest.compression)
