"""COCO JSON files: one object with lists of images, annotations and categories.

    {"images":      [{"id": 9, "file_name": "a.jpg", "height": 480, "width": 640}],
     "annotations": [{"id": 1, "image_id": 9, "category_id": 3, "iscrowd": 0,
                      "bbox": [x, y, width, height], "area": 123.5}],
     "categories":  [{"id": 3, "name": "car"}]}

Arrow parses the file into columns and skips other fields (most of a file is outlines of
objects). It needs whole objects, so long runs of items are parsed by themselves:

    {"images": [{...}, {"RUN": 0}, {...}], "annotations": [{...}, {"RUN": 1}, ... ]}

What is left of the file has a number in the place of each run, and is parsed last. The
place of a number says which list the run is of.

Where Arrow refuses a file, such as one with numbers in quotes, the json module parses
it: far slower, but more lenient. So it does with items that state no box, for the one
around their outline: those of runs (RLE) have none.

Source: https://cocodataset.org/#format-data
"""

import collections
import dataclasses
import functools
import io
import itertools
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from transforms.core.arrays import numpy_mask
from transforms.core.nesting import parse_json
from transforms.errors import InputError
from transforms.formats.whole_files import kept_in_memory
from transforms.storage.files import storage

_IMAGE = {
    "id": pa.int64(),
    "file_name": pa.string(),
    "height": pa.float64(),
    "width": pa.float64(),
}
_ANNOTATION = {
    "id": pa.int64(),
    "image_id": pa.int64(),
    "category_id": pa.int64(),
    "bbox": pa.list_(pa.float64()),
    "area": pa.float64(),
    "iscrowd": pa.int64(),
    "caption": pa.string(),
}
# The text of an annotation without a box, or that Arrow could not read.
_WRITTEN = {"written": pa.string()}
_CATEGORY = {"id": pa.int64(), "name": pa.string()}
_LISTS: Mapping[str, Mapping[str, pa.DataType]] = {
    "images": _IMAGE,
    "annotations": _ANNOTATION,
    "categories": _CATEGORY,
}
# What is not read of annotations, and is counted: outlines, and key points by either of
# two fields. Where an annotation says how many are labelled, that decides.
_OUTLINE = re.compile(rb'"segmentation"\s*:\s*[\[{]\s*[^\]}\s]')
_KEY_POINTS = re.compile(rb'"keypoints"\s*:\s*\[\s*[-\d]')
_LABELLED = re.compile(rb'"num_keypoints"\s*:\s*[1-9]')
# Characters of an annotation in a message.
_SHOWN_CHARS = 300
# Stands for a run of items that is parsed by itself; its number.
_RUN = "beam-tfrecord: run of items"
_LISTS_WITH_RUNS = pa.schema(
    [
        pa.field(name, pa.list_(pa.struct([*fields.items(), (_RUN, pa.int64())])))
        for name, fields in _LISTS.items()
    ]
)
# A run has the items of any list. A list in a list has nothing but items between its
# brackets; the member of an object might have `], "other": [`.
_ITEM = pa.struct([*(_CATEGORY | _IMAGE | _ANNOTATION).items()])
_ITEMS = pa.schema([("items", pa.list_(pa.list_(_ITEM)))])
# Between two items: the second one's beginning, up to the name of its first field.
_NEXT_ITEM = re.compile(rb'\}\s*,\s*(\{\s*"[^"\\]*")')
# After the last item of a run, with room for indents.
_ENDING = re.compile(rb",\s*\Z")
_ENDING_BYTES = 1 << 10
# What is read at once. Runs of items are a little shorter.
_WINDOW_BYTES = 4 << 20
# Arrow counts the bytes of what it parses at once in int32.
_MAX_BYTES = 2**31 - 2
# A dataset has a file for train and one for validation as a rule, and a worker may
# read blocks of both.
_KEPT_FILES = 2


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class CocoFile:
    """One file, its annotations found by image.

    Attributes:
      images: id (int64 or string), file_name, height, width; n rows in the file's
        order.
      annotations: id, image_id, category_id, bbox, area, iscrowd, caption, and the
        text of those that Arrow could not read; m rows in the file's order.
      categories: (id, name) by id.
      order: int64 array of m: annotations by the image they belong to; those of no
        image come first.
      starts: int64 array of n + 1: where in `order` those of each image begin.
      left_out: what annotations have and is not read: how many have it.
    """

    images: pa.RecordBatch
    annotations: pa.Table
    categories: tuple[tuple[int, str], ...]
    order: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]
    left_out: collections.Counter[str]

    @property
    def strays(self) -> npt.NDArray[np.int64]:
        """The annotations that belong to no image."""
        return self.order[: self.starts[0]]

    def annotations_of(
        self, rows: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Returns the annotations of some images, and how many each image has."""
        counts = self.starts[rows + 1] - self.starts[rows]
        ends = np.cumsum(counts)
        first = np.repeat(self.starts[rows] - (ends - counts), counts)
        return self.order[first + np.arange(len(first))], counts

    def taken(self, chosen: npt.NDArray[np.int64]) -> pa.RecordBatch:
        """Returns some annotations, in the order of their indices.

        `Table.take` would copy all of them into one piece first.
        """
        order = np.argsort(chosen, kind="stable")
        ascending = chosen[order]
        batches = self.annotations.to_batches()
        starts = np.cumsum([0, *map(len, batches)])
        cuts = itertools.pairwise(np.searchsorted(ascending, starts).tolist())
        parts = [
            batch.take(pa.array(ascending[begin:end] - start))
            for batch, start, (begin, end) in zip(batches, starts, cuts, strict=False)
            if begin < end
        ]
        found = _in_one_batch(pa.Table.from_batches(parts, self.annotations.schema))
        return found.take(pa.array(np.argsort(order)))


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
    try:
        try:
            with storage(path).open_input(stamp=stamp) as file:
                counted = _Counted(file)
                lists = _parse_columns(counted)
        except (pa.ArrowInvalid, UnicodeDecodeError):
            data = _whole(path, stamp)
            counted = _Counted(io.BytesIO(data))
            counted.read(len(data))
            lists = _parse_objects(data)
    except ValueError as error:
        raise InputError(
            f"{path!r} must be COCO JSON: one object with lists named images, "
            f"annotations and categories. Found: {error}. Correct it, or leave the "
            f"file out."
        ) from error
    images, categories = (_in_one_batch(lists[x]) for x in ("images", "categories"))
    annotations = lists["annotations"]
    _check_images(images, path)
    parents = pc.fill_null(_image_of(annotations["image_id"], images["id"]), -1)
    rows = np.asarray(parents)
    order = np.argsort(rows, kind="stable")
    starts = np.cumsum(np.bincount(rows + 1, minlength=len(images) + 1))
    return CocoFile(
        *(images, annotations, _categories(categories, path), order, starts),
        counted.left_out,
    )


def _whole(path: str, stamp: int) -> bytes:
    data = storage(path).read_bytes(stamp=stamp)
    if len(data) > _MAX_BYTES:
        raise InputError(
            f"COCO JSON that Arrow does not take is parsed as a whole, up to "
            f"{_MAX_BYTES} bytes; {path!r} has {len(data)}. Cut it into several files, "
            f"by images."
        )
    return data


def _image_of(image_ids: pa.ChunkedArray, ids: pa.Array) -> pa.Array:
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


def _in_one_batch(table: pa.Table) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [column.combine_chunks() for column in table.columns], schema=table.schema
    )


class _Counted:
    """A file, and what of it is not read as a value.

    Args:
      file: to be read to its end.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._rest = b""
        self.left_out: collections.Counter[str] = collections.Counter()

    def read(self, size: int) -> bytes:
        """Returns the next bytes."""
        data = self._file.read(size)
        text = self._rest + data
        # No match goes on behind the end of an object.
        end = text.rfind(b"}") + 1
        self._rest = text[end:]
        self.left_out["outlines (segmentation)"] += len(_OUTLINE.findall(text, 0, end))
        counted = _LABELLED if b'"num_keypoints"' in text else _KEY_POINTS
        self.left_out["key points"] += len(counted.findall(text, 0, end))
        return data


def _parse_columns(file: _Counted) -> dict[str, pa.Table]:
    """Returns the three lists as columns.

    Raises:
      ArrowInvalid, UnicodeDecodeError: Arrow does not parse the file.
      ValueError: it is COCO JSON of a kind that is not read.
    """
    runs: list[pa.RecordBatch] = []
    text = _without_runs(file, runs)
    table = _parsed(text, _LISTS_WITH_RUNS)
    if table["images"].null_count:
        raise pa.ArrowInvalid("not one object with a list of images")
    out = {}
    for name, fields in _LISTS.items():
        listed = pa.RecordBatch.from_struct_array(
            table[name].combine_chunks().flatten()
        )
        if name == "annotations":
            fields = {**fields, **_WRITTEN}
            listed = _with_boxes(listed, lambda: parse_json(text)["annotations"])
        out[name] = pa.Table.from_batches(
            [_with_fields(part, fields) for part in _in_place(listed, runs)]
        )
    return out


def _without_runs(file: _Counted, runs: list[pa.RecordBatch]) -> bytes:
    """Returns a file's text with numbers in the place of runs, which it appends.

    Any text whose parse ends as that of a list's items is one: so where to cut may be
    a guess, and what is cut wrongly stays in the text.
    """
    rest = []
    window = file.read(_WINDOW_BYTES)
    while len(window) >= _WINDOW_BYTES:
        first = _NEXT_ITEM.search(window)
        start = first.start(1) if first else 0
        end = window.rfind(first[1]) if first else 0
        run = _parsed_run(memoryview(window)[start:end])
        if run is None:
            end = len(window)
            rest.append(window)
        else:
            rest += [window[:start], b'{"%s":%d},' % (_RUN.encode(), len(runs))]
            runs.append(run)
        window = window[end:] + file.read(_WINDOW_BYTES)
    return b"".join([*rest, window])


def _parsed_run(text: memoryview) -> pa.RecordBatch | None:
    """Returns items with a comma after each, without fields that they all lack.

    None if the text is something else, or nothing.
    """
    ending = _ENDING.search(text[-_ENDING_BYTES:])
    if ending is None:
        return None
    items = text[: len(text) - len(ending[0])]
    try:
        table = _parsed(b"".join([b'{"items":[[', items, b"]]}"]), _ITEMS)
    except (pa.ArrowInvalid, UnicodeDecodeError):
        return None
    lists = table["items"].combine_chunks().flatten()
    if len(lists) != 1:
        return None
    found = _with_boxes(
        pa.RecordBatch.from_struct_array(lists.flatten()),
        lambda: parse_json(b"".join([b"[", items, b"]"])),
    )
    found = found.select(
        [c for c in found.schema.names if found[c].null_count < len(found)]
    )
    # A copy without the free memory that the parser leaves behind the values.
    return pa.ipc.read_record_batch(found.serialize(), found.schema)


def _with_boxes(items: pa.RecordBatch, parse: Callable[[], Any]) -> pa.RecordBatch:
    """Returns annotations, those without a box with the one around their outline.

    Args:
      items: of any list; only annotations have boxes.
      parse: gives the same items as objects.

    Raises:
      ValueError: they are panoptic segments.
    """
    lengths = pc.fill_null(pc.list_value_length(items["bbox"]), 0)
    lacking = pc.and_(pc.equal(lengths, 0), items["image_id"].is_valid())
    lacking = numpy_mask(pc.and_(lacking, items["caption"].is_null()))
    if not lacking.any():
        return items
    objects = parse()
    boxes = items["bbox"].to_pylist()
    texts: list[str | None] = [None] * len(items)
    for i in np.flatnonzero(lacking).tolist():
        if "segments_info" in objects[i]:
            raise ValueError("panoptic segments (segments_info), which are not read")
        boxes[i] = _box_around(objects[i].get("segmentation")) or boxes[i]
        if not boxes[i]:
            texts[i] = _shown(objects[i])
    index = items.schema.get_field_index("bbox")
    items = items.set_column(index, "bbox", pa.array(boxes, pa.list_(pa.float64())))
    return items.append_column("written", pa.array(texts, pa.string()))


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
    return json.dumps(item)[:_SHOWN_CHARS]


def _in_place(
    listed: pa.RecordBatch, runs: Sequence[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yields the items of a list, with the runs whose numbers stand in it."""
    numbers = listed[_RUN]
    begin = 0
    for place in np.flatnonzero(numbers.is_valid()).tolist():
        yield listed.slice(begin, place - begin)
        yield runs[numbers[place].as_py()]
        begin = place + 1
    yield listed.slice(begin)


def _with_fields(
    items: pa.RecordBatch, fields: Mapping[str, pa.DataType]
) -> pa.RecordBatch:
    """Returns items with these fields, null where they lack one."""
    known = frozenset(items.schema.names)
    columns = [
        items[name] if name in known else pa.nulls(len(items), kind)
        for name, kind in fields.items()
    ]
    return pa.RecordBatch.from_arrays(columns, names=list(fields))


def _parsed(text: bytes, schema: pa.Schema) -> pa.Table:
    """Returns the row of one JSON object.

    Raises ArrowInvalid or UnicodeDecodeError.
    """
    if len(text) > _MAX_BYTES:
        raise pa.ArrowInvalid(f"{len(text)} bytes are too many to parse at once")
    table = pyarrow.json.read_json(
        pa.BufferReader(text),
        # Arrow cannot parse an object across two pieces.
        read_options=pyarrow.json.ReadOptions(
            use_threads=False, block_size=len(text) + 1
        ),
        parse_options=pyarrow.json.ParseOptions(
            explicit_schema=schema,
            newlines_in_values=True,
            unexpected_field_behavior="ignore",
        ),
    )
    # Arrow's JSON parser does not check that texts are UTF-8.
    table.validate(full=True)
    if table.num_rows != 1:
        raise pa.ArrowInvalid("not one object")
    return table


def _parse_objects(data: bytes) -> dict[str, pa.Table]:
    """Returns the three lists as columns; raises ValueError."""
    found = parse_json(data)
    if isinstance(found, list) and found and "image_id" in found[0]:
        raise ValueError("results, a list without the images and classes they are of")
    if not isinstance(found, dict) or not isinstance(found.get("images"), list):
        raise ValueError("no object with a list of images")
    lists: dict[str, pa.Table] = {}
    for name, fields in _LISTS.items():
        items = found.get(name) or []
        if not isinstance(items, list):
            raise ValueError(f"{name} is no list")
        listed = pa.RecordBatch.from_arrays(
            [
                _column(items, field, kind, may_be_text=(name, field) in _IDS)
                for field, kind in fields.items()
            ],
            names=list(fields),
        )
        if name == "annotations":
            listed = _with_boxes(listed, functools.partial(list, items))
            listed = listed.select([*fields])
            texts = pa.array(map(_shown, items), pa.string())
            listed = listed.append_column("written", texts)
        lists[name] = pa.Table.from_batches([listed])
    return lists


def _column(
    items: Sequence[Any], field: str, kind: pa.DataType, *, may_be_text: bool
) -> pa.Array:
    """Returns one field of all items, null where a value has another type."""
    values = [item.get(field) if isinstance(item, dict) else None for item in items]
    if may_be_text and any(isinstance(value, str) for value in values):
        texts = [None if value is None else _text(str(value)) for value in values]
        return pa.array(texts, pa.string())
    return pa.array([_READ[kind](value) for value in values], kind)


# Ids may be texts: some labelling tools write names there.
_IDS = {("images", "id"), ("annotations", "id"), ("annotations", "image_id")}


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


_READ: Mapping[pa.DataType, Callable[[Any], Any]] = {
    pa.int64(): _integer,
    pa.float64(): _number,
    pa.string(): _text,
    pa.list_(pa.float64()): _numbers,
}
