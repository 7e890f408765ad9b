"""Compare a catalogue with the shards that it is of, while those are read."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.catalogue import OWN_COLUMNS, own_columns
from transforms.core.tfrecord import PayloadBatch
from transforms.errors import DamageError
from transforms.reading.catalogue import Catalogue

# What the shards do not tell.
_OF_SOURCES = frozenset(("_origin", "_row", "_key"))


class CatalogueCheck:
    """Compares the rows of a catalogue with the records of some of its shards.

        check = CatalogueCheck(catalogue)
        reader.verify(check.of_shard(0, path, first=0, records=5).see)

    Compared are shard, place, size and CRC32C of every record.

    Args:
      catalogue: of a split.
      compression: of its shards.
    """

    def __init__(self, catalogue: Catalogue, *, compression: str) -> None:
        self._catalogue = catalogue
        self._compression = compression
        names = OWN_COLUMNS - _OF_SOURCES
        if "_within" in catalogue.schema.names:
            # Places in gzip members, of version 0.2.
            names -= {"_offset", "_within"}
        self._names = [name for name in catalogue.schema.names if name in names]

    def check_length(self, records: int) -> None:
        """Raises DamageError unless there is a row for each record of the split."""
        if len(self._catalogue) != records:
            raise self._differs(
                f"it has {len(self._catalogue):,} rows; the shards, {records:,} records"
            )

    def of_shard(
        self, number: int, path: str, *, first: int, records: int
    ) -> "ShardRowsCheck":
        """Returns the check of one shard's rows.

        Args:
          number: of the shard in its split.
          path: of the shard, for messages.
          first: place of its first record in the split.
          records: how many it has.
        """
        stop = min(first + records, len(self._catalogue))
        found = self._catalogue.batches(self._names, min(first, stop), stop)
        return ShardRowsCheck(self, found, number, path, first)

    def columns(self, number: int, batch: PayloadBatch) -> dict[str, pa.Array]:
        """Returns what the rows of records must be."""
        columns = own_columns(
            number,
            batch.offsets if self._compression == "none" else None,
            batch.lengths,
            batch.payload_crcs(),
        )
        return {name: columns[name] for name in self._names}

    def compare(
        self,
        rows: pa.RecordBatch,
        expected: dict[str, pa.Array],
        start: int,
        place: int,
        path: str,
    ) -> None:
        """Raises DamageError where rows differ from what they must be."""
        for name, found in zip(rows.schema.names, rows.columns, strict=True):
            wanted = expected[name].slice(start, len(found))
            if found.equals(wanted):
                continue
            same = pc.fill_null(pc.equal(found, wanted), False)
            both = pc.and_(found.is_null(), wanted.is_null())
            wrong = ~pc.or_(same, both).to_numpy(zero_copy_only=False)
            row = int(np.argmax(wrong))
            raise self._differs(
                f"record {place + row:,}, in {path}, has {name} {wanted[row]}; its "
                f"row, {found[row]}"
            )

    def lacks(self, place: int) -> DamageError:
        """Returns the error of a record without a row."""
        return self._differs(f"it has no row for record {place:,}")

    def _differs(self, detail: str) -> DamageError:
        return DamageError(
            f"The catalogue {self._catalogue.path} must have a row for each record of "
            f"its split, in order; {detail}. Make the catalogue again."
        )


class ShardRowsCheck:
    """Compares the rows of one shard; see `CatalogueCheck.of_shard`."""

    def __init__(
        self,
        check: CatalogueCheck,
        found: Iterator[pa.RecordBatch],
        number: int,
        path: str,
        first: int,
    ) -> None:
        self._check = check
        self._found = found
        self._number, self._path = number, path
        self._place = first
        self._rest: pa.RecordBatch | None = None

    def see(self, batch: PayloadBatch) -> None:
        """Compares the next records of the shard.

        Raises:
          DamageError: their rows are others, or missing.
        """
        expected = self._check.columns(self._number, batch)
        done = 0
        while done < len(batch):
            if self._rest is None or not self._rest.num_rows:
                self._rest = next(self._found, None)
            if self._rest is None:
                raise self._check.lacks(self._place)
            part = self._rest.slice(0, len(batch) - done)
            self._rest = self._rest.slice(part.num_rows)
            self._check.compare(part, expected, done, self._place, self._path)
            done, self._place = done + part.num_rows, self._place + part.num_rows
