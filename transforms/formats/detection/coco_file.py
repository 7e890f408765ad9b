"""COCO JSON files: one object with lists of images, annotations and categories.

    {"images":      [{"id": 9, "file_name": "a.jpg", "height": 480, "width": 640}],
     "annotations": [{"id": 1, "image_id": 9, "category_id": 3, "iscrowd": 0,
                      "bbox": [x, y, width, height], "area": 123.5}],
     "categories":  [{"id": 3, "name": "car"}]}

The text is read in windows and parsed once, item by item, so that a file never is in
memory as a whole. Most of it is polygons; they are put into quotes before their item is
parsed, which takes half the time of parsing them. The texts of annotations wait on the
disk for the order of their images, and are parsed again where their image is read.

Values of other types than those drawn are null, but numbers in quotes are read, and ids
of images and annotations may be texts.

Source: https://cocodataset.org/#format-data
"""

import codecs
import io
import itertools
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

from transforms.core.json_text import TOO_DEEP
from transforms.errors import InputError
from transforms.formats.detection.objects import MOST_POINTS
from transforms.formats.table import InputFile

# Bytes that are read at once.
_WINDOW = 4 << 20
# An error of the parser so near the end of a window may be due to the end.
_NEAR = 64
# Characters around an error that a message shows.
_AROUND = 20
# COCO's lists of objects beside images.
_OTHERS = frozenset(("annotations", "categories"))
# Polygons of numbers alone, with one at least.
_NUMBERS = r"[0-9eE+\-.,\s]*+"
_POLYGONS = re.compile(
    r'"segmentation"\s*:\s*(?=\[[\[\s]*-?[0-9])'
    rf"(\[(?:{_NUMBERS}|\s*+(?:\[{_NUMBERS}\][\s,]*+)++)\])(?=\s*[,}}])"
)
_SPACE = re.compile(r"[ \t\r\n]*")
# Characters of an item: a polygon of a million points has 20 million.
_MOST_ITEM = 64 << 20
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


class JsonLists:
    """The lists at the top of a JSON object, read window by window."""

    def __init__(self, file: io.BufferedReader) -> None:
        encoding = json.detect_encoding(file.peek(4)[:4])
        self._file = file
        self._to_text = codecs.getincrementaldecoder(encoding)("surrogatepass").decode
        # Polygons in quotes may have line ends among them.
        self._decode = json.JSONDecoder(strict=False).raw_decode
        # What is to be parsed, from `_at` on, and text behind it that may begin within
        # polygons.
        self._text, self._behind = "", ""
        # Where the last value begins.
        self._begin = self._at = 0
        self._ended = False

    def lists(self) -> Iterator[tuple[str, Iterator[tuple[_Item, str]]]]:
        """Yields the lists of the object: their names, and items with their texts."""
        if self._next() != "{":
            raise ValueError("no object with a list of images; results have none")
        for _ in self._members("}"):
            if self._next() != '"':
                raise ValueError(f"Expecting property name{self._near()}")
            key = self._value()
            self._take(":")
            if self._next() == "[":
                items = (self._item() for _ in self._members("]"))
                yield key, items
                for _ in items:
                    """Pass over what nobody has taken."""
            elif self._value() and key in _OTHERS:
                raise ValueError(f"{key} is no list")
        if self._next():
            raise ValueError(f"Extra data{self._near()}")

    def _members(self, end: str) -> Iterator[None]:
        """Yields before each member of an object or a list, from its bracket on."""
        self._at += 1
        if self._next() != end:
            yield
            while self._next() == ",":
                self._at += 1
                self._next()
                yield
        self._take(end)

    def _take(self, character: str) -> None:
        if self._next() != character:
            raise ValueError(f"Expecting {character!r}{self._near()}")
        self._at += 1

    def _next(self) -> str:
        """Returns the next character that is no space; nothing at the end."""
        while True:
            space = _SPACE.match(self._text, self._at)
            self._at = space.end() if space else self._at
            if self._at < len(self._text) or self._ended:
                return self._text[self._at : self._at + 1]
            self._read_on()

    def _value(self) -> Any:
        """Returns the value that begins here."""
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
                    self._begin, self._at = self._at, end
                    return value
            self._read_on()

    def _item(self) -> tuple[_Item, str]:
        """Returns the object that begins here and its text; empty for another value."""
        value = self._value()
        item = value if isinstance(value, dict) else {}
        return item, self._text[self._begin : self._at]

    def _read_on(self) -> None:
        rest = self._text[self._at :]
        text, end = self._behind, 0
        while not (end or self._ended):
            if len(rest) + len(text) > _MOST_ITEM:
                raise ValueError(f"an item of more than {_MOST_ITEM:,} characters")
            # Twice as much, so that a long value is not begun over and over.
            data = self._file.read(max(_WINDOW, len(rest), len(text)))
            self._ended = not data
            text += self._to_text(data, self._ended)
            # No polygon goes on behind a brace.
            end = len(text) if self._ended else text.rfind("}") + 1
        pieces = _POLYGONS.split(text[:end])
        pieces[1::2] = [f'"segmentation":"{it}"' for it in pieces[1::2]]
        self._text = "".join([rest, *pieces])
        self._behind = text[end:]
        self._at = 0

    def _near(self) -> str:
        around = self._text[max(self._at - _AROUND, 0) : self._at + _AROUND]
        return f" near {around!r}" if around else ""


