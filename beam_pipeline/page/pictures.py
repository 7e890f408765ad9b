"""The pictures of the page: of each class and split, and images that are equal."""

import collections
import concurrent.futures
import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_pipeline.page.classes import ClassCounts, ends_of
from beam_pipeline.page.sample import Sample
from beam_pipeline.page.thumbnails import Longs, Thumbnail, chosen, draw, share_of_each
from beam_pipeline.reading.open_dataset import OpenDataset
from transforms.core.schema import Feature, Kind

_UNLABELLED_EACH = 48
_MOST_EQUAL = 24
# Images that are in memory together.
_TOGETHER = 64
# What the page needs for a picture beside its data.
_TAG_BYTES = 260


@dataclasses.dataclass(frozen=True, slots=True)
class Picture:
    """A record's image.

    Attributes:
      thumbnail: None where the image cannot be decoded.
      split: of the record.
      position: of the record in its split.
      name: of its file, where records have that.
      label: names of its classes.
      boxes: how many it has.
    """

    thumbnail: Thumbnail | None
    split: str
    position: int
    name: str
    label: str
    boxes: int


@dataclasses.dataclass(frozen=True, slots=True)
class PictureClass:
    """The pictures of a class, by split.

    Attributes:
      name: of the class; None where records have no label.
      records: how many the dataset has of it.
      splits: of each split, its pictures.
    """

    name: str | None
    records: int
    splits: Mapping[str, Sequence[Picture]]


@dataclasses.dataclass(frozen=True, slots=True)
class Equal:
    """Equal images in several splits.

    Attributes:
      pictures: one of each split.
      labels_differ: whether they have other classes.
    """

    pictures: Sequence[Picture]
    labels_differ: bool


class _Reader:
    """Reads the pictures of records."""

    def __init__(
        self, dataset: OpenDataset, image: Feature, counts: ClassCounts | None
    ) -> None:
        features = dataset.features
        label = counts.facts.feature.name if counts else ""
        boxes = next((n for n, f in features.items() if f.kind is Kind.BOX), "")
        named = (
            name
            for name, feature in features.items()
            if name.rpartition("/")[2] == "filename" and feature.kind is Kind.TEXT
        )
        name = next(named, "")
        self._dataset, self._image = dataset, image
        self._label, self._boxes, self._name = label, boxes, name
        self._names = [n for n in (image.name, label, boxes, name) if n]
        self._classes = (
            dict(zip(counts.ids, counts.names, strict=True)) if counts else {}
        )

    def data(self, split: str, positions: Sequence[int]) -> list[bytes | None]:
        """Returns the images' bytes."""
        rows = self._dataset[split].select([self._image.name])[[*positions]]
        return [self._bytes(row) for row in rows]

    def read(self, split: str, positions: Sequence[int]) -> Iterator[Picture]:
        """Yields the pictures of records, in the order of the positions."""
        view = self._dataset[split].select(self._names)
        with concurrent.futures.ThreadPoolExecutor() as pool:
            for start in range(0, len(positions), _TOGETHER):
                some = [*positions[start : start + _TOGETHER]]
                yield from pool.map(
                    self._picture, itertools.repeat(split), some, [*view[some]]
                )

    def _picture(self, split: str, position: int, row: Mapping[str, Any]) -> Picture:
        data = self._bytes(row)
        boxes = row[self._boxes] if self._boxes else None
        boxes = [] if boxes is None else [*boxes]
        thumbnail = draw(data, boxes) if data else None
        name = str(row[self._name] or "") if self._name else ""
        return Picture(thumbnail, split, position, name, self._named(row), len(boxes))

    def _bytes(self, row: Mapping[str, Any]) -> bytes | None:
        data = row[self._image.name]
        if self._image.is_list:
            data = None if data is None or not len(data) else data[0]
        return None if data is None else bytes(data)

    def _named(self, row: Mapping[str, Any]) -> str:
        if not self._label or row[self._label] is None:
            return ""
        ids = np.ravel(row[self._label]).tolist()
        names = dict.fromkeys(self._classes.get(each, str(each)) for each in ids)
        return ", ".join(names)


