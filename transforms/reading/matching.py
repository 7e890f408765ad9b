"""Which records a condition holds for, by reading them."""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from transforms.core.schema import Feature
from transforms.core.tfrecord.reader import PayloadBatch
from transforms.formats.tfrecord_files.typed_rows import TypedRows
from transforms.reading.condition import Condition
from transforms.reading.positions import Longs
from transforms.reading.records import Records
from transforms.reading.rows import batch_of

__all__ = ["matching"]

_TOGETHER = 4_096


def matching(
    records: Records,
    features: Sequence[Feature],
    condition: Condition,
    positions: Longs,
) -> Longs:
    """Returns the positions whose records meet a condition, in the order given.

    Each record is read once, in the order of the files; only the features that the
    condition names are decoded.

    Args:
      records: of the split.
      features: that it has.
      condition: over some of them.
      positions: any of the split's, in any order.

    Raises:
      TFRecordError: a record is damaged.
      ExampleError: it does not hold what a feature must.
    """
    used = [each for each in features if each.name in condition.columns]
    by_id = [dataclasses.replace(each, vocabulary=None) for each in used]
    rows = TypedRows(tuple(by_id))
    wanted = np.unique(positions)
    held = [np.empty(0, np.bool_)]
    for payloads in _read(records, wanted):
        mask = condition.mask(rows.batch(payloads, "")).fill_null(False)
        held.append(mask.to_numpy(zero_copy_only=False))
    chosen = np.concatenate(held)[np.searchsorted(wanted, positions)]
    return np.asarray(positions[chosen])


def _read(records: Records, wanted: Longs) -> Iterator[PayloadBatch]:
    """Yields the records at ascending positions."""
    if len(wanted) and wanted[-1] - wanted[0] == len(wanted) - 1:
        yield from records.batches(int(wanted[0]), int(wanted[-1]) + 1)
        return
    for start in range(0, len(wanted), _TOGETHER):
        yield batch_of(records.many(wanted[start : start + _TOGETHER]))
