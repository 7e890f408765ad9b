"""COCO JSON files: one object with lists of images, annotations and categories.

    {"images":      [{"id": 9, "file_name": "a.jpg", "height": 480, "width": 640}],
     "annotations": [{"id": 1, "image_id": 9, "category_id": 3, "iscrowd": 0,
                      "bbox": [x, y, width, height], "area": 123.5}],
     "categories":  [{"id": 3, "name": "car"}]}

The text is read in windows, and cut into items where its brackets open and close, so
that a file never is in memory as a whole. Most of it is polygons; they are put into
quotes before their item is parsed, which takes half the time of parsing them. The texts
of annotations wait on the disk for the order of their images, and are parsed again
where their image is read.

Values of other types than those drawn are null, but numbers in quotes are read, and ids
of images and annotations may be texts.

Source: https://cocodataset.org/#format-data
"""

import collections
import io
import json
import math
import os
import re
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.json_text import TOO_DEEP, json_levels
from transforms.errors import InputError
from transforms.formats.table import InputFile

# Bytes that are read at once.
_WINDOW = 1 << 20
# One object, or all that is in no object of a list, is in memory as a whole.
_MOST_BYTES = 128 << 20
# Characters around an error that a message shows.
_AROUND = 20
# The beginning of a list, at the end of what is before its first item.
_LIST = re.compile(rb'"(images|annotations|categories)"\s*:\s*\[\Z')
_KEY_BYTES = 256
# Polygons of numbers alone, with one at least.
_NUMBERS = r"[0-9eE+\-.,\s]*+"
_POLYGONS = re.compile(
    (
        r'"segmentation"\s*:\s*(?=\[[\[\s]*-?[0-9])'
        rf"(\[(?:{_NUMBERS}|\s*+(?:\[{_NUMBERS}\][\s,]*+)++)\])(?=\s*[,}}])"
    ).encode()
)
_SPACE = b" \t\r\n\xef\xbb\xbf"
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


def _lists(stream: io.BufferedReader) -> Iterator[tuple[str, list[bytes]]]:
    """Yields the items of COCO's lists: the name of a list, and texts of some items.

    What is around the items is parsed at the end: it says whether the file is whole.

    Raises:
      ValueError: it is not, or it has no list of images.
    """
    frame, rest = bytearray(), bytearray()
    name, level = "", 0
    counts: collections.Counter[str] = collections.Counter()
    for piece, _, places, levels in json_levels(
        iter(lambda: stream.read(_WINDOW), b"")
    ):
        texts: list[bytes] = []
        above = np.concatenate(([level], levels))[:-1]
        level = int(levels[-1]) if len(levels) else level
        edges = np.maximum(levels, above)
        marks = (edges == 3) | ((edges == 2) & (levels == 2))
        start = 0
        for place, edge, is_end in zip(
            places[marks].tolist(),
            edges[marks].tolist(),
            (above > levels)[marks].tolist(),
            strict=True,
        ):
            if is_end:
                if name:
                    texts.append(bytes(rest + piece[start : place + 1]))
                    rest.clear()
                frame += b"{}"
                start = place + 1
                continue
            frame += piece[start : place + (edge == 2)]
            start = place + (edge == 2)
            if edge == 2:
                if texts:
                    yield name, texts
                    counts[name] += len(texts)
                    texts = []
                begun = _LIST.search(frame[-_KEY_BYTES:])
                name = begun[1].decode() if begun else ""
        if texts:
            yield name, texts
            counts[name] += len(texts)
        if level <= 2:
            frame += piece[start:]
        elif name:
            rest += piece[start:]
        if len(frame) + len(rest) > _MOST_BYTES:
            raise ValueError(f"more than {_MOST_BYTES >> 20} MiB that are no objects")
        if not frame.lstrip(_SPACE).startswith(b"{"):
            raise ValueError("no object with a list of images; results have none")
    content = _loads(bytes(frame) or b"{}")
    if not isinstance(content.get("images"), list):
        raise ValueError("no object with a list of images")
    for name in ("images", "annotations", "categories"):
        items = content.get(name) or []
        if not isinstance(items, list):
            raise ValueError(f"{name} is no list")
        # Null, for one, is an annotation of no image.
        others = [b"null" for item in items if item != {}]
        if others and name == "annotations":
            yield name, others
        if counts[name] + len(others) != len(items) or (others and name == "images"):
            raise ValueError(f"{name} must be one list of objects")


