"""Equal images in several splits of datasets that become one."""

from collections.abc import Callable, Sequence

import numpy as np

from beam_pipeline.datasets.dataset import Dataset
from beam_pipeline.reading.open_dataset import names_files, open_dataset
from beam_pipeline.terminal.words import size_text
from transforms.core.placing.leakage import (
    Leaks,
    Place,
    SplitFindings,
    Subject,
    find_shared,
    fingerprint_image,
)
from transforms.core.placing.placement import UInt64s, usual_order
from transforms.core.schema import Kind
from transforms.reading.view import View
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
    features = [facts.feature for facts in datasets[0].manifest.features]
    images = (f.name for f in features if f.kind is Kind.IMAGE and not f.is_list)
    image = next(images, "")
    filled = [split for d in datasets for split in d.manifest.splits if split.records]
    names = tuple(usual_order({split.name for split in filled}))
    if not image or len(names) < 2:
        return []
    size = sum(split.bytes for split in filled)
    if size > _MOST_BYTES or any(is_remote(dataset.directory) for dataset in datasets):
        return [
            f"images of different splits were not compared: that reads "
            f"{size_text(size)}. 'report' compares samples of them"
        ]
    opened = [open_dataset(dataset.directory) for dataset in datasets]
    parts = [
        (rows, split) for rows in opened for split in names if split in rows.splits
    ]
    prints = [_fingerprints(rows[split].select([image]), read) for rows, split in parts]
    numbers = [names.index(split) for _, split in parts]
    splits = np.repeat(np.array(numbers, np.int16), [*map(len, prints)])
    shared = find_shared(np.concatenate(prints), splits, count=len(names))
    shared = shared.without([_MISSING])
    few = shared.values[:_COMPARED]
    # Fingerprint -> content -> split -> an example.
    places: dict[int, dict[bytes, dict[str, Place]]] = {v: {} for v in few.tolist()}
    for (rows, split), some in zip(parts, prints, strict=True):
        name = next((n for n, f in rows.features.items() if names_files(f)), "")
        view = rows[split].select([image, name] if name else [image])
        for position in np.flatnonzero(np.isin(some, few)).tolist():
            row = view[position]
            place = Place(split, rows.path, position)
            if row.get(name):
                place = Place(split, str(row[name]), 0)
            contents = places[int(some[position])]
            contents.setdefault(bytes(row[image]), {}).setdefault(split, place)
    equal = {
        value: next((tuple(c.values()) for c in contents.values() if len(c) > 1), ())
        for value, contents in places.items()
    }
    shared = shared.without([value for value, same in equal.items() if not same])
    leaks = Leaks(
        Subject.IMAGE,
        items=len(shared.values),
        pairs=shared.pairs(names),
        examples=tuple([same for same in equal.values() if same][:_EXAMPLES]),
        confirmed=len(few) < _COMPARED,
    )
    return SplitFindings(leaks=(leaks,)).warnings()


def _fingerprints(images: View, read: Callable[[int], None]) -> UInt64s:
    """Returns a fingerprint of each record's image."""
    prints: list[int] = []
    for batch in images.batches(_TOGETHER):
        read(batch.nbytes)
        for value in batch.column(0):
            data = value.as_py() or b""
            crc_and_size = fingerprint_image(data, readable_again=True)
            prints.append(crc_and_size if data else _MISSING)
    return np.array(prints, np.uint64)
