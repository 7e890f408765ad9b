"""Columns of a split's records from its catalogue, in place of its shards."""

import dataclasses
import functools
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from transforms.core.schema import Feature
from transforms.errors import DamageError
from transforms.formats.tfrecord_files.shards import Edition
from transforms.reading.positions import Longs

if TYPE_CHECKING:
    from transforms.reading.catalogue import Catalogue

# Rows of a selection in any other order that are looked up together.
_TOGETHER = 1 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class CatalogueFiles:
    """The catalogue of a split.

    Attributes:
      parts: paths of its files, in order.
      records: of the split.
      features: those whose columns in it have every value of the records.
    """

    parts: tuple[str, ...]
    records: int
    features: frozenset[str]


class CatalogueRows:
    """Reads features of records from a catalogue; opens it when it is first asked.

    Args:
      files: of the catalogue.
      edition: of the dataset, which must stay the same.
    """

    def __init__(self, files: CatalogueFiles, edition: Edition) -> None:
        self._files = files
        self._edition = edition

    def has(self, names: Collection[str]) -> bool:
        """Whether the catalogue has all of these features, and there are any."""
        if not names or not self._files.features.issuperset(names):
            return False
        return set(self._catalogue.schema.names).issuperset(names)

    def batches(
        self, features: Sequence[Feature], start: int, stop: int
    ) -> Iterator[pa.RecordBatch]:
        """Yields features of the records at `start` to `stop`, as `TypedRows` does.

        Labels are class ids.

        Args:
          features: that it has; labels with their class names as vocabularies.
          start, stop: 0 <= start <= stop <= n.

        Raises:
          DamageError: it is damaged, or the dataset was replaced.
        """
        try:
            yield from self._catalogue.typed_batches(features, start, stop)
        except (DamageError, OSError) as error:
            raise self._replaced() or error from error
        if (replaced := self._replaced()) is not None:
            raise replaced

    def at(
        self, features: Sequence[Feature], positions: Longs
    ) -> Iterator[pa.RecordBatch]:
        """Yields features of the records at positions, in their order.

        Memory is that of a million rows. Arguments and errors are those of `batches`.
        """
        for begin in range(0, len(positions), _TOGETHER):
            part = positions[begin : begin + _TOGETHER]
            wanted, places = np.unique(part, return_inverse=True)
            held: list[pa.RecordBatch] = []
            first = int(wanted[0])
            for batch in self.batches(features, first, int(wanted[-1]) + 1):
                low, high = np.searchsorted(wanted, (first, first + batch.num_rows))
                held.append(batch.take(pa.array(wanted[low:high] - first)))
                first += batch.num_rows
            taken = pa.Table.from_batches(held).take(pa.array(places))
            yield from taken.combine_chunks().to_batches()

    @functools.cached_property
    def _catalogue(self) -> "Catalogue":
        # Loaded where a catalogue is read: Parquet takes 0.1 s.
        from transforms.reading.catalogue import Catalogue

        try:
            found = Catalogue(self._files.parts)
        except (DamageError, OSError) as error:
            raise self._replaced() or error from error
        if len(found) != self._files.records:
            raise self._replaced() or DamageError(
                f"{found.path} and the other parts must have a row for each of the "
                f"{self._files.records:,} records of the split; found {len(found):,}. "
                f"'beam-tfrecord verify' shows all damage."
            )
        return found

    def _replaced(self) -> DamageError | None:
        change = self._edition.replacement()
        if not change:
            return None
        return DamageError(
            f"The dataset must stay as it was when it was opened; it was replaced "
            f"while open: {change}. Open it again."
        )
