"""COCO JSON files: one object with lists of images, annotations and categories.

    {"images":      [{"id": 9, "file_name": "a.jpg", "height": 480, "width": 640}],
     "annotations": [{"id": 1, "image_id": 9, "category_id": 3, "iscrowd": 0,
                      "bbox": [x, y, width, height], "area": 123.5}],
     "categories":  [{"id": 3, "name": "car"}]}

A file is parsed once, item by item. Annotations keep their texts, sorted by image, and
are parsed again where their image is read: most of what they say is of no use before.

Values of other types than those drawn are null, but numbers in quotes are read, and ids
of images and annotations may be texts.

Source: https://cocodataset.org/#format-data
"""

import dataclasses
import io
import itertools
import json
import mmap
import os
import posixpath
import re
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.json_text import TOO_DEEP
from transforms.errors import InputError, first_few
from transforms.formats.detection.coco_text import (
    ItemText,
    box_around,
    id_of,
    integer_of,
    number_of,
    numbers_of,
    text_of,
)
from transforms.formats.detection.listed import root_of
from transforms.formats.table import InputFile
from transforms.storage.files import storage
from transforms.storage.paths import spellings

# Look for this many images in each candidate folder: enough to tell folders apart
# even where some files are missing.
_PROBED_IMAGES = 16
# Folders in a message.
_SHOWN_FOLDERS = 6
# Items that become columns at once.
_ITEMS = 4096


@dataclasses.dataclass
class CocoFile:
    """One file, its annotations sorted by image.

    Attributes:
      images: id, file_name, height, width and annotations, a list of texts that
        `annotations_of` reads; rows in the file's order. Ids are texts.
      strays: the annotations of no image.
      categories: id -> name, in the order of ids.
      count: of annotations.
      outlined: how many of them have outlines.
      has_boxes, has_captions: whether one has a box, or a caption.
      point_count: the most key points of an object; 0 where none is labelled.
      point_names: category id -> names of its key points; empty where none has any.
    """

    images: pa.Table
    strays: Sequence[bytes]
    categories: Mapping[int, str]
    count: int = 0
    outlined: int = 0
    has_boxes: bool = False
    has_captions: bool = False
    point_count: int = 0
    point_names: Mapping[int, Sequence[str]] = dataclasses.field(default_factory=dict)


_IMAGES = pa.schema(
    {
        "id": pa.string(),
        "file_name": pa.string(),
        "height": pa.float64(),
        "width": pa.float64(),
    }
)
_ANNOTATIONS = pa.schema({"image_id": pa.string(), "size": pa.int64()})
_CATEGORIES = pa.schema(
    {"id": pa.int64(), "name": pa.string(), "keypoints": pa.list_(pa.string())}
)
_Item = Mapping[str, Any]


def load_coco(path: str, stamp: int, *, outlined: bool) -> CocoFile:
    """Returns a file's content.

    Args:
      path: of the file.
      stamp: of the file as it was listed; 0 for unknown.
      outlined: whether annotations keep their outlines.

    Raises:
      InputError: it is not COCO JSON.
      OSError: it cannot be read, or has changed since it was listed.
    """
    coco = CocoFile(_IMAGES.empty_table(), (), {})
    # Annotations come in any order, and wait on the disk for that of their images.
    with tempfile.TemporaryFile() as texts:
        tables = _tables(path, stamp, coco, texts, outlined=outlined)
        images, categories = tables["images"], tables["categories"].to_pylist()
        _check_images(images, path)
        coco.categories = _categories(categories, path)
        coco.strays, annotations = _by_image(tables["annotations"], texts, images["id"])
    coco.images = images.append_column("annotations", annotations)
    coco.point_names = {
        row["id"]: [name or "" for name in row["keypoints"]]
        for row in categories
        if row["keypoints"]
    }
    if coco.point_count:
        named = max(map(len, coco.point_names.values()), default=0)
        coco.point_count = max(coco.point_count, named)
    return coco


def _tables(
    path: str, stamp: int, coco: CocoFile, texts: IO[bytes], *, outlined: bool
) -> dict[str, pa.Table]:
    """Returns the three lists, without the texts; raises as `load_coco`."""
    try:
        with storage(path).open_input(stamp=stamp) as file:
            return _parse(file, coco, texts, outlined=outlined)
    except (ValueError, RecursionError) as error:
        reason = TOO_DEEP if isinstance(error, RecursionError) else error
        raise InputError(
            f"{path!r} must be COCO JSON: one object with lists named images, "
            f"annotations and categories. Found: {reason}. Correct it, or leave the "
            f"file out."
        ) from error


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


def _categories(table: Sequence[_Item], path: str) -> dict[int, str]:
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