def pictures(
    dataset: OpenDataset,
    samples: Sequence[Sample],
    image: Feature,
    counts: ClassCounts | None,
) -> list[PictureClass]:
    """Returns the pictures of the classes that are shown, in the order of their ids.

    Errors are those of reading a row of the dataset.
    """
    reader = _Reader(dataset, image, counts)
    if counts is None:
        names: list[str | None]
        shown, names, totals = [0], [None], [sum(map(len, samples))]
        each = _UNLABELLED_EACH
    else:
        most, each = share_of_each(len(counts.names), len(samples))
        shown = sorted(ends_of(counts.totals, most))
        names, totals = [*counts.names], counts.totals
    found: dict[str, dict[int, list[Picture]]] = {}
    wanted = np.array(shown, np.int64)
    for sample in samples:
        rows, classes = _rows_of_classes(sample, counts)
        is_wanted = np.isin(classes, wanted)
        places = chosen(sample.fingerprints, rows[is_wanted], classes[is_wanted], each)
        positions = np.unique(np.concatenate([np.empty(0, np.int64), *places.values()]))
        numbers = sample.positions[positions].tolist()
        read = zip(positions.tolist(), reader.read(sample.split, numbers), strict=True)
        by_row = dict(read)
        found[sample.split] = {
            n: [by_row[row] for row in rows.tolist()] for n, rows in places.items()
        }
    return [
        PictureClass(
            names[n],
            totals[n],
            {s.split: found[s.split].get(n, []) for s in samples},
        )
        for n in shown
    ]


def _rows_of_classes(sample: Sample, counts: ClassCounts | None) -> tuple[Longs, Longs]:
    """Returns pairs of a row and the number of a class that it has."""
    every = np.arange(len(sample))
    if counts is None:
        return every, np.zeros(len(sample), np.int64)
    column = sample.columns[counts.facts.feature.name]
    if not len(column):
        return every, every
    parents = every
    while pa.types.is_list(column.type) or pa.types.is_fixed_size_list(column.type):
        parents = parents[pc.list_parent_indices(column).to_numpy()]
        column = pc.list_flatten(column)
    known = pa.array(counts.ids, column.type)
    numbers = pc.index_in(column, known, skip_nulls=True)
    valid = numbers.is_valid().to_numpy(zero_copy_only=False)
    classes = numbers.drop_null().cast(pa.int64()).to_numpy()
    pairs = np.unique(np.stack((parents[valid], classes)), axis=1)
    return pairs[0], pairs[1]


def within(found: Sequence[PictureClass], budget: int) -> list[PictureClass]:
    """Returns the pictures that fit into a number of bytes.

    First one of each class and split, then a second of each, and so on.
    """
    kept: dict[tuple[int, str], list[Picture]] = collections.defaultdict(list)
    ranks = max((len(p) for c in found for p in c.splits.values()), default=0)
    for rank in range(ranks):
        for number, each in enumerate(found):
            for split, some in each.splits.items():
                if rank >= len(some):
                    continue
                budget -= picture_bytes(some[rank])
                if budget < 0:
                    return _kept(found, kept)
                kept[number, split].append(some[rank])
    return _kept(found, kept)


def picture_bytes(picture: Picture) -> int:
    """Returns about how much of the page a picture takes."""
    texts = len(picture.name[:80].encode()) + len(picture.label[:80].encode())
    data = len(picture.thumbnail.data) if picture.thumbnail else 0
    return data + 6 * texts + _TAG_BYTES


def _kept(
    found: Sequence[PictureClass], kept: Mapping[tuple[int, str], list[Picture]]
) -> list[PictureClass]:
    return [
        dataclasses.replace(
            each, splits={s: kept.get((number, s), []) for s in each.splits}
        )
        for number, each in enumerate(found)
    ]


def equal_images(
    dataset: OpenDataset,
    samples: Sequence[Sample],
    image: Feature,
    counts: ClassCounts | None,
) -> tuple[list[Equal], int]:
    """Returns equal images of several splits, and how many there are among the samples.

    Those that are returned were compared byte by byte.
    """
    firsts = []
    for number, sample in enumerate(samples):
        prints, rows = np.unique(sample.fingerprints, return_index=True)
        firsts.append((prints[prints != 0], rows[prints != 0], number))
    every = np.concatenate([np.empty(0, np.uint64), *(each[0] for each in firsts)])
    prints, times = np.unique(every, return_counts=True)
    shared = prints[times > 1]
    reader = _Reader(dataset, image, counts)
    found = []
    for fingerprint in shared[:_MOST_EQUAL]:
        places = []
        for known, rows, number in firsts:
            place = int(np.searchsorted(known, fingerprint))
            if place < len(known) and known[place] == fingerprint:
                sample = samples[number]
                places.append((sample.split, int(sample.positions[rows[place]])))
        contents = {reader.data(split, [place])[0] for split, place in places}
        if len(contents) == 1:
            same = [next(reader.read(split, [place])) for split, place in places]
            found.append(Equal(same, len({each.label for each in same}) > 1))
    return found, len(shared)
