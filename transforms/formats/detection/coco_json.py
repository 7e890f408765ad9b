"""COCO JSON files: one object with lists of images, annotations and categories.

    {"images":      [{"id": 9, "file_name": "a.jpg", "height": 480, "width": 640}],
     "annotations": [{"id": 1, "image_id": 9, "category_id": 3, "iscrowd": 0,
                      "bbox": [x, y, width, height], "area": 123.5}],
     "categories":  [{"id": 3, "name": "car"}]}

Values of other types than those drawn are null, but numbers in quotes are read.

Source: https://cocodataset.org/#format-data
"""

import collections
import dataclasses
import io
import itertools
import json
import math
import os
import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import numpy_mask
from transforms.core.nesting import TOO_DEEP
from transforms.errors import InputError
from transforms.formats.detection.boxed_rows import root_of
from transforms.formats.detection.coco_text import ItemText, OutlineSpool
from transforms.formats.table import InputFile
from transforms.formats.whole_files import kept_in_memory
from transforms.storage.files import storage
from transforms.storage.paths import spellings

_BOX = pa.list_(pa.float64())
_TEXTS = pa.list_(pa.string())
_LISTS: Mapping[str, Mapping[str, pa.DataType]] = {
    "images": {
        "id": pa.int64(),
        "file_name": pa.string(),
        "height": pa.float64(),
        "width": pa.float64(),
    },
    "annotations": {
        "id": pa.int64(),
        "image_id": pa.int64(),
        "category_id": pa.int64(),
        "bbox": _BOX,
        "area": pa.float64(),
        "iscrowd": pa.int64(),
        "caption": pa.string(),
        # x, y and visibility of each.
        "keypoints": _BOX,
        # The text of an annotation without a box, or with values of other types.
        "written": pa.string(),
    },
    "categories": {"id": pa.int64(), "name": pa.string(), "keypoints": _TEXTS},
}
# Ids may be texts: some labelling tools write names there.
_IDS = {("images", "id"), ("annotations", "id"), ("annotations", "image_id")}
# Look for this many images in each candidate folder: enough to tell folders apart
# even where some files are missing.
_PROBED_IMAGES = 16
# Characters of an annotation in a message.
_SHOWN = 300
# A dataset has a file for train and one for validation as a rule, and a worker may
# read blocks of both.
_KEPT_FILES = 2

