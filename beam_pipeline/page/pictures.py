"""The sample of the page and its pictures: of each class and split, and equal images.

The sample is the first records of each shard. Records are in the order of a hash,
unless the dataset was written without shuffling; so it is a uniform one. Images are not
kept: of each, a fingerprint.

All pictures are WebP of one quality, at most `SIDE` pixels wide and high. They show the
pixels as stored, without the orientation of EXIF, as readers decode them.
"""

import base64
import concurrent.futures
import dataclasses
import io
import itertools
import struct
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from PIL import Image, ImageDraw

from beam_pipeline.datasets.open_dataset import OpenDataset, names_files
from transforms.core.arrays import values_and_rows
from transforms.core.image.resize import MAX_PIXELS
from transforms.core.manifest import SplitFacts
from transforms.core.placing.hashes import splitmix64
from transforms.core.placing.leakage import find_shared, fingerprint_image
from transforms.core.schema import Feature, Kind

ROWS_A_SHARD = 20_000
NUMBERS = (Kind.INT64, Kind.FLOAT, Kind.TIMESTAMP, Kind.BOOL)
# Of all shards together: one second of reading from a disk or two.
_BYTES = 1 << 30
_ROWS_TOGETHER = 4_096
# Photographs take some 3 kB of the page each, so all together below 4 MB.
MOST_THUMBNAILS = 1_200
SIDE = 96
_QUALITY = 60
_MOST_EACH, _UNLABELLED_EACH = 12, 48
_MOST_CLASSES = 1_000
_MOST_EQUAL = 24
# Images that are in memory together.
_TOGETHER = 64
_FORMATS = ("JPEG", "PNG", "BMP", "GIF", "WEBP", "TIFF")
_BOX, _BOX_EDGE = "#ffd400", "#000000"
# Of classes and objects, over the picture.
_COLOURS = np.array(
    [
        *((230, 25, 75), (60, 180, 75), (0, 130, 200), (245, 130, 48)),
        *((145, 30, 180), (70, 240, 240), (240, 50, 230), (210, 245, 60)),
    ],
    np.uint16,
)
# What Pillow and its plugins raise for files that are damaged, or too large.
_UNDECODABLE = (
    *(OSError, ValueError, SyntaxError, EOFError, IndexError, KeyError),
    *(struct.error, Image.DecompressionBombError),
)

Longs = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True, slots=True)
class Sample:
    """The sampled records of a split.

    Attributes:
      split: its name.
      columns: of features of numbers, labels and texts.
      positions: of the records in the split, ascending.
      fingerprints: of the image of each record; 0 for none. Empty where records have
        no image.
    """

    split: str
    columns: Mapping[str, pa.Array]
    positions: Longs
    fingerprints: npt.NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.positions)


def sample_split(
    dataset: OpenDataset, split: SplitFacts, image: Feature | None, shards: int
) -> Sample:
    """Reads the first records of each shard of a split; `shards` are those of all.

    Raises:
      TFRecordError: a record is damaged.
      ExampleError: it does not hold what a feature must.
      OSError: a shard cannot be read.
    """
    features = dataset.features
    counted = (*NUMBERS, Kind.LABEL, Kind.TEXT)
    names = [name for name, feature in features.items() if feature.kind in counted]
    kept: dict[str, list[pa.Array]] = {name: [] for name in names}
    if image is not None:
        names.append(image.name)
    # Where nothing is counted, one feature is read for the records' checksums.
    view = dataset[split.name].select(names or [*features][:1])
    prints = [np.empty(0, np.uint64)]
    positions = [np.empty(0, np.int64)]
    for start, stop in _ranges(split, shards):
        positions.append(np.arange(start, stop))
        for batch in view[start:stop].batches(_ROWS_TOGETHER):
            for name, column in zip(names, batch.columns, strict=False):
                if name in kept:
                    kept[name].append(column)
                else:
                    # A call for each image: its bytes are far more work.
                    contents = (value.as_py() or b"" for value in column)
                    hashes = map(fingerprint_image, contents)
                    prints.append(np.fromiter(hashes, np.uint64, len(column)))
    columns = {
        name: pa.concat_arrays(parts) if parts else pa.array([], pa.null())
        for name, parts in kept.items()
    }
    every, fingerprints = np.concatenate(positions), np.concatenate(prints)
    return Sample(split.name, columns, every, fingerprints)


