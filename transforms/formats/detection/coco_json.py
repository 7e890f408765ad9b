"""COCO JSON files: one object with lists of images, annotations and categories.

    {"images":      [{"id": 9, "file_name": "a.jpg", "height": 480, "width": 640}],
     "annotations": [{"id": 1, "image_id": 9, "category_id": 3, "iscrowd": 0,
                      "bbox": [x, y, width, height], "area": 123.5}],
     "categories":  [{"id": 3, "name": "car"}]}

Values of other types than those drawn are null, but numbers in quotes are read, and ids
of images and annotations may be texts.

Source: https://cocodataset.org/#format-data
"""

import contextlib
import dataclasses
import io
import itertools
import json
import math
import os
import posixpath
import re
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.json_text import TOO_DEEP
from transforms.errors import InputError, first_few
from transforms.formats.detection.boxed_rows import Numbers
from transforms.formats.detection.coco_text import (
    ItemText,
    Outline,
    box_around,
    id_of,
    integer_of,
    number_of,
    numbers_of,
    text_of,
)
from transforms.formats.detection.listed import root_of
from transforms.formats.table import InputFile
from transforms.formats.whole_files import kept_in_memory
from transforms.storage.files import storage
from transforms.storage.paths import spellings

# Look for this many images in each candidate folder: enough to tell folders apart
# even where some files are missing.
_PROBED_IMAGES = 16
# Characters of an annotation, and folders, in a message.
_SHOWN, _SHOWN_FOLDERS = 300, 6
# Items that become columns at once.
_ITEMS = 4096
# A dataset has a file for train and one for validation as a rule, and a worker may
# read blocks of both.
_KEPT_FILES = 2


@dataclasses.dataclass(frozen=True, eq=False)
class CocoFile:
    """One file, its annotations found by image.

    Attributes:
      images: id, file_name, height, width; n rows in the file's order. Ids are texts.
      annotations: m rows in the file's order.
      categories: id -> name, in the order of ids.
      order: int64 array of m: annotations by the image they belong to; those of no
        image come first.
      starts: int64 array of n + 1: where in `order` those of each image begin.
      outlined: how many annotations have outlines.
      point_count: the most key points of an object; 0 where none is labelled.
      point_names: category id -> names of its key points; empty where none has any.
      outlines: a file with the outlines, where they were asked for.
    """

    images: pa.Table
    annotations: pa.Table
    categories: Mapping[int, str]
    order: Numbers
    starts: Numbers
    outlined: int
    point_count: int
    point_names: Mapping[int, Sequence[str]]
    outlines: IO[bytes] | None = None

    def __post_init__(self) -> None:
        if self.outlines is not None:
            weakref.finalize(self, self.outlines.close)

    def outline_at(self, start: int, stop: int) -> Any:
        """Returns an outline, None for none; raises ValueError, RecursionError."""
        if self.outlines is None or start == stop:
            return None
        return json.loads(os.pread(self.outlines.fileno(), stop - start, start))

    def annotations_of(self, rows: Numbers) -> list[list[dict[str, Any]]]:
        """Returns the annotations of each of some images, without rare values."""
        table = self.annotations.drop_columns(["image_id"])
        rare = ["caption", "keypoints", "written"]
        table = table.drop_columns(
            [name for name in rare if table[name].null_count == len(table)]
        )
        counts = self.starts[rows + 1] - self.starts[rows]
        first = np.repeat(self.starts[rows] - (np.cumsum(counts) - counts), counts)
        chosen = self.order[first + np.arange(len(first))]
        stream = iter(table.take(chosen).to_pylist())
        return [list(itertools.islice(stream, count)) for count in counts.tolist()]

    @property
    def strays(self) -> list[dict[str, Any]]:
        """The annotations that belong to no image."""
        strays: list[dict[str, Any]]
        strays = self.annotations.take(self.order[: self.starts[0]]).to_pylist()
        return strays


@kept_in_memory(_KEPT_FILES)
def load_coco(path: str, stamp: int, outlined: bool = False) -> CocoFile:
    """Returns a file's content.

    Args:
      path: of the file.
      stamp: of the file as it was listed; 0 for unknown.
      outlined: whether to keep the outlines.

    Raises:
      InputError: it is not COCO JSON.
      OSError: it cannot be read, or has changed since it was listed.
    """
    with contextlib.ExitStack() as opened:
        outlines = opened.enter_context(tempfile.TemporaryFile()) if outlined else None
        coco = _load(path, stamp, outlines)
        # The file stays open as long as the content.
        opened.pop_all()
    return coco


