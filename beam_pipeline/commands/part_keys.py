"""Keys that rows of several parts have: a day that was converted twice, perhaps."""

import dataclasses
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beam_pipeline.datasets.dataset import Dataset
from beam_pipeline.reading.open_dataset import open_dataset
from transforms.core.naming import part_name
from transforms.core.placing.content import content_hashes

_ROWS_AT_ONCE = 1 << 16


@dataclasses.dataclass(frozen=True, slots=True)
class SharedKeys:
    """Keys that are in several parts.

    Attributes:
      feature: that holds the keys.
      count: how many such keys there are.
      example: one of them.
      parts: two parts that have it.
    """

    feature: str
    count: int
    example: str
    parts: tuple[str, str]


def shared_keys(dataset: Dataset) -> SharedKeys | None:
    """Returns keys that are in several parts; None for none.

    Takes 8 bytes of memory for each key.

    Args:
      dataset: of parts.

    Raises:
      TFRecordError: a record is damaged.
    """
    feature = _key_feature(dataset)
    if feature is None:
        return None
    known = [np.unique(_all_hashes(part, feature)) for part in dataset.parts]
    hashes = np.concatenate(known)
    owners = np.repeat(np.arange(len(known)), [len(each) for each in known])
    order = np.argsort(hashes, kind="stable")
    hashes, owners = hashes[order], owners[order]
    again = np.flatnonzero(hashes[1:] == hashes[:-1])
    if not len(again):
        return None
    first = int(again[0])
    one, other = (dataset.parts[owners[at]] for at in (first, first + 1))
    return SharedKeys(
        feature,
        len(np.unique(hashes[again])),
        _text_of(one, feature, hashes[first]),
        (part_name(one.directory), part_name(other.directory)),
    )


def _key_feature(dataset: Dataset) -> str | None:
    """Returns the stored feature that is made of the column of the keys."""
    column = dataset.manifest.settings.get("key_column")
    names = (
        facts.feature.name
        for facts in dataset.manifest.features
        if column
        and facts.feature.source_column == column
        and not facts.feature.internal
        and not facts.feature.shape
    )
    return next(names, None)


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


def _all_hashes(part: Dataset, feature: str) -> npt.NDArray[np.uint64]:
    hashes = [found for _, found in _batches(part, feature)]
    return np.concatenate([np.empty(0, np.uint64), *hashes])


def _text_of(part: Dataset, feature: str, wanted: np.uint64) -> str:
    for keys, hashes in _batches(part, feature):
        if len(at := np.flatnonzero(hashes == wanted)):
            return str(keys[int(at[0])].as_py())
    return ""