def _ranges(split: SplitFacts, shards: int) -> Iterator[tuple[int, int]]:
    """Yields the ranges of records that are sampled, one for each shard."""
    budget = _BYTES // max(shards, 1)
    start = 0
    for shard in split.shards:
        if shard.records:
            mean = shard.payload_bytes // shard.records + 1
            rows = min(shard.records, ROWS_A_SHARD, max(budget // mean, 1))
            yield start, start + rows
        start += shard.records


def ends_of(totals: Sequence[int], most: int) -> list[int]:
    """Returns which classes are shown: all, or the largest and the smallest.

        >>> ends_of([5, 1, 9, 7, 3], 5), ends_of([5, 1, 9, 7, 3], 2)
        ([0, 1, 2, 3, 4], [2, 1])

    Args:
      totals: of each class.
      most: how many are shown.
    """
    if len(totals) <= most:
        return [*range(len(totals))]
    ranked = sorted(range(len(totals)), key=lambda n: (-totals[n], n))
    half = most // 2
    return ranked[: most - half] + (ranked[-half:] if half else [])


@dataclasses.dataclass(frozen=True, slots=True)
class Thumbnail:
    """A small picture.

    Attributes:
      data: the WebP file, in base64.
      width, height: in pixels.
      full_width, full_height: of the image that it shows.
    """

    data: str
    width: int
    height: int
    full_width: int
    full_height: int


def share_of_each(classes: int, splits: int) -> tuple[int, int]:
    """Returns how many classes are shown, and how many pictures of each and a split.

    >>> share_of_each(10, 3), share_of_each(1_000, 3), share_of_each(100_000, 2)
    ((10, 12), (400, 1), (600, 1))
    """
    splits = max(splits, 1)
    shown = min(classes, _MOST_CLASSES, MOST_THUMBNAILS // splits)
    most = MOST_THUMBNAILS // max(shown * splits, 1)
    return shown, max(min(most, _MOST_EACH), 1)


def chosen(
    fingerprints: npt.NDArray[np.uint64], rows: Longs, classes: Longs, each: int
) -> dict[int, Longs]:
    """Returns the rows of lowest hash of each class.

    Args:
      fingerprints: of the images of all rows; 0 for none.
      rows, classes: n pairs of a row and a class that it has.
      each: rows of a class at most.
    """
    there = fingerprints[rows] != 0
    rows, classes = rows[there], classes[there]
    hashes = splitmix64(fingerprints[rows])
    order = np.lexsort((rows, hashes, classes))
    rows, classes = rows[order], classes[order]
    names, starts, counts = np.unique(classes, return_index=True, return_counts=True)
    return {
        int(name): rows[start : start + min(count, each)]
        for name, start, count in zip(names, starts, counts, strict=True)
    }


def draw(
    data: bytes,
    boxes: Sequence[Sequence[float]] = (),
    masks: Sequence[Sequence[bytes]] = (),
) -> Thumbnail | None:
    """Returns the thumbnail of an image; None where it cannot be decoded.

    Args:
      data: the file.
      boxes: xmin, ymin, xmax, ymax of each, from 0 to 1.
      masks: PNGs of class numbers, one a list; or the masks of objects.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image = Image.open(io.BytesIO(data), formats=_FORMATS)
            full = image.size
            if full[0] * full[1] > MAX_PIXELS:
                return None
            image.draft("RGB", (SIDE, SIDE))
            small = _in_rgb(image)
            small.thumbnail((SIDE, SIDE), Image.Resampling.BILINEAR)
            for pngs in masks:
                small = _with_masks(small, pngs)
    except _UNDECODABLE:
        return None
    _draw_boxes(small, boxes)
    out = io.BytesIO()
    small.save(out, "WEBP", quality=_QUALITY, method=4)
    return Thumbnail(base64.b64encode(out.getvalue()).decode(), *small.size, *full)


def _in_rgb(image: Image.Image) -> Image.Image:
    """Returns an image as 8 bits a channel; what is transparent is shown on grey."""
    if image.mode.startswith(("I", "F")):
        # Pillow clips 16 bits to 8.
        values = np.nan_to_num(np.asarray(image, np.float64))
        scale = 255 / (65_535 if values.max(initial=0) > 255 else 255)
        grey = np.clip(values * scale, 0, 255).astype(np.uint8)
        return Image.fromarray(grey).convert("RGB")
    if image.mode in ("LA", "PA", "RGBA", "P"):
        rgba = image.convert("RGBA")
        under = Image.new("RGBA", rgba.size, "#808080")
        return Image.alpha_composite(under, rgba).convert("RGB")
    return image.convert("RGB")


def _with_masks(image: Image.Image, masks: Sequence[bytes]) -> Image.Image:
    """Returns an image with colours over it: of one mask its classes, else objects."""
    pixels = np.asarray(image).astype(np.uint16)
    for number, png in enumerate(masks, start=1):
        mask = Image.open(io.BytesIO(png), formats=["PNG"])
        if mask.width * mask.height > MAX_PIXELS:
            continue
        numbers = np.asarray(mask.resize(image.size, Image.Resampling.NEAREST))
        shown = numbers > 0
        of_pixel = numbers[shown] if len(masks) == 1 else np.full(shown.sum(), number)
        pixels[shown] = (pixels[shown] + _COLOURS[of_pixel % len(_COLOURS)]) // 2
    return Image.fromarray(pixels.astype(np.uint8))


def _draw_boxes(image: Image.Image, boxes: Sequence[Sequence[float]]) -> None:
    """Draws boxes, whose sides are fractions of the image; skips those with NaN."""
    canvas = ImageDraw.Draw(image)
    width, height = image.width - 1, image.height - 1
    for box in boxes:
        if not np.isfinite(box).all():
            continue
        left, right = sorted(min(max(float(x), 0), 1) * width for x in box[::2])
        top, bottom = sorted(min(max(float(y), 0), 1) * height for y in box[1::2])
        # WebP stores colours at half the resolution: a line of one pixel loses its own.
        canvas.rectangle((left - 2, top - 2, right + 2, bottom + 2), outline=_BOX_EDGE)
        canvas.rectangle((left - 1, top - 1, right + 1, bottom + 1), None, _BOX, 2)


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


Reader = Callable[[str, Sequence[int]], Iterator[Picture]]
"""Yields the pictures of records: of a split, by their positions, in that order."""


def picture_reader(
    dataset: OpenDataset, image: Feature, label: str, classes: Mapping[Any, str]
) -> Reader:
    """Returns what reads pictures, with their classes.

    Args:
      dataset: opened.
      image: of the records.
      label: the feature with the classes of a record; empty for none.
      classes: value of that feature -> name of the class.
    """
    features = dataset.features
    boxes = next((n for n, f in features.items() if f.kind is Kind.BOX), "")
    name = next((n for n, f in features.items() if names_files(f)), "")
    masks = [n for n, f in features.items() if f.mask and f.derived_from == image.name]
    columns = [name for name in (image.name, label, boxes, name, *masks) if name]

    def picture(split: str, position: int, row: Mapping[str, Any]) -> Picture:
        data = row[image.name] or b""
        drawn = row.get(boxes)
        drawn = [] if drawn is None else [*drawn]
        pngs = [row[mask] for mask in masks if row[mask] is not None]
        lists = [[png] if isinstance(png, bytes) else [*png] for png in pngs]
        ids = [] if row.get(label) is None else np.ravel(row[label]).tolist()
        names = dict.fromkeys(classes.get(number, str(number)) for number in ids)
        return Picture(
            *(draw(data, drawn, lists), split, position, str(row.get(name) or "")),
            *(", ".join(names), len(drawn)),
        )

    def read(split: str, positions: Sequence[int]) -> Iterator[Picture]:
        view = dataset[split].select(columns)
        with concurrent.futures.ThreadPoolExecutor() as pool:
            for start in range(0, len(positions), _TOGETHER):
                some = [*positions[start : start + _TOGETHER]]
                rows = [*view[some]]
                yield from pool.map(picture, itertools.repeat(split), some, rows)

    return read


def pictures(
    read: Reader,
    samples: Sequence[Sample],
    label: str,
    classes: Mapping[Any, str],
    totals: Sequence[int],
) -> list[PictureClass]:
    """Returns the pictures of the classes that are shown, in the order of their ids.

    Errors are those of reading a row of the dataset.

    Args:
      read: from `picture_reader`.
      samples: of the splits.
      label, classes: see `picture_reader`.
      totals: how many records of each class there are, or without a label of all.
    """
    shown, per_class = [0], _UNLABELLED_EACH
    names: list[str | None] = [None]
    if label:
        names = [*classes.values()]
        most, per_class = share_of_each(len(names), len(samples))
        shown = sorted(ends_of(totals, most))
    by_split: dict[str, dict[int, list[Picture]]] = {}
    for sample in samples:
        rows, numbers = _rows_of_classes(sample, label, [*classes])
        some = np.isin(numbers, np.array(shown, np.int64))
        of_class = chosen(sample.fingerprints, rows[some], numbers[some], per_class)
        every = np.unique(np.concatenate([rows[:0], *of_class.values()]))
        made = read(sample.split, sample.positions[every].tolist())
        by_row = dict(zip(every.tolist(), made, strict=True))
        by_split[sample.split] = {
            n: [by_row[row] for row in rows.tolist()] for n, rows in of_class.items()
        }
    out = []
    for n in shown:
        splits = {split: by_class.get(n, []) for split, by_class in by_split.items()}
        out.append(PictureClass(names[n], totals[n], splits))
    return out


def _rows_of_classes(
    sample: Sample, label: str, ids: Sequence[Any]
) -> tuple[Longs, Longs]:
    """Returns pairs of a row and the number of a class that it has."""
    every = np.arange(len(sample))
    if not label:
        return every, np.zeros(len(sample), np.int64)
    column = sample.columns[label]
    if not len(column):
        return every, every
    column, parents = values_and_rows(column)
    numbers = pc.index_in(column, pa.array(ids, column.type), skip_nulls=True)
    valid = numbers.is_valid().to_numpy(zero_copy_only=False)
    classes = numbers.drop_null().cast(pa.int64()).to_numpy()
    pairs = np.unique(np.stack((parents[valid], classes)), axis=1)
    return pairs[0], pairs[1]


def equal_images(
    read: Reader, samples: Sequence[Sample]
) -> tuple[list[list[Picture]], int]:
    """Returns equal images of several splits, and how many there are among the samples.

    Of each of those that are returned there is a picture a split.
    """
    prints = [np.empty(0, np.uint64), *(entry.fingerprints for entry in samples)]
    splits = np.repeat(np.arange(-1, len(samples)), [*map(len, prints)])
    values = np.concatenate(prints)
    # Records without an image are not equal.
    there = values != 0
    splits = splits[there].astype(np.int16)
    shared = find_shared(values[there], splits, count=max(len(samples), 1))
    groups = []
    for fingerprint in shared.values[:_MOST_EQUAL]:
        group: list[Picture] = []
        for sample in samples:
            rows = np.flatnonzero(sample.fingerprints == fingerprint)[:1]
            group += read(sample.split, sample.positions[rows].tolist())
        groups.append(group)
    return groups, len(shared.values)
