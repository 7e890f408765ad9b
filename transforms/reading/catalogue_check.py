"""Compare a catalogue with the shards that it is of."""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.catalogue import OWN_COLUMNS
from transforms.errors import DamageError
from transforms.formats.tfrecord_files.shards import Shard
from transforms.reading.catalogue import Catalogue
from transforms.reading.catalogue_of_shards import rows_of_shard

__all__ = ["check_catalogue"]


def check_catalogue(catalogue: Catalogue, shards: Sequence[Shard]) -> None:
    """Requires that the rows of a catalogue are the records of these shards.

    Compared are shard, place, size and CRC32C of every record. The shards are read
    once, their checksums checked.

    Args:
      catalogue: of a split.
      shards: of the split, in order.

    Raises:
      DamageError: they differ; or a shard, or a part, is damaged.
      OSError: one of them cannot be read.
    """
    names = [name for name in catalogue.schema.names if name in OWN_COLUMNS]
    # Each row group is read once, however few records the shards give at a time.
    found = catalogue.batches(names, 0, len(catalogue))
    rest: pa.RecordBatch | None = None
    place = 0
    for number, shard in enumerate(shards):
        for expected in rows_of_shard(shard.path, number, ()):
            count, done = len(expected["_size"]), 0
            while done < count:
                if rest is None or not rest.num_rows:
                    rest = next(found, None)
                if rest is None:
                    raise _differs(catalogue, f"it has no row for record {place:,}")
                part = rest.slice(0, count - done)
                rest = rest.slice(part.num_rows)
                _compare(catalogue, part, expected, done, place, shard.path)
                done, place = done + part.num_rows, place + part.num_rows
    if place != len(catalogue):
        raise _differs(
            catalogue, f"it has {len(catalogue):,} rows; the shards, {place:,} records"
        )


def _compare(
    catalogue: Catalogue,
    rows: pa.RecordBatch,
    expected: Mapping[str, pa.Array],
    start: int,
    place: int,
    path: str,
) -> None:
    """Compares rows with what they must be.

    Args:
      catalogue: for messages.
      rows: some of the catalogue.
      expected: columns of a shard; those that it does not tell are not compared.
      start: of the rows in `expected`.
      place: of the rows in the split.
      path: of the shard.
    """
    for name, found in zip(rows.schema.names, rows.columns, strict=True):
        if name not in expected:
            continue
        wanted = expected[name].slice(start, len(found))
        if found.equals(wanted):
            continue
        same = pc.fill_null(pc.equal(found, wanted), False)
        both = pc.and_(found.is_null(), wanted.is_null())
        wrong = ~pc.or_(same, both).to_numpy(zero_copy_only=False)
        row = int(np.argmax(wrong))
        raise _differs(
            catalogue,
            f"record {place + row:,}, in {path}, has {name} {wanted[row]}; its row, "
            f"{found[row]}",
        )


def _differs(catalogue: Catalogue, detail: str) -> DamageError:
    return DamageError(
        f"The catalogue {catalogue.path} must have a row for each record of its "
        f"split, in order; {detail}. Make the catalogue again."
    )
