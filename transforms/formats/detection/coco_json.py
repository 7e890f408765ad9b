"""COCO JSON files: one object with lists of images, annotations and categories.

    {"images":      [{"id": 9, "file_name": "a.jpg", "height": 480, "width": 640}],
     "annotations": [{"id": 1, "image_id": 9, "category_id": 3, "iscrowd": 0,
                      "bbox": [x, y, width, height], "area": 123.5}],
     "categories":  [{"id": 3, "name": "car"}]}

The text is read in windows and parsed item by item, so that a file never is in memory
as a whole. Most of a file is outlines of objects, which are not read: they are cut out
of a window before it is parsed, which takes half the time of parsing them. An item that
states no box gets its outline back, for the box around it.

Source: https://cocodataset.org/#format-data
"""

import codecs
import collections
import dataclasses
import io
import itertools
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import numpy_mask
from transforms.core.nesting import TOO_DEEP
from transforms.errors import InputError
from transforms.formats.whole_files import kept_in_memory
from transforms.storage.files import storage

_BOX = pa.list_(pa.float64())
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
        # The text of an annotation without a box, or with values of other types.
        "written": pa.string(),
    },
    "categories": {"id": pa.int64(), "name": pa.string()},
}
# Ids may be texts: some labelling tools write names there.
_IDS = {("images", "id"), ("annotations", "id"), ("annotations", "image_id")}
# An outline up to the next quote, and the name of a field if that follows; the mark in
# its place, with its number.
_OUTLINE = re.compile(r'("segmentation"\s*:\s*)(\[[^"]*)(?=("[^"\\]*"\s*:)?)')
_CUT = "outline"
_MARK = re.compile(rf'\{{"{_CUT}":(\d+)\}}')
# Bytes that are read at once, and items that become columns at once.
_WINDOW = 4 << 20
_ITEMS = 4096
# An error of the parser so near the end of a window may be due to the end.
_NEAR = 64
# Characters of an annotation in a message, and of a text around an error.
_SHOWN, _AROUND = 300, 20
# A dataset has a file for train and one for validation as a rule, and a worker may
# read blocks of both.
_KEPT_FILES = 2

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
    """

    images: pa.RecordBatch
    annotations: pa.RecordBatch
    categories: tuple[tuple[int, str], ...]
    order: _Numbers
    starts: _Numbers
    left_out: collections.Counter[str]

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
    left_out: collections.Counter[str] = collections.Counter()
    try:
        with storage(path).open_input(stamp=stamp) as file:
            lists = _parse(file, left_out)
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
    file: io.BufferedReader, left_out: collections.Counter[str]
) -> dict[str, pa.RecordBatch]:
    """Returns the three lists as columns, and counts what is left out.

    Raises:
      ValueError, RecursionError: the file is not COCO JSON.
    """
    lists: dict[str, list[dict[str, pa.Array]]] = {name: [] for name in _LISTS}
    has_images = False
    for name, items in _Text(file).lists():
        if name not in _LISTS:
            continue
        if items is None:
            lists[name] = []
            has_images = has_images or name == "images"
            continue
        lists[name].append(_columns(name, items))
        if name == "annotations":
            _count(items, left_out)
    if not has_images:
        raise ValueError("no object with a list of images")
    return {name: _joined(name, batches) for name, batches in lists.items()}


class _Text:
    """A JSON text, window by window, its outlines cut out."""

    def __init__(self, file: io.BufferedReader) -> None:
        encoding = json.detect_encoding(file.peek(4)[:4])
        self._file = file
        self._to_text = codecs.getincrementaldecoder(encoding)("surrogatepass").decode
        self._decode = json.JSONDecoder().raw_decode
        self._text = ""
        self._at = 0
        self._ended = False
        self._is_new = False
        self._cut: dict[int, str] = {}
        self._cuts = 0

    def lists(self) -> Iterator[tuple[str, list[Any] | None]]:
        """Yields the name of each list of the object, and its items, some at a time.

        A list begins with None for its items; what is no list is left out.
        """
        if self._next() == "[":
            self._at += 1
            first = self._value() if self._next() != "]" else None
            if isinstance(first, dict) and "image_id" in first:
                raise ValueError(
                    "results, a list without the images and classes they are of"
                )
        elif self._next() != "{":
            self._value()
        if self._text[self._at : self._at + 1] != "{":
            raise ValueError("no object with a list of images")
        for key in self._names():
            self._take(":")
            if self._next() == "[":
                yield key, None
                for items in self._items():
                    yield key, items
            elif self._value() and key in _LISTS and key != "images":
                raise ValueError(f"{key} is no list")
        if self._next():
            raise ValueError(f"Extra data{self._near()}")

    def _names(self) -> Iterator[str]:
        """Yields the names of an object's fields, from its bracket on."""
        self._at += 1
        if self._next() != "}":
            while True:
                if self._next() != '"':
                    raise ValueError(f"Expecting property name{self._near()}")
                yield self._value()
                if self._next() == "}":
                    break
                self._take(",")
        self._at += 1

    def _items(self) -> Iterator[list[Any]]:
        """Yields the items of a list, from its bracket on, some at a time."""
        self._at += 1
        if self._next() != "]":
            items: list[Any] = []
            while True:
                items += self._run() or [self._value()]
                if len(items) >= _ITEMS:
                    yield items
                    items = []
                if self._next() == "]":
                    break
                self._take(",")
            yield items
        self._at += 1

    def _run(self) -> list[Any]:
        """Returns the items up to the end of a window; or none.

        Any text that is parsed as a whole list is items of one: so where to end may be
        a guess, which is made once a window.
        """
        end = self._text.rfind("}") + 1
        if not self._is_new or end <= self._at:
            return []
        self._is_new = False
        try:
            items = json.loads(f"[{self._text[self._at : end]}]")
        except (json.JSONDecodeError, RecursionError):
            return []
        self._at = end
        return list(map(self._with_outline, items))

    def _take(self, character: str) -> None:
        if self._next() != character:
            raise ValueError(f"Expecting {character!r}{self._near()}")
        self._at += 1

    def _next(self) -> str:
        """Returns the next character that is no space; nothing at the end."""
        while True:
            text, at = self._text, self._at
            while at < len(text) and text[at] in " \t\r\n":
                at += 1
            self._at = at
            if at < len(text) or self._ended:
                return text[at : at + 1]
            self._read_on()

    def _value(self) -> Any:
        self._next()
        while True:
            size = len(self._text)
            try:
                value, end = self._decode(self._text, self._at)
            except json.JSONDecodeError as error:
                is_cut = error.pos > size - _NEAR or "Unterminated" in error.msg
                if self._ended or not is_cut:
                    self._at = error.pos
                    raise ValueError(f"{error.msg}{self._near()}") from error
            else:
                # A number may go on in the next window.
                if end < size or self._ended:
                    self._at = end
                    return self._with_outline(value)
            self._read_on()

    def _with_outline(self, value: Any) -> Any:
        if isinstance(value, dict) and not (
            value.get("bbox") and isinstance(value["bbox"], list)
        ):
            outline = value.get("segmentation")
            if isinstance(outline, dict) and outline.get(_CUT) in self._cut:
                value["segmentation"] = json.loads(self._cut[outline[_CUT]])
        return value

    def _read_on(self) -> None:
        rest = self._text[self._at :]
        # Twice as much, so that a long value is not begun over and over.
        data = self._file.read(max(_WINDOW, len(rest)))
        self._ended = not data
        marks = map(int, _MARK.findall(rest))
        self._cut = {mark: self._cut[mark] for mark in marks if mark in self._cut}
        self._text = _OUTLINE.sub(
            self._without, rest + self._to_text(data, self._ended)
        )
        self._at = 0
        self._is_new = True

    def _without(self, found: re.Match[str]) -> str:
        """Returns the mark of an outline that is numbers; other text as it is."""
        outline, brace, _ = found[2].partition("}")
        stop = outline.rfind("]") + 1
        after = outline[stop:].strip()
        is_whole = not after if brace else after == "," and found[3] is not None
        if not is_whole or "{" in outline or not outline[:stop].strip("[] \t\r\n"):
            return found[0]
        self._cuts += 1
        self._cut[self._cuts] = outline[:stop]
        return f'{found[1]}{{"{_CUT}":{self._cuts}}}{found[2][stop:]}'

    def _near(self) -> str:
        around = self._text[max(self._at - _AROUND, 0) : self._at + _AROUND]
        return f" near {around!r}" if around else ""


def _count(items: Sequence[Any], left_out: collections.Counter[str]) -> None:
    for item in items:
        if not isinstance(item, dict):
            continue
        left_out["outlines (segmentation)"] += bool(item.get("segmentation"))
        points = item.get("keypoints")
        # Where an annotation says how many key points are labelled, that decides.
        labelled = item.get("num_keypoints", isinstance(points, list) and len(points))
        left_out["key points"] += isinstance(labelled, int) and labelled > 0


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


_PLAIN: Mapping[pa.DataType, frozenset[type]] = {
    pa.int64(): frozenset({int}),
    pa.float64(): frozenset({int, float}),
    pa.string(): frozenset({str}),
    _BOX: frozenset({int, float}),
}
_READ: Mapping[pa.DataType, Callable[[Any], Any]] = {
    pa.int64(): _integer,
    pa.float64(): _number,
    pa.string(): _text,
    _BOX: _numbers,
}