OUTLINES = "outlines (segmentation)"
POINTS = "key points"
_Numbers = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class CocoFile:
    """One file, its annotations found by image.

    Attributes:
      images: id (int64 or string), file_name, height, width; n rows in the file's
        order.
      annotations: m rows in the file's order.
      categories: (id, name) by id.
      order: int64 array of m: annotations by the image they belong to; those of no
        image come first.
      starts: int64 array of n + 1: where in `order` those of each image begin.
      left_out: what annotations have and is not read: how many have it.
      outlines: of the annotations, where they were asked for.
      point_names: category id -> names of its key points; empty where none has any.
    """

    images: pa.RecordBatch
    annotations: pa.RecordBatch
    categories: tuple[tuple[int, str], ...]
    order: _Numbers
    starts: _Numbers
    left_out: collections.Counter[str]
    outlines: OutlineSpool | None = None
    point_names: Mapping[int, Sequence[str]] = dataclasses.field(default_factory=dict)

    @property
    def point_count(self) -> int:
        """The most key points of an object; 0 where none is labelled."""
        if not self.left_out[POINTS]:
            return 0
        lengths = pc.max(pc.list_value_length(self.annotations["keypoints"])).as_py()
        named = max(map(len, self.point_names.values()), default=0)
        return max((lengths or 0) // 3, named)

    @property
    def strays(self) -> _Numbers:
        """The annotations that belong to no image."""
        return self.order[: self.starts[0]]

    def annotations_of(self, rows: _Numbers) -> tuple[_Numbers, _Numbers]:
        """Returns the annotations of some images, and how many each image has."""
        counts = self.starts[rows + 1] - self.starts[rows]
        ends = np.cumsum(counts)
        first = np.repeat(self.starts[rows] - (ends - counts), counts)
        return self.order[first + np.arange(len(first))], counts


@kept_in_memory(_KEPT_FILES)
def load_coco(path: str, stamp: int) -> CocoFile:
    """Returns a file's content.

    Args:
      path: of the file.
      stamp: of the file as it was listed; 0 for unknown.

    Raises:
      InputError: it is not COCO JSON.
      OSError: it cannot be read, or has changed since it was listed.
    """
    return _load(path, stamp, None)


@kept_in_memory(_KEPT_FILES)
def load_outlined(path: str, stamp: int) -> CocoFile:
    """As `load_coco`, with outlines."""
    return _load(path, stamp, OutlineSpool())


def _load(path: str, stamp: int, outlines: OutlineSpool | None) -> CocoFile:
    left_out: collections.Counter[str] = collections.Counter()
    try:
        with storage(path).open_input(stamp=stamp) as file:
            lists = _parse(file, left_out, outlines)
    except (ValueError, RecursionError) as error:
        found = TOO_DEEP if isinstance(error, RecursionError) else error
        raise InputError(
            f"{path!r} must be COCO JSON: one object with lists named images, "
            f"annotations and categories. Found: {found}. Correct it, or leave the "
            f"file out."
        ) from error
    images, annotations, categories = (lists[name] for name in _LISTS)
    _check_images(images, path)
    parents = pc.fill_null(_image_of(annotations["image_id"], images["id"]), -1)
    rows = np.asarray(parents)
    order = np.argsort(rows, kind="stable")
    starts = np.cumsum(np.bincount(rows + 1, minlength=len(images) + 1))
    return CocoFile(
        *(images, annotations, _categories(categories, path), order, starts),
        left_out,
        outlines,
        point_names={
            row["id"]: [name or "" for name in row["keypoints"]]
            for row in categories.to_pylist()
            if row["keypoints"]
        },
    )


def _image_of(image_ids: pa.Array, ids: pa.Array) -> pa.Array:
    """Returns the row of the image that each id names; null for none."""
    if image_ids.type != ids.type:
        image_ids, ids = image_ids.cast(pa.string()), ids.cast(pa.string())
    return pc.index_in(image_ids, value_set=ids, skip_nulls=True)


def _check_images(images: pa.RecordBatch, path: str) -> None:
    if not len(images):
        raise InputError(
            f"{path!r} must list images; its list is empty. Leave the file out."
        )
    ids = images["id"].drop_null()
    if pc.count_distinct(ids).as_py() == len(ids):
        return
    counts = ids.value_counts()
    twice = counts.filter(pc.greater(counts.field("counts"), 1))[0].as_py()
    names = images["file_name"].filter(pc.equal(images["id"], twice["values"]))
    raise InputError(
        f"Ids of images must differ; in {path!r} {twice['counts']} images have the id "
        f"{twice['values']!r}, among them {names[0].as_py()!r} and "
        f"{names[1].as_py()!r}. Give them ids of their own."
    )


def _categories(table: pa.RecordBatch, path: str) -> tuple[tuple[int, str], ...]:
    out: dict[int, str] = {}
    names: dict[str, int] = {}
    for row in table.to_pylist():
        number, name = row["id"], row["name"]
        if number is None or not name:
            raise InputError(
                f"Categories must have an integer id and a name; {path!r} has one with "
                f"id {number!r} and name {name!r}. Correct it."
            )
        if number in out or name in names:
            other = number if number in out else names[name]
            raise InputError(
                f"Ids and names of categories must differ; {path!r} has {other}: "
                f"{out[other]!r} and {number}: {name!r}. Rename or renumber one."
            )
        out[number], names[name] = name, number
    return tuple(sorted(out.items()))


def _parse(
    file: io.BufferedReader,
    left_out: collections.Counter[str],
    outlines: OutlineSpool | None,
) -> dict[str, pa.RecordBatch]:
    """Returns the three lists as columns; counts what is left out, spools outlines.

    Raises:
      ValueError, RecursionError: the file is not COCO JSON.
    """
    lists: dict[str, list[dict[str, pa.Array]]] = {name: [] for name in _LISTS}
    has_images = False
    for name, items in ItemText(file, outlined=outlines is not None).lists():
        if name not in _LISTS:
            continue
        if items is None:
            lists[name] = []
            has_images = has_images or name == "images"
            if name == "annotations" and outlines is not None:
                outlines.clear()
            continue
        lists[name].append(_columns(name, items))
        if name == "annotations":
            _count(items, left_out)
            if outlines is not None:
                for item in items:
                    is_object = isinstance(item, dict)
                    outlines.append(item.get("segmentation") if is_object else None)
    if outlines is not None:
        outlines.end()
    if not has_images:
        raise ValueError("no object with a list of images")
    return {name: _joined(name, batches) for name, batches in lists.items()}


def _count(items: Sequence[Any], left_out: collections.Counter[str]) -> None:
    for item in items:
        if not isinstance(item, dict):
            continue
        left_out[OUTLINES] += bool(item.get("segmentation"))
        points = item.get("keypoints")
        # Where an annotation says how many key points are labelled, that decides.
        labelled = item.get("num_keypoints", isinstance(points, list) and len(points))
        left_out[POINTS] += isinstance(labelled, int) and labelled > 0


def _columns(name: str, items: Sequence[Any]) -> dict[str, pa.Array]:
    """Returns items of a list as columns.

    Raises:
      ValueError: they are panoptic segments.
    """
    objects = [item if isinstance(item, dict) else {} for item in items]
    columns: dict[str, pa.Array] = {}
    odd: set[int] = set()
    for field, kind in _LISTS[name].items():
        values = [item.get(field) for item in objects]
        found = _plain(values, kind)
        if found is None:
            found = _read_one_by_one(values, kind, may_be_text=(name, field) in _IDS)
            read = enumerate(zip(values, found.to_pylist(), strict=True))
            odd |= {i for i, (value, held) in read if _is_lost(value, held)}
        columns[field] = found
    if name != "annotations":
        return columns
    texts = [_shown(item) if i in odd else None for i, item in enumerate(items)]
    lengths = pc.fill_null(pc.list_value_length(columns["bbox"]), 0)
    lacking = pc.and_(pc.equal(lengths, 0), columns["image_id"].is_valid())
    lacking = numpy_mask(pc.and_(lacking, columns["caption"].is_null()))
    if lacking.any():
        boxes = columns["bbox"].to_pylist()
        for i in np.flatnonzero(lacking).tolist():
            if "segments_info" in objects[i]:
                raise ValueError(
                    "panoptic segments (segments_info), which are not read"
                )
            boxes[i] = _box_around(objects[i].get("segmentation")) or boxes[i]
            if not boxes[i]:
                texts[i] = _shown(items[i])
        columns["bbox"] = pa.array(boxes, _BOX)
    columns["written"] = pa.array(texts, pa.string())
    return columns


def _joined(name: str, batches: Sequence[Mapping[str, pa.Array]]) -> pa.RecordBatch:
    """Returns the columns of all items; those of ids are texts if any id is one."""
    arrays = []
    for field, kind in _LISTS[name].items():
        chunks = [batch[field] for batch in batches]
        if any(pa.types.is_string(chunk.type) for chunk in chunks):
            kind = pa.string()
        chunked = pa.chunked_array([chunk.cast(kind) for chunk in chunks], kind)
        arrays.append(chunked.combine_chunks())
    return pa.RecordBatch.from_arrays(arrays, names=list(_LISTS[name]))


def _box_around(outline: Any) -> list[float] | None:
    """Returns x, y, width and height of polygons, each of x, y, x, y ...; or None."""
    if not isinstance(outline, list):
        return None
    polygons = [outline] if outline and not isinstance(outline[0], list) else outline
    read = [_numbers(polygon) or [None] for polygon in polygons]
    points = [n for each in read for n in each if n is not None and math.isfinite(n)]
    if not points or len(points) < sum(map(len, read)) or any(len(p) % 2 for p in read):
        return None
    left, top = min(points[::2]), min(points[1::2])
    return [left, top, max(points[::2]) - left, max(points[1::2]) - top]


def _shown(item: Any) -> str:
    return json.dumps(item)[:_SHOWN]


def _is_lost(value: Any, held: Any) -> bool:
    """Whether a value, or a number of a box, is of a type that is not read."""
    if isinstance(held, list):
        return None in held
    return value is not None and held is None


def _plain(values: Sequence[Any], kind: pa.DataType) -> pa.Array | None:
    """Returns values, all of the types that a kind has as a rule; else None."""
    types = set(map(type, values)) - {type(None)}
    if kind == _BOX and types == {list}:
        types = set(map(type, itertools.chain.from_iterable(filter(None, values))))
        types -= {type(None)}
    if not types <= _PLAIN[kind]:
        return None
    try:
        return pa.array(values, kind)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError):
        return None