# Numbers in quotes, as some tools write them. Python's own words for them, such as
# 1_0 and infinity, are none. Of a large whole one float() would keep the first digits.
_WHOLE = re.compile(r"\s*[+-]?[0-9]{1,20}\s*")
_NUMBER = re.compile(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*")


def _unquoted(value: Any) -> Any:
    """Returns a number in quotes as a number, other texts as None, the rest as is."""
    if not isinstance(value, str):
        return value
    if _WHOLE.fullmatch(value):
        return int(value)
    return float(value) if _NUMBER.fullmatch(value) else None


def integer_of(value: Any) -> int | None:
    """Returns an integer of a COCO file, perhaps in quotes; None beyond 64 bits."""
    value = _unquoted(value)
    is_whole = isinstance(value, int) or (
        isinstance(value, float) and value.is_integer()
    )
    return int(value) if is_whole and -(2**63) <= value < 2**63 else None


def number_of(value: Any) -> float | None:
    """Returns a number of a COCO file, which may be in quotes; None for others."""
    value = _unquoted(value)
    if type(value) not in (int, float):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf


def numbers_of(value: Any) -> list[float] | None:
    """Returns the numbers of a COCO file's list, NaN for others; None for no list."""
    if not isinstance(value, list):
        return None
    if {*map(type, value)} == {float}:
        return value
    read = map(number_of, value)
    return [math.nan if number is None else number for number in read]


def text_of(value: Any) -> str | None:
    """Returns a text of a COCO file that is UTF-8; None for others."""
    if not isinstance(value, str):
        return None
    try:
        value.encode()
    except UnicodeEncodeError:
        return None
    return value


def id_of(value: Any) -> str | None:
    """Returns an id of a COCO file as text, perhaps an integer; None for others."""
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
      has_annotations: whether there is a list of them.
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
        self.outlined = self.captions = self.point_count = 0
        self.has_boxes = self.has_annotations = False
        self.categories: dict[int, str] = {}
        self.point_names: dict[int, Sequence[str]] = {}
        self._texts = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the texts
        weakref.finalize(self, self._texts.close)
        parents, has_images = _ANNOTATIONS.empty_table(), False
        try:
            with file.open() as stream:
                for name, items in JsonLists(stream).lists():
                    if name == "images":
                        has_images = True
                        self.images = _columns(_IMAGES, map(_image_row, items))
                    elif name == "categories":
                        self._take_categories(item for item, _ in items)
                    elif name == "annotations":
                        self.has_annotations = True
                        self._texts.seek(0)
                        texts = self._annotations(items, outlined=outlined)
                        parents = _columns(_ANNOTATIONS, texts)
            if not has_images:
                raise ValueError("no object with a list of images")
        except (ValueError, RecursionError) as error:
            reason = TOO_DEEP if isinstance(error, RecursionError) else error
            raise InputError(
                f"{file.path!r} must be COCO JSON: one object with lists named images, "
                f"annotations and categories. Found: {reason}. Correct it, or leave "
                f"the file out."
            ) from error
        self.count = len(parents)
        self._check_images()
        if self.point_count:
            named = max(map(len, self.point_names.values()), default=0)
            self.point_count = max(self.point_count, named)
        self._starts = np.append(0, np.cumsum(parents["size"].to_numpy()))
        places = pc.index_in(
            parents["image_id"], value_set=self.images["id"], skip_nulls=True
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
        self, items: Iterable[tuple[_Item, str]], *, outlined: bool
    ) -> Iterator[tuple[str | None, int]]:
        """Writes the texts of annotations; yields the image and the size of each."""
        with_outline = captions = longest = 0
        has_boxes = is_labelled = False
        write = self._texts.write
        for item, text in items:
            image, outline = id_of(item.get("image_id")), item.get("segmentation")
            has_box = isinstance(item.get("bbox"), list) and bool(item["bbox"])
            has_boxes = has_boxes or box_of(item) is not None
            if "caption" in item and not has_box:
                captions += 1
            elif "segments_info" in item and image is not None and not has_box:
                raise ValueError("panoptic segments_info, which is not read")
            points = item.get("keypoints")
            points = points if isinstance(points, list) else []
            longest = max(longest, len(points) // 3)
            if longest > MOST_POINTS:
                raise ValueError(f"an object with more than {MOST_POINTS:,} key points")
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


def _image_row(listed: tuple[_Item, str]) -> Sequence[Any]:
    """Returns an entry of "images" as a row of the table `_IMAGES`."""
    item, _ = listed
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
    """Returns what a COCO file has as an outline; raises ValueError, RecursionError."""
    outline = item.get("segmentation")
    return json.loads(outline) if outline and isinstance(outline, str) else outline


def box_of(item: _Item) -> list[float] | None:
    """Returns the box of an annotation of a COCO file, or that around its polygons."""
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
