"""COCO JSON files: one object with lists of images, annotations and categories.

    {"images":      [{"id": 9, "file_name": "a.jpg", "height": 480, "width": 640}],
     "annotations": [{"id": 1, "image_id": 9, "category_id": 3, "iscrowd": 0,
                      "bbox": [x, y, width, height], "area": 123.5}],
     "categories":  [{"id": 3, "name": "car"}]}

A file is parsed once, item by item. The texts of annotations wait on the disk for the
order of their images, and are parsed again where their image is read.

Values of other types than those drawn are null, but numbers in quotes are read, and ids
of images and annotations may be texts.

Source: https://cocodataset.org/#format-data
"""

import io
import itertools
import json
import math
import os
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.json_text import TOO_DEEP
from transforms.errors import InputError
from transforms.formats.detection.coco_text import (
    JsonLists,
    id_of,
    integer_of,
    number_of,
    numbers_of,
    text_of,
)
from transforms.formats.table import InputFile

# Items that become columns at once.
_ITEMS = 4096
_IMAGES = pa.schema(
    {
        "id": pa.string(),
        "file_name": pa.string(),
        "height": pa.float64(),
        "width": pa.float64(),
    }
)
_ANNOTATIONS = pa.schema({"image_id": pa.string(), "size": pa.int64()})
_Item = Mapping[str, Any]