def _by_image(
    annotations: pa.Table, stored: IO[bytes], ids: pa.Array
) -> tuple[list[bytes], pa.ListArray]:
    """Returns the texts of annotations of no image, and those of each image."""
    stored.flush()
    size = stored.tell()
    data = mmap.mmap(stored.fileno(), size, access=mmap.ACCESS_READ) if size else b""
    starts = np.append(0, np.cumsum(annotations["size"].to_numpy()))
    buffers = [None, pa.py_buffer(starts), pa.py_buffer(data)]
    texts = pa.Array.from_buffers(pa.large_binary(), len(annotations), buffers)
    parents = pc.index_in(annotations["image_id"], value_set=ids, skip_nulls=True)
    rows = np.asarray(pc.fill_null(parents, -1))
    texts = texts.take(pa.array(np.argsort(rows, kind="stable")))
    ends = np.cumsum(np.bincount(rows + 1, minlength=len(ids) + 1))
    of_images = texts.slice(ends[0])
    offsets = pa.array(ends - ends[0], pa.int64())
    strays: list[bytes] = texts.slice(0, ends[0]).to_pylist()
    return strays, pa.LargeListArray.from_arrays(offsets, of_images)


def _parse(
    file: io.BufferedReader, coco: CocoFile, texts: IO[bytes], *, outlined: bool
) -> dict[str, pa.Table]:
    """Returns the three lists; counts annotations, and writes their texts.

    Raises:
      ValueError, RecursionError: the file is not COCO JSON.
    """
    tables = {
        "annotations": _ANNOTATIONS.empty_table(),
        "categories": _CATEGORIES.empty_table(),
    }
    for name, items in ItemText(file, outlined=outlined).lists():
        objects = ((it if isinstance(it, dict) else {}, text) for it, text in items)
        if name == "images":
            tables[name] = _columns(_IMAGES, map(_image, objects))
        elif name == "categories":
            tables[name] = _columns(_CATEGORIES, map(_category, objects))
        elif name == "annotations":
            texts.seek(0)
            rows = _annotations(objects, coco, packed=outlined)
            sizes = ((image, texts.write(data)) for image, data in rows)
            tables[name] = _columns(_ANNOTATIONS, sizes)
    if "images" not in tables:
        raise ValueError("no object with a list of images")
    return tables


def _columns(schema: pa.Schema, rows: Iterable[Sequence[Any]]) -> pa.Table:
    """Returns rows as columns, some thousand at a time."""
    rows = iter(rows)
    batches = []
    while some := list(itertools.islice(rows, _ITEMS)):
        columns = zip(schema, zip(*some, strict=True), strict=True)
        arrays = [pa.array(values, field.type) for field, values in columns]
        batches.append(pa.RecordBatch.from_arrays(arrays, schema=schema))
    return pa.Table.from_batches(batches, schema).combine_chunks()


def _image(pair: tuple[_Item, str]) -> Sequence[Any]:
    item, _ = pair
    sides = number_of(item.get("height")), number_of(item.get("width"))
    return id_of(item.get("id")), text_of(item.get("file_name")), *sides


def _category(pair: tuple[_Item, str]) -> Sequence[Any]:
    item, _ = pair
    points = item.get("keypoints")
    names = [text_of(name) for name in points] if isinstance(points, list) else None
    return integer_of(item.get("id")), text_of(item.get("name")), names


def _annotations(
    items: Iterable[tuple[_Item, str]], coco: CocoFile, *, packed: bool
) -> Iterator[Sequence[Any]]:
    """Yields the image of each annotation, and its text; counts them."""
    longest, is_labelled = 0, False
    for item, text in items:
        coco.count += 1
        coco.outlined += bool(item.get("segmentation"))
        image, caption = id_of(item.get("image_id")), text_of(item.get("caption"))
        if caption is not None:
            coco.has_captions = True
        elif "segments_info" in item and image is not None and not _has_box(item):
            raise ValueError("panoptic segments (segments_info), which are not read")
        coco.has_boxes = coco.has_boxes or box_of(item) is not None
        if isinstance(points := item.get("keypoints"), list):
            longest = max(longest, len(points) // 3)
        # Where an annotation says how many key points are labelled, that decides.
        count = item.get("num_keypoints", isinstance(points, list) and len(points))
        is_labelled |= isinstance(count, int) and count > 0
        coco.point_count = longest if is_labelled else 0
        data = text.encode(errors="surrogatepass")
        yield image, zlib.compress(data, 1) if packed else data


def annotations_of(texts: Sequence[bytes]) -> list[_Item]:
    """Returns annotations as they are in the file; InputError for too deep ones."""
    # No JSON begins as zlib's streams do.
    plain = [zlib.decompress(t) if t[:1] == b"x" else t for t in texts]
    try:
        items = json.loads(b"[%b]" % b",".join(plain))
    except RecursionError as error:
        # Planning has read them with less on the stack.
        raise InputError(f"Annotations must be plainer. Found: {TOO_DEEP}.") from error
    return [item if isinstance(item, dict) else {} for item in items]


def _has_box(item: _Item) -> bool:
    return isinstance(item.get("bbox"), list) and bool(item["bbox"])


def is_box(item: _Item) -> bool:
    """Whether an annotation is an object, and not a caption alone."""
    return isinstance(item.get("bbox"), list) or text_of(item.get("caption")) is None


def box_of(item: _Item) -> list[float] | None:
    """Returns the box of an annotation, or that around its outline."""
    box = numbers_of(item.get("bbox"))
    if not box and text_of(item.get("caption")) is None:
        box = box_around(item.get("segmentation")) or box
    return box


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
