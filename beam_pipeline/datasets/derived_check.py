"""Compare a dataset's indexes and catalogue with its shards, while those are read."""

import contextlib
import dataclasses
import itertools
import re
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Self

import numpy as np
import numpy.typing as npt

from beam_pipeline.datasets.dataset import Dataset
from transforms.core.manifest import SplitFacts
from transforms.core.tfrecord import PayloadBatch
from transforms.core.tfrecord.record_index import index_file, text_index_file
from transforms.errors import DamageError, SourceError
from transforms.storage.files import storage

if TYPE_CHECKING:
    from transforms.reading.catalogue_of_shards import CatalogueCheck

_Longs = npt.NDArray[np.int64]
_LINES = re.compile(rb"([0-9]{1,18} [0-9]{1,18}\n)*")


@dataclasses.dataclass(slots=True)
class _IndexCheck:
    """Compares what an index says of the records of one file with the records.

        check = _IndexCheck.of(data, "a.u64", size=180)
        reader.verify(check.see)
        fault = check.fault(reader.records)     # "" where it is the file's

    Attributes:
      offsets: where each of n records begins, and the end of the last, as the index
        says.
      ends_there: whether the index ends where the file does.
    """

    offsets: _Longs
    ends_there: bool
    _fault: str = ""

    @classmethod
    def of(cls, data: bytes, name: str, *, size: int) -> Self:
        """Returns the check of an index.

        Args:
          data: its content.
          name: of its file, which says whether it is text.
          size: bytes of the file that it is of.
        """
        if name.endswith(".idx"):
            numbers = [*map(int, data.split())] if _is_text(data) else []
            pairs = np.array(numbers, np.int64).reshape(-1, 2)
            ends = pairs.sum(axis=1)[-1:] if len(pairs) else np.zeros(1, np.int64)
            return cls(np.append(pairs[:, 0], ends), bool(ends[0] == size))
        found = np.frombuffer(data[: len(data) // 8 * 8], "<u8").view(np.int64)
        return cls(found, len(found) > 0 and int(found[-1]) == size)

    def see(self, batch: PayloadBatch) -> None:
        """Compares the next records of the file."""
        if self._fault:
            return
        first = batch.first_record
        said = self.offsets[first : first + len(batch)]
        # Offsets that the index lacks are found at the end.
        differs = np.flatnonzero(said != batch.offsets[: len(said)])
        if len(differs):
            place = int(differs[0])
            self._fault = (
                f"record {first + place:,} begins at byte {batch.offsets[place]:,}, "
                f"not at {said[place]:,}"
            )

    def fault(self, records: int) -> str:
        """Returns what is wrong with the index; empty for nothing.

        Args:
          records: of the file, all of which `see` was given.
        """
        if not self._fault and len(self.offsets) != records + 1:
            return f"there are {records:,} records, not {len(self.offsets) - 1:,}"
        if not self._fault and not self.ends_there:
            return "the file ends elsewhere"
        return self._fault


class ShardCheck:
    """Compares the indexes and the rows of one shard.

    Args:
      indexes: by their names.
      rows: compares records with the catalogue; None for none.
      catalogue: name of the part that they are in, or of the first part.
    """

    def __init__(
        self,
        indexes: dict[str, _IndexCheck],
        rows: Callable[[PayloadBatch], None] | None,
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
            self._rows(batch)
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
                    data = storage(self._dataset.path(name)).read_bytes()
                    indexes[name] = _IndexCheck.of(data, name, size=shard.bytes)
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
        from transforms.reading.catalogue_of_shards import CatalogueCheck

        catalogue = Catalogue([self._dataset.path(part) for part in parts])
        return CatalogueCheck(catalogue, compression=manifest.compression)


def _is_text(data: bytes) -> bool:
    """Whether an index as text is lines of two numbers."""
    return _LINES.fullmatch(data) is not None
