"""Select rows of a source by a set of 64-bit hashes of their places.

An item's place is its origin and its 0-based row there; 0 for a file or a member of an
archive. The hash is `placement.hash_rows` of it: a million places take 8 MB, and a row
is looked up by binary search. Two places of equal hash are so rare (1 in 18 million for
a million of each) that selecting one row too many is accepted.
"""

import collections
import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.core.model import Reading, Rejection
from transforms.core.placing.placement import UInt64s, hash_rows, is_among
from transforms.core.reasons import Skipped
from transforms.core.rejected_rows import RejectedRows
from transforms.core.rows.record_columns import count_parts
from transforms.core.schema import Schema

__all__ = ["place_hashes", "select_rows"]

_PURPOSE = "selection"


def place_hashes(
    origins: str | pa.StringArray, numbers: npt.NDArray[np.int64]
) -> UInt64s:
    """Returns the hashes of n places.

    Args:
      origins: one for all places, or one for each.
      numbers: n 0-based row numbers.
    """
    return hash_rows(origins, numbers, purpose=_PURPOSE, seed=0)


def select_rows(reading: Reading, wanted: UInt64s, schema: Schema) -> Reading:
    """Returns the reading of a piece in which only the wanted rows count.

    All others count as skipped, whether they fit or not, and their parts as gone.

    Args:
      reading: of the piece.
      wanted: hashes of places, ascending.
      schema: of the rows.
    """
    batch = reading.batch
    origins = batch.block.origin if batch.origins is None else batch.origins
    keep = is_among(place_hashes(origins, batch.numbers), wanted)
    rejections, refused, parts = _rejections(reading, wanted)
    dropped = len(keep) - int(keep.sum())
    if not dropped and not refused and not parts:
        return reading
    skipped = dict(reading.skipped)
    if dropped or refused:
        reason = str(Skipped.NOT_REJECTED_BEFORE)
        skipped[reason] = skipped.get(reason, 0) + dropped + refused
    gone = collections.Counter(reading.parts_gone)
    gone.update(parts)
    if reading.parts:
        gone.update(count_parts(batch.rows.filter(pa.array(~keep)), schema.features))
    return dataclasses.replace(
        reading,
        batch=batch if keep.all() else batch.filter(keep),
        rejections=rejections,
        skipped=skipped,
        parts_gone=dict(gone),
    )


def _rejections(
    reading: Reading, wanted: UInt64s
) -> tuple[Sequence[Rejection], int, dict[str, int]]:
    """Returns rejections of wanted rows, the number of others, and parts of others."""
    found = reading.rejections
    if isinstance(found, RejectedRows):
        places = place_hashes(reading.batch.block.origin, found.numbers)
        keep = is_among(places, wanted)
        return found.only(keep), len(keep) - int(keep.sum()), {}
    if not found:
        return found, 0, {}
    origins = pa.array([rejection.source for rejection in found], pa.string())
    numbers = np.array([(rejection.row or 1) - 1 for rejection in found], np.int64)
    keep = is_among(place_hashes(origins, numbers), wanted)
    parts: collections.Counter[str] = collections.Counter()
    refused = 0
    for index in np.flatnonzero(~keep).tolist():
        if part := found[index].part:
            parts[part] += 1
        else:
            refused += 1
    kept = [found[index] for index in np.flatnonzero(keep).tolist()]
    return kept, refused, dict(parts)
