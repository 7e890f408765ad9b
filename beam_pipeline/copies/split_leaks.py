"""Equal images in several splits of datasets that become one."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from beam_pipeline.datasets.dataset import Dataset
from beam_pipeline.reading.open_dataset import OpenDataset, names_files, open_dataset
from beam_pipeline.terminal.words import size_text
from transforms.core.placing.leakage import (
    Leaks,
    Place,
    Shared,
    SplitFindings,
    Subject,
    find_shared,
    fingerprint_image,
)
from transforms.core.placing.placement import UInt64s, usual_order
from transforms.core.schema import Feature, Kind
from transforms.storage.paths import is_remote

# Shards are linked, not read. So images are only read where that takes seconds.
_MOST_BYTES = 4_000_000_000
_TOGETHER = 256
# The fingerprint of a record without an image.
_MISSING = 0
# Images that share a fingerprint and are compared, and those that a note names.
_COMPARED = 1_000
_EXAMPLES = 3


def leak_notes(
    datasets: Sequence[Dataset], read: Callable[[int], None] = lambda _bytes: None
) -> list[str]:
    """Returns what a person should know of equal images in different splits.

    Args:
      datasets: with the same features.
      read: called with the size of images that were read.

    Raises:
      DamageError: a record is damaged.
    """
    image = _image_of(datasets[0])
    filled = [split for d in datasets for split in d.manifest.splits if split.records]
    names = tuple(usual_order({split.name for split in filled}))
    if image is None or len(names) < 2:
        return []
    size = sum(split.bytes for split in filled)
    if size > _MOST_BYTES or any(is_remote(dataset.directory) for dataset in datasets):
        return [
            f"images of different splits were not compared: that reads "
            f"{size_text(size)}. 'report' compares samples of them"
        ]
    opened = [open_dataset(dataset.directory) for dataset in datasets]
    parts = [
        (rows, name, _fingerprints(rows, name, image.name, read))
        for rows in opened
        for name in names
        if name in rows.splits
    ]
    values = np.concatenate([prints for _, _, prints in parts])
    splits = np.concatenate(
        [np.full(len(p), names.index(name), np.int16) for _, name, p in parts]
    )
    shared = find_shared(values, splits, count=len(names)).without([_MISSING])
    compared = _compared(parts, shared, image.name)
    shared = shared.without([value for value, same in compared.items() if not same])
    leaks = Leaks(
        Subject.IMAGE,
        items=len(shared.values),
        pairs=shared.pairs(names),
        examples=tuple([same for same in compared.values() if same][:_EXAMPLES]),
        confirmed=len(compared) < _COMPARED,
    )
    return SplitFindings(leaks=(leaks,)).warnings()


def _image_of(dataset: Dataset) -> Feature | None:
    """Returns the image of a record; None where there is none, or a list."""
    features = [facts.feature for facts in dataset.manifest.features]
    images = (f for f in features if f.kind is Kind.IMAGE and not f.is_list)
    return next(images, None)


def _fingerprints(
    rows: OpenDataset, split: str, image: str, read: Callable[[int], None]
) -> UInt64s:
    """Returns a fingerprint of each record's image."""
    return np.fromiter(_each(rows, split, image, read), np.uint64)


def _each(
    rows: OpenDataset, split: str, image: str, read: Callable[[int], None]
) -> Iterator[int]:
    for batch in rows[split].select([image]).batches(_TOGETHER):
        read(batch.nbytes)
        for value in batch.column(0):
            data = value.as_py()
            yield fingerprint_image(data, readable_again=True) if data else _MISSING


def _compared(
    parts: Sequence[tuple[OpenDataset, str, UInt64s]], shared: Shared, image: str
) -> dict[int, tuple[Place, ...]]:
    """Returns fingerprint -> places of equal images, one of each split; () for none."""
    few = shared.values[:_COMPARED]
    contents_of: dict[int, dict[bytes, dict[str, Place]]] = {
        v: {} for v in few.tolist()
    }
    for rows, split, prints in parts:
        name = next((n for n, f in rows.features.items() if names_files(f)), "")
        view = rows[split].select([image, name] if name else [image])
        for position in np.flatnonzero(np.isin(prints, few)).tolist():
            row = view[position]
            example = (
                Place(split, str(row[name]), 0)
                if name and row[name]
                else Place(split, rows.path, position)
            )
            equal = contents_of[int(prints[position])].setdefault(bytes(row[image]), {})
            equal.setdefault(split, example)
    return {
        value: next((tuple(c.values()) for c in contents.values() if len(c) > 1), ())
        for value, contents in contents_of.items()
    }