def _quoted(texts: Sequence[bytes]) -> list[bytes]:
    """Returns the texts of items with polygons in quotes; raises ValueError."""
    pieces = _POLYGONS.split(b"\0".join(texts))
    pieces[1::2] = [b'"segmentation":"%b"' % polygons for polygons in pieces[1::2]]
    quoted = b"".join(pieces).split(b"\0")
    if len(quoted) != len(texts):
        raise ValueError("a NUL character")
    return quoted


def _loads(data: bytes) -> Any:
    """Returns a value, in whose texts may be line ends; raises ValueError."""
    try:
        return json.loads(data, strict=False)
    except json.JSONDecodeError as error:
        near = error.doc[max(error.pos - _AROUND, 0) : error.pos + _AROUND]
        raise ValueError(f"{error.msg} near {near!r}") from error


# Numbers in quotes, as some tools write them. Python's own words for them, such as
# 1_0 and infinity, are none. Of a large whole one float() would keep the first digits.
_WHOLE = re.compile(r"\s*[+-]?[0-9]{1,20}\s*")
_NUMBER = re.compile(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*")


def _unquoted(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if _WHOLE.fullmatch(value):
        return int(value)
    return float(value) if _NUMBER.fullmatch(value) else None


def integer_of(value: Any) -> int | None:
    """Returns an integer of 64 bits, which may be in quotes; None for others."""
    value = _unquoted(value)
    is_whole = isinstance(value, int) or (
        isinstance(value, float) and value.is_integer()
    )
    return int(value) if is_whole and -(2**63) <= value < 2**63 else None


def number_of(value: Any) -> float | None:
    """Returns a number, which may be in quotes; None for others."""
    value = _unquoted(value)
    if type(value) not in (int, float):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf


def numbers_of(value: Any) -> list[float] | None:
    """Returns the numbers of a list, NaN for what is none; None for no list."""
    if not isinstance(value, list):
        return None
    if {*map(type, value)} == {float}:
        return value
    read = map(number_of, value)
    return [math.nan if number is None else number for number in read]


def text_of(value: Any) -> str | None:
    """Returns a text that is UTF-8; None for others."""
    if not isinstance(value, str):
        return None
    try:
        value.encode()
    except UnicodeEncodeError:
        return None
    return value


def id_of(value: Any) -> str | None:
    """Returns an id as text, which may be an integer; None for others."""
    if isinstance(value, str):
        return text_of(value)
    number = value if type(value) is int else integer_of(value)
    return None if number is None else str(number)


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
        self.count = self.outlined = self.captions = self.point_count = 0
        self.has_boxes = self._is_labelled = False
        self.categories: dict[int, str] = {}
        self.point_names: dict[int, Sequence[str]] = {}
        self._texts = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the texts
        weakref.finalize(self, self._texts.close)
        images: list[pa.RecordBatch] = []
        parents: list[pa.RecordBatch] = []
        categories: list[_Item] = []
        try:
            with file.open() as stream:
                for name, texts in _lists(stream):
                    texts = _quoted(texts)
                    items = annotations_of(texts, file.path)
                    if name == "images":
                        images.append(_columns(_IMAGES, map(_image, items)))
                    elif name == "categories":
                        categories += items
                    else:
                        pairs = zip(items, texts, strict=True)
                        rows = self._annotations(pairs, outlined=outlined)
                        parents.append(_columns(_ANNOTATIONS, rows))
        except ValueError as error:
            raise InputError(
                f"{file.path!r} must be COCO JSON: one object with lists named images, "
                f"annotations and categories. Found: {error}. Correct it, or leave "
                f"the file out."
            ) from error
        self.images = pa.Table.from_batches(images, _IMAGES).combine_chunks()
        self._take_categories(categories)
        self._check_images()
        named = max(map(len, self.point_names.values()), default=0)
        self.point_count = max(self.point_count, named) if self._is_labelled else 0
        listed = pa.Table.from_batches(parents, _ANNOTATIONS)
        self._starts = np.append(0, np.cumsum(listed["size"].to_numpy()))
        places = pc.index_in(
            listed["image_id"], value_set=self.images["id"], skip_nulls=True
        )
        owners = np.asarray(pc.fill_null(places, -1))
        self._order = np.argsort(owners, kind="stable")
        # Those of no image come first.
        self._ends = np.cumsum(np.bincount(owners + 1, minlength=len(self.images) + 1))
        self._texts.flush()

    def annotations(self, image: int) -> list[bytes]:
        """Returns the texts of the annotations of an image, by its place."""
        return self._read(*self._ends[image : image + 2])

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

    def _check_images(self) -> None:
        images, path = self.images, self.file.path
        if not len(images):
            raise InputError(
                f"{path!r} must list images; its list is empty. Leave the file out."
            )
        ids = images["id"].drop_null().combine_chunks()
        if len(ids.unique()) < len(ids):
            (twice,) = pc.mode(ids.dictionary_encode().indices)
            shared = ids.unique()[twice["mode"].as_py()].as_py()
            raise InputError(
                f"Ids of images must differ; in {path!r} {twice['count']} images have "
                f"{shared!r:.80}. Give them ids of their own."
            )

    def _take_categories(self, items: Iterable[_Item]) -> None:
        out: dict[int, str] = {}
        numbers: dict[str, int] = {}
        for item in items:
            number, name = integer_of(item.get("id")), text_of(item.get("name"))
            other = number if number in out else numbers.get(name or "")
            if number is None or not name or other is not None:
                first = "" if other is None else f"{other}: {out[other]!r} and "
                raise InputError(
                    f"Categories must have an integer id and a name of their own; "
                    f"{self.file.path!r} has {first}{number}: {name!r}. Correct it."
                )
            out[number], numbers[name] = name, number
            if (points := item.get("keypoints")) and isinstance(points, list):
                self.point_names[number] = [text_of(text) or "" for text in points]
        self.categories = dict(sorted(out.items()))

    def _annotations(
        self, items: Iterable[tuple[_Item, bytes]], *, outlined: bool
    ) -> Iterator[tuple[str | None, int]]:
        """Writes the texts of annotations; yields the image and the size of each."""
        for item, text in items:
            self.count += 1
            image, outline = id_of(item.get("image_id")), item.get("segmentation")
            has_box = isinstance(item.get("bbox"), list) and bool(item["bbox"])
            self.has_boxes = self.has_boxes or box_of(item) is not None
            if "caption" in item and not has_box:
                self.captions += 1
            elif "segments_info" in item and image is not None and not has_box:
                raise ValueError("panoptic segments_info, which is not read")
            points = item.get("keypoints")
            points = points if isinstance(points, list) else []
            self.point_count = max(self.point_count, len(points) // 3)
            # Where it is said how many key points are labelled, that decides.
            labelled = item.get("num_keypoints", len(points))
            self._is_labelled |= isinstance(labelled, int) and labelled > 0
            if outline:
                self.outlined += 1
                if has_box and not outlined and isinstance(outline, str):
                    polygons = b'"%b"' % outline.encode(errors="replace")
                    text = text.replace(polygons, b"null", 1)
            yield image, self._texts.write(text)


def _columns(schema: pa.Schema, rows: Iterable[Sequence[Any]]) -> pa.RecordBatch:
    columns = zip(schema, zip(*rows, strict=True), strict=True)
    arrays = [pa.array(values, field.type) for field, values in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _image(item: _Item) -> Sequence[Any]:
    sides = number_of(item.get("height")), number_of(item.get("width"))
    return id_of(item.get("id")), text_of(item.get("file_name")), *sides


def annotations_of(texts: Sequence[bytes], path: str) -> list[_Item]:
    """Returns items of a file by their texts, empty for what is no object.

    Raises:
      ValueError: one is not JSON.
      InputError: one is too deep.
    """
    try:
        items = _loads(b"[%b]" % b",".join(texts))
    except RecursionError as error:
        # Workers have more on the stack than planning.
        raise InputError(
            f"{path!r} must be plainer. Found: {TOO_DEEP}. Correct it."
        ) from error
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