def _load(path: str, stamp: int, outlines: IO[bytes] | None) -> CocoFile:
    try:
        with storage(path).open_input(stamp=stamp) as file:
            tables, outlined, labelled = _parse(file, outlines)
    except (ValueError, RecursionError) as error:
        reason = TOO_DEEP if isinstance(error, RecursionError) else error
        raise InputError(
            f"{path!r} must be COCO JSON: one object with lists named images, "
            f"annotations and categories. Found: {reason}. Correct it, or leave the "
            f"file out."
        ) from error
    images, annotations = tables["images"], tables["annotations"]
    _check_images(images, path)
    parents = pc.index_in(
        annotations["image_id"], value_set=images["id"], skip_nulls=True
    )
    rows = np.asarray(pc.fill_null(parents, -1))
    categories = tables["categories"].to_pylist()
    point_names = {
        row["id"]: [name or "" for name in row["keypoints"]]
        for row in categories
        if row["keypoints"]
    }
    point_count = 0
    if labelled:
        lengths = pc.max(pc.list_value_length(annotations["keypoints"])).as_py()
        named = max(map(len, point_names.values()), default=0)
        point_count = max((lengths or 0) // 3, named)
    return CocoFile(
        images,
        annotations,
        _categories(categories, path),
        np.argsort(rows, kind="stable"),
        np.cumsum(np.bincount(rows + 1, minlength=len(images) + 1)),
        outlined,
        point_count,
        point_names,
        outlines,
    )


def _check_images(images: pa.Table, path: str) -> None:
    if not len(images):
        raise InputError(
            f"{path!r} must list images; its list is empty. Leave the file out."
        )
    ids = images["id"].drop_null()
    if pc.count_distinct(ids).as_py() == len(ids):
        return
    counts = ids.combine_chunks().value_counts()
    twice = counts.filter(pc.greater(counts.field("counts"), 1))[0].as_py()
    names = images["file_name"].filter(pc.equal(images["id"], twice["values"]))
    raise InputError(
        f"Ids of images must differ; in {path!r} {twice['counts']} images have the id "
        f"{twice['values']}, among them {names[0].as_py()!r} and "
        f"{names[1].as_py()!r}. Give them ids of their own."
    )


def _categories(table: Sequence[Mapping[str, Any]], path: str) -> dict[int, str]:
    out: dict[int, str] = {}
    names: dict[str, int] = {}
    for row in table:
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
    return dict(sorted(out.items()))


_NUMBERS = pa.list_(pa.float64())
_IMAGES = pa.schema(
    {
        "id": pa.string(),
        "file_name": pa.string(),
        "height": pa.float64(),
        "width": pa.float64(),
    }
)
_ANNOTATIONS = pa.schema(
    {
        "id": pa.string(),
        "image_id": pa.string(),
        "category_id": pa.int64(),
        "bbox": _NUMBERS,
        "area": pa.float64(),
        "is_crowd": pa.int64(),
        "caption": pa.string(),
        # x, y and visibility of each.
        "keypoints": _NUMBERS,
        # The text of an annotation that lacks numbers.
        "written": pa.string(),
        # Of the outline, in the file of all.
        "start": pa.int64(),
        "stop": pa.int64(),
    }
)
_CATEGORIES = pa.schema(
    {"id": pa.int64(), "name": pa.string(), "keypoints": pa.list_(pa.string())}
)


def _parse(
    file: io.BufferedReader, outlines: IO[bytes] | None
) -> tuple[dict[str, pa.Table], int, int]:
    """Returns the three lists; how many objects have outlines, and key points.

    Writes the outlines where they are asked for.

    Raises:
      ValueError, RecursionError: the file is not COCO JSON.
    """
    counts = {"outlined": 0, "labelled": 0}
    text = ItemText(file, outlined=outlines is not None)
    tables = {
        "annotations": _columns(_ANNOTATIONS, ()),
        "categories": _columns(_CATEGORIES, ()),
    }
    for name, items in text.lists():
        objects = (item if isinstance(item, dict) else {} for item in items)
        if name == "images":
            tables[name] = _columns(_IMAGES, map(_image, objects))
        elif name == "categories":
            tables[name] = _columns(_CATEGORIES, map(_category, objects))
        elif name == "annotations":
            rows = _annotations(objects, outlines, counts)
            tables[name] = _columns(_ANNOTATIONS, rows)
    if outlines is not None:
        outlines.flush()
    if "images" not in tables:
        raise ValueError("no object with a list of images")
    return tables, counts["outlined"], counts["labelled"]


def _columns(schema: pa.Schema, rows: Iterable[Sequence[Any]]) -> pa.Table:
    """Returns rows as columns, some thousand at a time."""
    rows = iter(rows)
    batches = []
    while some := list(itertools.islice(rows, _ITEMS)):
        columns = zip(schema, zip(*some, strict=True), strict=True)
        arrays = [pa.array(values, field.type) for field, values in columns]
        batches.append(pa.RecordBatch.from_arrays(arrays, schema=schema))
    return pa.Table.from_batches(batches, schema).combine_chunks()


def _image(item: Mapping[str, Any]) -> Sequence[Any]:
    sides = number_of(item.get("height")), number_of(item.get("width"))
    return id_of(item.get("id")), text_of(item.get("file_name")), *sides


def _category(item: Mapping[str, Any]) -> Sequence[Any]:
    points = item.get("keypoints")
    names = [text_of(name) for name in points] if isinstance(points, list) else None
    return integer_of(item.get("id")), text_of(item.get("name")), names


def _annotations(
    items: Iterable[Mapping[str, Any]],
    outlines: IO[bytes] | None,
    counts: dict[str, int],
) -> Iterator[Sequence[Any]]:
    """Yields the values of annotations; writes their outlines, and counts."""
    start = stop = 0
    for item in items:
        outline = item.get("segmentation")
        if outline:
            counts["outlined"] += 1
            if outlines is not None:
                text = outline if isinstance(outline, Outline) else json.dumps(outline)
                stop += outlines.write(text.encode())
        # Where an annotation says how many key points are labelled, that decides.
        points = item.get("keypoints")
        count = item.get("num_keypoints", isinstance(points, list) and len(points))
        counts["labelled"] += isinstance(count, int) and count > 0
        image, box = id_of(item.get("image_id")), numbers_of(item.get("bbox"))
        category = integer_of(item.get("category_id"))
        caption, area = text_of(item.get("caption")), number_of(item.get("area"))
        if not box and image is not None and caption is None:
            if "segments_info" in item:
                raise ValueError(
                    "panoptic segments (segments_info), which are not read"
                )
            box = box_around(outline) or box
        written = None
        is_whole = category is not None and box and not any(map(math.isnan, box))
        if caption is None and not is_whole:
            written = json.dumps(item)[:_SHOWN]
        if area is None:
            area = box[2] * box[3] if box and len(box) == 4 else math.nan
        crowd = integer_of(item.get("iscrowd")) or 0
        yield (
            *(id_of(item.get("id")), image, category, box, area, crowd),
            *(caption, numbers_of(points), written, start, stop),
        )
        start = stop


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
    places = first_few([f"{each or '.'!r:.80}" for each in candidates], _SHOWN_FOLDERS)
    raise InputError(
        f"The images of {file.path!r}, {shown[0]!r} for one, must lie in one "
        f"of these folders below {root!r}: {places}. Found none there. Say "
        f"where they are with --images-root FOLDER."
    )


def leading_folders(count: int) -> str:
    """Returns the pattern of the first folders of a path."""
    return rf"^(?:[^/\\]*[/\\]+){{0,{count}}}"


def _exists(folder: str, name: str) -> bool:
    return any(
        storage(os.path.join(folder, spelling)).exists() for spelling in spellings(name)
    )


def _image_folders(origin: str) -> list[str]:
    """Returns folders that may hold the images, relative to the root, likely first.

    Those of `annotations/instances_train2017.json` are in `train2017` as a rule.
    """
    folder, name = posixpath.split(origin)
    stem = name.rpartition(".")[0]
    tails = [stem.partition("_")[2], stem.rpartition("_")[2], stem]
    above = posixpath.join(folder, "..") if folder else ".."
    folders = []
    for base in (folder, above):
        folders.append(base)
        for inner in ("", "images"):
            folders += [posixpath.join(base, inner, tail) for tail in tails if tail]
        folders.append(posixpath.join(base, "images"))
    plain = [posixpath.normpath(path) for path in folders]
    return list(dict.fromkeys("" if path == "." else path for path in plain))
