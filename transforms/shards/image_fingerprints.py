"""Fingerprints of a shard's images, stored for the stage `leak_check`."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from transforms.core import segment
from transforms.core.model import ShardKey
from transforms.core.placing.leakage import Fingerprints, Subject, pack_fingerprints
from transforms.core.placing.shard_rows import ShardRows
from transforms.work.store import Store

__all__ = ["store_fingerprints"]


def store_fingerprints(
    key: ShardKey,
    rows: ShardRows,
    *,
    values: Sequence[int],
    positions: npt.NDArray[np.int64],
    store: Store,
) -> Fingerprints | None:
    """Stores the fingerprints of the images of one shard; None where it has none.

    Args:
      key: the shard.
      rows: of the shard.
      values: n fingerprints; see `transforms.core.placing.leakage.fingerprint_image`.
      positions: of their rows in `rows.table`; a row may have several images.
      store: where to put them; a second attempt puts the same.
    """
    if not values:
        return None
    split, number = key
    origins, numbers = rows.places(positions)
    packed = pack_fingerprints(
        np.array(values, np.uint64), np.zeros(len(values), np.int64), numbers, origins
    )
    # The rows of another attempt may be others.
    name = f"images\0{split}\0{store.attempt}"
    parts = [(packed.num_rows, segment.serialize(packed))]
    (piece,) = store.put(name, number, parts)
    return Fingerprints(
        Subject.IMAGE,
        (split,),
        many_origins=True,
        segment=dataclasses.replace(piece, origin=split),
    )
