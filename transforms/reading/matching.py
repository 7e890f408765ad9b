"""Which records a condition holds for: from the catalogue, or by reading them."""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.core.schema import Feature
from transforms.core.tfrecord.reader import PayloadBatch
from transforms.errors import ExampleError
from transforms.formats.tfrecord_files.typed_rows import TypedRows
from transforms.reading.catalogue import CatalogueRows
from transforms.reading.condition import Condition
from transforms.reading.misfit import first_misfit
from transforms.reading.positions import Longs
from transforms.reading.records import Records
from transforms.reading.rows import batch_of

_TOGETHER = 4_096


def matching(
    records: Records,
    features: Sequence[Feature],
    condition: Condition,
    positions: Longs,
    *,
    catalogue: CatalogueRows | None = None,
) -> Longs:
    """Returns the positions whose records meet a condition, in the order given.

    A catalogue that has the features that the condition names is read instead of the
    records. Without one each record is read once, in the order of the files, and only
    those features are decoded.

    Args:
      records: of the split.
      features: that it has.
      condition: over some of them.
      positions: any of the split's, in any order.
      catalogue: of the split; None for none.

    Raises:
      TFRecordError: a record is damaged.
      ExampleError: it does not hold what a feature must; names file and record.
    """
    used = [each for each in features if each.name in condition.columns]
    if catalogue is not None and len(positions) and catalogue.has(condition.columns):
        first = int(positions.min())
        batches = catalogue.batches(used, first, int(positions.max()) + 1)
        kept = np.concatenate([_mask(condition, batch) for batch in batches])
        return np.asarray(positions[kept[positions - first]])
    by_id = [dataclasses.replace(each, vocabulary=None) for each in used]
    rows = TypedRows(tuple(by_id))
    wanted = np.unique(positions)
    held = [np.empty(0, np.bool_)]
    done = 0
    for payloads in _read(records, wanted):
        try:
            batch = rows.batch(payloads, "")
        except ExampleError as error:
            positions = wanted[done : done + len(payloads)]
            raise first_misfit(
                error,
                payloads,
                records,
                positions,
                lambda record: rows.batch(batch_of([record]), ""),
            ) from error
        held.append(_mask(condition, batch))
        done += len(payloads)
    chosen = np.concatenate(held)[np.searchsorted(wanted, positions)]
    return np.asarray(positions[chosen])


def _mask(condition: Condition, batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """Tells for each of n rows whether the condition holds for certain."""
    known = condition.mask(batch).fill_null(False)
    return np.asarray(known.to_numpy(zero_copy_only=False))


def _read(records: Records, wanted: Longs) -> Iterator[PayloadBatch]:
    """Yields the records at ascending positions."""
    are_neighbours = len(wanted) and wanted[-1] - wanted[0] == len(wanted) - 1
    if are_neighbours or records.in_order_only:
        yield from records.ascending(wanted)
        return
    for start in range(0, len(wanted), _TOGETHER):
        yield batch_of([*records.many(wanted[start : start + _TOGETHER])])
