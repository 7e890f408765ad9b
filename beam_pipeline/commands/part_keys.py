"""Keys that rows of several parts have: a day that was converted twice, perhaps."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beam_pipeline.datasets.dataset import Dataset
from beam_pipeline.datasets.open_dataset import open_dataset
from beam_pipeline.terminal import count_text
from transforms.core.files import part_name
from transforms.core.placing.content import content_hashes

_ROWS_AT_ONCE = 1 << 16


def shared_keys(dataset: Dataset) -> str:
    """Returns a sentence on keys that are in several parts; empty for none.

    Takes 8 bytes of memory for each key.

    Args:
      dataset: of parts.

    Raises:
      TFRecordError: a record is damaged.
    """
    column = dataset.manifest.settings.get("key_column")
    features = [facts.feature for facts in dataset.manifest.features]
    single = [f for f in features if not (f.internal or f.shape)]
    names = [f.name for f in single if column and f.source_column == column]
    if not names:
        return ""
    name = names[0]
    empty = np.empty(0, np.uint64)
    hashes = [
        np.unique(np.concatenate([empty, *(some for _, some in _batches(part, name))]))
        for part in dataset.parts
    ]
    values, counts = np.unique(np.concatenate(hashes), return_counts=True)
    again = values[counts > 1]
    if not len(again):
        return ""
    both = zip(dataset.parts, hashes, strict=True)
    one, other = [part for part, own in both if np.isin(again[0], own)][:2]
    example = next(
        str(keys[int(at[0])].as_py())
        for keys, some in _batches(one, name)
        if len(at := np.flatnonzero(some == again[0]))
    )
    count = count_text(len(again), "key")
    parts = " and ".join(repr(part_name(part.directory)) for part in (one, other))
    return (
        f"{count} of {name!r} in several parts, as {example!r:.80} in {parts}: if a "
        f"key has one row, a day was converted twice."
    )


def _batches(
    part: Dataset, feature: str
) -> Iterator[tuple[pa.Array, npt.NDArray[np.uint64]]]:
    """Yields the keys of a part, and their hashes."""
    opened = open_dataset(part.directory, labels="names", times="int")
    for split in opened:
        for batch in opened[split].select([feature]).batches(_ROWS_AT_ONCE):
            keys = batch.column(feature)
            if pa.types.is_dictionary(keys.type):
                keys = keys.dictionary_decode()
            rows = pa.record_batch([keys.cast(pa.string())], [feature])
            yield keys, content_hashes(rows, [feature])