class CocoFile:
    """One file; its annotations are texts on the disk.

    Attributes:
      file: it.
      images: id, file_name, height and width, in the file's order; ids are texts.
      categories: id -> name, in the order of ids.
      count, outlined: how many annotations there are, and how many have outlines.
      captions: how many have no box but a caption.
      has_boxes: whether one has a box.
      point_count: the most key points of an object; 0 where none is labelled.
      point_names: category id -> names of its key points; empty where none has any.
    """

    def __init__(self, file: InputFile, *, outlined: bool) -> None:
        """Parses a file.

        Args:
          file: it.
          outlined: whether annotations with boxes keep their outlines.

        Raises:
          InputError: it is not COCO JSON.
          OSError: it cannot be read, or has changed since it was listed.
        """
        self.file = file
        self.images: pa.Table = _IMAGES.empty_table()
        self.count = self.outlined = self.captions = self.point_count = 0
        self.has_boxes = False
        self.categories: dict[int, str] = {}
        self.point_names: dict[int, Sequence[str]] = {}
        self._texts = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the texts
        weakref.finalize(self, self._texts.close)
        try:
            with file.open() as stream:
                parents = self._parse(stream, outlined=outlined)
        except (ValueError, RecursionError) as error:
            reason = TOO_DEEP if isinstance(error, RecursionError) else error
            raise InputError(
                f"{file.path!r} must be COCO JSON: one object with lists named images, "
                f"annotations and categories. Found: {reason}. Correct it, or leave "
                f"the file out."
            ) from error
        self._check_images()
        if self.point_count:
            named = max(map(len, self.point_names.values()), default=0)
            self.point_count = max(self.point_count, named)
        self._starts = np.append(0, np.cumsum(parents["size"].to_numpy()))
        places = pc.index_in(
            parents["image_id"], value_set=self.images["id"], skip_nulls=True
        )
        rows = np.asarray(pc.fill_null(places, -1))
        self._order = np.argsort(rows, kind="stable")
        counts = np.bincount(rows + 1, minlength=len(self.images) + 1)
        self._ends = np.cumsum(counts)
        self._texts.flush()

    def annotations(self, start: int, stop: int) -> pa.LargeListArray:
        """Returns the texts of the annotations of images [start, stop)."""
        ends = self._ends[start : stop + 1]
        texts = pa.array(self._read(ends[0], ends[-1]), pa.large_binary())
        return pa.LargeListArray.from_arrays(pa.array(ends - ends[0]), texts)

    def strays(self) -> list[bytes]:
        """Returns the texts of the annotations of no image."""
        return self._read(0, self._ends[0])

    def _read(self, start: int, stop: int) -> list[bytes]:
        chosen = self._order[start:stop]
        begins = self._starts[chosen]
        sizes = self._starts[chosen + 1] - begins
        file = self._texts.fileno()
        pairs = zip(sizes.tolist(), begins.tolist(), strict=True)
        return [os.pread(file, size, begin) for size, begin in pairs]

    def _parse(self, file: io.BufferedReader, *, outlined: bool) -> pa.Table:
        """Takes the three lists; returns the image and size of each text.

        Raises:
          ValueError, RecursionError: the file is not COCO JSON.
        """
        parents, has_images = _ANNOTATIONS.empty_table(), False
        for name, items in JsonLists(file).lists():
            objects = ((it if isinstance(it, dict) else {}, text) for it, text in items)
            if name == "images":
                has_images = True
                self.images = _columns(_IMAGES, (_image(item) for item, _ in objects))
            elif name == "categories":
                self._take_categories([item for item, _ in objects])
            elif name == "annotations":
                self._texts.seek(0)
                rows = self._annotations(objects, outlined=outlined)
                parents = _columns(_ANNOTATIONS, rows)
        if not has_images:
            raise ValueError("no object with a list of images")
        return parents

    def _check_images(self) -> None:
        images, path = self.images, self.file.path
        if not len(images):
            raise InputError(
                f"{path!r} must list images; its list is empty. Leave the file out."
            )
        ids = images["id"].drop_null().combine_chunks()
        if len(ids.unique()) == len(ids):
            return
        (twice,) = pc.mode(ids.dictionary_encode().indices)
        of_id = pc.equal(images["id"], ids.unique()[twice["mode"].as_py()])
        first, second = images["file_name"].filter(of_id).to_pylist()[:2]
        raise InputError(
            f"Ids of images must differ; in {path!r} {first!r} and {second!r} have the "
            f"same, one of {twice['count']}. Give them ids of their own."
        )

    def _take_categories(self, items: Iterable[_Item]) -> None:
        out: dict[int, str] = {}
        numbers: dict[str, int] = {}
        for item in items:
            number, name = integer_of(item.get("id")), text_of(item.get("name"))
            if number is None or not name:
                raise InputError(
                    f"Categories must have an integer id and a name; "
                    f"{self.file.path!r} has one with id {number!r} and name {name!r}. "
                    f"Correct it."
                )
            if number in out or name in numbers:
                other = number if number in out else numbers[name]
                raise InputError(
                    f"Ids and names of categories must differ; {self.file.path!r} has "
                    f"{other}: {out[other]!r} and {number}: {name!r}. Rename or "
                    f"renumber one."
                )
            out[number], numbers[name] = name, number
            if (points := item.get("keypoints")) and isinstance(points, list):
                self.point_names[number] = [text_of(text) or "" for text in points]
        self.categories = dict(sorted(out.items()))

    def _annotations(
        self, items: Iterable[tuple[_Item, str]], *, outlined: bool
    ) -> Iterator[tuple[str | None, int]]:
        """Writes the texts of annotations; yields the image and the size of each."""
        with_outline = captions = longest = 0
        has_boxes = is_labelled = False
        write = self._texts.write
        for item, text in items:
            self.count += 1
            image, outline = id_of(item.get("image_id")), item.get("segmentation")
            has_box = isinstance(item.get("bbox"), list) and bool(item["bbox"])
            has_boxes = has_boxes or box_of(item) is not None
            if "caption" in item and not has_box:
                captions += 1
            elif "segments_info" in item and image is not None and not has_box:
                raise ValueError(
                    "panoptic segments (segments_info), which are not read"
                )
            if "keypoints" in item or "num_keypoints" in item:
                points = item.get("keypoints")
                points = points if isinstance(points, list) else []
                longest = max(longest, len(points) // 3)
                # Where it is said how many key points are labelled, that decides.
                labelled = item.get("num_keypoints", len(points))
                is_labelled |= isinstance(labelled, int) and labelled > 0
            if outline:
                with_outline += 1
                if has_box and not outlined and isinstance(outline, str):
                    text = text.replace(f'"{outline}"', "null", 1)
            yield image, write(text.encode(errors="surrogatepass"))
        self.outlined, self.captions = with_outline, captions
        self.has_boxes, self.point_count = has_boxes, longest if is_labelled else 0


def _columns(schema: pa.Schema, rows: Iterable[Sequence[Any]]) -> pa.Table:
    """Returns rows as columns, some thousand at a time."""
    rows = iter(rows)
    batches = []
    while some := list(itertools.islice(rows, _ITEMS)):
        columns = zip(schema, zip(*some, strict=True), strict=True)
        arrays = [pa.array(values, field.type) for field, values in columns]
        batches.append(pa.RecordBatch.from_arrays(arrays, schema=schema))
    return pa.Table.from_batches(batches, schema).combine_chunks()


def _image(item: _Item) -> Sequence[Any]:
    sides = number_of(item.get("height")), number_of(item.get("width"))
    return id_of(item.get("id")), text_of(item.get("file_name")), *sides


def annotations_of(texts: Sequence[bytes]) -> list[_Item]:
    """Returns annotations by their texts; InputError for too deep ones."""
    try:
        items = json.loads(b"[%b]" % b",".join(texts), strict=False)
    except RecursionError as error:
        # Planning has read them with less on the stack.
        raise InputError(f"Annotations must be plainer. Found: {TOO_DEEP}.") from error
    return [item if isinstance(item, dict) else {} for item in items]


def outline_of(item: _Item) -> Any:
    """Returns the outline of an annotation; raises ValueError, RecursionError."""
    outline = item.get("segmentation")
    return json.loads(outline) if outline and isinstance(outline, str) else outline


def box_of(item: _Item) -> list[float] | None:
    """Returns the box of an annotation, or that around its polygons."""
    box = numbers_of(item.get("bbox"))
    if box or not item.get("segmentation"):
        return box
    try:
        outline = outline_of(item)
    except (ValueError, RecursionError):
        return box
    if not (outline and isinstance(outline, list)):
        return box
    polygons = outline if isinstance(outline[0], list) else [outline]
    read = [numbers_of(polygon) or [math.nan] for polygon in polygons]
    points = [number for polygon in read for number in polygon]
    if not all(map(math.isfinite, points)) or any(len(p) % 2 for p in read):
        return box
    left, top = min(points[::2]), min(points[1::2])
    return [left, top, max(points[::2]) - left, max(points[1::2]) - top]