def _read_one_by_one(
    values: Sequence[Any], kind: pa.DataType, *, may_be_text: bool
) -> pa.Array:
    """Returns values, null where one has another type."""
    if may_be_text and any(isinstance(value, str) for value in values):
        texts = [None if value is None else _text(str(value)) for value in values]
        return pa.array(texts, pa.string())
    return pa.array([_READ[kind](value) for value in values], kind)


# Numbers in quotes, as some tools write them. Python's own words for them, such as
# 1_0 and infinity, are none.
_WHOLE = re.compile(r"\s*[+-]?[0-9]{1,20}\s*")
_NUMBER = re.compile(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*")


def _integer(value: Any) -> int | None:
    if isinstance(value, str):
        # Of a large one float() would keep the first digits alone.
        digits = _WHOLE.fullmatch(value)
        value = int(value) if digits else _number(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return int(value)
    return None


def _number(value: Any) -> float | None:
    if isinstance(value, str):
        return float(value) if _NUMBER.fullmatch(value) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _numbers(value: Any) -> list[float | None] | None:
    return [_number(item) for item in value] if isinstance(value, list) else None


def _text(value: Any) -> str | None:
    if not isinstance(value, str):
        return None
    try:
        value.encode()
    except UnicodeEncodeError:
        return None
    return value


def _texts(value: Any) -> list[str | None] | None:
    return [_text(item) for item in value] if isinstance(value, list) else None


_PLAIN: Mapping[pa.DataType, frozenset[type]] = {
    pa.int64(): frozenset({int}),
    pa.float64(): frozenset({int, float}),
    pa.string(): frozenset({str}),
    _BOX: frozenset({int, float}),
    _TEXTS: frozenset(),
}
_READ: Mapping[pa.DataType, Callable[[Any], Any]] = {
    pa.int64(): _integer,
    pa.float64(): _number,
    pa.string(): _text,
    _BOX: _numbers,
    _TEXTS: _texts,
}


def image_folder(file: InputFile, coco: CocoFile) -> tuple[str, int]:
    """Returns the folder of the images, relative to the root where it can be.

    Also returns how many folders their names begin with that are not there: a name
    means its longest tail that is.

    Raises:
      InputError: no image is where images usually are.
    """
    root = root_of(file)
    candidates = _image_folders(file.origin)
    names = coco.images["file_name"].drop_null()
    probed = np.linspace(0, len(names) - 1, min(_PROBED_IMAGES, len(names)))
    shown = [names[int(i)].as_py() for i in probed]
    deepest = max((name.replace("\\", "/").count("/") for name in shown), default=0)
    for left_out in range(deepest + 1):
        tails = [re.sub(leading_folders(left_out), "", name) for name in shown]
        hits = [
            sum(_exists(os.path.join(root, folder), name) for name in tails)
            for folder in candidates
        ]
        best = max(range(len(candidates)), key=hits.__getitem__)
        if hits[best] or not shown:
            return candidates[best], left_out
    places = ", ".join(repr(folder or ".") for folder in candidates)
    raise InputError(
        f"The images of {file.path!r}, {shown[0]!r} for one, must lie in one "
        f"of these folders below {root!r}: {places}. Found none there. Say "
        f"where they are with images_root."
    )


def leading_folders(count: int) -> str:
    """Returns the pattern of the first folders of a path."""
    return rf"^(?:[^/\\]*[/\\]+){{0,{count}}}"


def _exists(folder: str, name: str) -> bool:
    return any(storage(os.path.join(folder, each)).exists() for each in spellings(name))


def _image_folders(origin: str) -> list[str]:
    """Returns folders that may hold the images, relative to the root, likely first.

    Those of `annotations/instances_train2017.json` are in `train2017` as a rule.
    """
    folder, name = posixpath.split(origin)
    stem = name.rpartition(".")[0]
    tails = [stem.partition("_")[2], stem.rpartition("_")[2], stem]
    above = posixpath.join(folder, "..") if folder else ".."
    found = []
    for base in (folder, above):
        found.append(base)
        for inner in ("", "images"):
            found += [posixpath.join(base, inner, tail) for tail in tails if tail]
        found.append(posixpath.join(base, "images"))
    plain = [posixpath.normpath(path) for path in found]
    return list(dict.fromkeys("" if path == "." else path for path in plain))
