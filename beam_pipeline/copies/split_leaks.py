"""Equal images in several splits of datasets that become one."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from beam_pipeline.datasets.dataset import Dataset
from beam_pipeline.reading.open_dataset import OpenDataset, names_files, open_dataset
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
        _Images(rows, split, image.name)
        for rows in opened
        for split in names
        if split in rows.splits
    ]
    prints = [images.fingerprints(read) for images in parts]
    splits = [
        np.full(len(some), names.index(images.split), np.int16)
        for images, some in zip(parts, prints, strict=True)
    ]
    shared = find_shared(
        np.concatenate(prints), np.concatenate(splits), count=len(names)
    ).without([_MISSING])
    few = shared.values[:_COMPARED]
    # Fingerprint -> content -> split -> an example.
    places: dict[int, dict[bytes, dict[str, Place]]] = {v: {} for v in few.tolist()}
    for images, some in zip(parts, prints, strict=True):
        for position in np.flatnonzero(np.isin(some, few)).tolist():
            data, location = images.at(position)
            contents = places[int(some[position])]
            contents.setdefault(data, {}).setdefault(images.split, location)
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


def _image_of(dataset: Dataset) -> Feature | None:
    """Returns the image of a record; None where there is none, or a list."""
    features = [facts.feature for facts in dataset.manifest.features]
    images = (f for f in features if f.kind is Kind.IMAGE and not f.is_list)
    return next(images, None)


class _Images:
    """The images of a split of a dataset."""

    def __init__(self, rows: OpenDataset, split: str, image: str) -> None:
        self.split = split
        self._path, self._image = rows.path, image
        name = next((n for n, f in rows.features.items() if names_files(f)), "")
        self._name = name
        self._view = rows[split].select([image, name] if name else [image])

    def fingerprints(self, read: Callable[[int], None]) -> UInt64s:
        """Returns a fingerprint of each record's image."""

        def each() -> Iterator[int]:
            for batch in self._view.select([self._image]).batches(_TOGETHER):
                read(batch.nbytes)
                for value in batch.column(0):
                    data = value.as_py()
                    yield (
                        fingerprint_image(data, readable_again=True)
                        if data
                        else _MISSING
                    )

        return np.fromiter(each(), np.uint64)

    def at(self, position: int) -> tuple[bytes, Place]:
        """Returns the image of a record, and where it is."""
        row = self._view[position]
        name = row[self._name] if self._name else ""
        if name:
            return bytes(row[self._image]), Place(self.split, str(name), 0)
        return bytes(row[self._image]), Place(self.split, self._path, position)
